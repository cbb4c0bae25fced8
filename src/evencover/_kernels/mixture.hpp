// Mixtures of distribution functions: what classes have of each, and what that comes to.
#pragma once

#include <cstdint>

#include "four_lanes.hpp"
#include "isa.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

// The mixture's distribution function of classes[i] at u[i], linear between equally spaced edges.
inline void mixture_levels(const Mixture& mixture, const int64_t* classes, const double* u,
                           int64_t n, double* levels) {
    const int64_t n_parts = mixture.n_clusters;
    const double last = static_cast<double>(mixture.n_bins - 1);
    for (int64_t i = 0; i < n; ++i) {
        const double inside = u[i] < 0.0 ? 0.0 : u[i] > 1.0 ? 1.0 : u[i];
        const double place = inside * static_cast<double>(mixture.n_bins);
        const auto left = static_cast<int64_t>(place < last ? place : last);
        const double share = place - static_cast<double>(left);
        const double* const weights = mixture.weights + classes[i] * n_parts;
        const double* const here = mixture.functions + left * n_parts;
        const double* const next = here + n_parts;
        double total = 0.0;
        for (int64_t m = 0; m < n_parts; ++m) {
            total += weights[m] * (here[m] + share * (next[m] - here[m]));
        }
        levels[i] = total;
    }
}

// Adds the weights of each row's class to the row's bin: (n_bins, n_clusters). Rows of one bin come
// one after the other, mostly, and an addition in memory waits for the one before: four clusters
// at a time are kept in registers.
inline void mixture_masses(const double* weights, int64_t n_clusters, const int64_t* classes,
                           const int16_t* bins, int64_t n, double* masses) {
    int64_t m = 0;
    for (; m + four <= n_clusters; m += four) {
        for (int64_t i = 0; i < n;) {
            const int16_t bin = bins[i];
            Four sum = load_four(masses + bin * n_clusters + m);
            for (; i < n && bins[i] == bin; ++i) {
                sum += load_four(weights + classes[i] * n_clusters + m);
            }
            store_four(sum, masses + bin * n_clusters + m);
        }
    }
    for (; m < n_clusters; ++m) {
        for (int64_t i = 0; i < n; ++i) {
            masses[bins[i] * n_clusters + m] += weights[classes[i] * n_clusters + m];
        }
    }
}

EVENCOVER_END
