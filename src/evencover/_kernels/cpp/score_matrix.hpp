// Scores of every class, and their p-values: the only kernels that rank whole rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "descending_order.hpp"
#include "random.hpp"
#include "row_check.hpp"

EVENCOVER_BEGIN

// Count the leading values that are `within`, without data-dependent branches.
template <class Within>
inline int64_t count_first(const double* values, int64_t n, Within within) {
    const double* start = values;
    while (n > 1) {
        const int64_t half = n / 2;
        start += half * within(start[half - 1]);  // a product instead of a branch
        n -= half;
    }
    return start - values + (n == 1 && within(*start));
}

// Count the increasing values less than x, or at most x.
inline int64_t count_less(const double* values, int64_t n, double x) {
    return count_first(values, n, [=](double value) { return value < x; });
}
inline int64_t count_at_most(const double* values, int64_t n, double x) {
    return count_first(values, n, [=](double value) { return value <= x; });
}

// Count the scores of a group less than s: bins of equal width, then a search within one.
class ScoreIndex {
   public:
    explicit ScoreIndex(const GroupedScores& grouped)
        : groups_(grouped.n_groups + 1),
          starts_(grouped.n_scores / 2 + 2 * (grouped.n_groups + 1)) {
        int32_t* starts = starts_.data();
        for (int64_t g = 0; g < grouped.n_groups; ++g) {
            const int64_t begin = grouped.offsets[g];
            groups_[g + 1].build(grouped.scores + begin, grouped.offsets[g + 1] - begin, starts);
            starts = groups_[g + 1].end_of_starts();
        }
        groups_[0].build(grouped.scores, 0, starts);  // group -1 has no scores
    }

    class Group {
       public:
        void build(const double* scores, int64_t n, int32_t* starts) {
            scores_ = scores;
            starts_ = starts;
            n_ = n;
            n_bins_ = n / 2 + 1;
            least_ = n ? scores[0] : 0.0;
            const double width = n ? scores[n - 1] - least_ : 0.0;
            // Infinite scores have no bins of equal width; all are in the first then.
            scale_ = width > 0.0 && width < 1e300 ? static_cast<double>(n_bins_) / width : 0.0;
            int64_t i = 0;
            for (int64_t bin = 0; bin <= n_bins_; ++bin) {
                while (i < n && bin_of(scores[i]) < bin) ++i;
                starts_[bin] = static_cast<int32_t>(i);
            }
        }

        // bin_of never decreases: scores of lower bins are less than s, those of higher bins more.
        int64_t count_below(double s) const {
            const int64_t bin = bin_of(s);
            const int64_t start = starts_[bin];
            return start + count_less(scores_ + start, starts_[bin + 1] - start, s);
        }

        int64_t size() const { return n_; }
        int32_t* end_of_starts() const { return starts_ + n_bins_ + 1; }

       private:
        int64_t bin_of(double s) const {
            const double bin = (s - least_) * scale_;
            const double last = static_cast<double>(n_bins_ - 1);
            return bin > 0.0 ? static_cast<int64_t>(bin < last ? bin : last) : 0;
        }

        const double* scores_;
        int32_t* starts_;
        int64_t n_;
        int64_t n_bins_;
        double least_;
        double scale_;
    };

    const Group& group(int64_t g) const { return groups_[g + 1]; }

   private:
    Buffer<Group> groups_;
    Buffer<int32_t> starts_;
};

template <class T>
class RowScorer {
   public:
    explicit RowScorer(const Score& score) : score_(score) {}

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

inline int64_t score_matrix(const Rows& rows, const Score& score, const Draws& draws,
                            double* scores) {
    return with_source(rows, [&](auto&& source) {
        RowScorer<typename std::decay_t<decltype(source)>::Value> scorer(score);
        return each_row(source, rows, draws, [&](int64_t i, const auto* row, double u, const auto&) {
            if (!is_good_row(source, row, rows.n_classes)) return false;
            scorer.write(row, rows.n_classes, u, scores + i * rows.n_classes);
            return true;
        });
    });
}

inline int64_t p_values(const Rows& rows, const Score& score, const Draws& draws,
                        const GroupedScores& groups, double* result) {
    const ScoreIndex index(groups);
    return with_source(rows, [&](auto&& source) {
        RowScorer<typename std::decay_t<decltype(source)>::Value> scorer(score);
        return each_row(source, rows, draws, [&](int64_t i, const auto* row, double u, const auto& draw) {
            if (!is_good_row(source, row, rows.n_classes)) return false;
            double* const out = result + i * rows.n_classes;
            const double own_share = 1.0 - draw();
            scorer.write(row, rows.n_classes, u, out);
            for (int64_t y = 0; y < rows.n_classes; ++y) {
                const ScoreIndex::Group& group = index.group(groups.group_of_class[y]);
                const int64_t at_least = group.size() - group.count_below(out[y]);
                out[y] = (static_cast<double>(at_least) + own_share) /
                         (static_cast<double>(group.size()) + 1.0);
            }
            return true;
        });
    });
}

EVENCOVER_END
