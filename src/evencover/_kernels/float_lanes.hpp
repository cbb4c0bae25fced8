// Sixteen float32 values at a time: AVX-512, AVX2, or plain C++ that compilers vectorise.
#pragma once

#include <cstdint>

#include "bits.hpp"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

EVENCOVER_BEGIN

constexpr int64_t n_lanes = 16;
constexpr int32_t float_one = 0x3F800000;

using LaneMask = uint32_t;

inline LaneMask first_lanes(int64_t n) { return (1u << n) - 1; }

#if defined(__AVX512F__)

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

#else

struct FloatLanes {
    const float* values;
    float copy[n_lanes];

    explicit FloatLanes(const float* at) : values(at) {}
    FloatLanes(const float* at, int64_t n) : values(copy), copy{} {
        for (int64_t l = 0; l < n && l < n_lanes; ++l) copy[l] = at[l];
    }
    FloatLanes(const FloatLanes&) = delete;

    // The whole mask is rarely wanted: most blocks have none.
#if defined(__AVX2__)
    LaneMask at_least(float from) const {
        const __m256 limit = _mm256_set1_ps(from);
        const __m256 low = _mm256_cmp_ps(_mm256_loadu_ps(values), limit, _CMP_GE_OQ);
        const __m256 high = _mm256_cmp_ps(_mm256_loadu_ps(values + 8), limit, _CMP_GE_OQ);
        return both(low, high);
    }
    LaneMask at_least(const FloatLanes& limits) const {
        const float* const from = limits.values;
        return both(
            _mm256_cmp_ps(_mm256_loadu_ps(values), _mm256_loadu_ps(from), _CMP_GE_OQ),
            _mm256_cmp_ps(_mm256_loadu_ps(values + 8), _mm256_loadu_ps(from + 8), _CMP_GE_OQ));
    }
    static LaneMask both(__m256 low, __m256 high) {
        return static_cast<LaneMask>(_mm256_movemask_ps(low)) |
               static_cast<LaneMask>(_mm256_movemask_ps(high)) << 8;
    }
#else
    LaneMask at_least(float from) const {
        uint32_t any = 0;
        for (int64_t l = 0; l < n_lanes; ++l) any |= values[l] >= from ? 1u : 0u;
        LaneMask mask = 0;
        if (any) {
            for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{values[l] >= from} << l;
        }
        return mask;
    }
    LaneMask at_least(const FloatLanes& limits) const {
        const float* const from = limits.values;
        uint32_t any = 0;
        for (int64_t l = 0; l < n_lanes; ++l) any |= values[l] >= from[l] ? 1u : 0u;
        LaneMask mask = 0;
        if (any) {
            for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{values[l] >= from[l]} << l;
        }
        return mask;
    }
#endif
    float* store(LaneMask kept, float* out) const {
        for (; kept; kept &= kept - 1) *out++ = values[lowest_bit(kept)];
        return out;
    }
};

struct PlaceLanes {
    int64_t first;

    explicit PlaceLanes(int64_t first_place) : first(first_place) {}

    int32_t* store(LaneMask kept, int32_t* out) const {
        for (; kept; kept &= kept - 1) *out++ = static_cast<int32_t>(first + lowest_bit(kept));
        return out;
    }
};

struct LaneSums {
    uint32_t outside[n_lanes] = {};  // a sign bit is set unless 0 <= value <= 1
    float sum[n_lanes] = {};

    void add(const FloatLanes& lanes) {
        for (int64_t l = 0; l < n_lanes; ++l) {
            const uint32_t b = bits(lanes.values[l]);
            outside[l] |= b | (static_cast<uint32_t>(float_one) - b);
            sum[l] += lanes.values[l];
        }
    }
    void add(const LaneSums& other) {
        for (int64_t l = 0; l < n_lanes; ++l) {
            outside[l] |= other.outside[l];
            sum[l] += other.sum[l];
        }
    }
    bool in_unit_interval() const {
        uint32_t any = 0;
        for (uint32_t lane : outside) any |= lane;
        return any >> 31 == 0;
    }
    double total() const {
        double total = 0.0;
        for (float lane : sum) total += static_cast<double>(lane);
        return total;
    }
};

#endif

EVENCOVER_END
