// Rows of which only some classes are listed: the work grows with the listed classes, not with K.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "prediction_sets.hpp"
#include "random.hpp"
#include "row_check.hpp"

EVENCOVER_BEGIN

// One row at a time. Vectors of classes are read whole, so the last rows are copied.
template <class T>
class ListedRow {
   public:
    explicit ListedRow(const ListedRows& rows)
        : rows_(rows),
          n_entries_(rows.starts[rows.n_rows]),
          surely_within_(1.0 + rows.tolerance - FloatPass::error(few)) {}

    int64_t size() const { return size_; }
    int32_t class_at(int64_t j) const { return classes_at_[j]; }
    double value_at(int64_t j) const { return static_cast<double>(values_at_[j]); }
    T number_at(int64_t j) const { return values_at_[j]; }

    void go_to(int64_t i) {
        const int64_t start = rows_.starts[i];
        size_ = rows_.starts[i + 1] - start;
        classes_at_ = rows_.classes + start;
        values_at_ = static_cast<const T*>(rows_.values) + start;
        is_stored_ = true;
        if (start + size_ + n_lanes <= n_entries_) return;
        classes_.reserve(size_ + n_lanes);
        for (int64_t j = 0; j < size_ + n_lanes; ++j) classes_[j] = j < size_ ? classes_at_[j] : -1;
        classes_at_ = classes_.data();
    }

    // Whether the row has probabilities of different classes; what is missing to 1 belongs to
    // other classes. With `has_keys`, find out whether it may have neighbors, too.
    bool is_good(bool has_keys) {
        if (size_ < 1 || !(is_surely_within() || is_within())) return false;
        if (size_ > few) return has_neighbors_ = !lists_twice();
        has_neighbors_ = has_keys && may_have_equals(classes_at_, size_, 1);
        if (has_keys && !has_neighbors_) return true;
        return !may_have_equals(classes_at_, size_, 0) || !lists_twice();
    }

    // Forget whether rows had probabilities above 1.
    void forget() { is_above_ = false; }

    // Index of a class, or -1.
    int64_t find(int64_t y) const {
        for (int64_t at = 0; at < size_; at += n_lanes) {
            LaneMask mask = where_equal(classes_at_ + at, static_cast<int32_t>(y));
            if (size_ - at < n_lanes) mask &= first_lanes(size_ - at);
            if (mask) return at + lowest_bit(mask);
        }
        return -1;
    }

    bool has_neighbors() const { return has_neighbors_; }
    // Index of the neighbor of a class, 2 i + 1 of 2 i, or -1; after `is_good`.
    int64_t neighbor_at(int64_t j) const {
        const int32_t y = classes_at_[j];
        if (y % 2) return -1;
        if (size_ <= few) return find(y + 1);
        const int64_t at = y + 1 < rows_.n_classes ? place_of_[y + 1] : size_;
        return at < size_ && classes_at_[at] == y + 1 ? at : -1;
    }

    // Mass and number of the classes before that at j.
    void find_before(int64_t j, int64_t& mass, int64_t& count) const {
        const T own = values_at_[j];
        const int32_t y = classes_at_[j];
        const auto is_before = [=](int64_t i) {
            return (values_at_[i] > own) | ((values_at_[i] == own) & (classes_at_[i] < y));
        };
        uint64_t sum = 0;
        uint32_t n = 0;
        for (int64_t i = 0; i < size_; ++i) {
            sum += is_before(i) ? fixed_above_one(value_at(i)) : 0;
            n += is_before(i);
        }
        mass = static_cast<int64_t>(sum - n * bits_of_one);
        count = n;
        if (!is_above_) return;
        mass = 0;
        for (int64_t i = 0; i < size_; ++i) mass += is_before(i) ? fixed_point(value_at(i)) : 0;
    }

    T largest() const {
        T top = values_at_[0];
        for (int64_t j = 1; j < size_; ++j) top = std::max(top, values_at_[j]);
        return top;
    }

