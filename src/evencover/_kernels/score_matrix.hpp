// Scores of every class, and the p-values made of them: the only kernels that rank whole rows.
#pragma once

#include <cstdint>

#include "candidates.hpp"
#include "ranking.hpp"
#include "row_source.hpp"
#include "scan.hpp"

EVENCOVER_BEGIN

class RowScorer {
   public:
    RowScorer(const Score& score, int64_t n_classes)
        : score_(score), candidates_(n_classes), ranking_(n_classes) {}

    template <class T>
    void write(const T* row, int64_t n_classes, double u, double* scores) {
        if (!score_.needs_order) {
            for (int64_t y = 0; y < n_classes; ++y) {
                scores[y] = softmax_score(static_cast<double>(row[y]));
            }
            return;
        }
        candidates_.collect(row, n_classes, 0.0);
        ranking_.arrange(candidates_, score_, LimitRange{-infinity, infinity});
        ranking_.walk(score_, u, infinity, [&](int32_t y, double s) { scores[y] = s; });
    }

   private:
    const Score& score_;
    Candidates candidates_;
    Ranking ranking_;
};

template <class Source>
inline int64_t score_matrix_from(Source& source, const Rows& rows, const Score& score,
                                 const double* u, double* scores) {
    RowScorer scorer(score, rows.n_classes);
    Scan scan;
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        const auto* row = source.load(i);
        if (!row || !scan_row(source, row, rows.n_classes, scan)) return i;
        scorer.write(row, rows.n_classes, u[i], scores + i * rows.n_classes);
    }
    return all_good;
}

// How many of n increasing values are less than x; without branches that depend on the data.
inline int64_t count_less(const double* values, int64_t n, double x) {
    const double* start = values;
    while (n > 1) {
        const int64_t half = n / 2;
        start += start[half - 1] < x ? half : 0;
        n -= half;
    }
    return start - values + (n == 1 && *start < x);
}

template <class Source>
inline int64_t p_values_from(Source& source, const Rows& rows, const Score& score, const double* u,
                             const GroupedScores& groups, const double* own_share, double* result) {
    RowScorer scorer(score, rows.n_classes);
    Scan scan;
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        const auto* row = source.load(i);
        if (!row || !scan_row(source, row, rows.n_classes, scan)) return i;
        double* const out = result + i * rows.n_classes;
        scorer.write(row, rows.n_classes, u[i], out);
        for (int64_t y = 0; y < rows.n_classes; ++y) {
            const int64_t g = groups.group_of_class[y];
            const int64_t begin = g < 0 ? 0 : groups.offsets[g];
            const int64_t n = g < 0 ? 0 : groups.offsets[g + 1] - begin;
            const int64_t at_least = n - count_less(groups.scores + begin, n, out[y]);
            out[y] = (static_cast<double>(at_least) + own_share[i]) / (static_cast<double>(n) + 1.0);
        }
    }
    return all_good;
}

EVENCOVER_END
