// Eight doubles as two times four: two vector operations that need not wait for each other.
#pragma once

#include "four_lanes.hpp"

EVENCOVER_BEGIN

constexpr int64_t eight = 2 * four;

struct Eight {
    Four low, high;
};

inline Eight all_eight(double x) { return {all(x), all(x)}; }
inline Eight load_eight(const double* from) { return {load_four(from), load_four(from + four)}; }
inline void store_eight(Eight lanes, double* to) {
    store_four(lanes.low, to);
    store_four(lanes.high, to + four);
}
inline Eight operator-(Eight a, Eight b) { return {a.low - b.low, a.high - b.high}; }
inline Eight operator*(Eight a, double b) { return {a.low * b, a.high * b}; }
inline Eight operator/(Eight a, Eight b) { return {a.low / b.low, a.high / b.high}; }
inline Eight& operator+=(Eight& a, Eight b) {
    a.low += b.low;
    a.high += b.high;
    return a;
}
inline Eight larger(Eight a, Eight b) { return {larger(a.low, b.low), larger(a.high, b.high)}; }
inline Eight magnitude(Eight a) { return {magnitude(a.low), magnitude(a.high)}; }

// exp(x) of n times eight values, in turn at every step: a polynomial is a chain of operations that
// wait for each other, and a processor looks only so far ahead for others.
template <int n>
inline void exp_nonpositive(Eight* x) {
#if defined(__GNUC__)
    constexpr int n_fours = 2 * n;
    Four part[n_fours], rest[n_fours], value[n_fours], scale[n_fours];
    for (int i = 0; i < n_fours; ++i) part[i] = i % 2 ? x[i / 2].high : x[i / 2].low;
    for (int i = 0; i < n_fours; ++i) reduce_exponent(part[i], rest[i], scale[i]);
    for (int i = 0; i < n_fours; ++i) value[i] = all(exp_coefficients[0]);
    EVENCOVER_NOT_UNROLLED
    for (int c = 1; c < n_exp_coefficients; ++c) {
        for (int i = 0; i < n_fours; ++i) value[i] = value[i] * rest[i] + exp_coefficients[c];
    }
    for (int i = 0; i < n_fours; ++i) {
        (i % 2 ? x[i / 2].high : x[i / 2].low) = value[i] * scale[i];
    }
#else
    for (int i = 0; i < n; ++i) x[i] = {exp_nonpositive(x[i].low), exp_nonpositive(x[i].high)};
#endif
}

EVENCOVER_END
