// Which candidates are in the set of a score that goes by the order.
//
// Candidates fall into buckets by exponent and leading mantissa bits. The mass of the buckets
// before bounds the scores of a bucket from both sides; only where a limit lies between the bounds
// is the bucket sorted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "candidates.hpp"
#include "limits.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

struct Ranked {
    double p;
    int32_t candidate;  // candidates are in the order of their classes
};

struct ComesBefore {
    bool operator()(const Ranked& a, const Ranked& b) const {
        return a.p > b.p || (a.p == b.p && a.candidate < b.candidate);
    }
};

inline void sort_ranked(Ranked* begin, Ranked* end) {
    if (end - begin > 24) {
        std::sort(begin, end, ComesBefore());
        return;
    }
    for (Ranked* next = begin + 1; next < end; ++next) {
        const Ranked moving = *next;
        Ranked* place = next;
        for (; place > begin && ComesBefore()(moving, place[-1]); --place) *place = place[-1];
        *place = moving;
    }
}

class OrderedSelector {
   public:
    OrderedSelector(const Score& score, const Thresholds& thresholds, int64_t n_classes)
        : score_(score),
          thresholds_(thresholds),
          buckets_(max_buckets),
          bounds_(max_buckets),
          is_sorted_(max_buckets),
          bucket_of_(n_classes),
          next_(n_classes),
          unsure_(n_classes + 1),
          ranked_(n_classes) {}

    // Sets is_member[i] of each candidate.
    void select(const Candidates& candidates, double u, double coin, uint8_t* is_member) {
        if (candidates.size() == 0) return;
        fill_buckets(candidates);
        bound_scores(candidates.largest());
        const int64_t n_unsure = thresholds_.rank_limit
                                     ? compare_ranks(candidates, coin, is_member)
                                     : compare_bounds(candidates, coin, is_member);
        for (int64_t i = 0; i < n_unsure; ++i) {
            const int32_t b = bucket_of_[unsure_[i]];
            if (!is_sorted_[b]) compare_exactly(candidates, b, u, coin, is_member);
            is_sorted_[b] = 1;
        }
    }

   private:
    static constexpr int64_t max_buckets = 1 << 13;
    static constexpr int64_t many = 256;  // candidates

    struct Bucket {
        int64_t mass;
        int32_t count;
        int32_t last;  // one more than its last candidate; a chain of them through next_, 0 ends it
    };
    struct Bounds {
        double least, largest;  // of the scores
        int64_t mass_before;
        int32_t count_before, count_up_to;
    };

    // More candidates, finer buckets; the last one takes all that is too small to matter.
    void fill_buckets(const Candidates& candidates) {
        int mantissa_bits = 1;
        const int per_bucket = candidates.size() > many ? 6 : 5;
        while (mantissa_bits < 8 && candidates.size() >> (mantissa_bits + per_bucket)) {
            ++mantissa_bits;
        }
        const int shift = 52 - mantissa_bits;
        const uint64_t top = bits(candidates.largest()) >> shift;
        const uint64_t span = top - (bits(candidates.smallest()) >> shift) + 1;
        n_buckets_ = static_cast<int64_t>(span < max_buckets ? span : max_buckets);
        std::memset(buckets_.data(), 0, static_cast<size_t>(n_buckets_) * sizeof(Bucket));
        std::memset(is_sorted_.data(), 0, static_cast<size_t>(n_buckets_));
        const uint64_t last = static_cast<uint64_t>(n_buckets_ - 1);
        for (int64_t i = 0; i < candidates.size(); ++i) {
            const uint64_t below_top = top - (bits(candidates.p(i)) >> shift);
            const auto b = static_cast<int32_t>(below_top < last ? below_top : last);
            Bucket& bucket = buckets_[b];
            bucket.mass += candidates.mass_of(i);
            bucket.count += 1;
            next_[i] = bucket.last;
            bucket.last = static_cast<int32_t>(i) + 1;
            bucket_of_[i] = b;
        }
    }

    void bound_scores(double top) {
        const Score score = score_;  // a copy, which nothing that is written here can change
        const Bucket* __restrict const buckets = buckets_.data();
        Bounds* __restrict const bounds = bounds_.data();
        int64_t mass = 0;
        int32_t count = 0;
        for (int64_t b = 0; b < n_buckets_; ++b) {
            bounds[b].mass_before = mass;
            bounds[b].count_before = count;
            bounds[b].least = least_score(score, mass, count + 1, top);
            mass += buckets[b].mass;
            count += buckets[b].count;
            bounds[b].count_up_to = count;
            bounds[b].largest = largest_score(score, mass, count, top);
        }
    }

