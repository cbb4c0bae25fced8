// Prediction sets, straight to one list of classes.
#pragma once

#include <cstdint>

#include "candidates.hpp"
#include "chooser.hpp"
#include "class_bits.hpp"
#include "limits.hpp"
#include "ranking.hpp"
#include "row_source.hpp"
#include "scan.hpp"

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
            if (upper == lower) continue;
            sometimes_.reserve(n_sometimes_ + 1);
            sometimes_[n_sometimes_++] = static_cast<int32_t>(y);
        }
    }

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
};

// Adds the candidates of one row whose scores are within their limits.
class Selector {
   public:
    Selector(const Score& score, const Thresholds& thresholds, const LimitRange& limits,
             int64_t n_classes)
        : score_(score), thresholds_(thresholds), limits_(limits), ranking_(n_classes) {}

    void select(const Candidates& candidates, double u, double coin, ClassBits& members) {
        if (score_.needs_order) {
            select_ordered(candidates, u, coin, members);
            return;
        }
        for (int64_t i = 0; i < candidates.size(); ++i) {
            const int32_t y = candidates.class_of(i);
            members.add_if(y, softmax_score(candidates.p(i)) <= limit_of(thresholds_, y, coin));
        }
    }

   private:
    void select_ordered(const Candidates& candidates, double u, double coin, ClassBits& members) {
        ranking_.arrange(candidates, score_, limits_);
        for (int64_t i = 0; i < candidates.size(); ++i) {
            members.add_if(candidates.class_of(i), ranking_.is_sure(i));
        }
        ranking_.walk(score_, u, limits_.largest, [&](int32_t y, double s) {
            members.add_if(y, s <= limit_of(thresholds_, y, coin));
        });
    }

    const Score& score_;
    const Thresholds& thresholds_;
    const LimitRange& limits_;
    Ranking ranking_;
};

template <class Source>
inline int64_t prediction_sets_from(Source& source, const Rows& rows, const Score& score,
                                    const double* u, const Thresholds& thresholds,
                                    const double* coin, bool allow_empty, int64_t* sizes,
                                    ClassList& members) {
    const int64_t n_classes = rows.n_classes;
    LimitRange limits;
    limits.include(thresholds, n_classes);
    const InfiniteLimits infinite(thresholds, n_classes);
    Chooser chooser(score, limits, n_classes);
    Selector selector(score, thresholds, limits, n_classes);
    Candidates candidates(n_classes);
    ClassBits chosen(n_classes);
    Buffer<int32_t> classes(n_classes);
    int64_t n_listed = 0;
    Scan scan;
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        const auto* row = source.load(i);
        if (!row || !scan_row(source, row, n_classes, scan)) return i;
        chooser.choose(row, scan, candidates);
        infinite.put_into(chosen, coin[i]);
        selector.select(candidates, u[i], coin[i], chosen);
        classes.reserve(n_listed + n_classes);
        sizes[i] = chosen.list(classes.data() + n_listed);
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

EVENCOVER_END
