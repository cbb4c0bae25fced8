// Sixteen lanes in two AVX2 registers.
#pragma once

#include "x86.hpp"

EVENCOVER_BEGIN

// For each choice of eight lanes, the chosen lanes in order, one byte each.
struct PackedLanes {
    uint64_t of[256];

    constexpr PackedLanes() : of() {
        for (uint32_t kept = 0; kept < 256; ++kept) {
            int at = 0;
            for (uint64_t lane = 0; lane < 8; ++lane) {
                if (kept >> lane & 1) of[kept] |= lane << (8 * at++);
            }
        }
    }
};
constexpr PackedLanes packed_lanes;

inline __m256i chosen_lanes(uint32_t kept) {
    const auto lanes = static_cast<long long>(packed_lanes.of[kept]);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(lanes));
}

struct FloatLanes {
    __m256 low, high;

    explicit FloatLanes(const float* at) : low(_mm256_loadu_ps(at)), high(_mm256_loadu_ps(at + 8)) {}
    FloatLanes(const float* at, int64_t n) {  // zeros beyond n
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256i left = _mm256_set1_epi32(static_cast<int32_t>(n < n_lanes ? n : n_lanes));
        low = _mm256_maskload_ps(at, _mm256_cmpgt_epi32(left, lane));
        const __m256i more = _mm256_sub_epi32(left, _mm256_set1_epi32(8));
        high = _mm256_maskload_ps(at + 8, _mm256_cmpgt_epi32(more, lane));
    }

    LaneMask at_least(float from) const {
        const __m256 limit = _mm256_set1_ps(from);
        return mask(_mm256_cmp_ps(low, limit, _CMP_GE_OQ), _mm256_cmp_ps(high, limit, _CMP_GE_OQ));
    }
    LaneMask at_least(const FloatLanes& limits) const {
        return mask(_mm256_cmp_ps(low, limits.low, _CMP_GE_OQ),
                    _mm256_cmp_ps(high, limits.high, _CMP_GE_OQ));
    }
    float* store(LaneMask kept, float* out) const {
        if (!kept) return out;  // the most common case
        const uint32_t first = kept & 0xFF, second = kept >> 8;
        _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(low, chosen_lanes(first)));
        out += __builtin_popcount(first);
        _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(high, chosen_lanes(second)));
        return out + __builtin_popcount(second);
    }

   private:
    static LaneMask mask(__m256 low, __m256 high) {
        return static_cast<LaneMask>(_mm256_movemask_ps(low)) |
               static_cast<LaneMask>(_mm256_movemask_ps(high)) << 8;
    }
};

struct IndexLanes {
    __m256i first;

    explicit IndexLanes(int64_t index) : first(_mm256_set1_epi32(static_cast<int32_t>(index))) {}

    int32_t* store(LaneMask kept, int32_t* out) const {
        if (!kept) return out;
        out = store_eight(first, kept & 0xFF, out);
        return store_eight(_mm256_add_epi32(first, _mm256_set1_epi32(8)), kept >> 8, out);
    }

   private:
    static int32_t* store_eight(__m256i from, uint32_t kept, int32_t* out) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                            _mm256_add_epi32(from, chosen_lanes(kept)));
        return out + __builtin_popcount(kept);
    }
};

struct LaneSums {
    __m256i outside = _mm256_setzero_si256();  // a sign bit is set unless 0 <= value <= 1
    __m256 low = _mm256_setzero_ps();
    __m256 high = _mm256_setzero_ps();

