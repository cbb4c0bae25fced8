// Set sizes under many vectors of thresholds: score each row once, then compare with all vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "candidates.hpp"
#include "descending_order.hpp"
#include "random.hpp"

EVENCOVER_BEGIN

// Add 1 to the size of each vector whose threshold of class y is at least s. Many scores are beyond
// all thresholds of their class.
inline void count_within(const ThresholdTable& table, int64_t y, double s, double draw,
                         int64_t* __restrict sizes) {
    if (!(s <= table.largest[y])) return;
    const int64_t n = table.n_vectors;
    const double* __restrict const upper = table.upper + y * n;
    if (!table.lower) {
        for (int64_t t = 0; t < n; ++t) sizes[t] += s <= upper[t];
        return;
    }
    const double* __restrict const lower = table.lower + y * n;
    const double* __restrict const chance = table.upper_probability + y * n;
    for (int64_t t = 0; t < n; ++t) sizes[t] += s <= (draw < chance[t] ? upper[t] : lower[t]);
}

inline int64_t set_sizes(const Rows& rows, const Score& score, const Draws& draws,
                         const ThresholdTable& table, int64_t* sizes) {
    const int64_t n_classes = rows.n_classes;
    double largest = -infinity;
    for (int64_t y = 0; y < n_classes; ++y) largest = std::max(largest, table.largest[y]);
    std::memset(sizes, 0, static_cast<size_t>(rows.n_rows * table.n_vectors) * sizeof(int64_t));
    return with_source(rows, [&](auto&& source) {
        using T = typename std::decay_t<decltype(source)>::Value;
        CandidateFilter filter(score, largest, n_classes, n_classes);
        Candidates<T> candidates(n_classes);
        DescendingOrder<T> order;
        return each_row(source, rows, draws, [&](int64_t i, const T* row, double u, const auto& draw_of_row) {
            if (!filter.choose(source, row, candidates)) return false;
            const int32_t* const classes = candidates.classes();
            const double draw = table.lower ? draw_of_row() : 0.0;
            const auto count = [&](int64_t j, double s) {
                count_within(table, classes[j], s, draw, sizes + i * table.n_vectors);
            };
            if (score.needs_order) {
                order.sort(row, classes, candidates.size());
                order.walk(score, u, largest, count);
            } else {
                for (int64_t j = 0; j < candidates.size(); ++j) {
                    count(j, softmax_score(candidates.p(j)));
                }
            }
            return true;
        });
    });
}

EVENCOVER_END
