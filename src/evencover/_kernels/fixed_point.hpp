// Probabilities as whole multiples of 2**-52: sums are exact, so the same in any order.
#pragma once

#include <cstdint>

#include "bits.hpp"
#include "isa.hpp"

EVENCOVER_BEGIN

constexpr double two_52 = 4503599627370496.0;
constexpr uint64_t bits_of_one = 0x3FF0000000000000;

// Between 1 and 2 doubles are 2**-52 apart, so adding 1 rounds p (in [0, 1]) to the nearest
// multiple, ties to even, and leaves it in the mantissa, above the bits of 1.
inline uint64_t fixed_above_one(double p) { return bits(1.0 + p); }

// rint(p * 2**52) for p in [0, 2): beyond 1 every double is a multiple already. What is larger, or
// no number, counts as 2: it is found to be bad later, and must not overflow until then.
inline int64_t fixed_point(double p) {
    return p <= 1.0 ? static_cast<int64_t>(fixed_above_one(p) - bits_of_one)
                    : static_cast<int64_t>((p < 2.0 ? p : 2.0) * two_52);
}

inline double from_fixed_point(int64_t mass) { return static_cast<double>(mass) / two_52; }

EVENCOVER_END
