// Scratch memory of one call: grows, never shrinks, uninitialized.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

#include "isa.hpp"

EVENCOVER_BEGIN

template <class T>
class Buffer {
   public:
    Buffer() = default;
    explicit Buffer(int64_t size) { reserve(size); }
    ~Buffer() { std::free(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // Reserve room for `size` elements; keep the content.
    void reserve(int64_t size) {
        if (size <= capacity_) return;
        const int64_t grown = size > 2 * capacity_ ? size : 2 * capacity_;
        void* data = std::realloc(data_, static_cast<size_t>(grown) * sizeof(T));
        if (!data) throw std::bad_alloc();
        data_ = static_cast<T*>(data);
        capacity_ = grown;
    }

    T* release() {
        T* data = data_;
        data_ = nullptr;
        capacity_ = 0;
        return data;
    }

    void swap(Buffer& other) {
        T* const data = data_;
        const int64_t capacity = capacity_;
        data_ = other.data_;
        capacity_ = other.capacity_;
        other.data_ = data;
        other.capacity_ = capacity;
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    T& operator[](int64_t i) { return data_[i]; }
    const T& operator[](int64_t i) const { return data_[i]; }

   private:
    T* data_ = nullptr;
    int64_t capacity_ = 0;
};

EVENCOVER_END
