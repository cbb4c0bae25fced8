// Sixteen lanes in plain C++, which compilers vectorize.
#pragma once

#include <cstring>

EVENCOVER_BEGIN

struct FloatLanes {
    const float* values;
    float copy[n_lanes];

    explicit FloatLanes(const float* at) : values(at) {}
    FloatLanes(const float* at, int64_t n) : values(copy), copy{} {
        for (int64_t l = 0; l < n && l < n_lanes; ++l) copy[l] = at[l];
    }
    FloatLanes(const FloatLanes&) = delete;

    // Most blocks have none, so the whole mask is rarely needed.
    LaneMask at_least(float from) const {
        uint32_t any = 0;
        for (int64_t l = 0; l < n_lanes; ++l) any |= values[l] >= from ? 1u : 0u;
        LaneMask mask = 0;
        if (any) {
            for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{values[l] >= from} << l;
        }
        return mask;
    }
    LaneMask at_least(const FloatLanes& limits) const {
        const float* const from = limits.values;
        uint32_t any = 0;
        for (int64_t l = 0; l < n_lanes; ++l) any |= values[l] >= from[l] ? 1u : 0u;
        LaneMask mask = 0;
        if (any) {
            for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{values[l] >= from[l]} << l;
        }
        return mask;
    }
    float* store(LaneMask kept, float* out) const {
        for (; kept; kept &= kept - 1) *out++ = values[lowest_bit(kept)];
        return out;
    }
};

struct IndexLanes {
    int64_t first;

    explicit IndexLanes(int64_t first_index) : first(first_index) {}

    int32_t* store(LaneMask kept, int32_t* out) const {
        for (; kept; kept &= kept - 1) *out++ = static_cast<int32_t>(first + lowest_bit(kept));
        return out;
    }
};

struct LaneSums {
    uint32_t outside[n_lanes] = {};  // a sign bit is set unless 0 <= value <= 1
    float sum[n_lanes] = {};

    void add(const FloatLanes& lanes) {
        for (int64_t l = 0; l < n_lanes; ++l) {
            const uint32_t b = bits(lanes.values[l]);
            outside[l] |= b | (static_cast<uint32_t>(float_one) - b);
            sum[l] += lanes.values[l];
        }
    }
    void add(const LaneSums& other) {
        for (int64_t l = 0; l < n_lanes; ++l) {
            outside[l] |= other.outside[l];
            sum[l] += other.sum[l];
        }
    }
    bool in_unit_interval() const {
        uint32_t any = 0;
        for (uint32_t lane : outside) any |= lane;
        return any >> 31 == 0;
    }
    double total() const {
        double total = 0.0;
        for (float lane : sum) total += static_cast<double>(lane);
        return total;
    }
};

// Sums of the products of neighboring words.
struct PairSums {
    static constexpr int64_t width = 2;
    uint64_t sum = 0;

    void add(const float* values, const uint32_t* shifts) {
        sum += uint64_t{bits(values[0]) + shifts[0]} * (bits(values[1]) + shifts[1]);
    }
    void store(uint64_t* sums) const { *sums = sum; }
};

inline LaneMask where_true(const uint8_t* flags) {
    uint64_t words[2];
    std::memcpy(words, flags, sizeof words);
    LaneMask mask = 0;
    if (words[0] | words[1]) {
        for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{flags[l] != 0} << l;
    }
    return mask;
}

inline LaneMask where_equal(const int32_t* values, int32_t value) {
    uint32_t any = 0;
    for (int64_t l = 0; l < n_lanes; ++l) any |= values[l] == value ? 1u : 0u;
    LaneMask mask = 0;
    if (any) {
        for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{values[l] == value} << l;
    }
    return mask;
}

// Whether two of n numbers are equal without their last `shift` bits.
inline bool has_equals(const int32_t* values, int64_t n, int shift) {
    int32_t n_equal = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int32_t value = values[i] >> shift;
        for (int64_t j = 0; j < i; ++j) n_equal += values[j] >> shift == value;
    }
    return n_equal > 0;
}

inline void floats_from_halves(const uint16_t* halves, int64_t n, float* floats) {
    for (int64_t j = 0; j < n; ++j) floats[j] = float_from_half(halves[j]);
}

// Copy n numbers of 32 bits, and fill the lanes after them.
inline void copy_lanes(const void* from, int64_t n, int32_t filling, void* to) {
    int32_t lanes[n_lanes];
    for (int32_t& lane : lanes) lane = filling;
    std::memcpy(lanes, from, static_cast<size_t>(n < n_lanes ? n : n_lanes) * sizeof(int32_t));
    std::memcpy(to, lanes, sizeof lanes);
}

inline int32_t* store_lanes(const int32_t* from, LaneMask kept, int32_t* out) {
    for (; kept; kept &= kept - 1) *out++ = from[lowest_bit(kept)];
    return out;
}

inline LaneMask where_at_most(const double* values, double limit) {
    LaneMask mask = 0;
    for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{values[l] <= limit} << l;
    return mask;
}

EVENCOVER_END
