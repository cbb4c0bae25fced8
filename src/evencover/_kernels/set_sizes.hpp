// Set sizes under many threshold vectors: each row is ranked once, then counted for each vector.
#pragma once

#include <algorithm>
#include <cstdint>

#include "candidates.hpp"
#include "chooser.hpp"
#include "limits.hpp"
#include "ranking.hpp"
#include "row_source.hpp"
#include "scan.hpp"

EVENCOVER_BEGIN

struct Less {
    bool operator()(double a, double b) const { return a < b; }
};

// How many classes an infinite limit takes in.
class InfiniteCount {
   public:
    void read(const Thresholds& thresholds, int64_t n_classes) {
        for (int64_t y = 0; y < n_classes; ++y) {
            const bool upper = thresholds.upper[y] == infinity;
            const bool lower = thresholds.lower ? thresholds.lower[y] == infinity : upper;
            always_ += upper && lower;
            if (upper != lower) append(upper ? heads_ : tails_, thresholds.upper_probability[y]);
        }
        std::sort(heads_.values.data(), heads_.values.data() + heads_.size, Less());
        std::sort(tails_.values.data(), tails_.values.data() + tails_.size, Less());
    }

    int64_t at(double coin) const {
        return always_ + (heads_.size - at_most(heads_, coin)) + at_most(tails_, coin);
    }

   private:
    struct Chances {
        Buffer<double> values;
        int64_t size = 0;
    };

    static void append(Chances& chances, double probability) {
        chances.values.reserve(chances.size + 1);
        chances.values[chances.size++] = probability;
    }

    // The coin shows heads for a class if it is less than the class's probability.
    static int64_t at_most(const Chances& chances, double coin) {
        int64_t count = 0;
        while (count < chances.size && chances.values[count] <= coin) ++count;
        return count;
    }

    int64_t always_ = 0;
    Chances heads_, tails_;
};

EVENCOVER_END
