// Parts of a comparison's cost: how many rows a threshold admits to a class, and the shortfall from
// what the class's examples need.
#pragma once

#include <cstdint>

#include "isa.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

// For each i, count the increasing values of its class that are at most values[i]. Bisect four at a
// time, so that none waits for the others.
inline void counts_within(const double* ordered, int64_t n, const int64_t* classes,
                          const double* values, int64_t n_values, int64_t* counts) {
    constexpr int64_t at_once = 4;
    for (int64_t first = 0; first < n_values; first += at_once) {
        const double* start[at_once];
        double value[at_once];
        for (int64_t i = 0; i < at_once; ++i) {
            const int64_t at = first + i < n_values ? first + i : n_values - 1;
            start[i] = ordered + classes[at] * n;
            value[i] = values[at];
        }
        int64_t left = n;
        while (left > 1) {
            const int64_t half = left / 2;
            for (int64_t i = 0; i < at_once; ++i) {
                start[i] += half * (start[i][half - 1] <= value[i]);
            }
            left -= half;
        }
        for (int64_t i = 0; i < at_once && first + i < n_values; ++i) {
            const int64_t before = start[i] - (ordered + classes[first + i] * n);
            counts[first + i] = before + (left == 1 && *start[i] <= value[i]);
        }
    }
}

// By class, count the flagged rows, and sum max(wanted - has, 0) over them.
inline void shortfalls(const Shortfalls& rows, int64_t* counts, double* sums) {
    for (int64_t y = 0; y < rows.n_classes; ++y) {
        counts[y] = 0;
        sums[y] = 0.0;
    }
    for (int64_t i = 0; i < rows.n; ++i) {
        if (!rows.flags[i]) continue;
        const int64_t y = rows.classes[i];
        const double lacking = rows.wanted[i] - rows.has[y];
        ++counts[y];
        sums[y] += lacking > 0.0 ? lacking : 0.0;
    }
}

EVENCOVER_END
