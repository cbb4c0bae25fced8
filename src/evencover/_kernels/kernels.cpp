// The kernels of one instruction set (see isa.hpp).
#include "kernels.hpp"

#include "philox.hpp"
#include "prediction_sets.hpp"
#include "row_check.hpp"
#include "row_source.hpp"
#include "score.hpp"
#include "score_matrix.hpp"
#include "set_sizes.hpp"

EVENCOVER_BEGIN

namespace {

void uniforms(uint64_t seed, uint64_t use, const uint64_t* ids, int64_t n, double* result) {
    constexpr int64_t step = 256;
    uint64_t random[step];
    for (int64_t at = 0; at < n; at += step) {
        const int64_t size = n - at < step ? n - at : step;
        random_bits(seed, use, ids + at, size, random);
        for (int64_t i = 0; i < size; ++i) {
            result[at + i] = static_cast<double>(random[i] >> 11) * 0x1p-53;
        }
    }
}

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

int64_t set_coverage(const Rows& rows, const Score& score, const int64_t* labels, const double* u,
                     const Thresholds& thresholds, const double* coin, bool allow_empty,
                     const SetCoverage& result) {
    return with_source(rows, [&](auto&& source) {
        return set_coverage_from(source, rows, score, labels, u, thresholds, coin, allow_empty,
                                 result);
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

const Kernels kernels = {random_bits,     uniforms,     true_label_scores, score_matrix,
                         prediction_sets, set_coverage, set_sizes,         p_values};

EVENCOVER_END
