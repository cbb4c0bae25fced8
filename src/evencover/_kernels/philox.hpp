// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): random numbers as a function of a counter.
#pragma once

#include <cstdint>

#include "isa.hpp"

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
    constexpr int step = 64;  // too many to be unrolled, so compilers vectorise
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

EVENCOVER_END
