// The formulas of scores.py, operation for operation.
#pragma once

#include <cstdint>

#include "fixed_point.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

inline double softmax_score(double p) { return 1.0 - p; }

inline double rank_penalty(const Score& score, int64_t rank) {
    const int64_t beyond = rank > score.k_reg ? rank - score.k_reg : 0;
    return score.penalty * static_cast<double>(beyond);
}

// SAPS: the top class by its probability, all others by their rank; `share` is u, or a bound of it.
inline double score_by_rank(const Score& score, int64_t rank, double share, double top) {
    if (rank == 1) return share * top;
    return top + score.penalty * (static_cast<double>(rank - 2) + share);
}

// APS has penalty 0, and adding 0 changes nothing. `top` is the largest probability of the row.
inline double ordered_score(const Score& score, double p, int64_t mass_before, int64_t rank,
                            double u, double top) {
    if (score.by_rank) return score_by_rank(score, rank, u, top);
    return (from_fixed_point(mass_before) + u * p) + rank_penalty(score, rank);
}

// At most the score of any class with this mass before it and this rank, because u p >= 0 and
// rounding is monotone. It never decreases along the order, so it tells where to stop.
inline double least_score(const Score& score, int64_t mass_before, int64_t rank, double top) {
    if (score.by_rank) return score_by_rank(score, rank, 0.0, top);
    return from_fixed_point(mass_before) + rank_penalty(score, rank);
}

// At least the score of every class up to this mass (its own included) and rank: u <= 1, and p is
// at most half a unit more than its fixed point.
inline double largest_score(const Score& score, int64_t mass_up_to, int64_t rank, double top) {
    if (score.by_rank) return score_by_rank(score, rank, 1.0, top);
    return from_fixed_point(mass_up_to + 1) + rank_penalty(score, rank);
}

EVENCOVER_END