    // Put the most probable class first, ties by class, unless they are stored so.
    void put_in_order() {
        if (is_ordered()) return;
        entries_.reserve(size_);
        for (int64_t j = 0; j < size_; ++j) {
            entries_[j] = {values_at_[j], classes_at_[j], static_cast<int32_t>(j)};
        }
        std::sort(entries_.data(), entries_.data() + size_);
        classes_.reserve(size_ + n_lanes);
        values_.reserve(size_);
        for (int64_t j = 0; j < size_; ++j) {
            classes_[j] = entries_[j].y;
            values_[j] = entries_[j].value;
        }
        classes_at_ = classes_.data();
        values_at_ = values_.data();
        is_stored_ = false;
    }

    // Number of classes of at least a probability, without a branch.
    int64_t count_at_least(double p) const {
        using Bits = decltype(bits(T{}));  // of one width, so that compilers vectorize
        const T least = static_cast<T>(p);
        Bits n = 0;
        for (int64_t j = 0; j < size_; ++j) n += values_at_[j] >= least;
        return static_cast<int64_t>(n);
    }

    // Copy the first n classes; with room for whole lanes after them.
    void copy_classes(int64_t n, int32_t* to) const {
        for (int64_t j = 0; j < n; j += n_lanes) {
            std::memcpy(to + j, classes_at_ + j, n_lanes * sizeof(int32_t));
        }
    }

    // Index in the stored row.
    int64_t place_at(int64_t j) const { return is_stored_ ? j : entries_[j].place; }

   private:
    static constexpr int64_t few = 64;

    struct Entry {
        T value;
        int32_t y, place;
        bool operator<(const Entry& other) const {
            return value > other.value || (value == other.value && y < other.y);
        }
    };

    bool is_surely_within() const {
        if constexpr (std::is_same_v<T, float>) {
            if (size_ > few) return false;
            LaneSums sums;
            int64_t j = 0;
            for (; j + n_lanes <= size_; j += n_lanes) sums.add(FloatLanes(values_at_ + j));
            if (j < size_) sums.add(FloatLanes(values_at_ + j, size_ - j));
            return sums.in_unit_interval() && sums.total() <= surely_within_;
        }
        return false;
    }

    // The same in fixed point.
    bool is_within() {
        Scan scan;
        in_steps(0, size_, scan, [&](int64_t at, int64_t step) {
            scan_values<false>(values_at_ + at, step, T{}, scan);
        });
        if (!scan.in_unit_interval) {  // values slightly above 1, or -0.0, which are rare
            is_above_ = true;
            scan.total = 0;
            for (int64_t j = 0; j < size_; ++j) {
                const double p = value_at(j);
                if (!(p >= 0.0 && p <= 1.0 + coarse_tolerance)) return false;
                if (scan.total < too_much) scan.total += fixed_point(p);
            }
        }
        return from_fixed_point(scan.total) - 1.0 <= rows_.tolerance;
    }

    // `place_of_` has the index of each class in the row that listed it last, of those looked up.
    bool lists_twice() {
        if (!place_of_.data()) {
            place_of_.reserve(rows_.n_classes);
            std::memset(place_of_.data(), 0, static_cast<size_t>(rows_.n_classes) * 4);
        }
        for (int64_t j = 0; j < size_; ++j) {
            int32_t& place = place_of_[classes_at_[j]];
            if (place < j && classes_at_[place] == classes_at_[j]) return true;
            place = static_cast<int32_t>(j);
        }
        return false;
    }

    bool is_ordered() const {
        using Bits = decltype(bits(T{}));  // of one width, so that compilers vectorize
        Bits is_less = 0;
        for (int64_t j = 0; j + 1 < size_; ++j) {
            const T p = values_at_[j], next = values_at_[j + 1];
            is_less |=
                Bits{p < next} | (Bits{p == next} & Bits{classes_at_[j] > classes_at_[j + 1]});
        }
        return is_less == 0;
    }

