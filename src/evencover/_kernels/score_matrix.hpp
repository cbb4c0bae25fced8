// Scores of every class, and the p-values made of them: the only kernels that rank whole rows.
#pragma once

#include <cstdint>

#include "descending_order.hpp"
#include "limits.hpp"
#include "row_check.hpp"
#include "row_numbers.hpp"
#include "row_source.hpp"
#include "score_index.hpp"

EVENCOVER_BEGIN

template <class T>
class RowScorer {
   public:
    RowScorer(const Score& score, int64_t n_classes)
        : score_(score), order_(score.needs_order ? n_classes : 0) {}

    void write(const T* row, int64_t n_classes, double u, double* scores) {
        if (!score_.needs_order) {
            for (int64_t y = 0; y < n_classes; ++y) {
                scores[y] = softmax_score(static_cast<double>(row[y]));
            }
            return;
        }
        order_.sort(row, n_classes);
        order_.walk(score_, u, infinity, [&](int32_t y, double s) { scores[y] = s; });
    }

   private:
    const Score& score_;
    DescendingOrder<T> order_;
};

template <class Source>
inline int64_t score_matrix_from(Source& source, const Rows& rows, const Score& score,
                                 const Draws& draws, double* scores) {
    RowScorer<typename Source::Value> scorer(score, rows.n_classes);
    RowNumbers numbers(rows, draws);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        numbers.go_to(i);
        const auto* row = source.load(i);
        if (!row || !is_good_row(source, row, rows.n_classes)) return i;
        scorer.write(row, rows.n_classes, numbers.u(), scores + i * rows.n_classes);
    }
    return all_good;
}

template <class Source>
inline int64_t p_values_from(Source& source, const Rows& rows, const Score& score,
                             const Draws& draws, const GroupedScores& groups, double* result) {
    const ScoreIndex index(groups);
    RowScorer<typename Source::Value> scorer(score, rows.n_classes);
    RowNumbers numbers(rows, draws);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        numbers.go_to(i);
        const auto* row = source.load(i);
        if (!row || !is_good_row(source, row, rows.n_classes)) return i;
        double* const out = result + i * rows.n_classes;
        scorer.write(row, rows.n_classes, numbers.u(), out);
        const double own_share = 1.0 - numbers.coin();
        for (int64_t y = 0; y < rows.n_classes; ++y) {
            const ScoreIndex::Group& group = index.group(groups.group_of_class[y]);
            const int64_t at_least = group.size() - group.count_below(out[y]);
            out[y] = (static_cast<double>(at_least) + own_share) /
                     (static_cast<double>(group.size()) + 1.0);
        }
    }
    return all_good;
}

EVENCOVER_END
