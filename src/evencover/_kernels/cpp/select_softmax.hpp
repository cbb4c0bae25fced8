// Select the classes in the set of the softmax score: 1 - p against each class's threshold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "row_check.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

// The smallest probability whose score is within a limit, or 2 if none is. Scores fall with the
// probability, and numbers from 0 on are ordered as their bits, so bisect these. The result is nearly
// always within a step of the guess.
template <class T>
inline T least_within(double limit) {
    const auto is_in = [=](T p) { return softmax_score(static_cast<double>(p)) <= limit; };
    if (is_in(T{0})) return T{0};
    if (!is_in(T{2})) return T{2};
    auto out = bits(T{0}), in = bits(T{2});
    const auto guess = bits(static_cast<T>(1.0 - limit));
    for (const auto near : {guess + 1, guess, guess - 1}) {
        if (near > out && near < in) (is_in(number_of(near)) ? in : out) = near;
    }
    while (in - out > 1) {
        const auto middle = out + (in - out) / 2;
        (is_in(number_of(middle)) ? in : out) = middle;
    }
    return number_of(in);
}

class SoftmaxSets {
   public:
    // For float32 rows, comparing with the least probability that a threshold admits equals comparing
    // the score with the threshold, without doubles. Finding these cuts takes as long as a few rows.
    SoftmaxSets(const Score&, const Thresholds& thresholds, int64_t n_classes, int64_t n_rows)
        : thresholds_(thresholds),
          n_classes_(n_classes),
          has_cuts_(n_rows >= 8),
          cuts_(n_classes + n_lanes),
          flags_(n_classes + n_lanes) {
        for (int64_t y = 0; has_cuts_ && y < n_classes; ++y) {
            const double lower = thresholds.lower ? thresholds.lower[y] : -infinity;
            cuts_[y] = least_within<float>(std::max(thresholds.upper[y], lower));
        }
    }

    // Prepare for `write_again`.
    void add(const Score& score, const Thresholds& second, int64_t n_classes, int64_t n_rows) {
        second_ = std::make_unique<SoftmaxSets>(score, second, n_classes, n_rows);
    }

    // Write the set of the same row by the second thresholds.
    template <class Source, class Draw>
    int64_t write_again(const Source& source, const typename Source::Value* row, double u,
                        const Draw& draw, int32_t* classes) {
        return second_->write(source, row, u, draw, classes);
    }

    template <class Source, class Draw>
    int64_t write(const Source& source, const typename Source::Value* row, double, const Draw& draw,
                  int32_t* classes) {
        if constexpr (is_quick<Source>) {
            if (has_cuts_) {
                FloatPass pass;
                const int64_t n = pass.append_indices(row, n_classes_, cuts_.data(), classes) - classes;
                if (is_surely_good(source, pass, row, n_classes_)) {
                    return thresholds_.lower ? n_drawn(row, draw, classes, n) : n;
                }
            }
        }
        if (!is_good_row(source, row, n_classes_)) return -1;
        flag_members(row, thresholds_.lower ? draw() : 0.0);
        return list_true(flags_.data(), n_classes_, classes);
    }

   private:
    // Keep the members among n classes within the larger threshold of a pair; return their number. The
    // score of few classes is between both thresholds, and drawing for each row would take longer.
    template <class T, class Draw>
    int64_t n_drawn(const T* row, const Draw& draw, int32_t* classes, int64_t n) const {
        int64_t n_kept = 0;
        double drawn = -1.0;  // not yet
        for (int64_t i = 0; i < n; ++i) {
            const int32_t y = classes[i];
            const double score = softmax_score(static_cast<double>(row[y]));
            bool is_in = (score <= thresholds_.lower[y]) & (score <= thresholds_.upper[y]);
            if (!is_in) {
                if (drawn < 0.0) drawn = draw();
                is_in = score <= threshold_of(thresholds_, y, drawn);
            }
            classes[n_kept] = y;
            n_kept += is_in;
        }
        return n_kept;
    }

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
    Buffer<float> cuts_;
    Buffer<uint8_t> flags_;
    std::unique_ptr<SoftmaxSets> second_;
};

EVENCOVER_END
