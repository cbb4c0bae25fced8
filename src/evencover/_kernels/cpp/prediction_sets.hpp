// Prediction sets, written to one list of classes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "descending_order.hpp"
#include "random.hpp"
#include "select_ordered.hpp"
#include "select_softmax.hpp"

EVENCOVER_BEGIN

// Call `use(i, classes, size)` with the set of each row, which is written to `room()`.
template <class Sets, class Source, class Room, class Use>
inline int64_t each_set_by(Source& source, const Rows& rows, const Score& score,
                           const Draws& draws, const Thresholds& thresholds, bool allow_empty,
                           Room room, Use use) {
    Sets sets(score, thresholds, rows.n_classes, rows.n_rows);
    return each_row(source, rows, draws, [&](int64_t i, const auto* row, double u, double draw) {
        int32_t* const classes = room();
        int64_t size = sets.write(source, row, u, draw, classes);
        if (size < 0) return false;
        if (size == 0 && !allow_empty) {
            classes[0] = static_cast<int32_t>(first_largest(source.stored(), rows.n_classes));
            size = 1;
        }
        use(i, classes, size);
        return true;
    });
}

template <class Source, class Room, class Use>
inline int64_t each_set(Source& source, const Rows& rows, const Score& score, const Draws& draws,
                        const Thresholds& thresholds, bool allow_empty, Room room, Use use) {
    const auto by = score.needs_order || thresholds.rank_limit
                        ? each_set_by<OrderedSets<typename Source::Value>, Source, Room, Use>
                        : each_set_by<SoftmaxSets, Source, Room, Use>;
    return by(source, rows, score, draws, thresholds, allow_empty, room, use);
}

// Order each set by decreasing probability.
inline int64_t prediction_sets(const Rows& rows, const Score& score, const Draws& draws,
                               const Thresholds& thresholds, bool allow_empty, int64_t* sizes,
                               ClassList& members) {
    return with_source(rows, [&](auto&& source) {
        const int64_t room_of_row = rows.n_classes + n_lanes;
        Buffer<int32_t> listed(room_of_row);
        DescendingOrder<std::decay_t<decltype(*source.stored())>> order;
        int64_t n_listed = 0;
        const int64_t bad = each_set(
            source, rows, score, draws, thresholds, allow_empty,
            [&] {
                listed.reserve(n_listed + room_of_row);
                return listed.data() + n_listed;
            },
            [&](int64_t i, int32_t* classes, int64_t size) {
                order.put_first(source.stored(), classes, size);
                sizes[i] = size;
                n_listed += size;
            });
        if (bad != all_good) return bad;
        members.size = n_listed;
        members.classes = listed.release();
        return all_good;
    });
}

// Evaluate the sets without storing them.
inline int64_t set_coverage(const Rows& rows, const Score& score, const Draws& draws,
                            const int64_t* labels, const Thresholds& thresholds, bool allow_empty,
                            const SetCoverage& result) {
    return with_source(rows, [&](auto&& source) {
        Buffer<int32_t> room(rows.n_classes + n_lanes);
        return each_set(
            source, rows, score, draws, thresholds, allow_empty, [&] { return room.data(); },
            [&](int64_t i, const int32_t* classes, int64_t size) {
                const auto label = static_cast<int32_t>(labels[i]);
                uint32_t is_covered = 0;
                for (int64_t j = 0; j < size; ++j) is_covered |= classes[j] == label ? 1u : 0u;
                result.sizes[i] = size;
                result.is_covered[i] = is_covered != 0;
                result.top_classes[i] = first_largest(source.stored(), rows.n_classes);
            });
    });
}

EVENCOVER_END
