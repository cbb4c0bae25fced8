// What the Python module asks of the kernels: plain pointers in, plain pointers out.
//
// kernels.cpp is compiled once per instruction set; dispatch.hpp tells which can run.
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

// Many vectors of limits by class, as limit_table.py arranges them: first `n_plain` vectors with one
// limit per class, then `n_pairs` with two. Ranks are within the class.
struct LimitTable {
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

// A mixture of multinomials: counts of classes by bin, what every cluster is smoothed with, and
// when to stop.
struct SoftClusters {
    const double* counts;  // (n_classes, n_bins)
    int64_t n_classes;
    int64_t n_bins;
    const double* smoothing;  // (n_bins)
    int64_t n_clusters;
    int64_t most_steps;
    double tolerance;
};

// Rows in the order of their scores: their classes, how many rows have a lower score, and their
// folds, of which the rows of one are left out.
struct OrderedRows {
    const int64_t* labels;
    const int64_t* first;
    const int8_t* fold;
    int64_t n;
    int64_t n_classes;
    int64_t number;
};

// The others in their order: twice the middle of the ranks of a row and its equals; and by class,
// their places. Of those left out, by class: how many others have a lower score, all, and of the
// same class; and how many rows have.
struct LeftOut {
    int64_t* kept_labels;
    int64_t* kept_middles;
    int64_t* kept_places;
    int64_t* kept_offsets;  // (n_classes + 1)
    int64_t* held_labels;
    int64_t* held_places;
    int64_t* held_below;
    int64_t* held_first;
    int64_t* held_offsets;
};

// Ways to blend what is known of rows: how many of their class's own rows are below each, out of how
// many, and which share each kind of prior expects.
struct Blends {
    const double* own;
    const double* counts;
    const double* expected;  // (kinds, n_rows)
    int64_t n_rows;
    const int64_t* kinds;     // (n_ingredients)
    const double* strengths;  // (n_ingredients)
    int64_t n_ingredients;
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

// Points with the variances of their second coordinates, but for what all have in common.
struct NoisyPoints {
    const double* x;
    const double* y;
    const double* noise;
    int64_t n;
};

// A line through its centre, and the weighted squares of what it leaves.
struct Line {
    double centre_x;
    double centre_y;
    double slope;
    double squares;
};

// Rows by class: those a prior was learnt from, by the first of n_points equally spaced ranks that
// is above them, and the ranks of those that were held out.
struct HeldOut {
    const int16_t* own_points;
    const int64_t* own_offsets;
    const double* held_ranks;
    const int64_t* held_offsets;
    int64_t n_classes;
    int64_t n_points;
    double aim;  // the level whose pinball loss is wanted
};

// How many rows the prior counts, and the level that all classes share then.
struct Strengths {
    const double* rows;
    const double* targets;
    int64_t n;
};

// Normal distributions of the normal scores; their distribution function by a table on
// [-reach, reach].
struct NormalPrior {
    const double* mean;
    const double* deviation;
    const double* scores;  // (n_points) normal scores of the ranks
    const double* table;
    int64_t n_table;
    double reach;
};

struct ClusterPrior {
    const double* weights;    // (n_classes, n_clusters)
    const double* functions;  // (n_points, n_clusters)
    int64_t n_clusters;
};

// Weights (n_classes, n_clusters) of distribution functions (n_bins + 1, n_clusters), which are given
// at equally spaced edges.
struct Mixture {
    const double* weights;
    const double* functions;
    int64_t n_clusters;
    int64_t n_bins;
};

constexpr int64_t all_good = -1;

// Where rows are scored, the functions return the first bad one, or `all_good`.
struct Kernels {
    void (*random_bits)(uint64_t seed, uint64_t use, const uint64_t* ids, int64_t n,
                        uint64_t* result);
    void (*uniforms)(uint64_t seed, uint64_t use, const uint64_t* ids, int64_t n, double* result);
    void (*row_keys)(const Rows&, const Draws&, uint64_t* keys);
    int64_t (*true_label_scores)(const Rows&, const Score&, const Draws&, const int64_t* labels,
                                 double* scores);
    int64_t (*score_matrix)(const Rows&, const Score&, const Draws&, double* scores);
    int64_t (*prediction_sets)(const Rows&, const Score&, const Draws&, const Thresholds&,
                               bool allow_empty, int64_t* sizes, ClassList& members);
    int64_t (*set_coverage)(const Rows&, const Score&, const Draws&, const int64_t* labels,
                            const Thresholds&, bool allow_empty, const SetCoverage& result);
    int64_t (*set_sizes)(const Rows&, const Score&, const Draws&, const LimitTable&,
                         int64_t* sizes);
    int64_t (*p_values)(const Rows&, const Score&, const Draws&, const GroupedScores&,
                        double* p_values);
    void (*soft_clusters)(const SoftClusters&, double* weights);
    void (*mixture_levels)(const Mixture&, const int64_t* classes, const double* u, int64_t n,
                           double* levels);
    void (*mixture_masses)(const double* weights, int64_t n_clusters, const int64_t* classes,
                           const int16_t* bins, int64_t n, double* masses);
    void (*bin_counts)(const double* u, const int64_t* classes, int64_t n, int64_t n_bins,
                       int64_t n_coarse, int16_t* bins, double* counts);
    void (*class_moments)(const double* values, const int64_t* classes, int64_t n,
                          int64_t n_classes, double* counts, double* means, double* squares);
    Line (*weighted_line)(const NoisyPoints&, double between, bool has_slope);
    void (*counts_within)(const double* ordered, int64_t n, const int64_t* classes,
                          const double* values, int64_t n_values, int64_t* counts);
    void (*shortfalls)(const Shortfalls&, int64_t* counts, double* sums);
    void (*left_out)(const OrderedRows&, const LeftOut&);
    double (*blended_quantile)(const Blends&, int64_t ingredient, int64_t rank);
    void (*blended_levels)(const Blends&, const double* weights, double* levels);
    void (*normal_losses)(const HeldOut&, const Strengths&, const NormalPrior&, double* losses);
    void (*cluster_losses)(const HeldOut&, const Strengths&, const ClusterPrior&, double* losses);
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
