// The line through points by weighted least squares.
#pragma once

#include <cstdint>

#include "buffer.hpp"
#include "isa.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

// The sum in the order in which NumPy adds: halves of halves and, of up to 128, eight sums in turn.
inline double pairwise_sum(const double* a, int64_t n) {
    if (n < 8) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; ++i) sum += a[i];
        return sum;
    }
    if (n > 128) {
        const int64_t half = n / 2 - n / 2 % 8;
        return pairwise_sum(a, half) + pairwise_sum(a + half, n - half);
    }
    double s[8];
    for (int64_t j = 0; j < 8; ++j) s[j] = a[j];
    int64_t i = 8;
    for (; i + 8 <= n; i += 8) {
        for (int64_t j = 0; j < 8; ++j) s[j] += a[i + j];
    }
    double sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    for (; i < n; ++i) sum += a[i];
    return sum;
}

// A point weighs 1 / (between + its noise).
inline Line weighted_line(const NoisyPoints& points, double between, bool has_slope) {
    const int64_t n = points.n;
    Buffer<double> weights(n), offs(n), terms(n);
    double* __restrict const weight = weights.data();
    double* __restrict const off = offs.data();
    double* __restrict const term = terms.data();
    const double* __restrict const x = points.x;
    const double* __restrict const y = points.y;
    for (int64_t i = 0; i < n; ++i) weight[i] = 1.0 / (between + points.noise[i]);
    const double total = pairwise_sum(weight, n);
    for (int64_t i = 0; i < n; ++i) term[i] = x[i] * weight[i];
    const double centre_x = pairwise_sum(term, n) / total;
    for (int64_t i = 0; i < n; ++i) term[i] = y[i] * weight[i];
    const double centre_y = pairwise_sum(term, n) / total;
    double slope = 0.0;
    if (has_slope) {
        for (int64_t i = 0; i < n; ++i) off[i] = weight[i] * (x[i] - centre_x);
        for (int64_t i = 0; i < n; ++i) term[i] = off[i] * (y[i] - centre_y);
        const double both = pairwise_sum(term, n);
        for (int64_t i = 0; i < n; ++i) term[i] = off[i] * (x[i] - centre_x);
        slope = both / pairwise_sum(term, n);
    }
    for (int64_t i = 0; i < n; ++i) {
        const double left = (y[i] - centre_y) - slope * (x[i] - centre_x);
        term[i] = weight[i] * left * left;
    }
    return {centre_x, centre_y, slope, pairwise_sum(term, n)};
}

EVENCOVER_END
