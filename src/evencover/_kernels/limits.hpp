// The limits that scores are compared with: per class, and per row where the coin decides.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels.hpp"
#include "isa.hpp"

EVENCOVER_BEGIN

constexpr double infinity = HUGE_VAL;

inline double limit_of(const Thresholds& thresholds, int64_t y, double coin) {
    const bool upper = !thresholds.lower || coin < thresholds.upper_probability[y];
    return upper ? thresholds.upper[y] : thresholds.lower[y];
}

// What the limits of one or many threshold vectors have in common. +inf is left out: it takes its
// class in without looking at the score.
struct LimitRange {
    double least = infinity;
    double largest = -infinity;

    void include(double limit) {
        if (limit == infinity) return;
        if (!(limit >= least)) least = limit == limit ? limit : -infinity;  // NaN admits nothing
        if (limit > largest) largest = limit;
    }

    void include(const Thresholds& thresholds, int64_t n_classes) {
        for (int64_t y = 0; y < n_classes; ++y) {
            include(thresholds.upper[y]);
            if (thresholds.lower) include(thresholds.lower[y]);
        }
    }
};

EVENCOVER_END
