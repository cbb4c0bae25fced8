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

struct PlaceLanes {
    __m512i places;

    explicit PlaceLanes(int64_t first)
        : places(_mm512_add_epi32(
              _mm512_set1_epi32(static_cast<int32_t>(first)),
              _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))) {}

    int32_t* store(LaneMask kept, int32_t* out) const {
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(static_cast<__mmask16>(kept), places));
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
    double total() const {
        float lanes[n_lanes];
        _mm512_storeu_ps(lanes, sum);
        double total = 0.0;
        for (float lane : lanes) total += static_cast<double>(lane);
        return total;
    }
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

EVENCOVER_END