    // Compares what is sure, and lists the candidates whose buckets are left to sort.
    int64_t compare_bounds(const Candidates& candidates, double coin, uint8_t* is_member) {
        const double* const upper = thresholds_.upper;
        if (!thresholds_.lower) {
            return compare(candidates, is_member, [=](int64_t y) { return upper[y]; });
        }
        return compare(candidates, is_member,
                       [&](int64_t y) { return limit_of(thresholds_, y, coin); });
    }

    // Bytes may alias anything, so all that is read is told to be apart from them.
    template <class LimitOf>
    int64_t compare(const Candidates& candidates, uint8_t* __restrict is_member,
                    LimitOf limit_of_class) {
        const int64_t size = candidates.size();
        const int32_t* __restrict const classes = candidates.classes();
        const int32_t* __restrict const bucket_of = bucket_of_.data();
        const Bounds* __restrict const bounds = bounds_.data();
        int32_t* __restrict const unsure = unsure_.data();
        int64_t n_unsure = 0;
        const bool are_many = size > many;  // nearly all of them out, so that a branch is cheaper
        if (are_many) std::memset(is_member, 0, static_cast<size_t>(size));
        for (int64_t i = 0; i < size; ++i) {
            const Bounds& own = bounds[bucket_of[i]];
            const double limit = limit_of_class(classes[i]);
            if (are_many && own.least > limit) continue;
            const bool inside = own.largest <= limit;
            is_member[i] = inside;
            unsure[n_unsure] = static_cast<int32_t>(i);
            n_unsure += (own.least <= limit) & !inside;
        }
        return n_unsure;
    }

    // The same with limits on ranks. The score 1 - p of a class is known without its rank.
    int64_t compare_ranks(const Candidates& candidates, double coin,
                          uint8_t* __restrict is_member) {
        const int64_t size = candidates.size();
        const bool needs_order = score_.needs_order;
        const int32_t* __restrict const classes = candidates.classes();
        const int32_t* __restrict const bucket_of = bucket_of_.data();
        const Bounds* __restrict const bounds = bounds_.data();
        const int64_t* __restrict const rank_limits = thresholds_.rank_limit;
        int32_t* __restrict const unsure = unsure_.data();
        int64_t n_unsure = 0;
        std::memset(is_member, 0, static_cast<size_t>(size));
        for (int64_t i = 0; i < size; ++i) {
            const Bounds& own = bounds[bucket_of[i]];
            const int64_t y = classes[i], rank_limit = rank_limits[y];
            if (own.count_before >= rank_limit) continue;
            const double limit = limit_of(thresholds_, y, coin);
            const double score = softmax_score(candidates.p(i));
            const double largest = needs_order ? own.largest : score;
            const double least = needs_order ? own.least : score;
            const bool inside = (largest <= limit) & (own.count_up_to <= rank_limit);
            is_member[i] = inside;
            unsure[n_unsure] = static_cast<int32_t>(i);
            n_unsure += !inside & (least <= limit);
        }
        return n_unsure;
    }

    void compare_exactly(const Candidates& candidates, int32_t b, double u, double coin,
                         uint8_t* is_member) {
        Ranked* const ranked = ranked_.data();
        Ranked* end = ranked;
        for (int32_t i = buckets_[b].last; i > 0; i = next_[i - 1]) {
            *end++ = {candidates.p(i - 1), i - 1};
        }
        std::reverse(ranked, end);  // the chain is backwards; equal ones need no sorting then
        sort_ranked(ranked, end);
        int64_t mass = bounds_[b].mass_before, rank = int64_t{bounds_[b].count_before} + 1;
        for (const Ranked* r = ranked; r < end; ++r, ++rank) {
            const double s = score_.needs_order
                                 ? ordered_score(score_, r->p, mass, rank, u, candidates.largest())
                                 : softmax_score(r->p);
            const int64_t y = candidates.class_of(r->candidate);
            is_member[r->candidate] =
                s <= limit_of(thresholds_, y, coin) &&
                (!thresholds_.rank_limit || rank <= thresholds_.rank_limit[y]);
            mass += candidates.mass_of(r->candidate);
        }
    }

    const Score& score_;
    const Thresholds& thresholds_;
    Buffer<Bucket> buckets_;
    Buffer<Bounds> bounds_;
    Buffer<uint8_t> is_sorted_;
    Buffer<int32_t> bucket_of_;
    Buffer<int32_t> next_;
    Buffer<int32_t> unsure_;
    Buffer<Ranked> ranked_;
    int64_t n_buckets_ = 0;
};

EVENCOVER_END
