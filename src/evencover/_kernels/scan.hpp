// One pass over a row: is it good, what is its total, and what comes before a given class.
#pragma once

#include <cstdint>

#include "fixed_point.hpp"

EVENCOVER_BEGIN

// Sums over part of a row; masses are in fixed point.
struct Scan {
    bool in_unit_interval = true;  // every value is in [0, 1] and none is -0.0
    int64_t total = 0;
    int64_t mass_before = 0;
    int64_t count_before = 0;
};

// So many values of at most 1 cannot overflow 64-bit fixed point.
constexpr int64_t scan_step = 1024;
// No good row sums to 2; beyond it the total is not followed, so it cannot wrap around to 1.
constexpr int64_t too_much = int64_t{1} << 53;

inline uint32_t bits_of_unit(float) { return 0x3F800000u; }
inline uint64_t bits_of_unit(double) { return bits_of_one; }

// `from`: values of at least this count as before the class.
template <class T>
inline void scan_values(const T* row, int64_t n, T from, Scan& scan) {
    using Bits = decltype(bits(T{}));
    Bits outside = 0;
    uint64_t total = 0, before = 0;
    Bits count = 0;
    for (int64_t j = 0; j < n; ++j) {
        const Bits b = bits(row[j]);
        outside |= b | (bits_of_unit(T{}) - b);  // the sign bit is set unless 0 <= value <= 1
        const uint64_t fixed = fixed_above_one(static_cast<double>(row[j]));
        const bool is_before = row[j] >= from;
        total += fixed;
        before += is_before ? fixed : 0;
        count += is_before;
    }
    scan.in_unit_interval &= (outside >> (8 * sizeof(T) - 1)) == 0;
    scan.total += static_cast<int64_t>(total - static_cast<uint64_t>(n) * bits_of_one);
    scan.mass_before += static_cast<int64_t>(before - count * bits_of_one);
    scan.count_before += static_cast<int64_t>(count);
}

template <class T>
inline void scan_total(const T* row, int64_t n, Scan& scan) {
    using Bits = decltype(bits(T{}));
    Bits outside = 0;
    uint64_t total = 0;
    for (int64_t j = 0; j < n; ++j) {
        const Bits b = bits(row[j]);
        outside |= b | (bits_of_unit(T{}) - b);
        total += fixed_above_one(static_cast<double>(row[j]));
    }
    scan.in_unit_interval &= (outside >> (8 * sizeof(T) - 1)) == 0;
    scan.total += static_cast<int64_t>(total - static_cast<uint64_t>(n) * bits_of_one);
}

// Calls `step(begin, size)` on pieces of [begin, end) until the row turns out to be bad.
template <class Step>
inline void in_steps(int64_t begin, int64_t end, const Scan& scan, Step step) {
    for (; begin < end && scan.in_unit_interval && scan.total < too_much; begin += scan_step) {
        step(begin, end - begin < scan_step ? end - begin : scan_step);
    }
}

// The same for rows with values a little above 1, or -0.0: rare, so plainly.
template <class Source>
inline bool scan_carefully(const Source& source, const typename Source::Value* row, int64_t n,
                           int64_t label, Scan& scan) {
    scan = Scan();
    scan.in_unit_interval = false;
    for (int64_t j = 0; j < n; ++j) {
        const double p = static_cast<double>(row[j]);
        if (!source.is_good_value(p) || scan.total >= too_much) return false;
        const int64_t fixed = fixed_point(p);
        const bool is_before =
            label >= 0 && (row[j] > row[label] || (row[j] == row[label] && j < label));
        scan.total += fixed;
        scan.mass_before += is_before ? fixed : 0;
        scan.count_before += is_before;
    }
    return source.is_good_total(scan.total, row);
}

inline float just_above(float x) { return float_of(bits(x) + 1); }
inline double just_above(double x) { return double_of(bits(x) + 1); }

// Whether the row is good; its total.
template <class Source>
inline bool scan_row(const Source& source, const typename Source::Value* row, int64_t n,
                     Scan& scan) {
    scan = Scan();
    in_steps(0, n, scan, [&](int64_t at, int64_t size) { scan_total(row + at, size, scan); });
    if (scan.in_unit_interval) return source.is_good_total(scan.total, row);
    return scan_carefully(source, row, n, -1, scan);
}

// Whether the row is good; its total, and mass and number of the classes before `label` in
// decreasing order of probability (equal ones by index).
template <class Source>
inline bool scan_row(const Source& source, const typename Source::Value* row, int64_t n,
                     int64_t label, Scan& scan) {
    using T = typename Source::Value;
    scan = Scan();
    const T own = row[label];
    const T more = just_above(own);
    in_steps(0, label, scan,
             [&](int64_t at, int64_t size) { scan_values(row + at, size, own, scan); });
    in_steps(label, n, scan,
             [&](int64_t at, int64_t size) { scan_values(row + at, size, more, scan); });
    if (scan.in_unit_interval) return source.is_good_total(scan.total, row);
    return scan_carefully(source, row, n, label, scan);
}

EVENCOVER_END
