// Stable orders of rows: by a number, and by group. They need no instruction set of their own.
#pragma once

#include <cstdint>

namespace evencover {

// Order n numbers; n is below 2^31.
void ascending(const double* values, int64_t n, int64_t* order);
void ascending(const uint64_t* values, int64_t n, int64_t* order);

// Order n rows, all of them if `rows` is null, by their group, -1 first, and within it as they came.
// Group g has those from offsets[g] to offsets[g + 1] of the order.
void by_group(const int64_t* groups, const int64_t* rows, int64_t n, int64_t n_groups,
              int64_t* order, int64_t* offsets);

// Count the earlier rows of each row's group.
void rank_within(const int64_t* groups, int64_t n, int64_t n_groups, int64_t* ranks);

}  // namespace evencover
