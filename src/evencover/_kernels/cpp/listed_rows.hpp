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

// One row at a time, checked and ordered: the most probable class first, ties by class.
//
// A few classes are copied to arrays of which whole vectors are read; `no_class` and 0 follow them.
// Many are found through `place_of_`, the place of each class in the row that listed it last.
template <class T>
class ListedReader {
   public:
    explicit ListedReader(const ListedRows& rows)
        : rows_(rows), n_entries_(rows.starts[rows.n_rows]) {}

    int64_t size() const { return size_; }
    int32_t class_at(int64_t rank) const { return classes_at_[rank]; }
    double value_at(int64_t rank) const { return static_cast<double>(values_at_[rank]); }
    // The place of the class in the stored row.
    int64_t place_at(int64_t rank) const { return is_ordered_ ? rank : entries_[rank].place; }

    // Return whether row i has probabilities of different classes; what is missing to 1 belongs to
    // other classes.
    bool go_to(int64_t i) {
        const int64_t start = rows_.starts[i];
        size_ = rows_.starts[i + 1] - start;
        if (size_ < 1) return false;
        classes_at_ = rows_.classes + start;
        values_at_ = static_cast<const T*>(rows_.values) + start;
        if (size_ <= few) copy(start + width <= n_entries_ ? width : size_);
        if (!has_probabilities() || lists_twice()) return false;
        is_ordered_ = is_ordered();
        if (!is_ordered_) order();
        return true;
    }

    // Whether two of the classes may be 2 i and 2 i + 1.
    bool may_have_neighbors() const {
        bool is_near = size_ > few;
        for (int64_t j = 0; j < size_ && !is_near; ++j) {
            is_near = row_of_[(static_cast<uint32_t>(classes_at_[j]) ^ 1) % n_last_bits] == row_;
        }
        return is_near;
    }

    // Rank from 0 of a class, or -1.
    int64_t find(int64_t y) const {
        const auto wanted = static_cast<int32_t>(y);
        if (size_ > few) {
            const int64_t rank = y < rows_.n_classes ? place_of_[y] : size_;
            return rank < size_ && classes_at_[rank] == wanted ? rank : -1;
        }
        int32_t rank = -1;
        for (int32_t j = 0; j < padded(); ++j) rank = classes_at_[j] == wanted ? j : rank;
        return rank;
    }

    int64_t mass_before(int64_t rank) const {
        int64_t mass = 0;
        for (int64_t j = 0; j < rank; ++j) mass += fixed_point(value_at(j));
        return mass;
    }

   private:
    static constexpr int64_t few = 56, width = 64;
    static constexpr int32_t no_class = 0x7FFFFFFF;
    static constexpr uint32_t n_last_bits = 4096;

    struct Entry {
        T value;
        int32_t y, place;
        bool operator<(const Entry& other) const {
            return value > other.value || (value == other.value && y < other.y);
        }
    };

    int32_t padded() const { return static_cast<int32_t>((size_ + 7) / 8 * 8); }

    void copy(int64_t n) {
        if (n == width) {
            for (int64_t j = 0; j < padded(); j += 8) {
                std::memcpy(few_classes_ + j, classes_at_ + j, 8 * sizeof(int32_t));
                std::memcpy(few_values_ + j, values_at_ + j, 8 * sizeof(T));
            }
        } else {
            std::memcpy(few_classes_, classes_at_, static_cast<size_t>(n) * sizeof(int32_t));
            std::memcpy(few_values_, values_at_, static_cast<size_t>(n) * sizeof(T));
        }
        for (int64_t j = 0; j < 8; ++j) few_classes_[size_ + j] = no_class;
        for (int64_t j = 0; j < 8; ++j) few_values_[size_ + j] = T{0};
        classes_at_ = few_classes_;
        values_at_ = few_values_;
    }

    bool has_probabilities() const {
        Scan scan;
        const int64_t n = size_ <= few ? padded() : size_;
        in_steps(0, n, scan, [&](int64_t at, int64_t step) {
            scan_values<false>(values_at_ + at, step, T{}, scan);
        });
        if (!scan.in_unit_interval) {  // values slightly above 1, or -0.0, which are rare
            scan.total = 0;
            for (int64_t j = 0; j < size_; ++j) {
                const double p = value_at(j);
                if (!(p >= 0.0 && p <= 1.0 + coarse_tolerance)) return false;
                if (scan.total < too_much) scan.total += fixed_point(p);
            }
        }
        return from_fixed_point(scan.total) - 1.0 <= rows_.tolerance;
    }

