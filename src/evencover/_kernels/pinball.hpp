// What thresholds cost that a blend of a class's own rows and a prior would give it: the pinball
// loss of rows that were held out. POOLED chooses how to pool by it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "buffer.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

// The normal distribution function at (z - mean) / deviation, from a table.
class NormalLevels {
   public:
    explicit NormalLevels(const NormalPrior& prior)
        : prior_(prior),
          scale_(static_cast<double>(prior.n_table - 1) / (2.0 * prior.reach)),
          last_(static_cast<int32_t>(prior.n_table - 2)) {}

    // Of class y at a point.
    double at(int64_t y, int64_t point) const {
        const double reach = prior_.reach;
        const double x = (prior_.scores[point] - prior_.mean[y]) / prior_.deviation[y];
        const double inside = x < -reach ? -reach : x > reach ? reach : x;
        const double place = (inside + reach) * scale_;
        const auto whole = static_cast<int32_t>(place);
        const int32_t left = whole < last_ ? whole : last_;
        const double low = prior_.table[left], high = prior_.table[left + 1];
        return low + (place - static_cast<double>(left)) * (high - low);
    }

   private:
    const NormalPrior& prior_;
    const double scale_;
    const int32_t last_;
};

// A mixture of the clusters' distribution functions.
class ClusterLevels {
   public:
    explicit ClusterLevels(const ClusterPrior& prior) : prior_(prior) {}

    double at(int64_t y, int64_t point) const {
        const double* const weights = prior_.weights + y * prior_.n_clusters;
        const double* const functions = prior_.functions + point * prior_.n_clusters;
        double level = weights[0] * functions[0];
        for (int64_t m = 1; m < prior_.n_clusters; ++m) level += weights[m] * functions[m];
        return level;
    }

   private:
    const ClusterPrior& prior_;
};

// Finds, for each strength, the rank at which the level of one class reaches its target.
template <class Levels>
class Crossing {
   public:
    Crossing(const HeldOut& rows, const Strengths& strengths, const Levels& prior)
        : rows_(rows), strengths_(strengths), prior_(prior), below_(rows.n_points) {}

    void go_to(int64_t y) {
        const int64_t first = rows_.own_offsets[y], stop = rows_.own_offsets[y + 1];
        y_ = y;
        n_ = stop > first ? static_cast<double>(stop - first) : 1.0;
        std::memset(below_.data(), 0, static_cast<size_t>(rows_.n_points) * sizeof(int32_t));
        for (int64_t i = first; i < stop; ++i) ++below_[rows_.own_points[i]];
        int32_t total = 0;
        for (int64_t j = 0; j < rows_.n_points; ++j) below_[j] = total += below_[j];
    }

    static constexpr int at_once = 4;  // searches, none of which waits for the others

    // The ranks for `at_once` strengths from s on; beyond the last, its own again.
    void find(int64_t s, double* ranks) const {
        double own[at_once], strength[at_once], target[at_once];
        int64_t point[at_once];
        for (int i = 0; i < at_once; ++i) {
            // The levels, times n + strength: to divide each would take most of the time. An
            // infinite strength is the prior, without the class's own rows.
            const int64_t at = s + i < strengths_.n ? s + i : strengths_.n - 1;
            const bool alone = strengths_.rows[at] == HUGE_VAL;
            strength[i] = alone ? 1.0 : strengths_.rows[at];
            own[i] = alone ? 0.0 : 1.0;
            target[i] = strengths_.targets[at] * (own[i] * n_ + strength[i]);
            point[i] = 0;
        }
        const auto level = [&](int i, int64_t j) {
            return own[i] * static_cast<double>(below_[j]) + strength[i] * prior_.at(y_, j);
        };
        int64_t n = rows_.n_points;
        while (n > 1) {  // levels rise: by halves, without branches that depend on the data
            const int64_t half = n / 2;
            for (int i = 0; i < at_once; ++i) {
                point[i] += half * (level(i, point[i] + half - 1) < target[i]);
            }
            n -= half;
        }
        for (int i = 0; i < at_once; ++i) {
            const int64_t next = point[i] + (level(i, point[i]) < target[i]);
            const int64_t j = next < rows_.n_points ? next : point[i];
            const double before = j > 0 ? level(i, j - 1) : 0.0, rise = level(i, j) - before;
            const double part = (target[i] - before) / (rise > 1e-12 ? rise : 1e-12);
            const double share = part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
            ranks[i] = (static_cast<double>(j) + share) / static_cast<double>(rows_.n_points);
        }
    }

   private:
    const HeldOut& rows_;
    const Strengths& strengths_;
    const Levels& prior_;
    Buffer<int32_t> below_;
    int64_t y_ = 0;
    double n_ = 1.0;
};

// For each strength the loss of every class's held-out rows (strengths, K).
template <class Levels>
void pinball_losses(const HeldOut& rows, const Strengths& strengths, const Levels& prior,
                    double* losses) {
    Crossing<Levels> crossing(rows, strengths, prior);
    constexpr int at_once = Crossing<Levels>::at_once;
    for (int64_t y = 0; y < rows.n_classes; ++y) {
        crossing.go_to(y);
        for (int64_t s = 0; s < strengths.n; s += at_once) {
            double thresholds[at_once], loss[at_once] = {};
            crossing.find(s, thresholds);
            for (int64_t i = rows.held_offsets[y]; i < rows.held_offsets[y + 1]; ++i) {
                for (int k = 0; k < at_once; ++k) {
                    const double error = rows.held_ranks[i] - thresholds[k];
                    const double under = rows.aim * error, over = (rows.aim - 1.0) * error;
                    loss[k] += under > over ? under : over;
                }
            }
            for (int k = 0; k < at_once && s + k < strengths.n; ++k) {
                losses[(s + k) * rows.n_classes + y] = loss[k];
            }
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
