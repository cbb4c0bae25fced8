#include "sorting.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

namespace evencover {
namespace {

// Map a number to 64 bits that have the same order.
uint64_t key_of(uint64_t value) { return value; }
uint64_t key_of(double value) {
    value += 0.0;  // turns -0.0 into 0.0
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}

// Sort by radix on the highest bits in which keys differ, and then the few rows that share them. An
// entry has these bits of its row's key, above the row's index.
template <class Number>
void order_by(const Number* values, int64_t n, int64_t* order) {
    uint64_t least = ~uint64_t{0}, most = 0, before = 0;
    bool is_sorted = true;
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t key = key_of(values[i]);
        is_sorted &= before <= key;
        least = std::min(least, key);
        most = std::max(most, key);
        before = key;
    }
    if (is_sorted) return std::iota(order, order + n, int64_t{0});
    constexpr int digit_bits = 11, n_digits = 1 << digit_bits, most_passes = 4;
    const int n_passes = n <= 1 << 20 ? most_passes : 3, index_bits = 64 - n_passes * digit_bits;
    int n_low = 0;  // bits of keys that entries lack
    while ((most - least) >> n_low >> (64 - index_bits)) ++n_low;

    std::array<std::array<int64_t, n_digits>, most_passes> next{};  // index of a digit's next entry
    const auto digit = [index_bits](uint64_t entry, int pass) {
        return entry >> (index_bits + pass * digit_bits) & (n_digits - 1);
    };
    std::vector<uint64_t> room(static_cast<size_t>(n));
    uint64_t *entries = reinterpret_cast<uint64_t*>(order), *sorted = room.data();
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t high = (key_of(values[i]) - least) >> n_low;
        entries[i] = high << index_bits | static_cast<uint64_t>(i);
        for (int pass = 0; pass < n_passes; ++pass) ++next[pass][digit(entries[i], pass)];
    }
    for (int pass = 0; pass < n_passes; ++pass) {
        auto& index = next[pass];
        std::exclusive_scan(index.begin(), index.end(), index.begin(), int64_t{0});
        for (int64_t i = 0; i < n; ++i) sorted[index[digit(entries[i], pass)]++] = entries[i];
        std::swap(entries, sorted);
    }

    const auto row_of = [index_bits](uint64_t entry) {
        return static_cast<int64_t>(entry & ((uint64_t{1} << index_bits) - 1));
    };
    const auto precedes = [&](uint64_t a, uint64_t b) {
        const uint64_t first = key_of(values[row_of(a)]), second = key_of(values[row_of(b)]);
        return first != second ? first < second : a < b;
    };
    uint64_t* const last = entries + n;
    for (uint64_t *run = entries, *end = run; n_low && run != last; run = end) {
        while (end != last && *end >> index_bits == *run >> index_bits) ++end;
        if (!std::is_sorted(run, end, precedes)) std::sort(run, end, precedes);
    }
    std::transform(entries, last, order, row_of);
}

}  // namespace

void ascending(const double* values, int64_t n, int64_t* order) { order_by(values, n, order); }
void ascending(const uint64_t* values, int64_t n, int64_t* order) { order_by(values, n, order); }

void by_group(const int64_t* groups, const int64_t* rows, int64_t n, int64_t n_groups,
              int64_t* order, int64_t* offsets) {
    const auto row_at = [rows](int64_t i) { return rows ? rows[i] : i; };
    std::fill_n(offsets, n_groups + 1, int64_t{0});
    for (int64_t i = 0; i < n; ++i) ++offsets[groups[row_at(i)] + 1];
    std::exclusive_scan(offsets, offsets + n_groups + 1, offsets, int64_t{0});
    for (int64_t i = 0; i < n; ++i) {
        const int64_t row = row_at(i);
        order[offsets[groups[row] + 1]++] = row;  // in the end, the entry is where the next begins
    }
}

void rank_within(const int64_t* groups, int64_t n, int64_t n_groups, int64_t* ranks) {
    std::vector<int64_t> next(static_cast<size_t>(n_groups));
    for (int64_t i = 0; i < n; ++i) ranks[i] = next[static_cast<size_t>(groups[i])]++;
}

}  // namespace evencover
