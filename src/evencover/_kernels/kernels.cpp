// The kernels of one instruction set (see isa.hpp).
#include "kernels.hpp"

#include "philox.hpp"
#include "prediction_sets.hpp"
#include "row_check.hpp"
#include "row_numbers.hpp"
#include "row_source.hpp"
#include "score.hpp"
#include "score_matrix.hpp"
#include "set_sizes.hpp"
#include "shortfalls.hpp"

EVENCOVER_BEGIN

namespace {

void row_keys(const Rows& rows, const Draws& draws, uint64_t* result) {
    RowKeys keys(rows, draws);
    for (int64_t i = 0; i < rows.n_rows; ++i) result[i] = keys.of(i);
}

template <class Source>
int64_t true_label_scores_from(Source& source, const Rows& rows, const Score& score,
                               const Draws& draws, const int64_t* labels, double* scores) {
    LabelPosition position(rows.n_classes);
    RowNumbers numbers(rows, draws);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        numbers.go_to(i);
        const auto* row = source.load(i);
        if (!row) return i;
        const double own = static_cast<double>(row[labels[i]]);
        if (score.needs_order) {
            if (!position.find(source, row, rows.n_classes, labels[i])) return i;
            const int64_t rank = position.count_before + 1;
            const bool is_top = rank == 1 || !score.by_rank;  // else nobody asks for the top
            const double top =
                is_top ? own : static_cast<double>(largest_of(row, rows.n_classes));
            scores[i] = ordered_score(score, own, position.mass_before, rank, numbers.u(), top);
        } else {
            if (!is_good_row(source, row, rows.n_classes)) return i;
            scores[i] = softmax_score(own);
        }
    }
    return all_good;
}

int64_t true_label_scores(const Rows& rows, const Score& score, const Draws& draws,
                          const int64_t* labels, double* scores) {
    return with_source(rows, [&](auto&& source) {
        return true_label_scores_from(source, rows, score, draws, labels, scores);
    });
}

int64_t score_matrix(const Rows& rows, const Score& score, const Draws& draws, double* scores) {
    return with_source(
        rows, [&](auto&& source) { return score_matrix_from(source, rows, score, draws, scores); });
}

int64_t prediction_sets(const Rows& rows, const Score& score, const Draws& draws,
                        const Thresholds& thresholds, bool allow_empty, int64_t* sizes,
                        ClassList& members) {
    return with_source(rows, [&](auto&& source) {
        return prediction_sets_from(source, rows, score, draws, thresholds, allow_empty, sizes,
                                    members);
    });
}

int64_t set_coverage(const Rows& rows, const Score& score, const Draws& draws,
                     const int64_t* labels, const Thresholds& thresholds, bool allow_empty,
                     const SetCoverage& result) {
    return with_source(rows, [&](auto&& source) {
        return set_coverage_from(source, rows, score, draws, labels, thresholds, allow_empty,
                                 result);
    });
}

int64_t set_sizes(const Rows& rows, const Score& score, const Draws& draws, const LimitTable& table,
                  int64_t* sizes) {
    return with_source(rows, [&](auto&& source) {
        return set_sizes_from(source, rows, score, draws, table, sizes);
    });
}

int64_t p_values(const Rows& rows, const Score& score, const Draws& draws,
                 const GroupedScores& groups, double* result) {
    return with_source(rows, [&](auto&& source) {
        return p_values_from(source, rows, score, draws, groups, result);
    });
}

}  // namespace

const Kernels kernels = {random_bits,     uniforms,     row_keys,  true_label_scores, score_matrix,
                         prediction_sets, set_coverage, set_sizes, p_values,          counts_within,
                         shortfalls};

EVENCOVER_END
