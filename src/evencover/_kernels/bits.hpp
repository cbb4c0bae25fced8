// The bits of floating-point numbers, and bits in words.
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
    int place = 0;
    for (; !(word & 1); word >>= 1) ++place;
    return place;
#else
    return __builtin_ctzll(word);
#endif
}

EVENCOVER_END
