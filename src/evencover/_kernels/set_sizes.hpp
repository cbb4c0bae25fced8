// Set sizes under many threshold vectors: each row is ranked once, then counted for each vector.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "candidates.hpp"
#include "chooser.hpp"
#include "descending_order.hpp"
#include "limits.hpp"
#include "row_source.hpp"

EVENCOVER_BEGIN

struct Less {
    bool operator()(double a, double b) const { return a < b; }
};

// How many classes an infinite limit takes in.
class InfiniteCount {
   public:
    void read(const Thresholds& thresholds, int64_t n_classes) {
        for (int64_t y = 0; y < n_classes; ++y) {
            const bool upper = thresholds.upper[y] == infinity;
            const bool lower = thresholds.lower ? thresholds.lower[y] == infinity : upper;
            always_ += upper && lower;
            if (upper != lower) append(upper ? heads_ : tails_, thresholds.upper_probability[y]);
        }
        std::sort(heads_.values.data(), heads_.values.data() + heads_.size, Less());
        std::sort(tails_.values.data(), tails_.values.data() + tails_.size, Less());
    }

    int64_t at(double coin) const {
        return always_ + (heads_.size - at_most(heads_, coin)) + at_most(tails_, coin);
    }

   private:
    struct Chances {
        Buffer<double> values;
        int64_t size = 0;
    };

    static void append(Chances& chances, double probability) {
        chances.values.reserve(chances.size + 1);
        chances.values[chances.size++] = probability;
    }

    // The coin shows heads for a class if it is less than the class's probability.
    static int64_t at_most(const Chances& chances, double coin) {
        int64_t low = 0, high = chances.size;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (chances.values[middle] <= coin) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    int64_t always_ = 0;
    Chances heads_, tails_;
};

// The scores of one row that can be within a limit, in the order of the classes.
struct RowScores {
    const int32_t* classes;
    const double* scores;
    int64_t size;
};

// Limits with the vectors of one class side by side, so that a score is compared with all of them
// at once. +inf is replaced by -inf: those classes are counted apart.
class LimitTable {
   public:
    LimitTable(const Thresholds* thresholds, int64_t n_vectors, int64_t n_classes)
        : n_(n_vectors), upper_(n_vectors * n_classes) {
        for (int64_t t = 0; t < n_; ++t) has_pairs_ |= thresholds[t].lower != nullptr;
        if (has_pairs_) {
            lower_.reserve(n_vectors * n_classes);
            chance_.reserve(n_vectors * n_classes);
        }
        for (int64_t y = 0; y < n_classes; ++y) {
            for (int64_t t = 0; t < n_; ++t) put(thresholds[t], y, y * n_ + t);
        }
    }

    void count(const RowScores& row, double coin, int64_t* sizes) const {
        for (int64_t i = 0; i < row.size; ++i) {
            const double s = row.scores[i];
            const double* const upper = upper_.data() + row.classes[i] * n_;
            if (!has_pairs_) {
                for (int64_t t = 0; t < n_; ++t) sizes[t] += s <= upper[t];
                continue;
            }
            const double* const lower = lower_.data() + row.classes[i] * n_;
            const double* const chance = chance_.data() + row.classes[i] * n_;
            for (int64_t t = 0; t < n_; ++t) {
                sizes[t] += s <= (coin < chance[t] ? upper[t] : lower[t]);
            }
        }
    }

   private:
    void put(const Thresholds& thresholds, int64_t y, int64_t at) {
        upper_[at] = finite(thresholds.upper[y]);
        if (!has_pairs_) return;
        lower_[at] = finite(thresholds.lower ? thresholds.lower[y] : thresholds.upper[y]);
        chance_[at] = thresholds.lower ? thresholds.upper_probability[y] : 1.0;
    }

    static double finite(double limit) { return limit == infinity ? -infinity : limit; }

    int64_t n_;
    bool has_pairs_ = false;
    Buffer<double> upper_, lower_, chance_;
};

// Without the table: slower per row, but nothing to prepare.
inline void count_one_by_one(const Thresholds* thresholds, int64_t n_vectors, const RowScores& row,
                             double coin, int64_t* sizes) {
    for (int64_t t = 0; t < n_vectors; ++t) {
        for (int64_t i = 0; i < row.size; ++i) {
            const double limit = limit_of(thresholds[t], row.classes[i], coin);
            sizes[t] += row.scores[i] <= limit && limit != infinity;
        }
    }
}

// Scores of the candidates; +inf, which no finite limit admits, for those beyond all limits.
template <class T>
class CandidateScorer {
   public:
    CandidateScorer(const Score& score, double largest_limit, int64_t n_classes)
        : score_(score),
          largest_limit_(largest_limit),
          order_(score.needs_order ? n_classes : 0),
          scores_(n_classes) {}

    RowScores scores(const T* row, const Candidates& candidates, double u) {
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

template <class Source>
inline int64_t set_sizes_from(Source& source, const Rows& rows, const Score& score, const double* u,
                              const Thresholds* thresholds, int64_t n_vectors, const double* coin,
                              int64_t* sizes) {
    const int64_t n_classes = rows.n_classes;
    LargestLimit largest;
    const std::unique_ptr<InfiniteCount[]> infinite(new InfiniteCount[n_vectors]);
    for (int64_t t = 0; t < n_vectors; ++t) {
        largest.include(thresholds[t], n_classes);
        infinite[t].read(thresholds[t], n_classes);
    }
    // A row meets some hundred candidates: with fewer rows the table costs more than it saves.
    const bool use_table = n_vectors > 1 && n_classes <= 64 * rows.n_rows &&
                           n_vectors * n_classes <= (int64_t{1} << 22);
    const LimitTable table(thresholds, use_table ? n_vectors : 0, n_classes);
    Chooser chooser(score, largest.value(), n_classes);
    CandidateScorer<typename Source::Value> scorer(score, largest.value(), n_classes);
    Candidates candidates(n_classes);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        const auto* row = source.load(i);
        if (!row || !chooser.choose(source, row, candidates)) return i;
        const RowScores row_scores = scorer.scores(row, candidates, u[i]);
        int64_t* const row_sizes = sizes + i * n_vectors;
        for (int64_t t = 0; t < n_vectors; ++t) row_sizes[t] = infinite[t].at(coin[i]);
        if (use_table) {
            table.count(row_scores, coin[i], row_sizes);
        } else {
            count_one_by_one(thresholds, n_vectors, row_scores, coin[i], row_sizes);
        }
    }
    return all_good;
}

EVENCOVER_END
