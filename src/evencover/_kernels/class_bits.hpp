// A set of classes as bits, which come out in increasing order.
#pragma once

#include <cstdint>
#include <cstring>

#include "bits.hpp"
#include "buffer.hpp"

EVENCOVER_BEGIN

class ClassBits {
   public:
    explicit ClassBits(int64_t n_classes) : n_words_((n_classes + 63) / 64), words_(n_words_) {
        clear();
    }
    void clear() { std::memset(words_.data(), 0, bytes()); }
    void copy(const ClassBits& other) { std::memcpy(words_.data(), other.words_.data(), bytes()); }
    void add_if(int64_t y, bool member) { words_[y >> 6] |= uint64_t{member} << (y & 63); }

    // The classes y to y + 7 by the low bits of `eight`; y is a multiple of 8.
    void add_eight(int64_t y, uint64_t eight) { words_[y >> 6] |= eight << (y & 63); }

    // Writes the classes to `classes`, and returns how many.
    int64_t list(int32_t* classes) const {
        int32_t* next = classes;
        for (int64_t w = 0; w < n_words_; ++w) {
            for (uint64_t word = words_[w]; word; word &= word - 1) {
                *next++ = static_cast<int32_t>(64 * w + lowest_bit(word));
            }
        }
        return next - classes;
    }

   private:
    size_t bytes() const { return static_cast<size_t>(n_words_) * sizeof(uint64_t); }

    int64_t n_words_;
    Buffer<uint64_t> words_;
};

EVENCOVER_END