    const ListedRows& rows_;
    int64_t n_entries_, size_ = 0;
    double surely_within_;  // sums of float32 up to this are within the tolerance
    bool is_stored_ = true, has_neighbors_ = false, is_above_ = false;
    const int32_t* classes_at_ = nullptr;
    const T* values_at_ = nullptr;
    Buffer<Entry> entries_;
    Buffer<int32_t> classes_, place_of_;
    Buffer<T> values_;
};

// The key of a row is that of the whole row with zeros for the classes that are not listed.
class ListedContent {
   public:
    ListedContent(int64_t n_classes, bool is_needed) : n_(n_classes) {
        if (!is_needed) return;
        const auto n = static_cast<int32_t>(n_classes);
        for (int32_t y = 0; y + 1 < n; y += 2) zeros_ += uint64_t{shift(y)} * shift(y + 1);
        if (n % 2) zeros_ += uint64_t{shift(n - 1)} * column_step;
    }

    // A class adds its change d = word - shift times the shift of its neighbor; two neighbors that
    // are both listed add the product of their changes, too.
    template <class T>
    uint64_t of(const ListedRow<T>& row) const {
        uint64_t sum = zeros_, less = 0;  // two sums of products of 32-bit numbers vectorize
        for (int64_t j = 0; j < row.size(); ++j) {
            const uint32_t own = shift(row.class_at(j)), other = shift(row.class_at(j) ^ 1);
            sum += uint64_t{bits(static_cast<float>(row.number_at(j))) + own} * other;
            less += uint64_t{own} * other;
        }
        sum -= less;
        if constexpr (std::is_same_v<T, double>) {
            for (int64_t j = 0; j < row.size(); ++j) {
                const double p = row.value_at(j), rest = p - static_cast<double>(static_cast<float>(p));
                sum += bits(rest) * (static_cast<uint64_t>(2 * int64_t{row.class_at(j)} + 1) * rest_step);
            }
        }
        const int64_t last = n_ % 2 ? row.find(n_ - 1) : -1;  // this column has no neighbor
        if (last >= 0) {
            const uint64_t other = shift(row.class_at(last) ^ 1);
            sum += change(row, last) * (uint64_t{column_step} - other);
        }
        if (!row.has_neighbors()) return sum;
        for (int64_t j = 0; j < row.size(); ++j) {
            const int64_t next = row.neighbor_at(j);
            if (next >= 0) sum += change(row, j) * change(row, next);
        }
        return sum;
    }

   private:
    static uint32_t shift(int32_t y) { return (static_cast<uint32_t>(y) + 1) * column_step; }

    template <class T>
    static uint64_t change(const ListedRow<T>& row, int64_t j) {
        const uint32_t own = shift(row.class_at(j));
        return uint64_t{bits(static_cast<float>(row.number_at(j))) + own} - own;
    }

    int64_t n_;
    uint64_t zeros_ = 0;
};

// The first of n rows with a class that does not exist, or n.
inline int64_t row_of_no_class(const ListedRows& rows, int64_t first, int64_t n) {
    uint32_t largest = 0;  // as unsigned integers, negative ones are large
    for (int64_t j = rows.starts[first]; j < rows.starts[first + n]; ++j) {
        largest = std::max(largest, static_cast<uint32_t>(rows.classes[j]));
    }
    if (n == 0 || largest < rows.n_classes) return n;
    const int64_t half = n / 2, before = row_of_no_class(rows, first, half);
    if (before < half || n == 1) return before;
    return half + row_of_no_class(rows, first + half, n - half);
}

