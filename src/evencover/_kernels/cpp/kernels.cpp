// The kernels of one instruction set (see isa.hpp).
#include "kernels.hpp"

#include "cost.hpp"
#include "listed_rows.hpp"
#include "prediction_sets.hpp"
#include "set_sizes.hpp"

EVENCOVER_BEGIN

namespace {

void row_keys(const Rows& rows, const Draws& draws, uint64_t* result) {
    RowKeys keys(rows, draws);
    for (int64_t i = 0; i < rows.n_rows; ++i) result[i] = keys.of(i);
}

int64_t true_label_scores(const Rows& rows, const Score& score, const Draws& draws,
                          const int64_t* labels, double* scores) {
    LabelPosition position(rows.n_classes);
    return with_source(rows, [&](auto&& source) {
        return each_row(source, rows, draws, [&](int64_t i, const auto* row, double u, double) {
            const double own = static_cast<double>(row[labels[i]]);
            if (!score.needs_order) {
                scores[i] = softmax_score(own);
                return is_good_row(source, row, rows.n_classes);
            }
            if (!position.find(source, row, rows.n_classes, labels[i])) return false;
            const int64_t rank = position.count_before + 1;
            const bool is_top = rank == 1 || !score.by_rank;  // else the top is not used
            const double top =
                is_top ? own : static_cast<double>(largest_of(row, rows.n_classes));
            scores[i] = ordered_score(score, own, position.mass_before, rank, u, top);
            return true;
        });
    });
}

}  // namespace

const Kernels kernels = {random_bits,     row_keys,     true_label_scores, score_matrix,
                         prediction_sets, set_coverage, set_sizes,         p_values,
                         counts_within,   shortfalls,   listed_label_scores, listed_scores,
                         listed_sets,     listed_coverage};

EVENCOVER_END
