// What numbers of rows come to by class: how many, their mean, and squares around it. Sums are taken
// in the order of the rows.
#pragma once

#include <cstdint>

#include "isa.hpp"

EVENCOVER_BEGIN

inline void class_moments(const double* values, const int64_t* classes, int64_t n,
                          int64_t n_classes, double* counts, double* means, double* squares) {
    for (int64_t y = 0; y < n_classes; ++y) counts[y] = means[y] = squares[y] = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        counts[classes[i]] += 1.0;
        means[classes[i]] += values[i];
    }
    for (int64_t y = 0; y < n_classes; ++y) means[y] /= counts[y] > 1.0 ? counts[y] : 1.0;
    for (int64_t i = 0; i < n; ++i) {
        const double off = values[i] - means[classes[i]];
        squares[classes[i]] += off * off;
    }
}

// The bin of each row by its rank u, and how many rows of each class are in every so many bins.
inline void bin_counts(const double* u, const int64_t* classes, int64_t n, int64_t n_bins,
                       int64_t n_coarse, int16_t* bins, double* counts) {
    const auto last = static_cast<int16_t>(n_bins - 1), width = static_cast<int16_t>(n_bins / n_coarse);
    for (int64_t i = 0; i < n; ++i) {
        const auto bin = static_cast<int16_t>(u[i] * static_cast<double>(n_bins));
        bins[i] = bin < last ? bin : last;
        counts[classes[i] * n_coarse + bins[i] / width] += 1.0;
    }
}

EVENCOVER_END
