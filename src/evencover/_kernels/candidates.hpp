// The classes of a row that matter: those whose probability is not too small.
#pragma once

#include <cstdint>

#include "buffer.hpp"
#include "fixed_point.hpp"
#include "float_pass.hpp"

EVENCOVER_BEGIN

// Values are float or double, as in the row.
template <class T>
class Candidates {
   public:
    using Bits = decltype(bits(T{}));

    explicit Candidates(int64_t n_classes)
        : classes_(n_classes + n_lanes), values_(n_classes), masses_(n_classes) {}

    // The classes with row[y] >= cut, in order.
    void collect(const T* row, int64_t n, double cut) {
        FloatPass pass;
        collect(row, n, cut, pass);
    }

    // The same on the way of another pass.
    void collect(const T* row, int64_t n, double cut, FloatPass& pass) {
        int32_t* const begin = classes_.data();
        size_ = append_places(row, n, cut, begin, pass) - begin;
        read_values(row);
    }

    int64_t size() const { return size_; }
    int64_t mass() const { return mass_; }
    double largest() const { return largest_; }
    double smallest() const { return smallest_; }
    double p(int64_t i) const { return static_cast<double>(values_[i]); }
    const T* values() const { return values_.data(); }
    const int64_t* masses() const { return masses_.data(); }
    const int32_t* classes() const { return classes_.data(); }

   private:
    static int32_t* append_places(const float* row, int64_t n, double cut, int32_t* out,
                                  FloatPass& pass) {
        return pass.append_places(row, n, static_cast<float>(cut), out);
    }

    static int32_t* append_places(const double* row, int64_t n, double cut, int32_t* out,
                                  FloatPass&) {
        for (int64_t y = 0; y < n; ++y) {
            *out = static_cast<int32_t>(y);
            out += row[y] >= cut;
        }
        return out;
    }

    // A probability that is 1 at most, as nearly all are, has its fixed point in the bits of 1 + p.
    // Bits instead of numbers, because their maximum does not depend on the order: this vectorises.
    void read_values(const T* __restrict row) {
        const int32_t* __restrict const classes = classes_.data();
        T* __restrict const values = values_.data();
        int64_t* __restrict const masses = masses_.data();
        const int64_t size = size_;
        Bits largest = 0, smallest = bits(T{2});
        uint64_t mass = 0;  // of a row that may be bad: it may wrap around, but not overflow
        for (int64_t i = 0; i < size; ++i) {
            const T value = row[classes[i]] + T{0};  // -0.0 becomes 0.0
            const Bits b = bits(value);
            values[i] = value;
            const uint64_t fixed = fixed_above_one(static_cast<double>(value)) - bits_of_one;
            masses[i] = static_cast<int64_t>(fixed);
            mass += fixed;
            largest = b > largest ? b : largest;
            smallest = b < smallest ? b : smallest;
        }
        if (size && largest > bits(T{1})) mass = read_large();
        largest_ = size ? static_cast<double>(number_of(largest)) : 0.0;
        smallest_ = static_cast<double>(number_of(smallest));
        mass_ = static_cast<int64_t>(mass);
    }

    // The masses again, plainly, where some probability is a little more than 1.
    uint64_t read_large() {
        uint64_t mass = 0;
        for (int64_t i = 0; i < size_; ++i) {
            masses_[i] = fixed_point(p(i));
            mass += static_cast<uint64_t>(masses_[i]);
        }
        return mass;
    }

    Buffer<int32_t> classes_;
    Buffer<T> values_;
    Buffer<int64_t> masses_;
    int64_t size_ = 0;
    int64_t mass_ = 0;
    double largest_ = 0.0;
    double smallest_ = 0.0;
};

EVENCOVER_END
