// One row after the other, whatever it is stored as: half, float, double, probabilities or logits.
//
// A source gives adjacent float or double probabilities, or null for a bad row of logits. Whether
// a row of probabilities is good is seen by the scan that reads it anyway (scan.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "bits.hpp"
#include "buffer.hpp"
#include "first_largest.hpp"
#include "half.hpp"
#include "kernels.hpp"
#include "softmax_row.hpp"

EVENCOVER_BEGIN

// Rows that are used where they lie.
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

constexpr double coarse_tolerance = 1e-2;  // of numbers with 8 or 11 bits

// Whether floats use only their upper half; the first number nearly always tells.
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
    const Value* load(int64_t i) { return stored_.load(i); }

    // Whether rounding of the stored type explains a sum so far off 1. Each row decides for itself
    // whether it was bfloat16, so that neither blocks nor parts matter.
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
    // What is larger makes the total too large; here it only must not overflow.
    bool is_good_value(double p) const { return p >= 0.0 && p <= 1.0 + coarse_tolerance; }
    int64_t top_class(int64_t i) { return first_largest(stored_.load(i), rows_.n_classes); }

   private:
    const Rows& rows_;
    Stored stored_;
};

template <class Stored>
class LogitSource {
   public:
    using Value = double;
    explicit LogitSource(const Rows& rows) : rows_(rows), stored_(rows), p_(rows.n_classes) {}
    const double* load(int64_t i) {
        const bool good =
            softmax_row(stored_.load(i), rows_.n_classes, rows_.temperature, p_.data());
        return good ? p_.data() : nullptr;
    }

    bool is_good_total(int64_t, const double*) const { return true; }
    bool is_good_value(double) const { return true; }
    int64_t top_class(int64_t i) { return first_largest(stored_.load(i), rows_.n_classes); }

   private:
    const Rows& rows_;
    Stored stored_;
    Buffer<double> p_;
};

// Calls `use(source)` with the source that fits the rows.
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

EVENCOVER_END
