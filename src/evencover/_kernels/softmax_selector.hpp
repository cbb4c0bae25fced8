// Which classes are in the set of the softmax score: 1 - p against each class's limit.
#pragma once

#include <cstdint>

#include "class_bits.hpp"
#include "kernels.hpp"
#include "limits.hpp"
#include "score.hpp"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

EVENCOVER_BEGIN

#if defined(__AVX512F__)

inline __m512d eight_doubles(const float* at) { return _mm512_cvtps_pd(_mm256_loadu_ps(at)); }
inline __m512d eight_doubles(const double* at) { return _mm512_loadu_pd(at); }

// One bit for each of the eight classes from y on.
template <class T>
inline uint64_t eight_members(const T* row, int64_t y, const Thresholds& thresholds, double coin) {
    __m512d limits = _mm512_loadu_pd(thresholds.upper + y);
    if (thresholds.lower) {
        const __m512d chances = _mm512_loadu_pd(thresholds.upper_probability + y);
        const __mmask8 heads = _mm512_cmp_pd_mask(_mm512_set1_pd(coin), chances, _CMP_LT_OQ);
        limits = _mm512_mask_blend_pd(heads, _mm512_loadu_pd(thresholds.lower + y), limits);
    }
    const __m512d scores = _mm512_sub_pd(_mm512_set1_pd(1.0), eight_doubles(row + y));
    return _mm512_cmp_pd_mask(scores, limits, _CMP_LE_OQ);
}

#elif defined(__AVX2__)

inline __m256d four_doubles(const float* at) { return _mm256_cvtps_pd(_mm_loadu_ps(at)); }
inline __m256d four_doubles(const double* at) { return _mm256_loadu_pd(at); }

template <class T>
inline uint64_t four_members(const T* row, int64_t y, const Thresholds& thresholds, double coin) {
    __m256d limits = _mm256_loadu_pd(thresholds.upper + y);
    if (thresholds.lower) {
        const __m256d chances = _mm256_loadu_pd(thresholds.upper_probability + y);
        const __m256d heads = _mm256_cmp_pd(_mm256_set1_pd(coin), chances, _CMP_LT_OQ);
        limits = _mm256_blendv_pd(_mm256_loadu_pd(thresholds.lower + y), limits, heads);
    }
    const __m256d scores = _mm256_sub_pd(_mm256_set1_pd(1.0), four_doubles(row + y));
    return static_cast<uint64_t>(_mm256_movemask_pd(_mm256_cmp_pd(scores, limits, _CMP_LE_OQ)));
}

template <class T>
inline uint64_t eight_members(const T* row, int64_t y, const Thresholds& thresholds, double coin) {
    return four_members(row, y, thresholds, coin) | four_members(row, y + 4, thresholds, coin) << 4;
}

#else

template <class T>
inline uint64_t eight_members(const T* row, int64_t y, const Thresholds& thresholds, double coin) {
    uint64_t members = 0;
    for (int64_t l = 0; l < 8; ++l) {
        const double score = softmax_score(static_cast<double>(row[y + l]));
        members |= uint64_t{score <= limit_of(thresholds, y + l, coin)} << l;
    }
    return members;
}

#endif

template <class T>
inline void select_softmax(const T* row, int64_t n, const Thresholds& thresholds, double coin,
                           ClassBits& members) {
    members.clear();
    int64_t y = 0;
    for (; y + 8 <= n; y += 8) members.add_eight(y, eight_members(row, y, thresholds, coin));
    for (; y < n; ++y) {
        const double score = softmax_score(static_cast<double>(row[y]));
        members.add_if(y, score <= limit_of(thresholds, y, coin));
    }
}

EVENCOVER_END
