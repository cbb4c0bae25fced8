// Sixteen lanes in one AVX-512 register.
#pragma once

#include "x86.hpp"

EVENCOVER_BEGIN

struct FloatLanes {
    __m512 values;

    explicit FloatLanes(const float* at) : values(_mm512_loadu_ps(at)) {}
    FloatLanes(const float* at, int64_t n)  // zeros beyond n
        : values(_mm512_maskz_loadu_ps(
              static_cast<__mmask16>(n >= n_lanes ? 0xFFFF : first_lanes(n)), at)) {}

    LaneMask at_least(float from) const {
        return _mm512_cmp_ps_mask(values, _mm512_set1_ps(from), _CMP_GE_OQ);
    }
    LaneMask at_least(const FloatLanes& limits) const {
        return _mm512_cmp_ps_mask(values, limits.values, _CMP_GE_OQ);
    }
    float* store(LaneMask kept, float* out) const {
        _mm512_storeu_ps(out, _mm512_maskz_compress_ps(static_cast<__mmask16>(kept), values));
        return out + __builtin_popcount(kept);
    }
};

struct IndexLanes {
    __m512i indices;

    explicit IndexLanes(int64_t first)
        : indices(_mm512_add_epi32(
              _mm512_set1_epi32(static_cast<int32_t>(first)),
              _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))) {}

    int32_t* store(LaneMask kept, int32_t* out) const {
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(static_cast<__mmask16>(kept), indices));
        return out + __builtin_popcount(kept);
    }
};

struct LaneSums {
    __m512i outside = _mm512_setzero_si512();  // a sign bit is set unless 0 <= value <= 1
    __m512 sum = _mm512_setzero_ps();

    void add(const FloatLanes& lanes) {
        const __m512i b = _mm512_castps_si512(lanes.values);
        const __m512i room = _mm512_sub_epi32(_mm512_set1_epi32(float_one), b);
        outside = _mm512_or_si512(outside, _mm512_or_si512(b, room));
        sum = _mm512_add_ps(sum, lanes.values);
    }
    void add(const LaneSums& other) {
        outside = _mm512_or_si512(outside, other.outside);
        sum = _mm512_add_ps(sum, other.sum);
    }
    bool in_unit_interval() const { return _mm512_movepi32_mask(outside) == 0; }
    double total() const { return static_cast<double>(_mm512_reduce_add_ps(sum)); }
};

// Sums of the products of neighboring words.
struct PairSums {
    static constexpr int64_t width = 16;
    __m512i sum = _mm512_setzero_si512();

    void add(const float* values, const uint32_t* shifts) {
        const __m512i words =
            _mm512_add_epi32(_mm512_loadu_si512(values), _mm512_loadu_si512(shifts));
        sum = _mm512_add_epi64(sum, _mm512_mul_epu32(words, _mm512_srli_epi64(words, 32)));
    }
    void store(uint64_t* sums) const { _mm512_storeu_si512(sums, sum); }
};

// Whether two of n numbers are equal without their last `shift` bits. Reads whole lanes.
inline bool has_equals(const int32_t* values, int64_t n, int shift) {
    const __m128i by = _mm_cvtsi32_si128(shift);
    __mmask16 equal = 0;
    for (int64_t at = 0; at < n; at += n_lanes) {
        const __m512i lanes = _mm512_srl_epi32(_mm512_loadu_si512(values + at), by);
        const __m512i conflicts = _mm512_conflict_epi32(lanes);
        const auto used = static_cast<__mmask16>(first_lanes(n - at < n_lanes ? n - at : n_lanes));
        equal |= _mm512_mask_test_epi32_mask(used, conflicts, conflicts);
        for (int64_t later = at + n_lanes; later < n; ++later) {
            equal |= _mm512_cmpeq_epi32_mask(lanes, _mm512_set1_epi32(values[later] >> shift));
        }
    }
    return equal != 0;
}

// Copy n numbers of 32 bits, and fill the lanes after them.
inline void copy_lanes(const void* from, int64_t n, int32_t filling, void* to) {
    const auto kept = static_cast<__mmask16>(n >= n_lanes ? 0xFFFF : first_lanes(n));
    _mm512_storeu_si512(to, _mm512_mask_loadu_epi32(_mm512_set1_epi32(filling), kept, from));
}

inline int32_t* store_lanes(const int32_t* from, LaneMask kept, int32_t* out) {
    const __m512i values = _mm512_loadu_si512(from);
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(static_cast<__mmask16>(kept), values));
    return out + __builtin_popcount(kept);
}

inline LaneMask where_at_most(const double* values, double limit) {
    const __m512d limits = _mm512_set1_pd(limit);
    const LaneMask low = _mm512_cmp_pd_mask(_mm512_loadu_pd(values), limits, _CMP_LE_OQ);
    return low | LaneMask{_mm512_cmp_pd_mask(_mm512_loadu_pd(values + 8), limits, _CMP_LE_OQ)} << 8;
}

EVENCOVER_END
