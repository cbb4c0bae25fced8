// The most probable class of a row: the first place of its largest value.
#pragma once

#include <cstdint>

#include "bits.hpp"
#include "float_lanes.hpp"

EVENCOVER_BEGIN

// Integers in the order of the numbers (-0.0 before 0.0), because their maximum does not depend on
// the order in which it is taken: this vectorises.
inline int32_t ordered_bits(float x) {
    const auto b = static_cast<int32_t>(bits(x));
    return b ^ ((b >> 31) & 0x7FFFFFFF);
}
inline int64_t ordered_bits(double x) {
    const auto b = static_cast<int64_t>(bits(x));
    return b ^ ((b >> 63) & 0x7FFFFFFFFFFFFFFF);
}
inline float number_of(int32_t b) {
    return float_of(static_cast<uint32_t>(b ^ ((b >> 31) & 0x7FFFFFFF)));
}
inline double number_of(int64_t b) {
    return double_of(static_cast<uint64_t>(b ^ ((b >> 63) & 0x7FFFFFFFFFFFFFFF)));
}

template <class T>
inline T largest_of(const T* row, int64_t n) {
    auto largest = ordered_bits(row[0]);
    for (int64_t j = 1; j < n; ++j) {
        const auto b = ordered_bits(row[j]);
        largest = b > largest ? b : largest;
    }
    return number_of(largest);
}

// Where to go on looking for a value of at least `from`: nothing before is that large.
inline int64_t skip_less(const float* row, int64_t n, float from) {
    int64_t j = 0;
    for (; j + n_lanes <= n; j += n_lanes) {
        const LaneMask found = FloatLanes(row + j).at_least(from);
        if (found) return j + lowest_bit(found);
    }
    return j;
}
inline int64_t skip_less(const double*, int64_t, double) { return 0; }

// Any place, if there is NaN.
template <class T>
inline int64_t first_largest(const T* row, int64_t n) {
    const T largest = largest_of(row, n);
    int64_t j = skip_less(row, n, largest);
    while (j + 1 < n && !(row[j] >= largest)) ++j;
    return j;
}

EVENCOVER_END
