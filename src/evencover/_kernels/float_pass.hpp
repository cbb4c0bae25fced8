// One pass over float32 values at the speed of memory: is the row surely good, and which values
// are at least so large. The sum is taken in float32 with a bound on its error; in the rare case
// that the bound does not decide, or values are not in [0, 1], scan.hpp looks again, exactly.
#pragma once

#include <cstdint>

#include "fixed_point.hpp"
#include "float_lanes.hpp"

EVENCOVER_BEGIN

class FloatPass {
   public:
    // Appends the values >= from to `out` (with room for n_lanes more), and returns its new end.
    float* append_values(const float* row, int64_t n, float from, float* out) {
        return append(
            row, n, from, out,
            [](const FloatLanes& values, int64_t) -> const FloatLanes& { return values; });
    }

    // Appends the places of the values >= from to `out`, and returns its new end.
    int32_t* append_places(const float* row, int64_t n, float from, int32_t* out) {
        return append(row, n, from, out,
                      [](const FloatLanes&, int64_t j) { return PlaceLanes(j); });
    }

    // Appends the places of the values >= cuts[place] to `out`, and returns its new end.
    int32_t* append_places(const float* row, int64_t n, const float* cuts, int32_t* out) {
        LaneSums sums = sums_;
        int64_t j = 0;
        for (; j + n_lanes <= n; j += n_lanes) {
            fetch_ahead(row + j);
            const FloatLanes values(row + j);
            sums.add(values);
            out = PlaceLanes(j).store(values.at_least(FloatLanes(cuts + j)), out);
        }
        if (j < n) {
            const FloatLanes values(row + j, n - j);
            const FloatLanes limits(cuts + j, n - j);
            sums.add(values);
            out = PlaceLanes(j).store(values.at_least(limits) & first_lanes(n - j), out);
        }
        sums_ = sums;
        return out;
    }

    // Only looks whether the row is good.
    void look(const float* row, int64_t n) {
        LaneSums sums = sums_, more;  // two, because an addition waits for the one before
        int64_t j = 0;
        for (; j + 2 * n_lanes <= n; j += 2 * n_lanes) {
            fetch_ahead(row + j);
            fetch_ahead(row + j + n_lanes);
            sums.add(FloatLanes(row + j));
            more.add(FloatLanes(row + j + n_lanes));
        }
        for (; j < n; j += n_lanes) sums.add(FloatLanes(row + j, n - j));
        sums.add(more);
        sums_ = sums;
    }

    bool in_unit_interval() const { return sums_.in_unit_interval(); }
    double sum() const { return sums_.total(); }

    // At most how far the sum of n values in [0, 1] is off, if it is near 1: n / n_lanes additions
    // are each off by 2**-24 of the sum at most.
    static double error(int64_t n) {
        return static_cast<double>(n / n_lanes + 32) * 0x1p-24 * 1.05;
    }

   private:
    // At the end of a row the processor's own prefetching falters; a few KB ahead is enough.
    static void fetch_ahead(const float* at) {
#if defined(__GNUC__)
        __builtin_prefetch(at + 2048, 0, 3);
#else
        (void)at;
#endif
    }

    // The sums are kept in registers: `out` could alias members, which would be written each time.
    template <class Out, class Take>
    Out* append(const float* row, int64_t n, float from, Out* out, Take take) {
        LaneSums sums = sums_;
        int64_t j = 0;
        for (; j + n_lanes <= n; j += n_lanes) {
            fetch_ahead(row + j);
            const FloatLanes values(row + j);
            sums.add(values);
            out = take(values, j).store(values.at_least(from), out);
        }
        if (j < n) {
            const FloatLanes values(row + j, n - j);
            sums.add(values);
            out = take(values, j).store(values.at_least(from) & first_lanes(n - j), out);
        }
        sums_ = sums;
        return out;
    }

    LaneSums sums_;
};

EVENCOVER_END
