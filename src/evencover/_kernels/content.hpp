// The content of a row in 64 bits: half, float and double of equal values agree.
//
// Neighbouring columns make pairs, and the products of their bits, shifted by the column, are
// summed (as in NH, Black et al. 1999): one multiplication for two values, in any order.
#pragma once

#include <cmath>
#include <cstdint>

#include "bits.hpp"
#include "buffer.hpp"
#include "half.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

EVENCOVER_BEGIN

constexpr uint32_t column_step = 0x9E3779B1u;
constexpr uint64_t rest_step = 0x9E3779B97F4A7C15u;

#if defined(__AVX512F__)

struct ContentLanes {
    static constexpr int64_t width = 16;
    __m512i sum = _mm512_setzero_si512();

    void add(const float* values, const uint32_t* shifts) {
        const __m512i words =
            _mm512_add_epi32(_mm512_loadu_si512(values), _mm512_loadu_si512(shifts));
        sum = _mm512_add_epi64(sum, _mm512_mul_epu32(words, _mm512_srli_epi64(words, 32)));
    }
    void store(uint64_t* sums) const { _mm512_storeu_si512(sums, sum); }
};

#elif defined(__AVX2__)

struct ContentLanes {
    static constexpr int64_t width = 8;
    __m256i sum = _mm256_setzero_si256();

    void add(const float* values, const uint32_t* shifts) {
        const __m256i words =
            _mm256_add_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values)),
                             _mm256_loadu_si256(reinterpret_cast<const __m256i*>(shifts)));
        sum = _mm256_add_epi64(sum, _mm256_mul_epu32(words, _mm256_srli_epi64(words, 32)));
    }
    void store(uint64_t* sums) const {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), sum);
    }
};

#endif

class RowContent {
   public:
    explicit RowContent(int64_t n_columns) : n_(n_columns), shifts_(n_columns) {
        for (int64_t j = 0; j < n_; ++j) {
            shifts_[j] = static_cast<uint32_t>(j + 1) * column_step;
        }
    }

    uint64_t of(const float* row) const {
        uint64_t sum = 0;
        int64_t j = 0;
#if defined(__AVX2__)
        constexpr int64_t width = ContentLanes::width;
        ContentLanes even, odd;  // two, because an addition waits for the one before
        for (; j + 2 * width <= n_; j += 2 * width) {
            even.add(row + j, shifts_.data() + j);
            odd.add(row + j + width, shifts_.data() + j + width);
        }
        uint64_t sums[width];
        even.store(sums);
        odd.store(sums + width / 2);
        for (uint64_t each : sums) sum += each;
#endif
        for (; j + 1 < n_; j += 2) sum += uint64_t{word(row, j)} * word(row, j + 1);
        if (j < n_) sum += uint64_t{word(row, j)} * column_step;
        return sum;
    }

    uint64_t of(const uint16_t* row) {
        floats_.reserve(n_);
        floats_from_halves(row, n_, floats_.data());
        return of(floats_.data());
    }

    // The nearest floats, and what they leave over: nothing if the values are floats.
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

EVENCOVER_END
