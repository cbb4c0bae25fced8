// Bits of numbers, and probabilities as multiples of 2**-52.
#pragma once

#include <cstdint>
#include <cstring>

#include "isa.hpp"

EVENCOVER_BEGIN

inline uint64_t bits(double x) {
    uint64_t b;
    std::memcpy(&b, &x, sizeof b);
    return b;
}

inline uint32_t bits(float x) {
    uint32_t b;
    std::memcpy(&b, &x, sizeof b);
    return b;
}

inline double double_of(uint64_t b) {
    double x;
    std::memcpy(&x, &b, sizeof x);
    return x;
}

inline float float_of(uint32_t b) {
    float x;
    std::memcpy(&x, &b, sizeof x);
    return x;
}

inline float number_of(uint32_t b) { return float_of(b); }
inline double number_of(uint64_t b) { return double_of(b); }

inline int lowest_bit(uint64_t word) {
#ifdef _MSC_VER
    int index = 0;
    for (; !(word & 1); word >>= 1) ++index;
    return index;
#else
    return __builtin_ctzll(word);
#endif
}

constexpr double two_52 = 4503599627370496.0;
constexpr uint64_t bits_of_one = 0x3FF0000000000000;

// Doubles between 1 and 2 are 2**-52 apart. Adding 1 to p in [0, 1] rounds it to the nearest
// multiple, ties to even, and leaves it in the mantissa.
inline uint64_t fixed_above_one(double p) { return bits(1.0 + p); }

// rint(p * 2**52) for p in [0, 2): above 1 every double is a multiple already. Larger values and
// NaN count as 2: they are rejected later, and must not overflow until then.
inline int64_t fixed_point(double p) {
    return p <= 1.0 ? static_cast<int64_t>(fixed_above_one(p) - bits_of_one)
                    : static_cast<int64_t>((p < 2.0 ? p : 2.0) * two_52);
}

inline double from_fixed_point(int64_t mass) { return static_cast<double>(mass) / two_52; }

// Map numbers to integers in the same order (-0.0 before 0.0). The maximum of integers does not
// depend on the order of evaluation, so this vectorizes.
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

// float32 represents every float16 exactly.
inline float float_from_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7FFFu;
    // Normal numbers: shift, and change the exponent's bias from 15 to 127.
    uint32_t result = (magnitude << 13) + (112u << 23);
    result += magnitude >= 0x7C00u ? 112u << 23 : 0u;  // infinity and NaN: the largest exponent
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
    return float_of(sign | (magnitude < 0x0400u ? bits(subnormal) : result));
}

EVENCOVER_END
