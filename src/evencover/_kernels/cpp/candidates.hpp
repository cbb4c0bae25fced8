// Candidates of a row: the few classes whose score can be within a threshold.
//
// Sets have few of many classes, so most of the row is only compared with a cut, as fast as memory is
// read; sorting and thresholds concern the classes above it. Scores that use the order grow with the
// mass (or the rank) before a class. So once the classes above a cut have more mass than the largest
// finite threshold, every class below it is out. How high that cut may be differs from row to row.
// `CandidateFilter` guesses it from the rows before: a guess that suffices raises the next one by 3%,
// and one that does not halves it and is repaired by a second pass, at worst down to `safe_cut`, which
// needs no guess. At this ratio about 4% of the rows need the second pass.
//
// Invariant: candidates include every class whose score is at most the largest finite threshold and
// whose rank is at most the largest limit, and all classes of the row before such a class. Guesses
// affect the time only; results never depend on the rows before. Classes with infinite thresholds are
// not the concern of this file (see InfiniteThresholds). `FloatPass` checks the row in the same pass.
//
// Guarded by tests/kernels/test_native.py: test_many_rows_so_that_the_guessed_cut_moves (rows so
// different that guesses are wrong both ways), test_thresholds_next_to_a_score (the last bit).
#pragma once

#include <algorithm>
#include <cstdint>

#include "row_check.hpp"
#include "score.hpp"

EVENCOVER_BEGIN

// Values are float or double, as in the row.
template <class T>
class Candidates {
   public:
    using Bits = decltype(bits(T{}));

    explicit Candidates(int64_t n_classes)
        : classes_(n_classes + n_lanes), values_(n_classes), masses_(n_classes) {}

    // Collect the classes with row[y] >= cut, in order.
    void collect(const T* row, int64_t n, double cut) {
        FloatPass pass;
        collect(row, n, cut, pass);
    }

    // Collect them during another pass.
    void collect(const T* row, int64_t n, double cut, FloatPass& pass) {
        int32_t* const begin = classes_.data();
        size_ = append_indices(row, n, cut, begin, pass) - begin;
        read_values(row);
    }

    int64_t size() const { return size_; }
    int64_t mass() const { return mass_; }
    double largest() const { return largest_; }
    double smallest() const { return smallest_; }
    double p(int64_t i) const { return static_cast<double>(values_[i]); }
    const T* values() const { return values_.data(); }
    const int64_t* masses() const { return masses_.data(); }
    const int32_t* classes() const { return classes_.data(); }

   private:
    static int32_t* append_indices(const float* row, int64_t n, double cut, int32_t* out,
                                  FloatPass& pass) {
        return pass.append_indices(row, n, static_cast<float>(cut), out);
    }

    static int32_t* append_indices(const double* row, int64_t n, double cut, int32_t* out,
                                  FloatPass&) {
        for (int64_t y = 0; y < n; ++y) {
            *out = static_cast<int32_t>(y);
            out += row[y] >= cut;
        }
        return out;
    }

    // For a probability of at most 1, the fixed point is in the bits of 1 + p. The maximum of bits
    // does not depend on the order, so this vectorizes.
    void read_values(const T* __restrict row) {
        const int32_t* __restrict const classes = classes_.data();
        T* __restrict const values = values_.data();
        int64_t* __restrict const masses = masses_.data();
        const int64_t size = size_;
        Bits largest = 0, smallest = bits(T{2});
        uint64_t mass = 0;  // may wrap around in a bad row
        for (int64_t i = 0; i < size; ++i) {
            const T value = row[classes[i]] + T{0};  // -0.0 becomes 0.0
            const Bits b = bits(value);
            values[i] = value;
            const uint64_t fixed = fixed_above_one(static_cast<double>(value)) - bits_of_one;
            masses[i] = static_cast<int64_t>(fixed);
            mass += fixed;
            largest = b > largest ? b : largest;
            smallest = b < smallest ? b : smallest;
        }
        if (size && largest > bits(T{1})) mass = read_large();
        largest_ = size ? static_cast<double>(number_of(largest)) : 0.0;
        smallest_ = static_cast<double>(number_of(smallest));
        mass_ = static_cast<int64_t>(mass);
    }

    // Compute the masses again if some probability is slightly above 1.
    uint64_t read_large() {
        uint64_t mass = 0;
        for (int64_t i = 0; i < size_; ++i) {
            masses_[i] = fixed_point(p(i));
            mass += static_cast<uint64_t>(masses_[i]);
        }
        return mass;
    }

    Buffer<int32_t> classes_;
    Buffer<T> values_;
    Buffer<int64_t> masses_;
    int64_t size_ = 0;
    int64_t mass_ = 0;
    double largest_ = 0.0;
    double smallest_ = 0.0;
};

class CandidateFilter {
   public:
    // Classes of a rank beyond `largest_rank` are not needed.
    CandidateFilter(const Score& score, double largest_limit, int64_t n_classes, int64_t largest_rank)
        : score_(score),
          largest_limit_(largest_limit),
          n_classes_(n_classes),
          largest_rank_(largest_rank),
          guess_(0.1 / static_cast<double>(n_classes)) {}

    // Choose the candidates of a second vector of thresholds, too.
    void widen(double largest_limit, int64_t largest_rank) {
        largest_limit_ = std::max(largest_limit_, largest_limit);
        largest_rank_ = std::max(largest_rank_, largest_rank);
    }

    // Return whether the row is good.
    template <class Source>
    bool choose(const Source& source, const typename Source::Value* row,
                Candidates<typename Source::Value>& candidates) {
        const bool is_guess = score_.needs_order || largest_rank_ < n_classes_;
        // If the number of classes is limited, rather than their mass, they share what the top
        // class leaves.
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
    // Collect and check the row, in one pass if possible; `total` is at most the row's.
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
        const bool good = scan_row(source, row, n_classes_, -1, scan);
        total = from_fixed_point(scan.total);
        return good;
    }

    // 1 - p is rounded, so the cut keeps slightly more classes than needed.
    double softmax_cut() const {
        return std::max((1.0 - largest_limit_) * (1.0 - 1e-6) - 1e-15, 0.0);
    }

    // If the classes above the guessed cut use up the largest threshold, all others come after it.
    // The guess adapts to the rows; it affects speed, never the result.
    template <class T>
    void lower_cut(const T* row, double cut, double total, Candidates<T>& candidates) {
        if (cut <= least_cut() || is_enough(candidates)) {
            guess_ = std::min(guess_ * 1.03, 0.25);  // versus * 0.5: too high for 4% of the rows
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

    // Below it, even K classes cannot have the mass that the largest threshold leaves of the row's
    // total, up to rounding. 0 (all classes) if it leaves nothing.
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
