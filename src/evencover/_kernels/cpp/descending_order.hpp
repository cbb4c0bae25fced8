// Order classes by decreasing probability: a stable radix sort.
#pragma once

#include <cstdint>
#include <cstring>

#include "buffer.hpp"
#include "lanes/lanes.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

constexpr int64_t few = 128;

// Rank n <= few values by comparing all pairs, which is faster than sorting, whose branches are
// unpredictable. Return false if some are equal. Four sums at a time are independent.
template <class T, class ValueAt, class Rank>
inline bool rank_few(int64_t n, ValueAt value_at, Rank* __restrict ranks) {
    T values[few];
    const int64_t end = (n + n_lanes - 1) / n_lanes * n_lanes;
    for (int64_t i = 0; i < n; ++i) values[i] = value_at(i);
    for (int64_t i = n; i < end; ++i) values[i] = -static_cast<T>(infinity);
    for (int64_t i = 0; i < end; ++i) ranks[i] = 0;
    for (int64_t i = 0; i < n; i += 4) {
        const T a = values[i], b = values[i + 1], c = values[i + 2], d = values[i + 3];
        for (int64_t j = 0; j < end; ++j) {
            ranks[j] += Rank{a > values[j]} + Rank{b > values[j]} + Rank{c > values[j]} +
                        Rank{d > values[j]};
        }
    }
    Rank sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += ranks[i];
    return static_cast<int64_t>(sum) == n * (n - 1) / 2;
}

template <class T>
class DescendingOrder {
   public:
    // Sort all classes of the row.
    void sort(const T* row, int64_t n) {
        reserve(n);
        for (int64_t y = 0; y < n; ++y) put(y, y, row[y]);
        sort_items();
    }

    // Sort n classes, and visit their indices in increasing `classes`.
    void sort(const T* row, const int32_t* classes, int64_t n) {
        reserve(n);
        const auto value_at = [=](int64_t i) { return row[classes[i]]; };
        Bits ranks[few];
        const bool is_ranked = n <= few && rank_few<T>(n, value_at, ranks);
        for (int64_t i = 0; i < n; ++i) put(is_ranked ? ranks[i] : i, i, value_at(i));
        if (!is_ranked) sort_items();
    }

    // Sort n increasing classes.
    void put_first(const T* row, int32_t* classes, int64_t n) {
        if (n < 2) return;
        sort(row, classes, n);
        for (int64_t i = 0; i < n; ++i) items_[i].index = classes[items_[i].index];
        for (int64_t i = 0; i < n; ++i) classes[i] = items_[i].index;
    }

    // Call visit(index, probability) from the most probable class on.
    template <class Visit>
    void each(Visit visit) const {
        for (int64_t i = 0; i < n_; ++i) visit(items_[i].index, probability(i));
    }

    // Call visit(index, score) from the most probable class on, until scores exceed `largest`.
    template <class Visit>
    void walk(const Score& score, double u, double largest, Visit visit) const {
        int64_t mass = 0;
        const double top = n_ ? probability(0) : 0.0;
        for (int64_t i = 0; i < n_; ++i) {
            if (least_score(score, mass, i + 1, top) > largest) return;
            const double p = probability(i);
            visit(items_[i].index, ordered_score(score, p, mass, i + 1, u, top));
            mass += fixed_point(p);
        }
    }

   private:
    using Bits = decltype(bits(T{}));
    using Ordered = decltype(ordered_bits(T{}));
    static constexpr Bits below_sign = static_cast<Bits>(~Bits{0}) >> 1;
    static constexpr int n_digits = static_cast<int>(sizeof(Bits));

    struct Item {
        Bits key;  // increases as probabilities, or logits, decrease
        int32_t index;
    };

    double probability(int64_t i) const {
        return static_cast<double>(number_of(static_cast<Ordered>(items_[i].key ^ below_sign)));
    }

    void reserve(int64_t n) {
        items_.reserve(n);
        other_.reserve(n);
        n_ = n;
    }

    void put(int64_t at, int64_t index, T p) {
        const T plus_zero = p + T{0};  // -0.0 becomes 0.0
        items_[at] = {static_cast<Bits>(ordered_bits(plus_zero)) ^ below_sign,
                      static_cast<int32_t>(index)};
    }

    void sort_items() {
        if (n_ <= 64) {
            sort_few();
            return;
        }
        int32_t counts[n_digits][256];
        std::memset(counts, 0, sizeof counts);
        for (int64_t i = 0; i < n_; ++i) {
            for (int d = 0; d < n_digits; ++d) ++counts[d][(items_[i].key >> (8 * d)) & 255];
        }
        for (int d = 0; d < n_digits; ++d) {
            const Bits any_digit = (items_[0].key >> (8 * d)) & 255;
            if (counts[d][any_digit] != n_) distribute(counts[d], 8 * d);
        }
    }

    void distribute(int32_t* counts, int shift) {
        int32_t index = 0;
        for (int digit = 0; digit < 256; ++digit) {
            const int32_t count = counts[digit];
            counts[digit] = index;
            index += count;
        }
        const Item* const from = items_.data();
        Item* const to = other_.data();
        for (int64_t i = 0; i < n_; ++i) to[counts[(from[i].key >> shift) & 255]++] = from[i];
        items_.swap(other_);
    }

    void sort_few() {
        for (int64_t i = 1; i < n_; ++i) {
            const Item moving = items_[i];
            int64_t index = i;
            for (; index > 0 && moving.key < items_[index - 1].key; --index) {
                items_[index] = items_[index - 1];
            }
            items_[index] = moving;
        }
    }

    Buffer<Item> items_, other_;
    int64_t n_ = 0;
};

EVENCOVER_END
