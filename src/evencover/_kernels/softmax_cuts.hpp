// The least float32 probability that each class's limit takes in: for float32 rows, comparing with
// it is the same as comparing the score 1 - p with the limit, and needs no doubles.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "buffer.hpp"
#include "float_lanes.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

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

    // The score falls as p rises, so there is one cut; rounding makes the guess a step off.
    static float cut_of(double limit) {
        constexpr float infinite = std::numeric_limits<float>::infinity();
        if (is_in(0.0f, limit)) return -infinite;
        if (!is_in(2.0f, limit)) return infinite;  // no probability is that large
        float cut = static_cast<float>(1.0 - limit);
        while (!is_in(cut, limit)) cut = std::nextafter(cut, infinite);
        while (is_in(std::nextafter(cut, -infinite), limit)) cut = std::nextafter(cut, -infinite);
        return cut;
    }

    Buffer<float> cuts_;
};

EVENCOVER_END
