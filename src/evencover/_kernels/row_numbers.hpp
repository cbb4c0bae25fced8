// The random numbers of rows: the uniform of the score, and the coin between two limits.
//
// They are functions of the row's key: its id, or a mix of its content and its place. The content
// is taken just before the row is read for its scores, which then finds it in the cache.
#pragma once

#include <cstdint>

#include "content.hpp"
#include "kernels.hpp"
#include "philox.hpp"

EVENCOVER_BEGIN

// SplitMix64's finaliser (Steele, Lea, Flood 2014).
inline uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

inline uint64_t row_key(uint64_t content, uint64_t place) { return mixed(mixed(content) + place); }

inline double unit(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

inline double uniform(uint64_t seed, uint64_t use, uint64_t key) {
    PhiloxCounters<1> c = {{static_cast<uint32_t>(key)},
                           {static_cast<uint32_t>(key >> 32)},
                           {static_cast<uint32_t>(use)},
                           {0}};
    philox(c, seed);
    return unit(uint64_t{c[0][0]} << 32 | c[1][0]);
}

inline void uniforms(uint64_t seed, uint64_t use, const uint64_t* keys, int64_t n, double* result) {
    constexpr int64_t step = 256;
    uint64_t random[step];
    for (int64_t at = 0; at < n; at += step) {
        const int64_t size = n - at < step ? n - at : step;
        random_bits(seed, use, keys + at, size, random);
        for (int64_t i = 0; i < size; ++i) result[at + i] = unit(random[i]);
    }
}

class RowKeys {
   public:
    RowKeys(const Rows& rows, const Draws& draws, bool is_needed = true)
        : rows_(rows),
          draws_(draws),
          content_(is_needed && !draws.ids ? rows.n_classes : 0) {}

    uint64_t of(int64_t i) {
        if (draws_.ids) return draws_.ids[i];
        return row_key(content_of(i), draws_.first + static_cast<uint64_t>(i));
    }

   private:
    uint64_t content_of(int64_t i) {
        const int64_t at = i * rows_.stride;
        switch (rows_.element) {
            case Element::float16:
                return content_.of(static_cast<const uint16_t*>(rows_.data) + at);
            case Element::float32:
                return content_.of(static_cast<const float*>(rows_.data) + at);
            default:
                return content_.of(static_cast<const double*>(rows_.data) + at);
        }
    }

    const Rows& rows_;
    const Draws& draws_;
    RowContent content_;
};

class RowNumbers {
   public:
    RowNumbers(const Rows& rows, const Draws& draws)
        : draws_(draws),
          is_needed_(draws.has_score || draws.has_coin),
          keys_(rows, draws, is_needed_) {}

    void go_to(int64_t i) {
        if (!is_needed_) return;
        const uint64_t key = keys_.of(i);
        if (draws_.has_score) u_ = uniform(draws_.seed, draws_.score_use, key);
        if (draws_.has_coin) coin_ = uniform(draws_.seed, draws_.coin_use, key);
    }
    double u() const { return u_; }
    double coin() const { return coin_; }

   private:
    const Draws& draws_;
    bool is_needed_;
    RowKeys keys_;
    double u_ = 1.0;
    double coin_ = 0.0;
};

EVENCOVER_END
