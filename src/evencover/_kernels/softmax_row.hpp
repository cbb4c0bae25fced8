// Logits to probabilities from IEEE basic operations only: libraries' exp differ in the last bit.
#pragma once

#include <cmath>
#include <cstdint>

#include "fixed_point.hpp"

EVENCOVER_BEGIN

// exp(x) for x <= 0: Cody-Waite reduction and a degree-13 Taylor polynomial; 0 below -700.
constexpr double exp_to_integer = 6755399441055744.0;  // 1.5 * 2**52: adding it rounds to integers
constexpr double exp_per_doubling = 1.4426950408889634;
constexpr double exp_high = 0.6931471803691238, exp_low = 1.9082149292705877e-10;
constexpr int n_exp_coefficients = 14;
constexpr double exp_coefficients[n_exp_coefficients] = {
    1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0,
    1.0 / 40320.0,      1.0 / 5040.0,      1.0 / 720.0,      1.0 / 120.0,     1.0 / 24.0,
    1.0 / 6.0,          1.0 / 2.0,         1.0,              1.0};

inline double exp_nonpositive(double x) {
    const double clipped = x > -701.0 ? x : -701.0;
    const double shifted = clipped * exp_per_doubling + exp_to_integer;
    const double k = shifted - exp_to_integer;
    const double r = (clipped - k * exp_high) - k * exp_low;
    double value = exp_coefficients[0];
    for (int i = 1; i < n_exp_coefficients; ++i) value = value * r + exp_coefficients[i];
    // The low bits of `shifted` are k in two's complement; 2**k is never subnormal here.
    const double power = double_of((bits(shifted) + 1023) << 52);
    return clipped < -700.0 ? 0.0 : value * power;
}

// The largest value, or NaN if there is one.
template <class T>
inline double largest_or_nan(const T* row, int64_t n) {
    T top = row[0];
    bool has_nan = false;
    for (int64_t j = 0; j < n; ++j) {
        top = row[j] > top ? row[j] : top;
        has_nan |= row[j] != row[j];
    }
    return has_nan ? std::nan("") : static_cast<double>(top);
}

inline int bit_length(int64_t n) {
    int length = 0;
    for (; n > 0; n >>= 1) ++length;
    return length;
}

// The sum of rint(e * 2**shift) for e in [0, 1]; it fits 63 bits.
inline int64_t fixed_sum(const double* e, int64_t n, int shift) {
    if (shift > 52) {
        const double scale = std::ldexp(1.0, shift);
        int64_t total = 0;
        for (int64_t j = 0; j < n; ++j) total += std::llrint(e[j] * scale);
        return total;
    }
    // As in fixed_above_one, with a larger offset for a coarser grid; this vectorises.
    const double offset = std::ldexp(1.0, 52 - shift);
    uint64_t total = 0;
    for (int64_t j = 0; j < n; ++j) total += bits(offset + e[j]) - bits(offset);
    return static_cast<int64_t>(total);
}

// False if the largest logit is not a finite number; -inf is a masked class.
template <class T>
inline bool softmax_row(const T* logits, int64_t n, double temperature, double* p) {
    const double top = largest_or_nan(logits, n);
    if (!std::isfinite(top)) return false;
    for (int64_t j = 0; j < n; ++j) {
        p[j] = exp_nonpositive((static_cast<double>(logits[j]) - top) / temperature);
    }
    const int shift = 62 - bit_length(n);
    const double sum = static_cast<double>(fixed_sum(p, n, shift)) / std::ldexp(1.0, shift);
    for (int64_t j = 0; j < n; ++j) p[j] = p[j] / sum;
    return true;
}

EVENCOVER_END
