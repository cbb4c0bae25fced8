// float16 to float32, which holds every half exactly.
#pragma once

#include <cstdint>

#include "bits.hpp"

#ifdef __F16C__
#include <immintrin.h>
#endif

EVENCOVER_BEGIN

inline float float_from_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7FFFu;
    // Normal numbers: shift into place and move the exponent's bias from 15 to 127.
    uint32_t result = (magnitude << 13) + (112u << 23);
    result += magnitude >= 0x7C00u ? 112u << 23 : 0u;  // infinity and NaN: the largest exponent
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
    return float_of(sign | (magnitude < 0x0400u ? bits(subnormal) : result));
}

inline void floats_from_halves(const uint16_t* halves, int64_t n, float* floats) {
    int64_t j = 0;
#ifdef __F16C__
    for (; j + 8 <= n; j += 8) {
        const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + j));
        _mm256_storeu_ps(floats + j, _mm256_cvtph_ps(eight));
    }
#endif
    for (; j < n; ++j) floats[j] = float_from_half(halves[j]);
}

EVENCOVER_END
