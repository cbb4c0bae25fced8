// Select the candidates in the set of a score that uses the order.
//
// The score of a class needs the mass and the rank before it, hence a sort, but membership rarely
// needs the exact score. So candidates fall into buckets by exponent and leading mantissa bits, the
// most probable first (`fill_buckets`). Masses are integers, so their sums do not depend on the order
// of addition. What precedes a bucket bounds the scores of its classes from below, and what precedes
// the next one from above (`bound_scores`). Comparing both with a class's threshold decides most
// classes (`compare_bounds`). A bucket is sorted only if a threshold of one of its classes lies between
// the bounds (`score_exactly`), and then all of its classes get their exact position and score.
//
// Invariant: least <= score <= largest for every class of a bucket in floating point, because each
// rounded operation is monotone and `largest_score` adds one unit for the rounding of p; and every
// candidate before a class is in its bucket or an earlier one. The number and the width of buckets, and
// `many`, affect the time only. Ties within a bucket follow the class index, as candidates do.
//
// Guarded by tests/kernels/test_native.py: test_probabilities (ties, saturated rows, tiny tails, all
// kinds of thresholds and limits on ranks), test_any_small_matrix, test_thresholds_next_to_a_score.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "candidates.hpp"
#include "descending_order.hpp"

EVENCOVER_BEGIN

// Replace n amounts by their exclusive prefix sums, and the next element by the total.
inline void add_up(int64_t* amounts, int64_t n) {
    int64_t sum = 0;
    for (int64_t b = 0; b < n; ++b) {
        const int64_t own = amounts[b];
        amounts[b] = sum;
        sum += own;
    }
    amounts[n] = sum;
}

template <class T>
class OrderedSelector {
   public:
    OrderedSelector(const Score& score, const Thresholds& thresholds, int64_t n_classes)
        : score_(score),
          thresholds_(&thresholds),
          counts_(thresholds.rank_limit || score.penalty != 0.0 || score.by_rank),
          mass_before_(max_buckets + 1),
          count_before_(max_buckets + 1),
          least_(max_buckets),
          largest_(max_buckets),
          is_sorted_(max_buckets),
          bucket_of_(n_classes + n_lanes),
          flags_(n_classes + n_lanes),
          all_(n_classes),
          indices_(n_classes + n_lanes),
          in_bucket_(n_classes + n_lanes),
          scores_(n_classes),
          ranks_(n_classes),
          unsure_(n_classes + 1) {
        for (int64_t i = 0; i < n_classes; ++i) all_[i] = static_cast<int32_t>(i);
    }

    // Write the classes of the members to `classes`, with room for one more than there are
    // candidates, and return their number.
    int64_t select(const Candidates<T>& candidates, double u, double draw, int32_t* classes) {
        if (candidates.size() == 0) return 0;
        if (counts_) {
            fill_buckets<true>(candidates);
        } else {
            fill_buckets<false>(candidates);
        }
        bound_scores(candidates.largest());
        return list_members(candidates, u, draw, classes);
    }

    // Do the same for other thresholds without limits on ranks, after `select` for this row.
    int64_t select_again(const Candidates<T>& candidates, const Thresholds& thresholds, double u,
                         double draw, int32_t* classes) {
        if (candidates.size() == 0) return 0;
        const Thresholds* const first = thresholds_;
        thresholds_ = &thresholds;
        const int64_t size = list_members(candidates, u, draw, classes);
        thresholds_ = first;
        return size;
    }

   private:
    using Bits = typename Candidates<T>::Bits;
    static constexpr int mantissa_width = sizeof(T) == 4 ? 23 : 52;
    static constexpr int64_t max_buckets = 1 << 13;
    static constexpr int64_t many = 256;  // candidates

    int64_t list_members(const Candidates<T>& candidates, double u, double draw,
                         int32_t* classes) {
        // Among many candidates nearly all are out, and are dropped together.
        const bool are_many = candidates.size() > many;
        const int32_t* const left = are_many ? indices_.data() : all_.data();
        const int64_t n_left = are_many ? leave_out(candidates, draw) : candidates.size();
        const int64_t n_unsure = compare_bounds(candidates, left, n_left, draw);
        for (int64_t l = 0; l < n_unsure; ++l) {
            const int32_t i = unsure_[l], b = bucket_of_[i], y = candidates.classes()[i];
            if (!is_sorted_[b]) score_exactly(candidates, b, u);
            const bool in_rank = !thresholds_->rank_limit || ranks_[i] <= thresholds_->rank_limit[y];
            flags_[i] = (scores_[i] <= threshold_of(*thresholds_, y, draw)) & in_rank;
        }
        const int32_t* const class_of = candidates.classes();
        int64_t size = 0;
        for (int64_t l = 0; l < n_left; ++l) {
            classes[size] = class_of[left[l]];
            size += flags_[left[l]];
        }
        return size;
    }

