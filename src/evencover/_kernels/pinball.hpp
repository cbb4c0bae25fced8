// What thresholds cost that a blend of a class's own rows and a prior would give it: the pinball
// loss of rows that were held out. POOLED chooses how to pool by it.
#pragma once

#include <cmath>
#include <cstdint>

#include "buffer.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

// The normal distribution function at (z - mean) / deviation, from a table.
class NormalLevels {
   public:
    explicit NormalLevels(const NormalPrior& prior) : prior_(prior) {}

    // Of class y at all points.
    void fill(int64_t y, int64_t n_points, double* __restrict levels) const {
        const double mean = prior_.mean[y], deviation = prior_.deviation[y], reach = prior_.reach;
        const double scale = static_cast<double>(prior_.n_table - 1) / (2.0 * reach);
        const auto last = static_cast<int32_t>(prior_.n_table - 2);
        const double* __restrict const scores = prior_.scores;
        const double* __restrict const table = prior_.table;
        for (int64_t j = 0; j < n_points; ++j) {
            const double x = (scores[j] - mean) / deviation;
            const double inside = x < -reach ? -reach : x > reach ? reach : x;
            const double place = (inside + reach) * scale;
            const auto whole = static_cast<int32_t>(place);
            const int32_t left = whole < last ? whole : last;
            const double low = table[left], high = table[left + 1];
            levels[j] = low + (place - static_cast<double>(left)) * (high - low);
        }
    }

   private:
    const NormalPrior& prior_;
};

// A mixture of the clusters' distribution functions.
class ClusterLevels {
   public:
    explicit ClusterLevels(const ClusterPrior& prior) : prior_(prior) {}

    void fill(int64_t y, int64_t n_points, double* __restrict levels) const {
        const double* const weights = prior_.weights + y * prior_.n_clusters;
        for (int64_t m = 0; m < prior_.n_clusters; ++m) {
            const double* __restrict const function = prior_.functions + m * n_points;
            const double weight = weights[m];
            for (int64_t j = 0; j < n_points; ++j) {
                levels[j] = m == 0 ? weight * function[j] : levels[j] + weight * function[j];
            }
        }
    }

   private:
    const ClusterPrior& prior_;
};

// For each strength the loss of every class's held-out rows (strengths, K).
template <class Levels>
void pinball_losses(const HeldOut& rows, const Strengths& strengths, const Levels& prior,
                    double* losses) {
    const int64_t n_points = rows.n_points;
    Buffer<int32_t> counts(n_points);
    Buffer<double> below_buffer(n_points), expected_buffer(n_points), level_buffer(n_points);
    double* __restrict const below = below_buffer.data();
    double* __restrict const expected = expected_buffer.data();
    double* __restrict const level = level_buffer.data();
    for (int64_t y = 0; y < rows.n_classes; ++y) {
        const int64_t first = rows.own_offsets[y], stop = rows.own_offsets[y + 1];
        for (int64_t j = 0; j < n_points; ++j) counts[j] = 0;
        for (int64_t i = first; i < stop; ++i) ++counts[rows.own_points[i]];
        for (int64_t j = 1; j < n_points; ++j) counts[j] += counts[j - 1];
        for (int64_t j = 0; j < n_points; ++j) below[j] = static_cast<double>(counts[j]);
        const double n = stop > first ? static_cast<double>(stop - first) : 1.0;
        prior.fill(y, n_points, expected);
        for (int64_t s = 0; s < strengths.n; ++s) {
            // The levels, times n + strength: to divide each would take most of the time. An
            // infinite strength is the prior, without the class's own rows.
            const bool alone = strengths.rows[s] == HUGE_VAL;
            const double strength = alone ? 1.0 : strengths.rows[s], own = alone ? 0.0 : 1.0;
            const double target = strengths.targets[s] * (own * n + strength);
            int64_t n_less = 0;
            for (int64_t j = 0; j < n_points; ++j) {
                level[j] = own * below[j] + strength * expected[j];
                n_less += level[j] < target;
            }
            const int64_t point = n_less < n_points - 1 ? n_less : n_points - 1;
            const double before = point > 0 ? level[point - 1] : 0.0, rise = level[point] - before;
            const double part = (target - before) / (rise > 1e-12 ? rise : 1e-12);
            const double share = part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
            const double threshold =
                (static_cast<double>(point) + share) / static_cast<double>(n_points);
            double loss = 0.0;
            for (int64_t i = rows.held_offsets[y]; i < rows.held_offsets[y + 1]; ++i) {
                const double error = rows.held_ranks[i] - threshold;
                const double under = rows.aim * error, over = (rows.aim - 1.0) * error;
                loss += under > over ? under : over;
            }
            losses[s * rows.n_classes + y] = loss;
        }
    }
}

inline void normal_losses(const HeldOut& rows, const Strengths& strengths,
                          const NormalPrior& prior, double* losses) {
    pinball_losses(rows, strengths, NormalLevels(prior), losses);
}

inline void cluster_losses(const HeldOut& rows, const Strengths& strengths,
                           const ClusterPrior& prior, double* losses) {
    pinball_losses(rows, strengths, ClusterLevels(prior), losses);
}

EVENCOVER_END
