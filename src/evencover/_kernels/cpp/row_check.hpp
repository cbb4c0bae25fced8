// Check a row while reading it for another purpose.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "rows.hpp"

EVENCOVER_BEGIN

// Check float32 values in one pass at the speed of memory, and find those above a cut. The sum is
// float32 with an error bound. If the bound does not decide, or values are not in [0, 1],
// `scan_row` repeats the check exactly, which is rare.
class FloatPass {
   public:
    // Append the values >= from to `out` (with room for n_lanes more), and return its new end.
    float* append_values(const float* row, int64_t n, float from, float* out) {
        return append(
            row, n, [=](int64_t) { return from; }, out,
            [](const FloatLanes& values, int64_t) -> const FloatLanes& { return values; });
    }

    // Append the indices of the values >= from to `out`, and return its new end.
    int32_t* append_indices(const float* row, int64_t n, float from, int32_t* out) {
        return append(
            row, n, [=](int64_t) { return from; }, out,
            [](const FloatLanes&, int64_t j) { return IndexLanes(j); });
    }

    // Same for values >= cuts[index]; the cuts extend n_lanes beyond n.
    int32_t* append_indices(const float* row, int64_t n, const float* cuts, int32_t* out) {
        return append(
            row, n, [=](int64_t j) { return FloatLanes(cuts + j); }, out,
            [](const FloatLanes&, int64_t j) { return IndexLanes(j); });
    }

    // Only check the row.
    void look(const float* row, int64_t n) {
        LaneSums sums = sums_, more;  // two independent sums
        int64_t j = 0;
        for (; j + 2 * n_lanes <= n; j += 2 * n_lanes) {
            fetch_ahead(row + j);
            fetch_ahead(row + j + n_lanes);
            sums.add(FloatLanes(row + j));
            more.add(FloatLanes(row + j + n_lanes));
        }
        for (; j + n_lanes <= n; j += n_lanes) sums.add(FloatLanes(row + j));
        if (j < n) more.add(FloatLanes(row + j, n - j));
        sums.add(more);
        sums_ = sums;
    }

    bool in_unit_interval() const { return sums_.in_unit_interval(); }
    double sum() const { return sums_.total(); }

    // Error bound of the sum of n values in [0, 1], if it is near 1: each of n / n_lanes additions
    // has an error of at most 2**-24 of the sum.
    static double error(int64_t n) {
        return static_cast<double>(n / n_lanes + 32) * 0x1p-24 * 1.05;
    }

   private:
    // Hardware prefetching stops at the end of a row; a few KB ahead suffice.
    static void fetch_ahead(const float* at) {
#if defined(__GNUC__)
        __builtin_prefetch(at + 2048, 0, 3);
#else
        (void)at;
#endif
    }

    // Sums are local, hence in registers: `out` could alias members.
    template <class From, class Out, class Take>
    Out* append(const float* row, int64_t n, From from, Out* out, Take take) {
        LaneSums sums = sums_;
        int64_t j = 0;
        for (; j + n_lanes <= n; j += n_lanes) {
            fetch_ahead(row + j);
            const FloatLanes values(row + j);
            sums.add(values);
            out = take(values, j).store(values.at_least(from(j)), out);
        }
        if (j < n) {
            const FloatLanes values(row + j, n - j);
            sums.add(values);
            out = take(values, j).store(values.at_least(from(j)) & first_lanes(n - j), out);
        }
        sums_ = sums;
        return out;
    }

    LaneSums sums_;
};

// Sums over part of a row; masses are in fixed point.
struct Scan {
    bool in_unit_interval = true;  // every value is in [0, 1] and none is -0.0
    int64_t total = 0;
    int64_t mass_before = 0;
    int64_t count_before = 0;
};

// This many values of at most 1 cannot overflow 64-bit fixed point.
constexpr int64_t scan_step = 1024;
// A good row sums to less than 2. Beyond it the total is not updated, so it cannot wrap around.
constexpr int64_t too_much = int64_t{1} << 53;

inline uint32_t bits_of_unit(float) { return 0x3F800000u; }
inline uint64_t bits_of_unit(double) { return bits_of_one; }

