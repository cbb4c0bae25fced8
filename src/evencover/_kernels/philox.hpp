// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): random numbers as a function of a counter.
#pragma once

#include <array>
#include <cstdint>

namespace evencover {

using PhiloxCounter = std::array<uint64_t, 4>;  // four 32-bit words

inline PhiloxCounter philox(PhiloxCounter c, uint64_t key) {
    uint32_t first_key = static_cast<uint32_t>(key);
    uint32_t second_key = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t first = 0xD2511F53u * c[0];
        const uint64_t second = 0xCD9E8D57u * c[2];
        c = {(second >> 32) ^ c[1] ^ first_key, second & 0xFFFFFFFFu,
             (first >> 32) ^ c[3] ^ second_key, first & 0xFFFFFFFFu};
        first_key += 0x9E3779B9u;
        second_key += 0xBB67AE85u;
    }
    return c;
}

// 64 random bits of the row `id` for one use.
inline uint64_t philox_bits(uint64_t seed, uint64_t use, uint64_t id) {
    const PhiloxCounter c = philox({id & 0xFFFFFFFFu, id >> 32, use, 0}, seed);
    return (c[0] << 32) | c[1];
}

}  // namespace evencover
