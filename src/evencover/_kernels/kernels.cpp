// The kernels of one instruction set (see isa.hpp).
#include "kernels.hpp"

#include "prediction_sets.hpp"
#include "row_check.hpp"
#include "row_source.hpp"
#include "score.hpp"
#include "score_matrix.hpp"
#include "set_sizes.hpp"

EVENCOVER_BEGIN

namespace {

template <class Source>
int64_t true_label_scores_from(Source& source, const Rows& rows, const Score& score,
                               const int64_t* labels, const double* u, double* scores) {
    LabelPosition position(rows.n_classes);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        const auto* row = source.load(i);
        if (!row) return i;
        const double own = static_cast<double>(row[labels[i]]);
        if (score.needs_order) {
            if (!position.find(source, row, rows.n_classes, labels[i])) return i;
            scores[i] =
                ordered_score(score, own, position.mass_before, position.count_before + 1, u[i]);
        } else {
            if (!is_good_row(source, row, rows.n_classes)) return i;
            scores[i] = softmax_score(own);
        }
    }
    return all_good;
}

int64_t true_label_scores(const Rows& rows, const Score& score, const int64_t* labels,
                          const double* u, double* scores) {
    return with_source(rows, [&](auto&& source) {
        return true_label_scores_from(source, rows, score, labels, u, scores);
    });
}

int64_t score_matrix(const Rows& rows, const Score& score, const double* u, double* scores) {
    return with_source(
        rows, [&](auto&& source) { return score_matrix_from(source, rows, score, u, scores); });
}

int64_t prediction_sets(const Rows& rows, const Score& score, const double* u,
                        const Thresholds& thresholds, const double* coin, bool allow_empty,
                        int64_t* sizes, ClassList& members) {
    return with_source(rows, [&](auto&& source) {
        return prediction_sets_from(source, rows, score, u, thresholds, coin, allow_empty, sizes,
                                    members);
    });
}

int64_t set_sizes(const Rows& rows, const Score& score, const double* u, const LimitTable& table,
                  const double* coin, int64_t* sizes) {
    return with_source(rows, [&](auto&& source) {
        return set_sizes_from(source, rows, score, u, table, coin, sizes);
    });
}

int64_t p_values(const Rows& rows, const Score& score, const double* u, const GroupedScores& groups,
                 const double* own_share, double* result) {
    return with_source(rows, [&](auto&& source) {
        return p_values_from(source, rows, score, u, groups, own_share, result);
    });
}

}  // namespace

const Kernels kernels = {true_label_scores, score_matrix, prediction_sets, set_sizes, p_values};

EVENCOVER_END