// With a label, values of at least `from` count as before it.
template <bool has_label, class T>
inline void scan_values(const T* row, int64_t n, T from, Scan& scan) {
    using Bits = decltype(bits(T{}));
    Bits outside = 0, count = 0;
    uint64_t total = 0, before = 0;
    for (int64_t j = 0; j < n; ++j) {
        const Bits b = bits(row[j]);
        outside |= b | (bits_of_unit(T{}) - b);  // the sign bit is set unless 0 <= value <= 1
        const uint64_t fixed = fixed_above_one(static_cast<double>(row[j]));
        total += fixed;
        if constexpr (has_label) {
            const bool is_before = row[j] >= from;
            before += is_before ? fixed : 0;
            count += is_before;
        }
    }
    scan.in_unit_interval &= (outside >> (8 * sizeof(T) - 1)) == 0;
    scan.total += static_cast<int64_t>(total - static_cast<uint64_t>(n) * bits_of_one);
    scan.mass_before += static_cast<int64_t>(before - count * bits_of_one);
    scan.count_before += static_cast<int64_t>(count);
}

// Call `step(begin, size)` on pieces of [begin, end) until the row is known to be bad.
template <class Step>
inline void in_steps(int64_t begin, int64_t end, const Scan& scan, Step step) {
    for (; begin < end && scan.in_unit_interval && scan.total < too_much; begin += scan_step) {
        step(begin, end - begin < scan_step ? end - begin : scan_step);
    }
}

// Same for rows with values slightly above 1, or -0.0, which are rare.
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

// Return whether the row is good; compute its total, and mass and number of the classes before
// `label` by decreasing probability (ties by index). Label -1 computes only the total.
template <class Source>
inline bool scan_row(const Source& source, const typename Source::Value* row, int64_t n,
                     int64_t label, Scan& scan) {
    using T = typename Source::Value;
    scan = Scan();
    if (label < 0) {
        in_steps(0, n, scan, [&](int64_t at, int64_t size) {
            scan_values<false>(row + at, size, T{}, scan);
        });
    } else {
        const T own = row[label], more = just_above(own);
        in_steps(0, label, scan, [&](int64_t at, int64_t size) {
            scan_values<true>(row + at, size, own, scan);
        });
        in_steps(label, n, scan, [&](int64_t at, int64_t size) {
            scan_values<true>(row + at, size, more, scan);
        });
    }
    if (scan.in_unit_interval) return source.is_good_total(scan.total, row);
    return scan_carefully(source, row, n, label, scan);
}

// Float sources are always probabilities: logits become doubles.
template <class Source>
constexpr bool is_quick = std::is_same<typename Source::Value, float>::value;

template <class Source>
inline bool is_surely_good(const Source& source, const FloatPass& pass, const float* row,
                           int64_t n) {
    const double off = std::fabs(pass.sum() - 1.0) + FloatPass::error(n);
    return pass.in_unit_interval() && source.is_good_sum(off, row);
}

template <class Source>
inline bool is_good_row(const Source& source, const typename Source::Value* row, int64_t n) {
    if constexpr (is_quick<Source>) {
        FloatPass pass;
        pass.look(row, n);
        if (is_surely_good(source, pass, row, n)) return true;
    }
    Scan scan;
    return scan_row(source, row, n, -1, scan);
}

inline int64_t fixed_mass(const float* values, int64_t n) {
    uint64_t mass = 0;
    for (int64_t i = 0; i < n; ++i) mass += fixed_above_one(static_cast<double>(values[i]));
    return static_cast<int64_t>(mass - static_cast<uint64_t>(n) * bits_of_one);
}

// Find the mass and rank before a class; keep memory between rows.
class LabelPosition {
   public:
    explicit LabelPosition(int64_t n_classes) : larger_(n_classes + n_lanes) {}

    // Return whether the row is good.
    template <class Source>
    bool find(const Source& source, const typename Source::Value* row, int64_t n, int64_t label) {
        if constexpr (is_quick<Source>) {
            FloatPass pass;
            float* end = pass.append_values(row, label, row[label], larger_.data());
            end = pass.append_values(row + label, n - label, just_above(row[label]), end);
            if (is_surely_good(source, pass, row, n)) {
                count_before = end - larger_.data();
                mass_before = fixed_mass(larger_.data(), count_before);
                return true;
            }
        }
        Scan scan;
        const bool good = scan_row(source, row, n, label, scan);
        count_before = scan.count_before;
        mass_before = scan.mass_before;
        return good;
    }

    int64_t mass_before = 0;
    int64_t count_before = 0;

   private:
    Buffer<float> larger_;
};

EVENCOVER_END