    // More candidates, finer buckets; the last bucket takes all negligible ones.
    template <bool with_counts>
    void fill_buckets(const Candidates<T>& candidates) {
        const int64_t size = candidates.size();
        int mantissa_bits = 1;
        const int per_bucket = size > many ? 6 : 5;
        while (mantissa_bits < 8 && size >> (mantissa_bits + per_bucket)) ++mantissa_bits;
        const int shift = mantissa_width - mantissa_bits;
        const Bits top = bits(static_cast<T>(candidates.largest())) >> shift;
        const Bits span = top - (bits(static_cast<T>(candidates.smallest())) >> shift) + 1;
        n_buckets_ = static_cast<int64_t>(span < max_buckets ? span : max_buckets);
        const auto n_used = static_cast<size_t>(n_buckets_);
        std::memset(mass_before_.data(), 0, n_used * sizeof(int64_t));
        std::memset(count_before_.data(), 0, n_used * sizeof(int64_t));
        std::memset(is_sorted_.data(), 0, n_used);
        const auto last = static_cast<Bits>(n_buckets_ - 1);
        const T* __restrict const values = candidates.values();
        const int64_t* __restrict const masses = candidates.masses();
        int32_t* __restrict const bucket_of = bucket_of_.data();
        int64_t* __restrict const mass_in = mass_before_.data();
        int64_t* __restrict const count_in = count_before_.data();
        for (int64_t i = 0; i < size; ++i) {
            const Bits below_top = top - (bits(values[i]) >> shift);
            bucket_of[i] = static_cast<int32_t>(below_top < last ? below_top : last);
        }
        for (int64_t i = 0; i < size; ++i) {
            mass_in[bucket_of[i]] += masses[i];
            if (with_counts) count_in[bucket_of[i]] += 1;
        }
    }

    // Replace the content of each bucket by what precedes it.
    void bound_scores(double top) {
        const Score score = score_;  // a local copy, which writes cannot alias
        int64_t* __restrict const mass_before = mass_before_.data();
        int64_t* __restrict const count_before = count_before_.data();
        double* __restrict const least = least_.data();
        double* __restrict const largest = largest_.data();
        add_up(mass_before, n_buckets_);
        if (counts_) add_up(count_before, n_buckets_);
        if (score.penalty == 0.0 && !score.by_rank) {
            for (int64_t b = 0; b < n_buckets_; ++b) {
                least[b] = from_fixed_point(mass_before[b]);
                largest[b] = from_fixed_point(mass_before[b + 1] + 1);
            }
            return;
        }
        for (int64_t b = 0; b < n_buckets_; ++b) {
            least[b] = least_score(score, mass_before[b], count_before[b] + 1, top);
            largest[b] = largest_score(score, mass_before[b + 1], count_before[b + 1], top);
        }
    }

    // List the candidates that may be members, and return their number.
    int64_t leave_out(const Candidates<T>& candidates, double draw) {
        const double* __restrict const upper = thresholds_->upper;
        if (!thresholds_->lower) {
            return leave_out_beyond(candidates, [=](int32_t y) { return upper[y]; });
        }
        return leave_out_beyond(candidates,
                                [=](int32_t y) { return threshold_of(*thresholds_, y, draw); });
    }

    template <class Limit>
    int64_t leave_out_beyond(const Candidates<T>& candidates, Limit limit) {
        const double* __restrict const least = least_.data();
        const int64_t* __restrict const count_before = count_before_.data();
        const T* __restrict const values = candidates.values();
        const int64_t* __restrict const rank_limit = thresholds_->rank_limit;
        if (!rank_limit && score_.needs_order) {
            return leave_out(candidates, [=](int64_t, int32_t b, int32_t y) {
                return least[b] <= limit(y);
            });
        }
        if (score_.needs_order) {
            return leave_out(candidates, [=](int64_t, int32_t b, int32_t y) {
                return (count_before[b] < rank_limit[y]) & (least[b] <= limit(y));
            });
        }
        return leave_out(candidates, [=](int64_t i, int32_t b, int32_t y) {
            return (!rank_limit || count_before[b] < rank_limit[y]) &
                   (softmax_score(static_cast<double>(values[i])) <= limit(y));
        });
    }

