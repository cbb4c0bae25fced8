// Code common to AVX2 and AVX-512.
#pragma once

#include <immintrin.h>

EVENCOVER_BEGIN

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

inline void floats_from_halves(const uint16_t* halves, int64_t n, float* floats) {
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
        const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + j));
        _mm256_storeu_ps(floats + j, _mm256_cvtph_ps(eight));
    }
    for (; j < n; ++j) floats[j] = float_from_half(halves[j]);
}

EVENCOVER_END
