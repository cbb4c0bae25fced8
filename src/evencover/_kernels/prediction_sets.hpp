// Prediction sets, straight to one list of classes.
#pragma once

#include <cstdint>

#include "candidates.hpp"
#include "chooser.hpp"
#include "class_bits.hpp"
#include "limits.hpp"
#include "ordered_selector.hpp"
#include "row_check.hpp"
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

// Writes the set of one row, for scores that go by the order.
class OrderedSets {
   public:
    OrderedSets(const Score& score, const Thresholds& thresholds, int64_t n_classes)
        : infinite_(thresholds, n_classes),
          chooser_(score, LargestLimit(thresholds, n_classes).value(), n_classes),
          selector_(score, thresholds, n_classes),
          candidates_(n_classes),
          is_member_(n_classes),
          members_(n_classes) {}

    // The size of the set, or -1 for a bad row.
    template <class Source>
    int64_t write(const Source& source, const typename Source::Value* row, double u, double coin,
                  int32_t* classes) {
        if (!chooser_.choose(source, row, candidates_)) return -1;
        selector_.select(candidates_, u, coin, is_member_.data());
        return infinite_.exist() ? list_with_infinite(coin, classes) : list(classes);
    }

   private:
    int64_t list(int32_t* classes) const {
        int64_t size = 0;
        for (int64_t i = 0; i < candidates_.size(); ++i) {
            classes[size] = candidates_.class_of(i);
            size += is_member_[i];
        }
        return size;
    }

    int64_t list_with_infinite(double coin, int32_t* classes) {
        infinite_.put_into(members_, coin);
        for (int64_t i = 0; i < candidates_.size(); ++i) {
            members_.add_if(candidates_.class_of(i), is_member_[i] != 0);
        }
        return members_.list(classes);
    }

    InfiniteLimits infinite_;
    Chooser chooser_;
    OrderedSelector selector_;
    Candidates candidates_;
    Buffer<uint8_t> is_member_;
    ClassBits members_;
};

class SoftmaxSets {
   public:
    SoftmaxSets(const Score&, const Thresholds& thresholds, int64_t n_classes)
        : thresholds_(thresholds),
          n_classes_(n_classes),
          cuts_(thresholds.upper, n_classes),
          members_(n_classes) {}

    template <class Source>
    int64_t write(const Source& source, const typename Source::Value* row, double, double coin,
                  int32_t* classes) {
        if constexpr (is_quick<Source>) {
            if (!thresholds_.lower) {
                FloatPass pass;
                const int32_t* end = pass.append_places(row, n_classes_, cuts_.data(), classes);
                if (is_surely_good(source, pass, n_classes_)) return end - classes;
            }
        }
        if (!is_good_row(source, row, n_classes_)) return -1;
        select_softmax(row, n_classes_, thresholds_, coin, members_);
        return members_.list(classes);
    }

   private:
    const Thresholds& thresholds_;
    int64_t n_classes_;
    SoftmaxCuts cuts_;
    ClassBits members_;
};

template <class Sets, class Source>
inline int64_t prediction_sets_by(Source& source, const Rows& rows, const Score& score,
                                  const double* u, const Thresholds& thresholds, const double* coin,
                                  bool allow_empty, int64_t* sizes, ClassList& members) {
    Sets sets(score, thresholds, rows.n_classes);
    Buffer<int32_t> classes(rows.n_classes + n_lanes);
    int64_t n_listed = 0;
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        classes.reserve(n_listed + rows.n_classes + n_lanes);
        const auto* row = source.load(i);
        sizes[i] = row ? sets.write(source, row, u[i], coin[i], classes.data() + n_listed) : -1;
        if (sizes[i] < 0) return i;
        if (sizes[i] == 0 && !allow_empty) {
            classes[n_listed] = static_cast<int32_t>(source.top_class(i));
            sizes[i] = 1;
        }
        n_listed += sizes[i];
    }
    members.size = n_listed;
    members.classes = classes.release();
    return all_good;
}

template <class Source>
inline int64_t prediction_sets_from(Source& source, const Rows& rows, const Score& score,
                                    const double* u, const Thresholds& thresholds,
                                    const double* coin, bool allow_empty, int64_t* sizes,
                                    ClassList& members) {
    const auto by = score.needs_order ? prediction_sets_by<OrderedSets, Source>
                                      : prediction_sets_by<SoftmaxSets, Source>;
    return by(source, rows, score, u, thresholds, coin, allow_empty, sizes, members);
}

EVENCOVER_END
