// Prediction sets, straight to one list of classes.
#pragma once

#include <cstdint>

#include "candidates.hpp"
#include "chooser.hpp"
#include "class_bits.hpp"
#include "limits.hpp"
#include "ordered_selector.hpp"
#include "row_check.hpp"
#include "row_numbers.hpp"
#include "row_source.hpp"
#include "softmax_cuts.hpp"
#include "softmax_selector.hpp"

EVENCOVER_BEGIN

// The classes that an infinite limit takes in, whatever their score.
class InfiniteLimits {
   public:
    InfiniteLimits(const Thresholds& thresholds, int64_t n_classes)
        : thresholds_(thresholds), always_(n_classes) {
        for (int64_t y = 0; y < n_classes; ++y) {
            if (!is_free(thresholds, y, n_classes)) continue;
            const bool upper = thresholds.upper[y] == infinity;
            const bool lower = thresholds.lower ? thresholds.lower[y] == infinity : upper;
            always_.add_if(y, upper && lower);
            exist_ |= upper || lower;
            if (upper == lower) continue;
            sometimes_.reserve(n_sometimes_ + 1);
            sometimes_[n_sometimes_++] = static_cast<int32_t>(y);
        }
    }

    bool exist() const { return exist_; }

    void put_into(ClassBits& members, double coin) const {
        members.copy(always_);
        for (int64_t i = 0; i < n_sometimes_; ++i) {
            const int32_t y = sometimes_[i];
            members.add_if(y, limit_of(thresholds_, y, coin) == infinity);
        }
    }

   private:
    const Thresholds& thresholds_;
    ClassBits always_;
    Buffer<int32_t> sometimes_;
    int64_t n_sometimes_ = 0;
    bool exist_ = false;
};

// Writes the set of one row of T, for scores that go by the order.
template <class T>
class OrderedSets {
   public:
    OrderedSets(const Score& score, const Thresholds& thresholds, int64_t n_classes, int64_t)
        : infinite_(thresholds, n_classes),
          largest_(thresholds, n_classes),
          chooser_(score, largest_.value(), n_classes, largest_.rank()),
          selector_(score, thresholds, n_classes),
          candidates_(n_classes),
          members_(n_classes) {}

    // The size of the set, or -1 for a bad row.
    template <class Source>
    int64_t write(const Source& source, const typename Source::Value* row, double u, double coin,
                  int32_t* classes) {
        if (!chooser_.choose(source, row, candidates_)) return -1;
        const int64_t size = selector_.select(candidates_, u, coin, classes);
        return infinite_.exist() ? add_infinite(coin, classes, size) : size;
    }

   private:
    int64_t add_infinite(double coin, int32_t* classes, int64_t size) {
        infinite_.put_into(members_, coin);
        for (int64_t i = 0; i < size; ++i) members_.add_if(classes[i], true);
        return members_.list(classes);
    }

    InfiniteLimits infinite_;
    LargestLimit largest_;
    Chooser chooser_;
    OrderedSelector<T> selector_;
    Candidates<T> candidates_;
    ClassBits members_;
};

class SoftmaxSets {
   public:
    // To find the cuts takes as long as a few rows.
    SoftmaxSets(const Score&, const Thresholds& thresholds, int64_t n_classes, int64_t n_rows)
        : thresholds_(thresholds),
          n_classes_(n_classes),
          has_cuts_(n_rows >= 8 && !thresholds.lower),
          cuts_(thresholds.upper, has_cuts_ ? n_classes : 0),
          members_(n_classes) {}

    template <class Source>
    int64_t write(const Source& source, const typename Source::Value* row, double, double coin,
                  int32_t* classes) {
        if constexpr (is_quick<Source>) {
            if (has_cuts_) {
                FloatPass pass;
                const int32_t* end = pass.append_places(row, n_classes_, cuts_.data(), classes);
                if (is_surely_good(source, pass, row, n_classes_)) return end - classes;
            }
        }
        if (!is_good_row(source, row, n_classes_)) return -1;
        select_softmax(row, n_classes_, thresholds_, coin, members_);
        return members_.list(classes);
    }

   private:
    const Thresholds& thresholds_;
    int64_t n_classes_;
    bool has_cuts_;
    SoftmaxCuts cuts_;
    ClassBits members_;
};

// Calls `use(i, classes, size)` with the set of each row, which is written to `room()`.
template <class Sets, class Source, class Room, class Use>
inline int64_t each_set_by(Source& source, const Rows& rows, const Score& score,
                           const Draws& draws, const Thresholds& thresholds, bool allow_empty,
                           Room room, Use use) {
    Sets sets(score, thresholds, rows.n_classes, rows.n_rows);
    RowNumbers numbers(rows, draws);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        numbers.go_to(i);
        const auto* row = source.load(i);
        if (!row) return i;
        int32_t* const classes = room();
        int64_t size = sets.write(source, row, numbers.u(), numbers.coin(), classes);
        if (size < 0) return i;
        if (size == 0 && !allow_empty) {
            classes[0] = static_cast<int32_t>(source.top_class(i));
            size = 1;
        }
        use(i, classes, size);
    }
    return all_good;
}

template <class Source, class Room, class Use>
inline int64_t each_set(Source& source, const Rows& rows, const Score& score, const Draws& draws,
                        const Thresholds& thresholds, bool allow_empty, Room room, Use use) {
    const auto by = score.needs_order || thresholds.rank_limit
                        ? each_set_by<OrderedSets<typename Source::Value>, Source, Room, Use>
                        : each_set_by<SoftmaxSets, Source, Room, Use>;
    return by(source, rows, score, draws, thresholds, allow_empty, room, use);
}

template <class Source>
inline int64_t prediction_sets_from(Source& source, const Rows& rows, const Score& score,
                                    const Draws& draws, const Thresholds& thresholds,
                                    bool allow_empty, int64_t* sizes, ClassList& members) {
    const int64_t room_of_row = rows.n_classes + n_lanes;
    Buffer<int32_t> classes(room_of_row);
    int64_t n_listed = 0;
    const int64_t bad = each_set(
        source, rows, score, draws, thresholds, allow_empty,
        [&] {
            classes.reserve(n_listed + room_of_row);
            return classes.data() + n_listed;
        },
        [&](int64_t i, const int32_t*, int64_t size) {
            sizes[i] = size;
            n_listed += size;
        });
    if (bad != all_good) return bad;
    members.size = n_listed;
    members.classes = classes.release();
    return all_good;
}

// What evaluation asks of the sets, which need not be kept for it.
template <class Source>
inline int64_t set_coverage_from(Source& source, const Rows& rows, const Score& score,
                                 const Draws& draws, const int64_t* labels,
                                 const Thresholds& thresholds, bool allow_empty,
                                 const SetCoverage& result) {
    Buffer<int32_t> room(rows.n_classes + n_lanes);
    return each_set(
        source, rows, score, draws, thresholds, allow_empty, [&] { return room.data(); },
        [&](int64_t i, const int32_t* classes, int64_t size) {
            const auto label = static_cast<int32_t>(labels[i]);
            uint32_t is_covered = 0;
            for (int64_t j = 0; j < size; ++j) is_covered |= classes[j] == label ? 1u : 0u;
            result.sizes[i] = size;
            result.is_covered[i] = is_covered != 0;
            result.top_classes[i] = source.top_class(i);
        });
}

EVENCOVER_END
