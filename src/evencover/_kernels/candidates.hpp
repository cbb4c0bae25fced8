// The classes of a row that matter: those whose probability is not too small.
#pragma once

#include <cstdint>

#include "buffer.hpp"
#include "fixed_point.hpp"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

EVENCOVER_BEGIN

// Indices j with row[j] >= cut, in order. `found` has room for n + 16.
template <class T>
inline int64_t at_least(const T* row, int64_t n, T cut, int32_t* found) {
    int64_t size = 0;
    for (int64_t j = 0; j < n; ++j) {
        found[size] = static_cast<int32_t>(j);
        size += row[j] >= cut;
    }
    return size;
}

#ifdef __AVX512F__
inline int64_t at_least(const float* row, int64_t n, float cut, int32_t* found) {
    const __m512 cuts = _mm512_set1_ps(cut);
    __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int64_t size = 0;
    for (int64_t j = 0; j < n; j += 16) {
        const __mmask16 there = n - j >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (n - j)) - 1);
        const __m512 values = _mm512_maskz_loadu_ps(there, row + j);
        const __mmask16 chosen = _mm512_mask_cmp_ps_mask(there, values, cuts, _CMP_GE_OQ);
        _mm512_storeu_si512(found + size, _mm512_maskz_compress_epi32(chosen, places));
        size += __builtin_popcount(chosen);
        places = _mm512_add_epi32(places, _mm512_set1_epi32(16));
    }
    return size;
}
#endif

class Candidates {
   public:
    explicit Candidates(int64_t n_classes) : classes_(n_classes + 16), p_(n_classes) {}

    template <class T>
    void collect(const T* row, int64_t n, double cut) {
        size_ = at_least(row, n, static_cast<T>(cut), classes_.data());
        read_probabilities(row);
    }

    int64_t size() const { return size_; }
    int64_t mass() const { return mass_; }
    double largest() const { return largest_; }
    double smallest() const { return smallest_; }
    int32_t class_of(int64_t i) const { return classes_[i]; }
    double p(int64_t i) const { return p_[i]; }

   private:
    template <class T>
    void read_probabilities(const T* row) {
        mass_ = 0;
        largest_ = 0.0;
        smallest_ = 2.0;
        for (int64_t i = 0; i < size_; ++i) {
            const double p = static_cast<double>(row[classes_[i]]) + 0.0;  // -0.0 becomes 0.0
            p_[i] = p;
            mass_ += fixed_point(p);
            largest_ = p > largest_ ? p : largest_;
            smallest_ = p < smallest_ ? p : smallest_;
        }
    }

    Buffer<int32_t> classes_;
    Buffer<double> p_;
    int64_t size_ = 0;
    int64_t mass_ = 0;
    double largest_ = 0.0;
    double smallest_ = 0.0;
};

EVENCOVER_END
