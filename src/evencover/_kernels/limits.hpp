// The limits that scores are compared with: per class, and per row where the coin decides.
#pragma once

#include <cmath>
#include <cstdint>

#include "isa.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

constexpr double infinity = HUGE_VAL;

inline double limit_of(const Thresholds& thresholds, int64_t y, double coin) {
    const bool upper = !thresholds.lower || coin < thresholds.upper_probability[y];
    return upper ? thresholds.upper[y] : thresholds.lower[y];
}

// Whether an infinite limit takes the class in whatever its score; a limit on its rank may not.
inline bool is_free(const Thresholds& thresholds, int64_t y, int64_t n_classes) {
    return !thresholds.rank_limit || thresholds.rank_limit[y] >= n_classes;
}

// The largest limit that a score can exceed, and the largest on ranks. +inf takes its class in
// without looking at the score.
class LargestLimit {
   public:
    LargestLimit(const Thresholds& thresholds, int64_t n_classes)
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