    bool lists_twice() {
        if (size_ > few) {
            const int64_t n = rows_.n_classes;
            if (!place_of_.data()) {
                place_of_.reserve(n);
                std::memset(place_of_.data(), 0, static_cast<size_t>(n) * sizeof(int32_t));
            }
            for (int64_t j = 0; j < size_; ++j) {
                int32_t& place = place_of_[classes_at_[j]];
                if (place < j && classes_at_[place] == classes_at_[j]) return true;
                place = static_cast<int32_t>(j);
            }
            return false;
        }
        // Few classes share their last bits, which `row_of_` has seen in this row then.
        if (++row_ == 0) std::memset(row_of_, 0, sizeof row_of_);
        const uint16_t row = row_ += row_ == 0;
        bool may_list_twice = false;
        for (int64_t j = 0; j < size_; ++j) {
            const auto last_bits = static_cast<uint32_t>(few_classes_[j]) % n_last_bits;
            may_list_twice |= row_of_[last_bits] == row;
            row_of_[last_bits] = row;
        }
        return may_list_twice && has_equal_classes();
    }

    // Compare all pairs: branches would be unpredictable.
    bool has_equal_classes() const {
        int64_t n_equal = 0;
        for (int64_t i = 0; i < size_; ++i) {
            for (int64_t j = 0; j < padded(); ++j) n_equal += few_classes_[i] == few_classes_[j];
        }
        return n_equal > size_;  // each equals itself
    }

    bool is_ordered() const {
        using Bits = decltype(bits(T{}));  // of one width, so that compilers vectorize
        Bits is_less = 0;
        const int64_t n = size_ <= few ? padded() : size_ - 1;
        for (int64_t j = 0; j < n; ++j) {
            const T p = values_at_[j], next = values_at_[j + 1];
            is_less |= Bits{p < next} | (Bits{p == next} & Bits{classes_at_[j] > classes_at_[j + 1]});
        }
        return is_less == 0;
    }

    void order() {
        entries_.reserve(size_);
        classes_.reserve(size_ + 8);
        values_.reserve(size_ + 8);
        for (int64_t j = 0; j < size_; ++j) {
            entries_[j] = {values_at_[j], classes_at_[j], static_cast<int32_t>(j)};
        }
        std::sort(entries_.data(), entries_.data() + size_);
        for (int64_t j = 0; j < size_; ++j) {
            classes_[j] = entries_[j].y;
            values_[j] = entries_[j].value;
            if (size_ > few) place_of_[classes_[j]] = static_cast<int32_t>(j);
        }
        for (int64_t j = size_; j < size_ + 8; ++j) classes_[j] = no_class;
        classes_at_ = classes_.data();
        values_at_ = values_.data();
    }

    const ListedRows& rows_;
    int64_t n_entries_, size_ = 0;
    bool is_ordered_ = true;
    const int32_t* classes_at_ = nullptr;
    const T* values_at_ = nullptr;
    int32_t few_classes_[width];
    T few_values_[width];
    uint16_t row_ = 0, row_of_[n_last_bits] = {};
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
    uint64_t of(const ListedReader<T>& row) const {
        uint64_t sum = zeros_;
        for (int64_t i = 0; i < row.size(); ++i) {
            const int32_t y = row.class_at(i);
            sum += change(y, row.value_at(i)) * shift(y ^ 1);
            if constexpr (std::is_same_v<T, double>) {
                const double rest = row.value_at(i) - static_cast<double>(nearest(row.value_at(i)));
                sum += bits(rest) * (static_cast<uint64_t>(2 * int64_t{y} + 1) * rest_step);
            }
        }
        const int64_t last = n_ % 2 ? row.find(n_ - 1) : -1;  // this column has no neighbor
        if (last >= 0) {
            const auto y = static_cast<int32_t>(n_ - 1);
            sum += change(y, row.value_at(last)) * (uint64_t{column_step} - shift(y ^ 1));
        }
        const int64_t n_neighbors = row.may_have_neighbors() ? row.size() : 0;
        for (int64_t i = 0; i < n_neighbors; ++i) {
            const int32_t y = row.class_at(i);
            const int64_t next = y % 2 ? -1 : row.find(y + 1);
            if (next >= 0) sum += change(y, row.value_at(i)) * change(y + 1, row.value_at(next));
        }
        return sum;
    }

   private:
    static float nearest(double value) { return static_cast<float>(value); }
    static uint32_t shift(int32_t y) { return (static_cast<uint32_t>(y) + 1) * column_step; }
    static uint64_t change(int32_t y, double value) {
        return uint64_t{bits(nearest(value)) + shift(y)} - shift(y);
    }

    int64_t n_;
    uint64_t zeros_ = 0;
};

