// Prediction sets, written to one list of classes.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "descending_order.hpp"
#include "random.hpp"
#include "select_ordered.hpp"
#include "select_softmax.hpp"

EVENCOVER_BEGIN

// Call `use(i, row, classes, size)` with the set of each row, which is written to `room()`.
template <class Sets, class Source, class Room, class Use>
inline int64_t each_set_by(Source& source, const Rows& rows, const Score& score,
                           const Draws& draws, const Thresholds& thresholds, SecondSets* second,
                           Room room, Use use) {
    Sets sets(score, thresholds, rows.n_classes, rows.n_rows);
    if (second) sets.add(score, second->thresholds, rows.n_classes, rows.n_rows);
    Buffer<int32_t> again;
    int64_t n_again = 0;
    const int64_t bad =
        each_row(source, rows, draws, [&](int64_t i, const auto* row, double u, const auto& draw) {
            int32_t* const classes = room();
            const int64_t size = sets.write(source, row, u, draw, classes);
            if (size < 0) return false;
            if (second) {
                again.reserve(n_again + rows.n_classes + n_lanes);
                n_again += sets.write_again(source, row, u, draw, again.data() + n_again);
                second->ends[i] = n_again;
            }
            use(i, row, classes, size);
            return true;
        });
    if (second && bad == all_good) second->members = {again.release(), n_again};
    return bad;
}

template <class Source, class Room, class Use>
inline int64_t each_set(Source& source, const Rows& rows, const Score& score, const Draws& draws,
                        const Thresholds& thresholds, SecondSets* second, Room room, Use use) {
    const auto by = score.needs_order || thresholds.rank_limit
                        ? each_set_by<OrderedSets<typename Source::Value>, Source, Room, Use>
                        : each_set_by<SoftmaxSets, Source, Room, Use>;
    return by(source, rows, score, draws, thresholds, second, room, use);
}

// Put the most probable class first in an ordered set that lacks it, and return the new size. More
// than half of the row's sum is the most probable class's, which spares most rows another pass.
template <class Stored, class T>
inline int64_t with_top(const Stored* stored, const T* row, int64_t n_classes, int32_t* classes,
                        int64_t size) {
    if (size && static_cast<double>(row[classes[0]]) > 0.5 + coarse_tolerance) return size;
    const auto top = static_cast<int32_t>(first_largest(stored, n_classes));
    if (size && classes[0] == top) return size;
    std::memmove(classes + 1, classes, static_cast<size_t>(size) * sizeof(int32_t));
    classes[0] = top;
    return size + 1;
}

// Write the sets one after another, each by decreasing probability, and where each ends. With
// `keep_top`, each has the most probable class. `second` are sets by other thresholds, without a
// limit on ranks, which takes less time than another call.
inline int64_t prediction_sets(const Rows& rows, const Score& score, const Draws& draws,
                               const Thresholds& thresholds, bool keep_top, int64_t* ends,
                               ClassList& members, SecondSets* second) {
    return with_source(rows, [&](auto&& source) {
        const int64_t room_of_row = rows.n_classes + n_lanes;
        Buffer<int32_t> classes_of_sets(room_of_row);
        DescendingOrder<std::decay_t<decltype(*source.stored())>> order;
        int64_t n_members = 0;
        const int64_t bad = each_set(
            source, rows, score, draws, thresholds, second,
            [&] {
                classes_of_sets.reserve(n_members + room_of_row);
                return classes_of_sets.data() + n_members;
            },
            [&](int64_t i, const auto* row, int32_t* classes, int64_t size) {
                order.put_first(source.stored(), classes, size);
                if (keep_top) {
                    size = with_top(source.stored(), row, rows.n_classes, classes, size);
                }
                n_members += size;
                ends[i] = n_members;
            });
        if (bad != all_good) return bad;
        members.size = n_members;
        members.classes = classes_of_sets.release();
        return all_good;
    });
}

// Evaluate the sets without storing them.
inline int64_t set_coverage(const Rows& rows, const Score& score, const Draws& draws,
                            const int64_t* labels, const Thresholds& thresholds, bool keep_top,
                            const SetCoverage& result) {
    return with_source(rows, [&](auto&& source) {
        Buffer<int32_t> room(rows.n_classes + n_lanes);
        return each_set(
            source, rows, score, draws, thresholds, nullptr, [&] { return room.data(); },
            [&](int64_t i, const auto*, const int32_t* classes, int64_t size) {
                const auto label = static_cast<int32_t>(labels[i]);
                const auto top = static_cast<int32_t>(first_largest(source.stored(), rows.n_classes));
                uint32_t has_label = 0, has_top = 0;
                for (int64_t j = 0; j < size; ++j) {
                    has_label |= classes[j] == label ? 1u : 0u;
                    has_top |= classes[j] == top ? 1u : 0u;
                    ++result.appearances[classes[j]];
                }
                const bool adds_top = keep_top && !has_top;
                result.appearances[top] += adds_top;
                result.sizes[i] = size + adds_top;
                result.is_covered[i] = has_label || (adds_top && top == label);
                result.top_classes[i] = top;
                result.is_accepted[i] = size + adds_top == 1 && (has_top || adds_top);
            });
    });
}

EVENCOVER_END