    template <class MayBeIn>
    int64_t leave_out(const Candidates<T>& candidates, MayBeIn may_be_in) {
        const int64_t size = candidates.size();
        const int32_t* __restrict const classes = candidates.classes();
        const int32_t* __restrict const bucket_of = bucket_of_.data();
        uint8_t* __restrict const flags = flags_.data();
        for (int64_t i = 0; i < size; ++i) flags[i] = may_be_in(i, bucket_of[i], classes[i]);
        return list_true(flags, size, indices_.data());
    }

    // Set the flags of certain members, and list candidates whose buckets must be sorted. Nothing
    // is skipped, because a mispredicted branch takes longer than a comparison.
    int64_t compare_bounds(const Candidates<T>& candidates, const int32_t* left, int64_t n_left,
                           double draw) {
        const double* const upper = thresholds_->upper;
        if (!thresholds_->lower && !thresholds_->rank_limit) {
            return compare_bounds(candidates, left, n_left, [=](int32_t y) { return upper[y]; },
                                  [](int64_t, int32_t) { return true; });
        }
        return compare_bounds(
            candidates, left, n_left, [&](int32_t y) { return threshold_of(*thresholds_, y, draw); },
            [&](int64_t rank, int32_t y) {
                return !thresholds_->rank_limit || rank <= thresholds_->rank_limit[y];
            });
    }

    // Bytes may alias anything, so the inputs are declared as distinct.
    template <class Limit, class InRank>
    int64_t compare_bounds(const Candidates<T>& candidates, const int32_t* __restrict left,
                           int64_t n_left, Limit limit_of_class, InRank is_in_rank) {
        const bool needs_order = score_.needs_order;
        const T* __restrict const values = candidates.values();
        const int32_t* __restrict const class_of = candidates.classes();
        const int32_t* __restrict const bucket_of = bucket_of_.data();
        const double* __restrict const least_of = least_.data();
        const double* __restrict const largest_of = largest_.data();
        const int64_t* __restrict const count_before = count_before_.data();
        uint8_t* __restrict const flags = flags_.data();
        int32_t* __restrict const unsure = unsure_.data();
        int64_t n_unsure = 0;
        for (int64_t l = 0; l < n_left; ++l) {
            const int32_t i = left[l], y = class_of[i], b = bucket_of[i];
            const double limit = limit_of_class(y);
            double least = least_of[b], largest = largest_of[b];
            if (!needs_order) least = largest = softmax_score(static_cast<double>(values[i]));
            const bool is_sure = (largest <= limit) & is_in_rank(count_before[b + 1], y);
            flags[i] = is_sure;
            unsure[n_unsure] = i;
            n_unsure += !is_sure & (least <= limit);
        }
        return n_unsure;
    }

    // Find the scores and ranks of the classes in one bucket, whose positions are then exact.
    void score_exactly(const Candidates<T>& candidates, int32_t b, double u) {
        const int32_t* const bucket_of = bucket_of_.data();
        const int64_t size = list_indices(
            candidates.size(), in_bucket_.data(),
            [=](int64_t at) { return where_equal(bucket_of + at, b); });
        order_.sort(candidates.values(), in_bucket_.data(), size);
        int64_t mass = mass_before_[b], rank = count_before_[b];
        order_.each([&](int32_t j, double p) {
            const int32_t i = in_bucket_[j];
            ranks_[i] = ++rank;
            scores_[i] = score_.needs_order
                             ? ordered_score(score_, p, mass, rank, u, candidates.largest())
                             : softmax_score(p);
            mass += candidates.masses()[i];
        });
        is_sorted_[b] = 1;
    }

