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

inline __m256i swapped_halves(__m256i lanes) { return _mm256_permute2x128_si256(lanes, lanes, 1); }

// Sixteen 16-bit numbers, rotated by 0 to 7 lanes.
struct Rotations {
    __m256i by[8];

    explicit Rotations(__m256i lanes) : by{lanes} {
        const __m256i swapped = swapped_halves(lanes);
        by[1] = _mm256_alignr_epi8(swapped, lanes, 2);
        by[2] = _mm256_alignr_epi8(swapped, lanes, 4);
        by[3] = _mm256_alignr_epi8(swapped, lanes, 6);
        by[4] = _mm256_alignr_epi8(swapped, lanes, 8);
        by[5] = _mm256_alignr_epi8(swapped, lanes, 10);
        by[6] = _mm256_alignr_epi8(swapped, lanes, 12);
        by[7] = _mm256_alignr_epi8(swapped, lanes, 14);
    }
};

// Whether two of n <= 64 numbers may be equal without their last `shift` bits, because 15 of the
// other bits are. Reads whole lanes; those beyond n get different numbers above 15 bits.
inline bool may_have_equals(const int32_t* values, int64_t n, int shift) {
    __m256i words[4], equal = _mm256_setzero_si256();
    const __m256i lane = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int64_t n_words = (n + 15) / 16;
    for (int64_t w = 0; w < n_words; ++w) {
        __m256i halves[2];
        for (int64_t half = 0; half < 2; ++half) {
            const auto* at = reinterpret_cast<const __m256i*>(values + 16 * w + 8 * half);
            halves[half] = _mm256_and_si256(_mm256_srli_epi32(_mm256_loadu_si256(at), shift),
                                            _mm256_set1_epi32(0x7FFF));
        }
        const __m256i some = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves[0], halves[1]), 0xD8);
        const __m256i left = _mm256_set1_epi16(static_cast<int16_t>(n - 16 * w));
        words[w] = _mm256_blendv_epi8(_mm256_or_si256(lane, _mm256_set1_epi16(INT16_MIN)), some,
                                      _mm256_cmpgt_epi16(left, lane));
    }
    const auto compare = [&](__m256i a, __m256i b) {
        equal = _mm256_or_si256(equal, _mm256_cmpeq_epi16(a, b));
    };
    for (int64_t w = 0; w < n_words; ++w) {
        const Rotations rotated(words[w]);
        for (int by = 1; by < 8; ++by) compare(rotated.by[by], words[w]);
        compare(swapped_halves(words[w]), words[w]);
        for (int64_t later = w + 1; later < n_words; ++later) {
            const __m256i swapped = swapped_halves(words[later]);
            for (const __m256i& by : rotated.by) {
                compare(by, words[later]);
                compare(by, swapped);
            }
        }
    }
    return !_mm256_testz_si256(equal, equal);
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
