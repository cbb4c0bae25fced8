// Select the classes in the set of the softmax score: 1 - p against each class's threshold.
#pragma once

#include <cstdint>
#include <limits>

#include "row_check.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

// The smallest float32 probability that each class's threshold admits. For float32 rows, comparing
// with it equals comparing 1 - p with the threshold, without doubles.
class SoftmaxCuts {
   public:
    SoftmaxCuts(const double* limits, int64_t n_classes) : cuts_(n_classes + n_lanes) {
        for (int64_t y = 0; y < n_classes; ++y) cuts_[y] = cut_of(limits[y]);
    }
    const float* data() const { return cuts_.data(); }

   private:
    static bool is_in(float p, double limit) {
        return softmax_score(static_cast<double>(p)) <= limit;
    }

    // The score decreases with p, so there is one cut, found by bisection: nonnegative floats are
    // ordered as their bits. It is nearly always within a step of the guess.
    static float cut_of(double limit) {
        constexpr float infinite = std::numeric_limits<float>::infinity();
        if (is_in(0.0f, limit)) return -infinite;
        if (!is_in(2.0f, limit)) return infinite;  // no probability is that large
        uint32_t out = 0, in = bits(2.0f);
        const uint32_t guess = bits(static_cast<float>(1.0 - limit));
        for (uint32_t near : {guess + 1, guess, guess - 1}) {
            if (near <= out || near >= in) continue;
            (is_in(float_of(near), limit) ? in : out) = near;
        }
        while (in - out > 1) {
            const uint32_t middle = out + (in - out) / 2;
            (is_in(float_of(middle), limit) ? in : out) = middle;
        }
        return float_of(in);
    }

    Buffer<float> cuts_;
};

class SoftmaxSets {
   public:
    // Finding the cuts takes as long as a few rows.
    SoftmaxSets(const Score&, const Thresholds& thresholds, int64_t n_classes, int64_t n_rows)
        : thresholds_(thresholds),
          n_classes_(n_classes),
          has_cuts_(n_rows >= 8 && !thresholds.lower),
          cuts_(thresholds.upper, has_cuts_ ? n_classes : 0),
          flags_(n_classes + n_lanes) {}

    template <class Source>
    int64_t write(const Source& source, const typename Source::Value* row, double, double draw,
                  int32_t* classes) {
        if constexpr (is_quick<Source>) {
            if (has_cuts_) {
                FloatPass pass;
                const int32_t* end = pass.append_places(row, n_classes_, cuts_.data(), classes);
                if (is_surely_good(source, pass, row, n_classes_)) return end - classes;
            }
        }
        if (!is_good_row(source, row, n_classes_)) return -1;
        flag_members(row, draw);
        return list_true(flags_.data(), n_classes_, classes);
    }

   private:
    template <class T>
    void flag_members(const T* __restrict row, double draw) {
        const double* __restrict const upper = thresholds_.upper;
        const double* __restrict const lower = thresholds_.lower;
        const double* __restrict const chance = thresholds_.upper_probability;
        uint8_t* __restrict const flags = flags_.data();
        if (!lower) {
            for (int64_t y = 0; y < n_classes_; ++y) {
                flags[y] = softmax_score(static_cast<double>(row[y])) <= upper[y];
            }
            return;
        }
        for (int64_t y = 0; y < n_classes_; ++y) {
            const double limit = draw < chance[y] ? upper[y] : lower[y];
            flags[y] = softmax_score(static_cast<double>(row[y])) <= limit;
        }
    }

    const Thresholds& thresholds_;
    int64_t n_classes_;
    bool has_cuts_;
    SoftmaxCuts cuts_;
    Buffer<uint8_t> flags_;
};

EVENCOVER_END
