// What the Python module asks of the kernels: plain pointers in, plain pointers out.
//
// kernels.cpp is compiled once per instruction set; module.cpp chooses what can run.
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
    double temperature;
    double tolerance;  // how far from 1 a row may sum; one that was bfloat16 may further
};

// Softmax is 1 - p. The others go by the order: APS, or RAPS with its penalty on ranks beyond
// k_reg; or `by_rank`, SAPS, where the penalty is on every rank after the first.
struct Score {
    bool needs_order;
    double penalty;
    int64_t k_reg;
    bool by_rank;
};

// Which random numbers rows are given: the key of a row is its id or, without ids, a mix of its
// content and its place, which is `first` for the first row. Without a use u is 1 and the coin 0.
struct Draws {
    uint64_t seed;
    bool has_score;
    uint64_t score_use;
    bool has_coin;
    uint64_t coin_use;
    const uint64_t* ids;
    uint64_t first;
};

// One limit per class; `lower` and `upper_probability` are null unless coverage is exact, and
// `rank_limit` unless a class must also have at most some rank.
struct Thresholds {
    const double* upper;
    const double* lower;
    const double* upper_probability;
    const int64_t* rank_limit;
};

// Many vectors of thresholds, as types.py arranges them: first `n_plain` vectors with one
// limit per class, then `n_pairs` with two. Ranks are within the class.
struct ThresholdTable {
    int64_t n_plain;
    int64_t n_pairs;
    const int32_t* vector_of;
    // (K, n_top) the largest limits of each class, decreasing; each counts for one vector (its place
    // in `vector_of`) where the coin is at least coin_from and less than coin_to.
    int64_t n_top;
    const double* top_limits;
    const int16_t* top_vectors;
    const double* coin_from;
    const double* coin_to;
    // All limits, for scores that reach more than those.
    const double* limits;        // (K, n_plain + 2 n_pairs) increasing; +inf stands as -inf
    const int16_t* plain_ranks;  // (K, n_plain); -1: no score is within the limit
    const int16_t* upper_ranks;  // (K, n_pairs)
    const int16_t* lower_ranks;
    const double* chances;  // (K, n_pairs) increasing
    const int16_t* chance_ranks;
    // How many classes an infinite limit takes in: always; where the coin is less than so many of
    // `heads`; where it is at least so many of `tails`. Increasing within each pair.
    const int64_t* always;
    const double* heads;
    const int64_t* head_offsets;
    const double* tails;
    const int64_t* tail_offsets;
};

// Calibration scores sorted within groups; group g is scores[offsets[g]..offsets[g + 1]).
struct GroupedScores {
    const double* scores;
    int64_t n_scores;
    const int64_t* offsets;
    int64_t n_groups;
    const int64_t* group_of_class;  // -1: a group without scores
};

// Memory from malloc, so that Python can take it over and free it.
struct ClassList {
    int32_t* classes = nullptr;
    int64_t size = 0;
};

// For each row the size of its set, whether that holds the row's label, and the (first) most
// probable class.
struct SetCoverage {
    int64_t* sizes;
    bool* is_covered;
    int64_t* top_classes;
};

// What rows want of their class, and what their class has; only flagged rows count.
struct Shortfalls {
    const int64_t* classes;
    const bool* flags;
    const double* wanted;
    int64_t n;
    const double* has;  // (n_classes)
    int64_t n_classes;
};

constexpr int64_t all_good = -1;

// Where rows are scored, the functions return the first bad one, or `all_good`.
struct Kernels {
    void (*random_bits)(uint64_t seed, uint64_t use, const uint64_t* ids, int64_t n,
                        uint64_t* result);
    void (*row_keys)(const Rows&, const Draws&, uint64_t* keys);
    int64_t (*true_label_scores)(const Rows&, const Score&, const Draws&, const int64_t* labels,
                                 double* scores);
    int64_t (*score_matrix)(const Rows&, const Score&, const Draws&, double* scores);
    int64_t (*prediction_sets)(const Rows&, const Score&, const Draws&, const Thresholds&,
                               bool allow_empty, int64_t* sizes, ClassList& members);
    int64_t (*set_coverage)(const Rows&, const Score&, const Draws&, const int64_t* labels,
                            const Thresholds&, bool allow_empty, const SetCoverage& result);
    int64_t (*set_sizes)(const Rows&, const Score&, const Draws&, const ThresholdTable&,
                         int64_t* sizes);
    int64_t (*p_values)(const Rows&, const Score&, const Draws&, const GroupedScores&,
                        double* p_values);
    void (*counts_within)(const double* ordered, int64_t n, const int64_t* classes,
                          const double* values, int64_t n_values, int64_t* counts);
    void (*shortfalls)(const Shortfalls&, int64_t* counts, double* sums);
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
