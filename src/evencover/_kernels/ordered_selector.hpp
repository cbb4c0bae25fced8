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
          bucket_of_(n_classes),
          next_(n_classes),
          unsure_(max_buckets),
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
            compare_exactly(candidates, buckets_[unsure_[i]], u, coin, is_member);
        }
    }

   private:
    static constexpr int64_t max_buckets = 1 << 13;

    struct Bucket {
        int64_t mass = 0;
        int64_t mass_before;
        double least, largest;  // of the scores
        int32_t count = 0;
        int32_t count_before;
        int32_t first = -1;  // a chain of candidates through next_
        int32_t is_unsure = 0;
    };

    // More candidates, finer buckets; the last one takes all that is too small to matter.
    void fill_buckets(const Candidates& candidates) {
        int mantissa_bits = 1;
        while (mantissa_bits < 8 && candidates.size() >> (mantissa_bits + 6)) ++mantissa_bits;
        const int shift = 52 - mantissa_bits;
        const uint64_t top = bits(candidates.largest()) >> shift;
        const uint64_t span = top - (bits(candidates.smallest()) >> shift) + 1;
        n_buckets_ = static_cast<int64_t>(span < max_buckets ? span : max_buckets);
        for (int64_t b = 0; b < n_buckets_; ++b) buckets_[b] = Bucket();
        const uint64_t last = static_cast<uint64_t>(n_buckets_ - 1);
        for (int64_t i = 0; i < candidates.size(); ++i) {
            const uint64_t below_top = top - (bits(candidates.p(i)) >> shift);
            const int64_t b = static_cast<int64_t>(below_top < last ? below_top : last);
            Bucket& bucket = buckets_[b];
            bucket.mass += fixed_point(candidates.p(i));
            bucket.count += 1;
            next_[i] = bucket.first;
            bucket.first = static_cast<int32_t>(i);
            bucket_of_[i] = static_cast<int32_t>(b);
        }
    }

    void bound_scores(double top) {
        int64_t mass = 0;
        int32_t count = 0;
        for (int64_t b = 0; b < n_buckets_; ++b) {
            Bucket& bucket = buckets_[b];
            bucket.mass_before = mass;
            bucket.count_before = count;
            bucket.least = least_score(score_, mass, count + 1, top);
            mass += bucket.mass;
            count += bucket.count;
            bucket.largest = largest_score(score_, mass, count, top);
        }
    }

    // Returns how many buckets are left to sort.
    int64_t compare_bounds(const Candidates& candidates, double coin, uint8_t* is_member) {
        int64_t n_unsure = 0;
        for (int64_t i = 0; i < candidates.size(); ++i) {
            Bucket& bucket = buckets_[bucket_of_[i]];
            const double limit = limit_of(thresholds_, candidates.class_of(i), coin);
            const bool inside = bucket.largest <= limit;
            const bool is_unsure = !inside & (bucket.least <= limit);
            is_member[i] = inside;
            unsure_[n_unsure] = bucket_of_[i];
            n_unsure += is_unsure & !bucket.is_unsure;
            bucket.is_unsure |= is_unsure;
        }
        return n_unsure;
    }

    // The same with limits on ranks. The score 1 - p of a class is known without its rank.
    int64_t compare_ranks(const Candidates& candidates, double coin, uint8_t* is_member) {
        int64_t n_unsure = 0;
        for (int64_t i = 0; i < candidates.size(); ++i) {
            Bucket& bucket = buckets_[bucket_of_[i]];
            const int64_t y = candidates.class_of(i), rank_limit = thresholds_.rank_limit[y];
            const double limit = limit_of(thresholds_, y, coin), own = softmax_score(candidates.p(i));
            const double largest = score_.needs_order ? bucket.largest : own;
            const double least = score_.needs_order ? bucket.least : own;
            const bool inside =
                largest <= limit && bucket.count_before + bucket.count <= rank_limit;
            const bool is_unsure =
                !inside && least <= limit && bucket.count_before + 1 <= rank_limit;
            is_member[i] = inside;
            if (is_unsure && !bucket.is_unsure) unsure_[n_unsure++] = bucket_of_[i];
            bucket.is_unsure |= is_unsure;
        }
        return n_unsure;
    }

    void compare_exactly(const Candidates& candidates, const Bucket& bucket, double u, double coin,
                         uint8_t* is_member) {
        Ranked* const ranked = ranked_.data();
        Ranked* end = ranked;
        for (int32_t i = bucket.first; i >= 0; i = next_[i]) *end++ = {candidates.p(i), i};
        std::reverse(ranked, end);  // the chain is backwards; equal ones need no sorting then
        sort_ranked(ranked, end);
        int64_t mass = bucket.mass_before, rank = bucket.count_before + 1;
        for (const Ranked* r = ranked; r < end; ++r, ++rank) {
            const double s = score_.needs_order
                                 ? ordered_score(score_, r->p, mass, rank, u, candidates.largest())
                                 : softmax_score(r->p);
            const int64_t y = candidates.class_of(r->candidate);
            is_member[r->candidate] =
                s <= limit_of(thresholds_, y, coin) &&
                (!thresholds_.rank_limit || rank <= thresholds_.rank_limit[y]);
            mass += fixed_point(r->p);
        }
    }

    const Score& score_;
    const Thresholds& thresholds_;
    Buffer<Bucket> buckets_;
    Buffer<int32_t> bucket_of_;
    Buffer<int32_t> next_;
    Buffer<int32_t> unsure_;
    Buffer<Ranked> ranked_;
    int64_t n_buckets_ = 0;
};

EVENCOVER_END