    void add(const FloatLanes& lanes) {
        outside = _mm256_or_si256(outside, _mm256_or_si256(beyond(lanes.low), beyond(lanes.high)));
        low = _mm256_add_ps(low, lanes.low);
        high = _mm256_add_ps(high, lanes.high);
    }
    void add(const LaneSums& other) {
        outside = _mm256_or_si256(outside, other.outside);
        low = _mm256_add_ps(low, other.low);
        high = _mm256_add_ps(high, other.high);
    }
    bool in_unit_interval() const {
        return _mm256_movemask_ps(_mm256_castsi256_ps(outside)) == 0;
    }
    double total() const {
        const __m256d fours = _mm256_add_pd(sum_of_halves(low), sum_of_halves(high));
        const __m128d twos =
            _mm_add_pd(_mm256_castpd256_pd128(fours), _mm256_extractf128_pd(fours, 1));
        return _mm_cvtsd_f64(_mm_add_sd(twos, _mm_unpackhi_pd(twos, twos)));
    }

   private:
    static __m256d sum_of_halves(__m256 lanes) {
        return _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(lanes)),
                             _mm256_cvtps_pd(_mm256_extractf128_ps(lanes, 1)));
    }
    static __m256i beyond(__m256 values) {
        const __m256i b = _mm256_castps_si256(values);
        return _mm256_or_si256(b, _mm256_sub_epi32(_mm256_set1_epi32(float_one), b));
    }
};

// Sums of the products of neighboring words.
struct PairSums {
    static constexpr int64_t width = 8;
    __m256i sum = _mm256_setzero_si256();

    void add(const float* values, const uint32_t* shifts) {
        const __m256i words =
            _mm256_add_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values)),
                             _mm256_loadu_si256(reinterpret_cast<const __m256i*>(shifts)));
        sum = _mm256_add_epi64(sum, _mm256_mul_epu32(words, _mm256_srli_epi64(words, 32)));
    }
    void store(uint64_t* sums) const {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), sum);
    }
};

// Whether two of n numbers from 0 on are equal without their last `shift` bits. Reads whole lanes.
inline bool has_equals(const int32_t* values, int64_t n, int shift) {
    const __m256i limit = _mm256_set1_epi32(1 << shift);
    __m256i n_equal = _mm256_setzero_si256();  // each number equals itself
    for (int64_t at = 0; at < n; at += 8) {
        const __m256i own = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + at));
        for (int64_t later = at; later < n; ++later) {
            const __m256i changes = _mm256_xor_si256(own, _mm256_set1_epi32(values[later]));
            n_equal = _mm256_sub_epi32(n_equal, _mm256_cmpgt_epi32(limit, changes));
        }
    }
    int32_t by_lane[8], total = 0;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(by_lane), n_equal);
    for (const int32_t lane : by_lane) total += lane;
    return total > n;
}

// Copy n numbers of 32 bits, and fill the lanes after them.
inline void copy_lanes(const void* from, int64_t n, int32_t filling, void* to) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int32_t half = 0; half < 2; ++half) {
        const int32_t left = static_cast<int32_t>(n < n_lanes ? n : n_lanes) - 8 * half;
        const __m256i kept = _mm256_cmpgt_epi32(_mm256_set1_epi32(left), lane);
        const __m256i values = _mm256_maskload_epi32(static_cast<const int*>(from) + 8 * half, kept);
        _mm256_storeu_si256(static_cast<__m256i*>(to) + half,
                            _mm256_blendv_epi8(_mm256_set1_epi32(filling), values, kept));
    }
}

inline int32_t* store_lanes(const int32_t* from, LaneMask kept, int32_t* out) {
    for (const uint32_t part : {kept & 0xFF, kept >> 8}) {
        const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                            _mm256_permutevar8x32_epi32(values, chosen_lanes(part)));
        out += __builtin_popcount(part);
        from += 8;
    }
    return out;
}

inline LaneMask where_at_most(const double* values, double limit) {
    LaneMask mask = 0;
    for (int at = 0; at < n_lanes; at += 4) {
        const __m256d within =
            _mm256_cmp_pd(_mm256_loadu_pd(values + at), _mm256_set1_pd(limit), _CMP_LE_OQ);
        mask |= static_cast<LaneMask>(_mm256_movemask_pd(within)) << at;
    }
    return mask;
}

EVENCOVER_END
