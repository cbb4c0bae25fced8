// Random numbers of rows: the uniform of the score, and the randomization draw.
#pragma once

#include <cmath>
#include <cstdint>

#include "buffer.hpp"
#include "kernels.hpp"
#include "lanes/lanes.hpp"

EVENCOVER_BEGIN

// The four words of several counters: word w of the counter in lane l is counter[w][l].
template <int n_lanes>
using PhiloxCounters = uint32_t[4][n_lanes];

template <int n_lanes>
inline void philox(PhiloxCounters<n_lanes>& c, uint64_t key) {
    uint32_t first_key = static_cast<uint32_t>(key);
    uint32_t second_key = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        for (int l = 0; l < n_lanes; ++l) {
            const uint64_t first = uint64_t{0xD2511F53u} * c[0][l];
            const uint64_t second = uint64_t{0xCD9E8D57u} * c[2][l];
            c[0][l] = static_cast<uint32_t>(second >> 32) ^ c[1][l] ^ first_key;
            c[1][l] = static_cast<uint32_t>(second);
            c[2][l] = static_cast<uint32_t>(first >> 32) ^ c[3][l] ^ second_key;
            c[3][l] = static_cast<uint32_t>(first);
        }
        first_key += 0x9E3779B9u;
        second_key += 0xBB67AE85u;
    }
}

// 64 random bits of each row id for one use.
inline void random_bits(uint64_t seed, uint64_t use, const uint64_t* ids, int64_t n,
                        uint64_t* result) {
    constexpr int step = 64;  // too many to unroll, so compilers vectorize
    for (int64_t at = 0; at < n; at += step) {
        const int size = static_cast<int>(n - at < step ? n - at : step);
        PhiloxCounters<step> c = {};
        for (int l = 0; l < size; ++l) {
            c[0][l] = static_cast<uint32_t>(ids[at + l]);
            c[1][l] = static_cast<uint32_t>(ids[at + l] >> 32);
        }
        for (int l = 0; l < step; ++l) {
            c[2][l] = static_cast<uint32_t>(use);
            c[3][l] = 0;
        }
        philox(c, seed);
        for (int l = 0; l < size; ++l) result[at + l] = uint64_t{c[0][l]} << 32 | c[1][l];
    }
}

constexpr uint32_t column_step = 0x9E3779B1u;
constexpr uint64_t rest_step = 0x9E3779B97F4A7C15u;

// Hash a row's content to 64 bits; half, float and double of equal values agree. Sum the products
// of neighboring columns' bits, shifted by the column (as in NH, Black et al. 1999): one
// multiplication for two values, in any order.
class RowContent {
   public:
    explicit RowContent(int64_t n_columns) : n_(n_columns), shifts_(n_columns) {
        for (int64_t j = 0; j < n_; ++j) {
            shifts_[j] = static_cast<uint32_t>(j + 1) * column_step;
        }
    }

    uint64_t of(const float* row) const {
        constexpr int64_t width = PairSums::width;
        PairSums even, odd;  // two independent sums
        int64_t j = 0;
        for (; j + 2 * width <= n_; j += 2 * width) {
            even.add(row + j, shifts_.data() + j);
            odd.add(row + j + width, shifts_.data() + j + width);
        }
        uint64_t sums[width], sum = 0;
        even.store(sums);
        odd.store(sums + width / 2);
        for (uint64_t each : sums) sum += each;
        for (; j + 1 < n_; j += 2) sum += uint64_t{word(row, j)} * word(row, j + 1);
        if (j < n_) sum += uint64_t{word(row, j)} * column_step;
        return sum;
    }

    uint64_t of(const uint16_t* row) {
        floats_.reserve(n_);
        floats_from_halves(row, n_, floats_.data());
        return of(floats_.data());
    }

    // The nearest floats, and their remainders: zero if the values are floats.
    uint64_t of(const double* row) {
        floats_.reserve(n_);
        uint64_t rest = 0;
        for (int64_t j = 0; j < n_; ++j) {
            const float near = static_cast<float>(row[j]);
            const bool is_finite = std::fabs(near) <= 0x1.fffffep127f;
            const double left = is_finite ? row[j] - static_cast<double>(near) : 0.0;
            const uint64_t factor = static_cast<uint64_t>(2 * j + 1) * rest_step;
            rest += bits(left) * factor;
            floats_[j] = near;
        }
        return of(floats_.data()) + rest;
    }

   private:
    uint32_t word(const float* row, int64_t j) const { return bits(row[j]) + shifts_[j]; }

    int64_t n_;
    Buffer<uint32_t> shifts_;
    Buffer<float> floats_;
};

// SplitMix64's finalizer (Steele, Lea, Flood 2014).
inline uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

inline uint64_t row_key(uint64_t content, uint64_t index) { return mixed(mixed(content) + index); }

inline double unit(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

inline double uniform(uint64_t seed, uint64_t use, uint64_t key) {
    PhiloxCounters<1> c = {{static_cast<uint32_t>(key)},
                           {static_cast<uint32_t>(key >> 32)},
                           {static_cast<uint32_t>(use)},
                           {0}};
    philox(c, seed);
    return unit(uint64_t{c[0][0]} << 32 | c[1][0]);
}

// The uniforms of n <= 64 keys.
inline void uniforms(uint64_t seed, uint64_t use, const uint64_t* keys, int64_t n, double* result) {
    uint64_t random[64];
    random_bits(seed, use, keys, n, random);
    for (int64_t i = 0; i < n; ++i) result[i] = unit(random[i]);
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
        : draws_(draws), keys_(rows, draws, draws.has_score || draws.has_exact) {}

    void go_to(int64_t i) {
        row_ = i;
        if (!draws_.has_score) return;
        key_ = keys_.of(i);
        u_ = uniform(draws_.seed, draws_.score_use, key_);
    }
    double u() const { return u_; }

    // Few rows need it, so keys for it alone are computed then.
    double draw() {
        if (!draws_.has_exact) return 0.0;
        const uint64_t key = draws_.has_score ? key_ : keys_.of(row_);
        return uniform(draws_.seed, draws_.exact_use, key);
    }

   private:
    const Draws& draws_;
    RowKeys keys_;
    int64_t row_ = 0;
    uint64_t key_ = 0;
    double u_ = 1.0;
};

EVENCOVER_END
