// Rows in the order of their scores, some of which are left out: where the others stand among
// themselves, and where those left out stand among the others.
#pragma once

#include <cstdint>

#include "buffer.hpp"
#include "isa.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

// Rows of equal score are one tie: all of them have the same number of rows before them.
inline void left_out(const OrderedRows& rows, const LeftOut& found) {
    const int64_t n_classes = rows.n_classes;
    Buffer<int64_t> next_kept(n_classes), next_held(n_classes);
    for (int64_t y = 0; y <= n_classes; ++y) found.kept_offsets[y] = found.held_offsets[y] = 0;
    for (int64_t i = 0; i < rows.n; ++i) {
        ++(rows.fold[i] == rows.number ? found.held_offsets : found.kept_offsets)[rows.labels[i] + 1];
    }
    for (int64_t y = 0; y < n_classes; ++y) {
        next_kept[y] = found.kept_offsets[y];
        next_held[y] = found.held_offsets[y];
        found.kept_offsets[y + 1] += found.kept_offsets[y];
        found.held_offsets[y + 1] += found.held_offsets[y];
    }
    int64_t n_kept = 0;
    for (int64_t start = 0, stop; start < rows.n; start = stop) {
        stop = start + 1;
        while (stop < rows.n && rows.first[stop] == rows.first[start]) ++stop;
        for (int64_t i = start; i < stop; ++i) {
            if (rows.fold[i] != rows.number) continue;
            const int64_t y = rows.labels[i], at = next_held[y]++;
            found.held_labels[at] = y;
            found.held_places[at] = n_kept;
            found.held_first[at] = rows.first[i];
            found.held_below[at] = next_kept[y] - found.kept_offsets[y];
        }
        const int64_t before = n_kept;
        for (int64_t i = start; i < stop; ++i) {
            if (rows.fold[i] == rows.number) continue;
            const int64_t y = rows.labels[i];
            found.kept_places[next_kept[y]++] = n_kept;
            found.kept_labels[n_kept++] = y;
        }
        for (int64_t i = before; i < n_kept; ++i) found.kept_middles[i] = before + n_kept;
    }
}

EVENCOVER_END