// Check rows, and call `visit(i, row, u, draw)` for each; return the first bad row, or `all_good`.
// Random numbers of several rows are drawn together.
template <class T, class Visit>
inline int64_t each_listed_row(const ListedRows& rows, const Draws& draws, Visit visit) {
    constexpr int64_t step = 64;
    const bool has_keys = (draws.has_score || draws.has_exact) && !draws.ids;
    const ListedContent content(rows.n_classes, has_keys);
    ListedRow<T> row(rows);
    uint64_t keys[step];
    double u[step], draw[step];
    std::fill_n(u, step, 1.0);
    std::fill_n(draw, step, 0.0);
    for (int64_t first = 0; first < rows.n_rows; first += step) {
        const int64_t n = std::min(step, rows.n_rows - first);
        const int64_t n_existing = row_of_no_class(rows, first, n);
        row.forget();
        for (int64_t l = 0; l < n; ++l) {
            row.go_to(first + l);
            if (l == n_existing || !row.is_good(has_keys)) return first + l;
            if (!has_keys) continue;
            keys[l] = row_key(content.of(row), draws.first + static_cast<uint64_t>(first + l));
        }
        const uint64_t* const ids = draws.ids ? draws.ids + first : keys;
        if (draws.has_score) uniforms(draws.seed, draws.score_use, ids, n, u);
        if (draws.has_exact) uniforms(draws.seed, draws.exact_use, ids, n, draw);
        for (int64_t l = 0; l < n; ++l) {
            row.go_to(first + l);
            visit(first + l, row, u[l], draw[l]);
        }
    }
    return all_good;
}

template <class Visit>
inline int64_t each_listed_row(const ListedRows& rows, const Draws& draws, Visit visit) {
    if (rows.element == Element::float32) return each_listed_row<float>(rows, draws, visit);
    return each_listed_row<double>(rows, draws, visit);
}

// Score the labels, without sorting; a label that is not listed has the score +inf. All classes
// before one that is listed are listed, too.
inline int64_t listed_label_scores(const ListedRows& rows, const Score& score, const Draws& draws,
                                   const int64_t* labels, double* scores) {
    return each_listed_row(rows, draws, [&](int64_t i, const auto& row, double u, double) {
        const int64_t j = row.find(labels[i]);
        scores[i] = infinity;
        if (j < 0) return;
        const double p = row.value_at(j);
        if (!score.needs_order) {
            scores[i] = softmax_score(p);
            return;
        }
        int64_t mass = 0, count = 0;
        row.find_before(j, mass, count);
        const double top = score.by_rank ? static_cast<double>(row.largest()) : p;
        scores[i] = ordered_score(score, p, mass, count + 1, u, top);
    });
}

// Call `visit(rank, score)` from the most probable class on, until scores exceed `largest`.
template <class T, class Visit>
inline void each_listed_score(const ListedRow<T>& row, const Score& score, double u, double largest,
                              Visit visit) {
    const double top = row.value_at(0);
    int64_t mass = 0;
    for (int64_t rank = 0; rank < row.size(); ++rank) {
        const double p = row.value_at(rank);
        if (!score.needs_order) {
            const double s = softmax_score(p);
            if (s > largest) return;
            visit(rank, s);
            continue;
        }
        if (least_score(score, mass, rank + 1, top) > largest) return;
        visit(rank, ordered_score(score, p, mass, rank + 1, u, top));
        mass += fixed_point(p);
    }
}

// Score and rank every listed class.
inline int64_t listed_scores(const ListedRows& rows, const Score& score, const Draws& draws,
                             double* scores, int64_t* ranks) {
    return each_listed_row(rows, draws, [&](int64_t i, auto& row, double u, double) {
        const int64_t start = rows.starts[i] - rows.starts[0];
        row.put_in_order();
        each_listed_score(row, score, u, infinity, [&](int64_t rank, double s) {
            scores[start + row.place_at(rank)] = s;
            ranks[start + row.place_at(rank)] = rank + 1;
        });
    });
}

// The smallest and the largest threshold of all classes.
struct ThresholdRange {
    double smallest = infinity, largest = -infinity;

    ThresholdRange(const Thresholds& thresholds, int64_t n_classes) {
        for (const double* limits : {thresholds.upper, thresholds.lower}) {
            for (int64_t y = 0; limits && y < n_classes; ++y) {
                smallest = std::min(smallest, limits[y]);
                largest = std::max(largest, limits[y]);
            }
        }
        if (thresholds.rank_limit) smallest = -infinity;
    }

    bool is_one() const { return smallest == largest; }
};

