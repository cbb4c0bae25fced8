// The least float32 probability that each class's limit takes in: for float32 rows, comparing with
// it is the same as comparing the score 1 - p with the limit, and needs no doubles.
#pragma once

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

    // The score falls as p rises, so there is one cut, found by halving: floats that are not
    // negative have the order of their bits. It is nearly always within a step of the guess.
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

EVENCOVER_END