    const Score& score_;
    const Thresholds* thresholds_;  // of the sets that are listed
    const bool counts_;  // whether ranks matter
    int64_t n_buckets_ = 0;
    Buffer<int64_t> mass_before_, count_before_;
    Buffer<double> least_, largest_;  // scores of a bucket
    Buffer<uint8_t> is_sorted_;
    Buffer<int32_t> bucket_of_;
    Buffer<uint8_t> flags_;
    Buffer<int32_t> all_, indices_;
    Buffer<int32_t> in_bucket_;
    Buffer<double> scores_;  // of the classes in sorted buckets
    Buffer<int64_t> ranks_;
    Buffer<int32_t> unsure_;
    DescendingOrder<T> order_;
};

// The classes with an infinite threshold, included for any score.
class InfiniteThresholds {
   public:
    InfiniteThresholds(const Thresholds& thresholds, int64_t n_classes)
        : thresholds_(thresholds), n_classes_(n_classes), always_(n_classes) {
        for (int64_t y = 0; y < n_classes; ++y) {
            const bool free = is_free(thresholds, y, n_classes);
            const bool upper = free && thresholds.upper[y] == infinity;
            const bool lower = thresholds.lower ? free && thresholds.lower[y] == infinity : upper;
            always_[y] = upper && lower;
            exist_ |= upper || lower;
            if (upper == lower) continue;
            sometimes_.reserve(n_sometimes_ + 1);
            sometimes_[n_sometimes_++] = static_cast<int32_t>(y);
        }
    }

    bool exist() const { return exist_; }

    // Write a flag for each class.
    void write(uint8_t* flags, double draw) const {
        std::memcpy(flags, always_.data(), static_cast<size_t>(n_classes_));
        for (int64_t i = 0; i < n_sometimes_; ++i) {
            const int32_t y = sometimes_[i];
            flags[y] = threshold_of(thresholds_, y, draw) == infinity;
        }
    }

   private:
    const Thresholds& thresholds_;
    int64_t n_classes_;
    Buffer<uint8_t> always_;
    Buffer<int32_t> sometimes_;
    int64_t n_sometimes_ = 0;
    bool exist_ = false;
};

// Write the set of one row of T, for scores that use the order.
template <class T>
class OrderedSets {
   public:
    OrderedSets(const Score& score, const Thresholds& thresholds, int64_t n_classes, int64_t)
        : n_classes_(n_classes),
          infinite_(thresholds, n_classes),
          largest_(thresholds, n_classes),
          filter_(score, largest_.value(), n_classes, largest_.rank()),
          selector_(score, thresholds, n_classes),
          candidates_(n_classes),
          flags_(n_classes + n_lanes) {}

    // Prepare for `write_again`.
    void add(const Score&, const Thresholds& second, int64_t n_classes, int64_t) {
        const LargestThreshold largest(second, n_classes);
        filter_.widen(largest.value(), largest.rank());
        infinite_again_.emplace(second, n_classes);
        second_ = &second;
    }

    // Return the size of the set, or -1 for a bad row.
    template <class Source, class Draw>
    int64_t write(const Source& source, const typename Source::Value* row, double u,
                  const Draw& draw_of_row, int32_t* classes) {
        if (!filter_.choose(source, row, candidates_)) return -1;
        const double draw = draw_of_row();
        const int64_t size = selector_.select(candidates_, u, draw, classes);
        return add_infinite(infinite_, draw, classes, size);
    }

    // Write the set by the second thresholds of the row that was written last.
    template <class Source, class Draw>
    int64_t write_again(const Source&, const typename Source::Value*, double u,
                        const Draw& draw_of_row, int32_t* classes) {
        const double draw = second_->lower ? draw_of_row() : 0.0;
        const int64_t size = selector_.select_again(candidates_, *second_, u, draw, classes);
        return add_infinite(*infinite_again_, draw, classes, size);
    }

   private:
    int64_t add_infinite(const InfiniteThresholds& infinite, double draw, int32_t* classes,
                         int64_t size) {
        if (!infinite.exist()) return size;
        infinite.write(flags_.data(), draw);
        for (int64_t i = 0; i < size; ++i) flags_[classes[i]] = 1;
        return list_true(flags_.data(), n_classes_, classes);
    }

    int64_t n_classes_;
    InfiniteThresholds infinite_;
    std::optional<InfiniteThresholds> infinite_again_;
    const Thresholds* second_ = nullptr;
    LargestThreshold largest_;
    CandidateFilter filter_;
    OrderedSelector<T> selector_;
    Candidates<T> candidates_;
    Buffer<uint8_t> flags_;
};

EVENCOVER_END
