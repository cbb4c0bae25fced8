// Whether a row is good, found on the way of looking for what is wanted of it.
//
// float32 probabilities take the quick pass first; everything else, and what that pass cannot
// decide, takes the exact scan.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "buffer.hpp"
#include "float_pass.hpp"
#include "row_source.hpp"
#include "scan.hpp"

EVENCOVER_BEGIN

// Sources of floats are always probabilities: logits become doubles.
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
    return scan_row(source, row, n, scan);
}

inline int64_t fixed_mass(const float* values, int64_t n) {
    uint64_t mass = 0;
    for (int64_t i = 0; i < n; ++i) mass += fixed_above_one(static_cast<double>(values[i]));
    return static_cast<int64_t>(mass - static_cast<uint64_t>(n) * bits_of_one);
}

// Finds what comes before a class; keeps memory for it.
class LabelPosition {
   public:
    explicit LabelPosition(int64_t n_classes) : larger_(n_classes + n_lanes) {}

    // Whether the row is good.
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
