// Sixteen values at a time. One file per instruction set defines FloatLanes, IndexLanes, LaneSums,
// PairSums, where_true, where_equal, where_at_most, has_equals, copy_lanes, store_lanes and
// floats_from_halves, with identical results. Below follow where_at_least, where_greater, list_indices
// and list_true, in terms of these. `has_equals` is written for each, because one version takes 8 to
// 30 ns longer for each top-k row, which otherwise takes 20 to 100 ns.
#pragma once

#include <cstdint>

#include "../numbers.hpp"

EVENCOVER_BEGIN

constexpr int64_t n_lanes = 16;
constexpr int32_t float_one = 0x3F800000;

using LaneMask = uint32_t;

inline LaneMask first_lanes(int64_t n) { return (1u << n) - 1; }

EVENCOVER_END

#if defined(__AVX512F__)
#include "avx512.hpp"
#elif defined(__AVX2__)
#include "avx2.hpp"
#else
#include "portable.hpp"
#endif

EVENCOVER_BEGIN

inline LaneMask where_at_least(const float* values, double limit) {
    return FloatLanes(values).at_least(static_cast<float>(limit));
}
inline LaneMask where_at_least(const double* values, double limit) {
    LaneMask mask = 0;
    for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{values[l] >= limit} << l;
    return mask;
}

// Where the first of two numbers is greater; neither is NaN.
inline LaneMask where_greater(const float* first, const float* second) {
    return ~FloatLanes(second).at_least(FloatLanes(first)) & first_lanes(n_lanes);
}
inline LaneMask where_greater(const double* first, const double* second) {
    LaneMask mask = 0;
    for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{first[l] > second[l]} << l;
    return mask;
}

// Write the indices below n that `mask_at` selects, and return their number. It processes whole
// lanes, so its input and `indices` must extend n_lanes beyond n.
template <class MaskAt>
inline int64_t list_indices(int64_t n, int32_t* indices, MaskAt mask_at) {
    int32_t* out = indices;
    for (int64_t at = 0; at < n; at += n_lanes) {
        LaneMask mask = mask_at(at);
        if (n - at < n_lanes) mask &= first_lanes(n - at);
        out = IndexLanes(at).store(mask, out);
    }
    return out - indices;
}

// Return the indices of the flags that are set.
inline int64_t list_true(const uint8_t* flags, int64_t n, int32_t* indices) {
    return list_indices(n, indices, [=](int64_t at) { return where_true(flags + at); });
}

EVENCOVER_END
