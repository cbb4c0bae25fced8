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

#elif defined(__AVX2__)

// For each choice of eight lanes the chosen ones in order, one byte each.
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
        float copy[n_lanes] = {};
        for (int64_t l = 0; l < n && l < n_lanes; ++l) copy[l] = at[l];
        low = _mm256_loadu_ps(copy);
        high = _mm256_loadu_ps(copy + 8);
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
        if (!kept) return out;  // most have none
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

struct PlaceLanes {
    __m256i first;

    explicit PlaceLanes(int64_t place) : first(_mm256_set1_epi32(static_cast<int32_t>(place))) {}

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
        float lanes[n_lanes];
        _mm256_storeu_ps(lanes, low);
        _mm256_storeu_ps(lanes + 8, high);
        double total = 0.0;
        for (float lane : lanes) total += static_cast<double>(lane);
        return total;
    }

   private:
    static __m256i beyond(__m256 values) {
        const __m256i b = _mm256_castps_si256(values);
        return _mm256_or_si256(b, _mm256_sub_epi32(_mm256_set1_epi32(float_one), b));
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
