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

// The largest limit that a score can exceed. +inf takes its class in without looking at the score.
class LargestLimit {
   public:
    LargestLimit() = default;
    LargestLimit(const Thresholds& thresholds, int64_t n_classes) {
        include(thresholds, n_classes);
    }

    void include(const Thresholds& thresholds, int64_t n_classes) {
        for (int64_t y = 0; y < n_classes; ++y) {
            include(thresholds.upper[y]);
            if (thresholds.lower) include(thresholds.lower[y]);
        }
    }

    double value() const { return value_; }

   private:
    void include(double limit) {
        if (limit > value_ && limit != infinity) value_ = limit;
    }

    double value_ = -infinity;
};

EVENCOVER_END
