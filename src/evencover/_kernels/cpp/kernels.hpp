// Interface between the Python module and the kernels: plain pointers.
//
// kernels.cpp is compiled once per instruction set; module.cpp selects one at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evencover {

enum class Element { float16, float32, float64 };

// An (n_rows, n_classes) block: columns are adjacent, rows are `stride` elements apart.
struct Rows {
    const void* data;
    int64_t stride;
    int64_t n_rows;
    int64_t n_classes;
    Element element;
    bool logits;
    double tolerance;  // of the row's sum; larger for rows that were bfloat16
};

// Top-k rows list some of the classes: row i has classes[starts[i]..starts[i + 1]), in any order,
// and their probabilities.
struct TopKRows {
    const int64_t* starts;
    const int32_t* classes;
    const void* values;
    int64_t n_rows;
    int64_t n_classes;
    Element element;  // float32 or float64
    double tolerance;
};

// Softmax is 1 - p. The others use the order: APS, RAPS with a penalty on ranks beyond k_reg, or
// `by_rank`, SAPS with a penalty on every rank after the first.
struct Score {
    bool needs_order;
    double penalty;
    int64_t k_reg;
    bool by_rank;
};

// Random numbers of rows. The key of a row is its id or, without ids, a mix of its content and its
// index, starting at `first`. Without a use, u is 1 and the draw 0.
struct Draws {
    uint64_t seed;
    bool has_score;
    uint64_t score_use;
    bool has_exact;
    uint64_t exact_use;
    const uint64_t* ids;
    uint64_t first;
};

// One threshold per class. `lower` and `upper_probability` are null unless coverage is exact,
// `rank_limit` unless ranks are limited.
struct Thresholds {
    const double* upper;
    const double* lower;
    const double* upper_probability;
    const int64_t* rank_limit;
};

// Many vectors of thresholds by class (K, n_vectors); `lower` and `upper_probability` are null without
// randomized pairs. Infinite thresholds are stored as -inf, and their classes are counted elsewhere.
struct ThresholdTable {
    int64_t n_vectors;
    const double* upper;
    const double* lower;
    const double* upper_probability;
    const double* largest;  // (K) of each class
};

// Calibration scores sorted within groups; group g is scores[offsets[g]..offsets[g + 1]).
struct GroupedScores {
    const double* scores;
    int64_t n_scores;
    const int64_t* offsets;
    int64_t n_groups;
    const int64_t* group_of_class;  // -1: a group without scores
};

// Memory from malloc, which Python takes over and frees.
struct ClassList {
    int32_t* classes = nullptr;
    int64_t size = 0;
};

// A second set of the same rows: the classes within these thresholds alone, in order of their index.
struct SecondSets {
    Thresholds thresholds;
    int64_t* ends;
    ClassList members;
};

// Of each row: set size, whether the set contains the label, the (first) most probable class, and
// whether the set is just that class. Of each class: in how many sets it appears.
struct SetCoverage {
    int64_t* sizes;
    bool* is_covered;
    int64_t* top_classes;
    bool* is_accepted;
    int64_t* appearances;
};

// Labels whose hashes with their indices, from `start` on, are summed, and rows that they select: those
// of every `stride`-th class with a hash of at most `largest`.
struct LabelSample {
    const int64_t* labels;  // n_classes if unknown
    int64_t n;
    uint64_t start;
    int64_t n_classes;
    uint64_t largest;
    int64_t stride;
    // The results; the arrays have room for all rows.
    uint64_t total = 0;
    int64_t n_drawn = 0;
    int64_t* drawn = nullptr;
    uint64_t* hashes = nullptr;
};

constexpr int64_t all_good = -1;

// Functions that score rows return the first bad row, or `all_good`.
struct Kernels {
    void (*random_bits)(uint64_t seed, uint64_t use, const uint64_t* ids, int64_t n,
                        uint64_t* result);
    void (*sample_labels)(LabelSample&);
    void (*row_keys)(const Rows&, const Draws&, uint64_t* keys);
    int64_t (*true_label_scores)(const Rows&, const Score&, const Draws&, const int64_t* labels,
                                 double* scores);
    int64_t (*score_matrix)(const Rows&, const Score&, const Draws&, double* scores);
    int64_t (*prediction_sets)(const Rows&, const Score&, const Draws&, const Thresholds&,
                               bool keep_top, int64_t* ends, ClassList& members,
                               SecondSets* second);
    int64_t (*set_coverage)(const Rows&, const Score&, const Draws&, const int64_t* labels,
                            const Thresholds&, bool keep_top, const SetCoverage& result);
    int64_t (*set_sizes)(const Rows&, const Score&, const Draws&, const ThresholdTable&,
                         int64_t* sizes);
    int64_t (*p_values)(const Rows&, const Score&, const Draws&, const GroupedScores&,
                        double* p_values);
    int64_t (*top_k_label_scores)(const TopKRows&, const Score&, const Draws&,
                                   const int64_t* labels, double* scores);
    int64_t (*top_k_scores)(const TopKRows&, const Score&, const Draws&, double* scores,
                             int64_t* ranks);
    int64_t (*top_k_sets)(const TopKRows&, const Score&, const Draws&, const Thresholds&,
                           bool keep_top, int64_t* ends, ClassList& members);
    int64_t (*top_k_coverage)(const TopKRows&, const Score&, const Draws&, const int64_t* labels,
                               const Thresholds&, bool keep_top, const SetCoverage& result);
};

namespace baseline {
extern const Kernels kernels;
}
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

}  // namespace evencover
