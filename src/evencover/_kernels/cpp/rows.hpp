// Iterate over rows of any type: half, float, double, probabilities or logits.
//
// A source returns contiguous float or double probabilities, or null for a bad row of logits. Rows
// of probabilities are checked by the scan that reads them (row_check.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "buffer.hpp"
#include "random.hpp"

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

// Return the largest value, or NaN if there is one.
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

// Return the sum of rint(e * 2**shift) for e in [0, 1]; it fits 63 bits.
inline int64_t fixed_sum(const double* e, int64_t n, int shift) {
    if (shift > 52) {
        const double scale = std::ldexp(1.0, shift);
        int64_t total = 0;
        for (int64_t j = 0; j < n; ++j) total += std::llrint(e[j] * scale);
        return total;
    }
    // As in fixed_above_one, with a larger offset for a coarser grid; this vectorizes.
    const double offset = std::ldexp(1.0, 52 - shift);
    uint64_t total = 0;
    for (int64_t j = 0; j < n; ++j) total += bits(offset + e[j]) - bits(offset);
    return static_cast<int64_t>(total);
}

// Return false if the largest logit is not finite; -inf is a masked class.
template <class T>
inline bool softmax_row(const T* logits, int64_t n, double* p) {
    const double top = largest_or_nan(logits, n);
    if (!std::isfinite(top)) return false;
    for (int64_t j = 0; j < n; ++j) p[j] = exp_nonpositive(static_cast<double>(logits[j]) - top);
    const int shift = 62 - bit_length(n);
    const double sum = static_cast<double>(fixed_sum(p, n, shift)) / std::ldexp(1.0, shift);
    for (int64_t j = 0; j < n; ++j) p[j] = p[j] / sum;
    return true;
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

// Return where to continue the search for a value of at least `from`; all values before are
// smaller.
inline int64_t skip_less(const float* row, int64_t n, float from) {
    int64_t j = 0;
    for (; j + n_lanes <= n; j += n_lanes) {
        const LaneMask found = FloatLanes(row + j).at_least(from);
        if (found) return j + lowest_bit(found);
    }
    return j;
}
inline int64_t skip_less(const double*, int64_t, double) { return 0; }

// Any index if there is NaN.
template <class T>
inline int64_t first_largest(const T* row, int64_t n) {
    const T largest = largest_of(row, n);
    int64_t j = skip_less(row, n, largest);
    while (j + 1 < n && !(row[j] >= largest)) ++j;
    return j;
}

// Rows that are used in place.
template <class T>
class PlainRows {
   public:
    using Value = T;
    explicit PlainRows(const Rows& rows) : rows_(rows) {}
    const T* load(int64_t i) { return static_cast<const T*>(rows_.data) + i * rows_.stride; }

   private:
    const Rows& rows_;
};

class HalfRows {
   public:
    using Value = float;
    explicit HalfRows(const Rows& rows) : rows_(rows), row_(rows.n_classes) {}
    const float* load(int64_t i) {
        floats_from_halves(static_cast<const uint16_t*>(rows_.data) + i * rows_.stride,
                           rows_.n_classes, row_.data());
        return row_.data();
    }

   private:
    const Rows& rows_;
    Buffer<float> row_;
};

constexpr double coarse_tolerance = 1e-2;  // for numbers with 8 or 11 bits

// Return whether floats use only their upper half; the first number nearly always decides.
inline bool was_bfloat16(const float* row, int64_t n) {
    for (int64_t j = 0; j < n; ++j) {
        if (bits(row[j]) & 0xFFFFu) return false;
    }
    return true;
}

template <class Stored>
class ProbabilitySource {
   public:
    using Value = typename Stored::Value;
    explicit ProbabilitySource(const Rows& rows) : rows_(rows), stored_(rows) {}
    const Value* load(int64_t i) { return row_ = stored_.load(i); }
    const Value* stored() const { return row_; }

    // Return whether rounding of the stored type explains a sum this far from 1. Each row is
    // checked for bfloat16 by itself, independently of blocks and partitions.
    bool is_good_sum(double off, const Value* row) const {
        if (off <= rows_.tolerance) return true;
        if constexpr (std::is_same<Value, float>::value) {
            return off <= coarse_tolerance && was_bfloat16(row, rows_.n_classes);
        }
        return false;
    }
    bool is_good_total(int64_t total, const Value* row) const {
        return is_good_sum(std::fabs(static_cast<double>(total) - two_52) / two_52, row);
    }
    // Larger values make the total too large; they only must not overflow here.
    bool is_good_value(double p) const { return p >= 0.0 && p <= 1.0 + coarse_tolerance; }

   private:
    const Rows& rows_;
    Stored stored_;
    const Value* row_ = nullptr;
};

template <class Stored>
class LogitSource {
   public:
    using Value = double;
    explicit LogitSource(const Rows& rows) : rows_(rows), stored_(rows), p_(rows.n_classes) {}
    const double* load(int64_t i) {
        row_ = stored_.load(i);
        const bool good = softmax_row(row_, rows_.n_classes, p_.data());
        return good ? p_.data() : nullptr;
    }
    const typename Stored::Value* stored() const { return row_; }

    bool is_good_total(int64_t, const double*) const { return true; }
    bool is_good_value(double) const { return true; }

   private:
    const Rows& rows_;
    Stored stored_;
    const typename Stored::Value* row_ = nullptr;
    Buffer<double> p_;
};

// Call `use(source)` with the source for the rows.
template <class Use>
inline int64_t with_source(const Rows& rows, Use use) {
    switch (rows.element) {
        case Element::float16:
            if (rows.logits) return use(LogitSource<HalfRows>(rows));
            return use(ProbabilitySource<HalfRows>(rows));
        case Element::float32:
            if (rows.logits) return use(LogitSource<PlainRows<float>>(rows));
            return use(ProbabilitySource<PlainRows<float>>(rows));
        default:
            if (rows.logits) return use(LogitSource<PlainRows<double>>(rows));
            return use(ProbabilitySource<PlainRows<double>>(rows));
    }
}

// Call `visit(i, row, u, draw)` until it returns false for a bad row; return that row, or
// `all_good`. Only `draw()` draws the number of a pair of thresholds.
template <class Source, class Visit>
inline int64_t each_row(Source& source, const Rows& rows, const Draws& draws, Visit visit) {
    RowNumbers numbers(rows, draws);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        numbers.go_to(i);
        const auto* row = source.load(i);
        if (!row || !visit(i, row, numbers.u(), [&] { return numbers.draw(); })) return i;
    }
    return all_good;
}

EVENCOVER_END
