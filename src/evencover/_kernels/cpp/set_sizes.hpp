// Set sizes under many vectors of thresholds: rank each row once, then count for all vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "candidates.hpp"
#include "descending_order.hpp"
#include "random.hpp"
#include "score_matrix.hpp"

EVENCOVER_BEGIN

// The scores of one row that can be within a threshold, in class order.
struct RowScores {
    const int32_t* classes;
    const double* scores;
    int64_t size;
};

// Count, row by row, the classes within the thresholds of every vector.
class VectorCounter {
   public:
    explicit VectorCounter(const ThresholdTable& table)
        : table_(table), n_vectors_(table.n_plain + table.n_pairs), counts_(n_vectors_) {}

    void count(const RowScores& row, double draw, int64_t* sizes) {
        for (int64_t j = 0; j < n_vectors_; ++j) {
            sizes[table_.vector_of[j]] = always_in(j, draw);
        }
        // Sixteen bits per vector: this many classes cannot overflow them.
        constexpr int64_t step = 32767;
        for (int64_t begin = 0; begin < row.size; begin += step) {
            const int64_t end = row.size - begin < step ? row.size : begin + step;
            std::memset(counts_.data(), 0, static_cast<size_t>(n_vectors_) * sizeof(int16_t));
            for (int64_t i = begin; i < end; ++i) {
                add(row.classes[i], row.scores[i], draw);
            }
            for (int64_t j = 0; j < n_vectors_; ++j) sizes[table_.vector_of[j]] += counts_[j];
        }
    }

   private:
    // Most scores are within no threshold of their class, or a few.
    void add(int64_t y, double s, double draw) {
        const int64_t n_top = table_.n_top;
        const double* const limits = table_.top_limits + y * n_top;
        if (!(s <= limits[0])) return;
        if (s <= limits[n_top - 1]) {
            add_by_rank(y, s, draw);
            return;
        }
        const int16_t* const vectors = table_.top_vectors + y * n_top;
        const double* const from = table_.draw_from + y * n_top;
        const double* const to = table_.draw_to + y * n_top;
        for (int64_t i = 0; s <= limits[i]; ++i) {  // the last one stops it
            int16_t& count = counts_[vectors[i]];
            count = static_cast<int16_t>(count + (from[i] <= draw && draw < to[i]));
        }
    }

    // The rank of a threshold is the number of smaller ones. So s is within all whose rank is at
    // least the number of thresholds less than s. The same holds for the draw and the chances.
    void add_by_rank(int64_t y, double s, double draw) {
        const int64_t n_plain = table_.n_plain, n_pairs = table_.n_pairs;
        const int64_t n_limits = n_plain + 2 * n_pairs;
        const auto least =
            static_cast<int16_t>(count_less(table_.limits + y * n_limits, n_limits, s));
        int16_t* const counts = counts_.data();
        const int16_t* const rank = table_.plain_ranks + y * n_plain;
        for (int64_t j = 0; j < n_plain; ++j) {
            counts[j] = static_cast<int16_t>(counts[j] + (rank[j] >= least));
        }
        if (!n_pairs) return;
        const auto draw_rank =
            static_cast<int16_t>(count_at_most(table_.chances + y * n_pairs, n_pairs, draw));
        int16_t* const pair_counts = counts + n_plain;
        const int16_t* const upper = table_.upper_ranks + y * n_pairs;
        const int16_t* const lower = table_.lower_ranks + y * n_pairs;
        const int16_t* const chance = table_.chance_ranks + y * n_pairs;
        for (int64_t j = 0; j < n_pairs; ++j) {
            const int16_t limit = chance[j] >= draw_rank ? upper[j] : lower[j];
            pair_counts[j] = static_cast<int16_t>(pair_counts[j] + (limit >= least));
        }
    }

    // Count the classes with an infinite threshold.
    int64_t always_in(int64_t j, double draw) const {
        if (j < table_.n_plain) return table_.always[j];
        const int64_t pair = j - table_.n_plain;
        const int64_t first_upper_only = table_.upper_only_offsets[pair];
        const int64_t n_upper_only = table_.upper_only_offsets[pair + 1] - first_upper_only;
        const int64_t first_lower_only = table_.lower_only_offsets[pair];
        const int64_t n_lower_only = table_.lower_only_offsets[pair + 1] - first_lower_only;
        return table_.always[j] + n_upper_only -
               count_at_most(table_.upper_only + first_upper_only, n_upper_only, draw) +
               count_at_most(table_.lower_only + first_lower_only, n_lower_only, draw);
    }

    const ThresholdTable& table_;
    int64_t n_vectors_;
    Buffer<int16_t> counts_;
};

// Scores of the candidates; +inf for those beyond all finite thresholds.
template <class T>
class CandidateScorer {
   public:
    CandidateScorer(const Score& score, double largest_limit, int64_t n_classes)
        : score_(score),
          largest_limit_(largest_limit),
          scores_(n_classes) {}

    RowScores scores(const T* row, const Candidates<T>& candidates, double u) {
        const int64_t size = candidates.size();
        double* const scores = scores_.data();
        if (score_.needs_order) {
            for (int64_t i = 0; i < size; ++i) scores[i] = infinity;
            order_.sort(row, candidates.classes(), size);
            order_.walk(score_, u, largest_limit_, [&](int32_t i, double s) { scores[i] = s; });
        } else {
            for (int64_t i = 0; i < size; ++i) scores[i] = softmax_score(candidates.p(i));
        }
        return {candidates.classes(), scores, size};
    }

   private:
    const Score& score_;
    double largest_limit_;
    DescendingOrder<T> order_;
    Buffer<double> scores_;
};

inline int64_t set_sizes(const Rows& rows, const Score& score, const Draws& draws,
                         const ThresholdTable& table, int64_t* sizes) {
    const int64_t n_classes = rows.n_classes;
    double largest = -infinity;
    for (int64_t y = 0; y < n_classes; ++y) {
        largest = std::max(largest, table.top_limits[y * table.n_top]);
    }
    VectorCounter counter(table);
    return with_source(rows, [&](auto&& source) {
        using T = typename std::decay_t<decltype(source)>::Value;
        CandidateFilter filter(score, largest, n_classes, n_classes);
        CandidateScorer<T> scorer(score, largest, n_classes);
        Candidates<T> candidates(n_classes);
        return each_row(source, rows, draws, [&](int64_t i, const T* row, double u, double draw) {
            if (!filter.choose(source, row, candidates)) return false;
            counter.count(scorer.scores(row, candidates, u), draw,
                          sizes + i * (table.n_plain + table.n_pairs));
            return true;
        });
    });
}

EVENCOVER_END
