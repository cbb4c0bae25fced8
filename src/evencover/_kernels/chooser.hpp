// Finds the candidates of a row: as few as possible, but all whose score can be within a limit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "candidates.hpp"
#include "limits.hpp"
#include "scan.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

class Chooser {
   public:
    Chooser(const Score& score, const LimitRange& limits, int64_t n_classes)
        : score_(score), limits_(limits), n_classes_(n_classes) {
        guess_ = 0.1 / static_cast<double>(n_classes);
    }

    template <class T>
    void choose(const T* row, const Scan& scan, Candidates& candidates) {
        if (score_.needs_order) {
            choose_ordered(row, scan, candidates);
        } else {
            // 1 - p is rounded, so the cut keeps a little more than the limit admits.
            const double cut = (1.0 - limits_.largest) * (1.0 - 1e-6) - 1e-15;
            candidates.collect(row, n_classes_, cut > 0.0 ? cut : 0.0);
        }
    }

   private:
    // Guess a cut and see whether the classes above it use up the largest limit; everything below
    // then comes after. The guess follows the rows: it changes the time taken, never the result.
    template <class T>
    void choose_ordered(const T* row, const Scan& scan, Candidates& candidates) {
        const double safe = safe_cut(scan.total);
        candidates.collect(row, n_classes_, std::max(guess_, safe));
        if (is_enough(candidates)) {
            guess_ = std::min(guess_ * 1.03, 0.25);  // against * 0.5: wrong for 4% of the rows
            return;
        }
        candidates.collect(row, n_classes_, std::max(guess_ * 0.125, safe));
        guess_ *= 0.5;
        if (!is_enough(candidates)) candidates.collect(row, n_classes_, safe);
    }

    // Below it, even K classes cannot hold what the largest limit leaves of the row's total (less
    // a little for rounding); 0, all classes, if the limit leaves nothing.
    double safe_cut(int64_t total) const {
        const double k = static_cast<double>(n_classes_);
        const double left = static_cast<double>(total) - limits_.largest * two_52 - k;
        return left > 0.0 ? left / k / two_52 * (1.0 - 1e-6) : 0.0;
    }

    bool is_enough(const Candidates& candidates) const {
        return least_score(score_, candidates.mass(), candidates.size() + 1) > limits_.largest;
    }

    const Score& score_;
    const LimitRange& limits_;
    int64_t n_classes_;
    double guess_;
};

EVENCOVER_END
