// Levels of rows under blends of their class's own rows and a prior, which counts as many rows as
// its strength: (own + strength * prior) / (n + strength), or the prior alone if it is infinite.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "buffer.hpp"
#include "isa.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

constexpr int64_t blend_block = 512;

// The levels of rows begin..begin + n under one ingredient.
inline void blend_levels(const Blends& blends, int64_t ingredient, int64_t begin, int64_t n,
                         double* __restrict levels) {
    const double strength = blends.strengths[ingredient];
    const double* __restrict const prior =
        blends.expected + blends.kinds[ingredient] * blends.n_rows + begin;
    const double* __restrict const own = blends.own + begin;
    const double* __restrict const counts = blends.counts + begin;
    if (strength == HUGE_VAL) {
        for (int64_t i = 0; i < n; ++i) levels[i] = prior[i];
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        levels[i] = (own[i] + strength * prior[i]) / (counts[i] + strength);
    }
}

// A number of a type of its own, to be put in order (see isa.hpp).
struct Level {
    double value;
    bool operator<(const Level& other) const { return value < other.value; }
};

// The level at a rank (from 0) under one ingredient. Bins tell which few levels are worth sorting;
// a level's bin never falls as the level rises.
inline double blended_quantile(const Blends& blends, int64_t ingredient, int64_t rank) {
    constexpr int32_t last_bin = 1023;
    const auto bin_of = [](double level) {
        const double place = level * last_bin;
        const double inside = place > 0.0 ? place : 0.0;
        return static_cast<int32_t>(inside < last_bin ? inside : last_bin);
    };
    int64_t counts[last_bin + 1] = {};
    Buffer<double> levels(blends.n_rows);
    for (int64_t begin = 0; begin < blends.n_rows; begin += blend_block) {
        const int64_t left = blends.n_rows - begin, n = left < blend_block ? left : blend_block;
        blend_levels(blends, ingredient, begin, n, levels.data() + begin);
        for (int64_t i = begin; i < begin + n; ++i) ++counts[bin_of(levels[i])];
    }
    int32_t bin = 0;
    for (; rank >= counts[bin]; ++bin) rank -= counts[bin];
    Buffer<Level> few(counts[bin] + 1);
    int64_t n_few = 0;
    for (int64_t i = 0; i < blends.n_rows; ++i) {
        few[n_few].value = levels[i];  // to be overwritten unless it is of the bin
        n_few += bin_of(levels[i]) == bin;
    }
    std::nth_element(few.data(), few.data() + rank, few.data() + n_few);
    return few[rank].value;
}

// All ingredients together, by their weights.
inline void blended_levels(const Blends& blends, const double* weights, double* levels) {
    double part[blend_block];
    for (int64_t begin = 0; begin < blends.n_rows; begin += blend_block) {
        const int64_t left = blends.n_rows - begin, n = left < blend_block ? left : blend_block;
        double* __restrict const total = levels + begin;
        for (int64_t i = 0; i < n; ++i) total[i] = 0.0;
        for (int64_t j = 0; j < blends.n_ingredients; ++j) {
            blend_levels(blends, j, begin, n, part);
            for (int64_t i = 0; i < n; ++i) total[i] += weights[j] * part[i];
        }
    }
}

EVENCOVER_END
