// Finds the candidates of a row: few, but all whose score can be within a limit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "candidates.hpp"
#include "first_largest.hpp"
#include "limits.hpp"
#include "row_check.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

class Chooser {
   public:
    // No class of a rank beyond `largest_rank` is wanted.
    Chooser(const Score& score, double largest_limit, int64_t n_classes, int64_t largest_rank)
        : score_(score),
          largest_limit_(largest_limit),
          n_classes_(n_classes),
          largest_rank_(largest_rank),
          guess_(0.1 / static_cast<double>(n_classes)) {}

    // Whether the row is good.
    template <class Source>
    bool choose(const Source& source, const typename Source::Value* row,
                Candidates<typename Source::Value>& candidates) {
        const bool is_guess = score_.needs_order || largest_rank_ < n_classes_;
        // Where so many classes are wanted, rather than so much mass, they share what the top class
        // leaves to them.
        const bool by_rank = score_.by_rank || largest_rank_ < n_classes_;
        unit_ = by_rank ? std::max(1.0 - static_cast<double>(largest_of(row, n_classes_)), 1e-9)
                        : 1.0;
        const double cut = is_guess ? std::max(guess_ * unit_, least_cut()) : softmax_cut();
        double total = 0.0;
        if (!collect_good(source, row, cut, candidates, total)) return false;
        if (is_guess) lower_cut(row, cut, total, candidates);
        return true;
    }

   private:
    // Collects and checks the row, in one pass if possible; `total` is at most the row's.
    template <class Source>
    bool collect_good(const Source& source, const typename Source::Value* row, double cut,
                      Candidates<typename Source::Value>& candidates, double& total) {
        if constexpr (is_quick<Source>) {
            FloatPass pass;
            candidates.collect(row, n_classes_, cut, pass);
            total = pass.sum() - FloatPass::error(n_classes_);
            if (is_surely_good(source, pass, row, n_classes_)) return true;
        } else {
            candidates.collect(row, n_classes_, cut);
        }
        Scan scan;
        const bool good = scan_row(source, row, n_classes_, scan);
        total = from_fixed_point(scan.total);
        return good;
    }

    // 1 - p is rounded, so the cut keeps a little more than the limit admits.
    double softmax_cut() const {
        return std::max((1.0 - largest_limit_) * (1.0 - 1e-6) - 1e-15, 0.0);
    }

    // If the classes above the guessed cut use up the largest limit, all others come after it.
    // The guess follows the rows: it changes the time taken, never the result.
    template <class T>
    void lower_cut(const T* row, double cut, double total, Candidates<T>& candidates) {
        if (cut <= least_cut() || is_enough(candidates)) {
            guess_ = std::min(guess_ * 1.03, 0.25);  // against * 0.5: too high for 4% of the rows
            return;
        }
        const double safe = safe_cut(total);
        candidates.collect(row, n_classes_, std::max(guess_ * unit_ * 0.125, safe));
        guess_ = std::max(guess_ * 0.5, 0x1p-60);
        if (!is_enough(candidates)) candidates.collect(row, n_classes_, safe);
    }

    template <class T>
    bool is_enough(const Candidates<T>& candidates) const {
        if (candidates.size() >= largest_rank_) return true;
        if (!score_.needs_order) return false;
        return least_score(score_, candidates.mass(), candidates.size() + 1,
                           candidates.largest()) > largest_limit_;
    }

    // No row needs candidates below it.
    double least_cut() const { return score_.needs_order ? 0.0 : softmax_cut(); }

    // Below it, even K classes cannot hold what the largest limit leaves of the row's total (less
    // a little for rounding); 0, all classes, if the limit leaves nothing.
    double safe_cut(double total) const {
        if (!score_.needs_order || score_.by_rank) return least_cut();
        const double left = total - largest_limit_ - 1e-9;
        return std::max(left / static_cast<double>(n_classes_) * (1.0 - 1e-6) - 0x1p-52, 0.0);
    }

    const Score& score_;
    double largest_limit_;
    int64_t n_classes_;
    int64_t largest_rank_;
    double guess_;
    double unit_ = 1.0;
};

EVENCOVER_END
