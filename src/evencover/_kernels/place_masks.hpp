// Which of sixteen places are wanted, and the list of those that are.
#pragma once

#include <cstdint>
#include <cstring>

#include "float_lanes.hpp"

EVENCOVER_BEGIN

#if defined(__AVX2__)

inline LaneMask where_true(const uint8_t* flags) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(flags));
    const __m128i is_zero = _mm_cmpeq_epi8(values, _mm_setzero_si128());
    return ~static_cast<LaneMask>(_mm_movemask_epi8(is_zero)) & 0xFFFF;
}

inline LaneMask where_equal(const int32_t* values, int32_t value) {
    const __m256i wanted = _mm256_set1_epi32(value);
    LaneMask mask = 0;
    for (int half = 0; half < 2; ++half) {
        const __m256i found =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + 8 * half));
        const __m256 equal = _mm256_castsi256_ps(_mm256_cmpeq_epi32(found, wanted));
        mask |= static_cast<LaneMask>(_mm256_movemask_ps(equal)) << (8 * half);
    }
    return mask;
}

#else

inline LaneMask where_true(const uint8_t* flags) {
    uint64_t words[2];
    std::memcpy(words, flags, sizeof words);
    LaneMask mask = 0;
    if (words[0] | words[1]) {
        for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{flags[l] != 0} << l;
    }
    return mask;
}

inline LaneMask where_equal(const int32_t* values, int32_t value) {
    uint32_t any = 0;
    for (int64_t l = 0; l < n_lanes; ++l) any |= values[l] == value ? 1u : 0u;
    LaneMask mask = 0;
    if (any) {
        for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{values[l] == value} << l;
    }
    return mask;
}

#endif

// Writes the places below n that `mask_at` wants, and returns how many. It looks at whole lanes, so
// what it reads must go on for n_lanes beyond n, and so must `places`.
template <class MaskAt>
inline int64_t list_places(int64_t n, int32_t* places, MaskAt mask_at) {
    int32_t* out = places;
    for (int64_t at = 0; at < n; at += n_lanes) {
        LaneMask mask = mask_at(at);
        if (n - at < n_lanes) mask &= first_lanes(n - at);
        out = PlaceLanes(at).store(mask, out);
    }
    return out - places;
}

EVENCOVER_END
