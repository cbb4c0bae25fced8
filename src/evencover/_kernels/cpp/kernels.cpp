// The kernels of one instruction set (see isa.hpp).
#include "kernels.hpp"

#include "top_k_rows.hpp"
#include "prediction_sets.hpp"
#include "score_matrix.hpp"
#include "set_sizes.hpp"

EVENCOVER_BEGIN

namespace {

void sample_labels(LabelSample& sample) {
    constexpr int64_t step = 256;
    uint64_t hashes[step], total = 0;
    bool is_drawn[step];
    const auto n_classes = static_cast<uint64_t>(sample.n_classes);
    const uint64_t largest = sample.largest;
    for (int64_t first = 0; first < sample.n; first += step) {
        const int64_t n = std::min(step, sample.n - first);
        const int64_t* const labels = sample.labels + first;
        const uint64_t start = sample.start + static_cast<uint64_t>(first);
        for (int64_t i = 0; i < n; ++i) {
            const uint64_t index = start + static_cast<uint64_t>(i);
            hashes[i] = mixed(index * n_classes + static_cast<uint64_t>(labels[i]));
            is_drawn[i] = hashes[i] <= largest;
            total += hashes[i];
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t y = labels[i];
            if (!is_drawn[i] || y == sample.n_classes || y % sample.stride) continue;
            sample.drawn[sample.n_drawn] = first + i;
            sample.hashes[sample.n_drawn++] = hashes[i];
        }
    }
    sample.total = total;
}

void row_keys(const Rows& rows, const Draws& draws, uint64_t* result) {
    RowKeys keys(rows, draws);
    for (int64_t i = 0; i < rows.n_rows; ++i) result[i] = keys.of(i);
}

int64_t true_label_scores(const Rows& rows, const Score& score, const Draws& draws,
                          const int64_t* labels, double* scores) {
    LabelPosition position(rows.n_classes);
    return with_source(rows, [&](auto&& source) {
        return each_row(source, rows, draws, [&](int64_t i, const auto* row, double u, const auto&) {
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

const Kernels kernels = {random_bits,     sample_labels, row_keys,          true_label_scores, score_matrix,
                         prediction_sets, set_coverage, set_sizes,         p_values,
                         top_k_label_scores, top_k_scores, top_k_sets,  top_k_coverage};

EVENCOVER_END
