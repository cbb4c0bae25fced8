// Formulas of scores, and the thresholds.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels.hpp"
#include "numbers.hpp"

EVENCOVER_BEGIN

inline double softmax_score(double p) { return 1.0 - p; }

inline double rank_penalty(const Score& score, int64_t rank) {
    const int64_t beyond = rank > score.k_reg ? rank - score.k_reg : 0;
    return score.penalty * static_cast<double>(beyond);
}

// SAPS: the top class by its probability, others by rank; `share` is u, or a bound of it.
inline double score_by_rank(const Score& score, int64_t rank, double share, double top) {
    if (rank == 1) return share * top;
    return top + score.penalty * (static_cast<double>(rank - 2) + share);
}

// APS has penalty 0, and adding 0 is exact. `top` is the largest probability of the row.
inline double ordered_score(const Score& score, double p, int64_t mass_before, int64_t rank,
                            double u, double top) {
    if (score.by_rank) return score_by_rank(score, rank, u, top);
    return (from_fixed_point(mass_before) + u * p) + rank_penalty(score, rank);
}

// Lower bound of the score of any class with this mass before it and this rank, because u p >= 0
// and rounding is monotone. It never decreases along the order, so it determines where to stop.
inline double least_score(const Score& score, int64_t mass_before, int64_t rank, double top) {
    if (score.by_rank) return score_by_rank(score, rank, 0.0, top);
    return from_fixed_point(mass_before) + rank_penalty(score, rank);
}

// Upper bound of the score of every class up to this mass (its own included) and rank: u <= 1, and
// p is at most half a unit more than its fixed point.
inline double largest_score(const Score& score, int64_t mass_up_to, int64_t rank, double top) {
    if (score.by_rank) return score_by_rank(score, rank, 1.0, top);
    return from_fixed_point(mass_up_to + 1) + rank_penalty(score, rank);
}

constexpr double infinity = HUGE_VAL;

inline double threshold_of(const Thresholds& thresholds, int64_t y, double draw) {
    const bool upper = !thresholds.lower || draw < thresholds.upper_probability[y];
    return upper ? thresholds.upper[y] : thresholds.lower[y];
}

// Whether an infinite threshold includes the class for any score; a rank limit may exclude it.
inline bool is_free(const Thresholds& thresholds, int64_t y, int64_t n_classes) {
    return !thresholds.rank_limit || thresholds.rank_limit[y] >= n_classes;
}

// The largest finite threshold, and the largest rank limit. +inf includes its class without
// comparing the score.
class LargestThreshold {
   public:
    LargestThreshold(const Thresholds& thresholds, int64_t n_classes)
        : rank_(thresholds.rank_limit ? 0 : n_classes) {
        for (int64_t y = 0; y < n_classes; ++y) {
            const bool free = is_free(thresholds, y, n_classes);
            bool counts = include(thresholds.upper[y], free);
            if (thresholds.lower) counts |= include(thresholds.lower[y], free);
            if (!counts || !thresholds.rank_limit) continue;
            const int64_t rank = thresholds.rank_limit[y];
            rank_ = rank > rank_ ? rank : rank_;
        }
        rank_ = rank_ < n_classes ? rank_ : n_classes;
    }

    double value() const { return value_; }
    int64_t rank() const { return rank_; }

   private:
    bool include(double limit, bool free) {
        if (limit == infinity && free) return false;
        if (limit > value_) value_ = limit;
        return true;
    }

    double value_ = -infinity;
    int64_t rank_;
};

EVENCOVER_END