// Call `visit(i, row, u, draw)` for each row; return the first bad row, or `all_good`.
template <class T, class Visit>
inline int64_t each_listed_row(const ListedRows& rows, const Draws& draws, Visit visit) {
    const bool has_numbers = draws.has_score || draws.has_exact;
    const ListedContent content(rows.n_classes, has_numbers && !draws.ids);
    ListedReader<T> row(rows);
    double u = 1.0, draw = 0.0;
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        if (!row.go_to(i)) return i;
        if (has_numbers) {
            const uint64_t key = draws.ids
                                     ? draws.ids[i]
                                     : row_key(content.of(row), draws.first + static_cast<uint64_t>(i));
            if (draws.has_score) u = uniform(draws.seed, draws.score_use, key);
            if (draws.has_exact) draw = uniform(draws.seed, draws.exact_use, key);
        }
        visit(i, row, u, draw);
    }
    return all_good;
}

template <class Visit>
inline int64_t each_listed_row(const ListedRows& rows, const Draws& draws, Visit visit) {
    if (rows.element == Element::float32) return each_listed_row<float>(rows, draws, visit);
    return each_listed_row<double>(rows, draws, visit);
}

// Score the labels; a label that is not listed has the score +inf. All classes before one that is
// listed are listed, too.
inline int64_t listed_label_scores(const ListedRows& rows, const Score& score, const Draws& draws,
                                   const int64_t* labels, double* scores) {
    return each_listed_row(rows, draws, [&](int64_t i, const auto& row, double u, double) {
        const int64_t rank = row.find(labels[i]);
        scores[i] = infinity;
        if (rank < 0) return;
        const double p = row.value_at(rank);
        scores[i] = score.needs_order ? ordered_score(score, p, row.mass_before(rank), rank + 1, u,
                                                      row.value_at(0))
                                      : softmax_score(p);
    });
}

// Call `visit(rank, score)` from the most probable class on, until scores exceed `largest`.
template <class T, class Visit>
inline void each_listed_score(const ListedReader<T>& row, const Score& score, double u,
                              double largest, Visit visit) {
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
    return each_listed_row(rows, draws, [&](int64_t i, const auto& row, double u, double) {
        const int64_t start = rows.starts[i] - rows.starts[0];
        each_listed_score(row, score, u, infinity, [&](int64_t rank, double s) {
            scores[start + row.place_at(rank)] = s;
            ranks[start + row.place_at(rank)] = rank + 1;
        });
    });
}

// Call `add(i, rank, y, is_in)` for the classes that may be in the set of a row, the most probable
// first, and then `end(i, row)`.
template <class Add, class End>
inline int64_t each_listed_set(const ListedRows& rows, const Score& score, const Draws& draws,
                               const Thresholds& thresholds, bool keep_top, Add add, End end) {
    double largest = -infinity;
    for (int64_t y = 0; y < rows.n_classes; ++y) {
        if (thresholds.upper[y] > largest) largest = thresholds.upper[y];
        if (thresholds.lower && thresholds.lower[y] > largest) largest = thresholds.lower[y];
    }
    return each_listed_row(rows, draws, [&](int64_t i, const auto& row, double u, double draw) {
        bool is_empty = true;
        each_listed_score(row, score, u, largest, [&](int64_t rank, double s) {
            const int64_t y = row.class_at(rank);
            const bool in_rank = !thresholds.rank_limit || rank < thresholds.rank_limit[y];
            const bool is_in = (s <= threshold_of(thresholds, y, draw)) & in_rank;
            add(i, rank, y, is_in | (keep_top & (rank == 0)));
            is_empty = false;
        });
        if (is_empty && keep_top) add(i, 0, row.class_at(0), true);  // above every threshold
        end(i, row);
    });
}

inline int64_t listed_sets(const ListedRows& rows, const Score& score, const Draws& draws,
                           const Thresholds& thresholds, bool keep_top, int64_t* sizes,
                           ClassList& members) {
    Buffer<int32_t> classes(rows.n_rows);
    int64_t n_classes = 0, n_before = 0;
    const int64_t bad = each_listed_set(
        rows, score, draws, thresholds, keep_top,
        [&](int64_t, int64_t, int64_t y, bool is_in) {
            classes.reserve(n_classes + 1);
            classes[n_classes] = static_cast<int32_t>(y);
            n_classes += is_in;
        },
        [&](int64_t i, const auto&) {
            sizes[i] = n_classes - n_before;
            n_before = n_classes;
        });
    if (bad != all_good) return bad;
    members.size = n_classes;
    members.classes = classes.release();
    return all_good;
}

inline int64_t listed_coverage(const ListedRows& rows, const Score& score, const Draws& draws,
                               const int64_t* labels, const Thresholds& thresholds, bool keep_top,
                               const SetCoverage& result) {
    int64_t size = 0;
    bool is_covered = false, has_top = false;
    return each_listed_set(
        rows, score, draws, thresholds, keep_top,
        [&](int64_t i, int64_t rank, int64_t y, bool is_in) {
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
