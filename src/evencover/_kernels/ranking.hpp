// Candidates in decreasing order of probability, as far as the order matters.
//
// A bucket sort by exponent and leading mantissa bits. The masses of the buckets tell which classes
// have scores below every limit, and which above, before anything is sorted.
#pragma once

#include <algorithm>
#include <cstdint>

#include "candidates.hpp"
#include "limits.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

struct Ranked {
    double p;
    int32_t class_index;
};

// Equal probabilities are ordered by class index.
struct ComesBefore {
    bool operator()(const Ranked& a, const Ranked& b) const {
        return a.p > b.p || (a.p == b.p && a.class_index < b.class_index);
    }
};

inline void sort_few(Ranked* begin, Ranked* end) {
    for (Ranked* next = begin + 1; next < end; ++next) {
        const Ranked moving = *next;
        Ranked* place = next;
        for (; place > begin && ComesBefore()(moving, place[-1]); --place) *place = place[-1];
        *place = moving;
    }
}

inline void sort_bucket(Ranked* begin, Ranked* end) {
    if (end - begin <= 24) {
        sort_few(begin, end);
    } else {
        std::sort(begin, end, ComesBefore());
    }
}

class Ranking {
   public:
    explicit Ranking(int64_t n_classes)
        : bucket_of_(n_classes), ranked_(n_classes), buckets_(max_buckets) {}

    // Afterwards `is_sure(i)` tells the candidates whose scores are at most `limits.least`, and
    // `walk` visits those after them until scores exceed `limits.largest`.
    void arrange(const Candidates& candidates, const Score& score, const LimitRange& limits) {
        n_used_ = 0;
        sure_ = 0;
        if (candidates.size() == 0) {
            n_ranked_ = 0;
            return;
        }
        fill_buckets(candidates);
        const int64_t end = bound_buckets(score, limits);
        place_candidates(candidates, end);
    }

    bool is_sure(int64_t i) const { return bucket_of_[i] < sure_; }

    // Calls visit(class, score) in order of rank, while a score can be at most `largest`.
    template <class Visit>
    void walk(const Score& score, double u, double largest, Visit visit) const {
        int64_t mass = mass_before_, rank = count_before_ + 1;
        for (int64_t i = 0; i < n_ranked_; ++i, ++rank) {
            if (least_score(score, mass, rank) > largest) return;
            const Ranked& r = ranked_[i];
            visit(r.class_index, ordered_score(score, r.p, mass, rank, u));
            mass += fixed_point(r.p);
        }
    }

   private:
    static constexpr int64_t max_buckets = 1 << 14;

    struct Bucket {
        int64_t mass;
        int32_t count;
        int32_t next;  // where in ranked_ its next candidate goes
    };

    // More candidates, finer buckets; the last one takes all that is too small to matter.
    void fill_buckets(const Candidates& candidates) {
        int mantissa_bits = 2;
        while (mantissa_bits < 9 && (candidates.size() >> (mantissa_bits + 5))) ++mantissa_bits;
        const int shift = 52 - mantissa_bits;
        const uint64_t top = bits(candidates.largest()) >> shift;
        const uint64_t span = top - (bits(candidates.smallest()) >> shift) + 1;
        n_used_ = static_cast<int64_t>(span < max_buckets ? span : max_buckets);
        for (int64_t b = 0; b < n_used_; ++b) buckets_[b] = Bucket{0, 0, 0};
        const uint64_t last = static_cast<uint64_t>(n_used_ - 1);
        for (int64_t i = 0; i < candidates.size(); ++i) {
            const uint64_t below_top = top - (bits(candidates.p(i)) >> shift);
            const uint64_t b = below_top < last ? below_top : last;
            bucket_of_[i] = static_cast<int32_t>(b);
            buckets_[static_cast<int64_t>(b)].mass += fixed_point(candidates.p(i));
            buckets_[static_cast<int64_t>(b)].count += 1;
        }
    }

    // Sets sure_, what comes before the ranked ones, and the places of those; returns the first
    // bucket beyond all limits.
    int64_t bound_buckets(const Score& score, const LimitRange& limits) {
        int64_t b = 0, mass = 0, count = 0;
        for (; b < n_used_; ++b) {
            const int64_t mass_up_to = mass + buckets_[b].mass;
            const int64_t count_up_to = count + buckets_[b].count;
            if (!(largest_score(score, mass_up_to, count_up_to) <= limits.least)) break;
            mass = mass_up_to;
            count = count_up_to;
        }
        sure_ = static_cast<int32_t>(b);
        mass_before_ = mass;
        count_before_ = count;
        n_ranked_ = 0;
        for (; b < n_used_ && least_score(score, mass, count + 1) <= limits.largest; ++b) {
            buckets_[b].next = static_cast<int32_t>(n_ranked_);
            n_ranked_ += buckets_[b].count;
            mass += buckets_[b].mass;
            count += buckets_[b].count;
        }
        return b;
    }

    void place_candidates(const Candidates& candidates, int64_t end) {
        for (int64_t i = 0; i < candidates.size(); ++i) {
            if (bucket_of_[i] < sure_ || bucket_of_[i] >= end) continue;
            ranked_[buckets_[bucket_of_[i]].next++] = {candidates.p(i), candidates.class_of(i)};
        }
        for (int64_t b = sure_; b < end; ++b) {
            Ranked* const bucket_end = ranked_.data() + buckets_[b].next;
            sort_bucket(bucket_end - buckets_[b].count, bucket_end);
        }
    }

    Buffer<int32_t> bucket_of_;
    Buffer<Ranked> ranked_;
    Buffer<Bucket> buckets_;
    int64_t n_used_ = 0;
    int64_t n_ranked_ = 0;
    int64_t mass_before_ = 0;
    int64_t count_before_ = 0;
    int32_t sure_ = 0;
};

EVENCOVER_END