// Call `add(i, row, rank, is_in)` for the classes that may be in the set of a row, the most probable
// first, and then `end(i, row)`.
template <class Add, class End>
inline int64_t each_listed_set(const ListedRows& rows, const Score& score, const Draws& draws,
                               const Thresholds& thresholds, bool keep_top, Add add, End end) {
    const ThresholdRange range(thresholds, rows.n_classes);
    const double smallest = range.smallest, largest = range.largest;
    const bool is_one = range.is_one();
    return each_listed_row(rows, draws, [&](int64_t i, auto& row, double u, double draw) {
        bool is_empty = true;
        row.put_in_order();
        each_listed_score(row, score, u, largest, [&](int64_t rank, double s) {
            bool is_in = (keep_top & (rank == 0)) | (s <= smallest);
            if (!is_in && !is_one) {  // look the class up, which takes longer
                const int64_t y = row.class_at(rank);
                const bool in_rank = !thresholds.rank_limit || rank < thresholds.rank_limit[y];
                is_in = (s <= threshold_of(thresholds, y, draw)) & in_rank;
            }
            add(i, row, rank, is_in);
            is_empty = false;
        });
        if (is_empty && keep_top) add(i, row, 0, true);  // above every threshold
        end(i, row);
    });
}

// The smallest probability whose softmax score is within a limit, or 2: scores fall with it, and
// numbers from 0 on are in the order of their bits.
template <class T>
inline double least_within(double limit) {
    auto low = ordered_bits(T{0}), high = ordered_bits(T{2});
    while (low < high) {
        const auto middle = low + (high - low) / 2;
        if (softmax_score(static_cast<double>(number_of(middle))) <= limit) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return static_cast<double>(number_of(low));
}

// Write the members of all sets one after another; with room for all entries and whole lanes.
inline int64_t listed_sets(const ListedRows& rows, const Score& score, const Draws& draws,
                           const Thresholds& thresholds, bool keep_top, int64_t* sizes,
                           int32_t* members) {
    int64_t n_members = 0, n_before = 0;
    const ThresholdRange range(thresholds, rows.n_classes);
    const bool is_float = rows.element == Element::float32;
    const double least = is_float ? least_within<float>(range.largest) : least_within<double>(range.largest);
    // With one threshold, softmax scores within it are those of the first classes.
    const auto first_classes = [&](int64_t i, auto& row, double, double) {
        row.put_in_order();
        sizes[i] = std::max(row.count_at_least(least), int64_t{keep_top});
        row.copy_classes(sizes[i], members + n_members);
        n_members += sizes[i];
    };
    const auto add = [&](int64_t, const auto& row, int64_t rank, bool is_in) {
        members[n_members] = row.class_at(rank);
        n_members += is_in;
    };
    const auto end = [&](int64_t i, const auto&) {
        sizes[i] = n_members - n_before;
        n_before = n_members;
    };
    const bool is_one = !score.needs_order && range.is_one();
    return is_one ? each_listed_row(rows, draws, first_classes)
                  : each_listed_set(rows, score, draws, thresholds, keep_top, add, end);
}

inline int64_t listed_coverage(const ListedRows& rows, const Score& score, const Draws& draws,
                               const int64_t* labels, const Thresholds& thresholds, bool keep_top,
                               const SetCoverage& result) {
    int64_t size = 0;
    bool is_covered = false, has_top = false;
    return each_listed_set(
        rows, score, draws, thresholds, keep_top,
        [&](int64_t i, const auto& row, int64_t rank, bool is_in) {
            const int64_t y = row.class_at(rank);
            size += is_in;
            is_covered |= is_in & (y == labels[i]);
            has_top |= is_in & (rank == 0);
            result.appearances[y] += is_in;
        },
        [&](int64_t i, const auto& row) {
            result.sizes[i] = size;
            result.is_covered[i] = is_covered;
            result.top_classes[i] = row.class_at(0);
            result.is_accepted[i] = size == 1 && has_top;
            size = 0;
            is_covered = has_top = false;
        });
}

EVENCOVER_END
