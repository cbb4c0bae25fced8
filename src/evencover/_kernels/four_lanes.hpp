// Four doubles side by side, in a vector register where there is one; each lane is computed as a
// double of its own would be.
#pragma once

#include <cstdint>
#include <cstring>

#include "softmax_row.hpp"

EVENCOVER_BEGIN

constexpr int64_t four = 4;

#if defined(__GNUC__)

using Four = double __attribute__((vector_size(32)));
using FourBits = uint64_t __attribute__((vector_size(32)));

inline Four all(double x) { return Four{x, x, x, x}; }
inline Four larger(Four a, Four b) { return a > b ? a : b; }
inline Four magnitude(Four a) { return larger(a, -a); }

// exp(x) is a polynomial of `rest` times `scale`, which is 0 where x is less than -700.
inline void reduce_exponent(Four x, Four& rest, Four& scale) {
    const Four to_integer = all(exp_to_integer), clipped = larger(x, all(-701.0));
    const Four shifted = clipped * exp_per_doubling + to_integer;
    const Four k = shifted - to_integer;
    rest = (clipped - k * exp_high) - k * exp_low;
    FourBits power;
    std::memcpy(&power, &shifted, sizeof power);
    power = (power + 1023) << 52;
    std::memcpy(&scale, &power, sizeof scale);
    scale = clipped < -700.0 ? all(0.0) : scale;
}

#else

struct Four {
    double lane[four];
    double& operator[](int64_t l) { return lane[l]; }
};

template <class Of>
inline Four each_lane(Of of) {
    return {{of(0), of(1), of(2), of(3)}};
}
inline Four all(double x) { return {{x, x, x, x}}; }
inline Four operator+(Four a, Four b) {
    return each_lane([&](int64_t l) { return a[l] + b[l]; });
}
inline Four operator-(Four a, Four b) {
    return each_lane([&](int64_t l) { return a[l] - b[l]; });
}
inline Four operator*(Four a, Four b) {
    return each_lane([&](int64_t l) { return a[l] * b[l]; });
}
inline Four operator*(Four a, double b) { return a * all(b); }
inline Four operator/(Four a, Four b) {
    return each_lane([&](int64_t l) { return a[l] / b[l]; });
}
inline Four& operator+=(Four& a, Four b) { return a = a + b; }
inline Four larger(Four a, Four b) {
    return each_lane([&](int64_t l) { return a[l] > b[l] ? a[l] : b[l]; });
}
inline Four magnitude(Four a) {
    return each_lane([&](int64_t l) { return a[l] > -a[l] ? a[l] : -a[l]; });
}
inline Four exp_nonpositive(Four x) {
    return each_lane([&](int64_t l) { return exp_nonpositive(x[l]); });
}

#endif

inline Four load_four(const double* from) {
    Four lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}
inline void store_four(Four lanes, double* to) { std::memcpy(to, &lanes, sizeof lanes); }

EVENCOVER_END
