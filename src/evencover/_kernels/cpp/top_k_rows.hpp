// Top-k rows, which list some of the classes: the work grows with the listed classes, not with K.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "prediction_sets.hpp"
#include "random.hpp"
#include "row_check.hpp"

EVENCOVER_BEGIN

// One row, padded to whole lanes with zeros of a class that does not exist, so that loops over it
// have no remainder.
template <class T>
struct TopKRow {
    int32_t* classes;
    T* values;
    int64_t size, padded;
    bool is_above, may_have_neighbors;  // values above 1, or -0.0; classes 2 i and 2 i + 1

    double value_at(int64_t j) const { return static_cast<double>(values[j]); }

    // Index of a class, or -1.
    int64_t find(int64_t y) const {
        for (int64_t at = 0; at < size; at += n_lanes) {
            const LaneMask mask = where_equal(classes + at, static_cast<int32_t>(y));
            if (mask) return at + lowest_bit(mask);
        }
        return -1;
    }

    // Mass and number of the classes before that at j.
    void find_before(int64_t j, int64_t& mass, int64_t& count) const {
        const T own = values[j];
        const int32_t y = classes[j];
        const auto is_before = [=](int64_t i) {
            return (values[i] > own) | ((values[i] == own) & (classes[i] < y));
        };
        uint64_t sum = 0;
        uint32_t n = 0;
        for (int64_t i = 0; i < padded; ++i) {
            sum += is_before(i) ? fixed_above_one(value_at(i)) : 0;
            n += is_before(i);
        }
        mass = static_cast<int64_t>(sum - n * bits_of_one);
        count = n;
        if (!is_above) return;
        mass = 0;
        for (int64_t i = 0; i < size; ++i) mass += is_before(i) ? fixed_point(value_at(i)) : 0;
    }

    T largest() const {
        T top = values[0];
        for (int64_t j = 1; j < padded; ++j) top = std::max(top, values[j]);
        return top;
    }

    // Whether the most probable class is first, ties by class.
    bool is_ordered() const {
        for (int64_t at = 0; at + 1 < size; at += n_lanes) {
            const LaneMask pairs = first_lanes(std::min(size - 1 - at, n_lanes));
            const LaneMask is_less = where_greater(values + at + 1, values + at) & pairs;
            if (is_less) return false;
            LaneMask ties = ~where_greater(values + at, values + at + 1) & pairs;
            for (; ties; ties &= ties - 1) {
                const int64_t j = at + lowest_bit(ties);
                if (classes[j] > classes[j + 1]) return false;
            }
        }
        return true;
    }
};

// Consecutive rows that fit a cache, padded.
template <class T>
class TopKGroup {
   public:
    static constexpr int64_t most_rows = 32;

    explicit TopKGroup(const TopKRows& rows) : rows_(rows) {}

    TopKRow<T>& operator[](int64_t l) { return padded_[l]; }

    // Copy rows from `first` on, and return their number.
    int64_t read(int64_t first) {
        int64_t n = 0, n_entries = 0;
        for (; n < most_rows && first + n < rows_.n_rows; ++n) {
            const int64_t size = rows_.starts[first + n + 1] - rows_.starts[first + n];
            const int64_t padded = (size + n_lanes - 1) / n_lanes * n_lanes;
            if (n && n_entries + padded > most_entries) break;
            padded_[n] = {nullptr, nullptr, size, padded, false, false};
            n_entries += padded;
        }
        int32_t* classes = aligned(classes_, n_entries);
        T* values = aligned(values_, n_entries);
        for (int64_t l = 0; l < n; ++l) {
            TopKRow<T>& row = padded_[l];
            const int64_t start = rows_.starts[first + l];
            row.classes = classes;
            row.values = values;
            copy_padded(rows_.classes + start, row, no_class, classes);
            copy_padded(static_cast<const T*>(rows_.values) + start, row, T{0}, values);
            classes += row.padded;
            values += row.padded;
        }
        *classes = no_class;  // what follows the last row is read, too
        *values = 0;
        return n;
    }

    // Put the most probable class first, ties by class, unless they are stored so.
    void put_in_order(TopKRow<T>& row) {
        is_stored_ = row.is_ordered();
        if (!is_stored_) sort(row);
    }

    // Index in the stored row, of the row that was last put in order.
    int64_t index_at(int64_t j) const { return is_stored_ ? j : entries_[j].index; }

   private:
    static constexpr int64_t most_entries = 4096;
    static constexpr int32_t no_class = INT32_MAX;

    // Room for n numbers and one more, from the start of a cache line.
    template <class Number>
    static Number* aligned(Buffer<Number>& buffer, int64_t n) {
        constexpr uintptr_t line = 64;
        buffer.reserve(n + n_lanes + static_cast<int64_t>(line / sizeof(Number)));
        const auto address = reinterpret_cast<uintptr_t>(buffer.data());
        return reinterpret_cast<Number*>((address + line - 1) / line * line);
    }

    template <class Number>
    static void copy_padded(const Number* from, const TopKRow<T>& row, Number filling, Number* to) {
        if constexpr (sizeof(Number) == 4) {
            const auto word = static_cast<int32_t>(filling);  // 0.0f has the bits of 0
            for (int64_t at = 0; at < row.size; at += n_lanes) {
                copy_lanes(from + at, row.size - at, word, to + at);
            }
        } else {
            for (int64_t j = 0; j < row.padded; ++j) to[j] = j < row.size ? from[j] : filling;
        }
    }

    void sort(TopKRow<T>& row) {
        entries_.reserve(row.size);
        decltype(bits(T{})) ranks[few];
        const bool is_ranked =
            row.size <= few && rank_few<T>(row.size, [&](int64_t j) { return row.values[j]; }, ranks);
        for (int64_t j = 0; j < row.size; ++j) {
            entries_[is_ranked ? ranks[j] : j] = {row.values[j], row.classes[j], static_cast<int32_t>(j)};
        }
        if (!is_ranked) std::sort(entries_.data(), entries_.data() + row.size);
        for (int64_t j = 0; j < row.size; ++j) {
            row.classes[j] = entries_[j].y;
            row.values[j] = entries_[j].value;
        }
    }

    struct Entry {
        T value;
        int32_t y, index;
        bool operator<(const Entry& other) const {
            return value > other.value || (value == other.value && y < other.y);
        }
    };

    const TopKRows& rows_;
    TopKRow<T> padded_[most_rows];
    Buffer<int32_t> classes_;
    Buffer<T> values_;
    Buffer<Entry> entries_;
    bool is_stored_ = true;
};

// Check whether rows have probabilities of different classes; what is missing to 1 belongs to other
// classes.
template <class T>
class TopKCheck {
   public:
    TopKCheck(const TopKRows& rows, bool has_keys)
        : rows_(rows),
          has_keys_(has_keys),
          surely_within_(1.0 + rows.tolerance - FloatPass::error(few)) {}

    // With keys, find out whether the row may have neighbors, too.
    bool is_good(TopKRow<T>& row) {
        if (row.size < 1 || !(is_surely_within(row) || is_within(row))) return false;
        if (row.size > few) return row.may_have_neighbors = !lists_twice(row);
        row.may_have_neighbors = has_keys_ && has_equals(row.classes, row.size, 1);
        if (has_keys_ && !row.may_have_neighbors) return true;
        return !has_equals(row.classes, row.size, 0);
    }

    // Index of the neighbor of the class at j, 2 i + 1 of 2 i, or -1; right after `is_good`.
    int64_t neighbor_at(const TopKRow<T>& row, int64_t j) const {
        const int32_t y = row.classes[j];
        if (y % 2) return -1;
        if (row.size <= few) return row.find(y + 1);
        const int64_t at = y + 1 < rows_.n_classes ? index_of_[y + 1] : row.size;
        return at < row.size && row.classes[at] == y + 1 ? at : -1;
    }

   private:
    static constexpr int64_t few = 64;

    bool is_surely_within(const TopKRow<T>& row) const {
        if constexpr (std::is_same_v<T, float>) {
            if (row.size > few || row.size == rows_.n_classes) return false;
            LaneSums sums;
            for (int64_t j = 0; j < row.padded; j += n_lanes) sums.add(FloatLanes(row.values + j));
            return sums.in_unit_interval() && sums.total() <= surely_within_;
        }
        return false;
    }

    // The same in fixed point.
    bool is_within(TopKRow<T>& row) const {
        Scan scan;
        in_steps(0, row.size, scan, [&](int64_t at, int64_t step) {
            scan_values<false>(row.values + at, step, T{}, scan);
        });
        if (!scan.in_unit_interval) {  // values slightly above 1, or -0.0, which are rare
            row.is_above = true;
            scan.total = 0;
            for (int64_t j = 0; j < row.size; ++j) {
                const double p = row.value_at(j);
                if (!(p >= 0.0 && p <= 1.0 + coarse_tolerance)) return false;
                if (scan.total < too_much) scan.total += fixed_point(p);
            }
        }
        const double off = from_fixed_point(scan.total) - 1.0;
        // Nothing is missing to 1 in a row of all classes.
        return off <= rows_.tolerance && (row.size < rows_.n_classes || -off <= rows_.tolerance);
    }

    // `index_of_` has the index of each class in the long row that listed it last.
    bool lists_twice(const TopKRow<T>& row) {
        if (row.size <= few) {
            for (int64_t j = 1; j < row.size; ++j) {
                if (row.find(row.classes[j]) < j) return true;
            }
            return false;
        }
        if (!index_of_.data()) {
            index_of_.reserve(rows_.n_classes);
            std::memset(index_of_.data(), 0, static_cast<size_t>(rows_.n_classes) * 4);
        }
        for (int64_t j = 0; j < row.size; ++j) {
            int32_t& index = index_of_[row.classes[j]];
            if (index < j && row.classes[index] == row.classes[j]) return true;
            index = static_cast<int32_t>(j);
        }
        return false;
    }

    const TopKRows& rows_;
    bool has_keys_;
    double surely_within_;  // sums of float32 up to this are within the tolerance
    Buffer<int32_t> index_of_;
};

// The key of a row is that of the whole row with zeros for the classes that are not listed.
class TopKContent {
   public:
    TopKContent(int64_t n_classes, bool is_needed) : n_(n_classes) {
        if (!is_needed) return;
        const auto n = static_cast<int32_t>(n_classes);
        for (int32_t y = 0; y + 1 < n; y += 2) zeros_ += uint64_t{shift(y)} * shift(y + 1);
        if (n % 2) zeros_ += uint64_t{shift(n - 1)} * column_step;
    }

    // A class adds its change d = word - shift times the shift of its neighbor; two neighbors that
    // are both listed add the product of their changes, too: `neighbor_at(j)` finds that of the class
    // at j, 2 i + 1 of 2 i, or -1. Padding adds 0.
    template <class T, class NeighborAt>
    uint64_t of(const TopKRow<T>& row, NeighborAt neighbor_at) const {
        uint64_t sum = zeros_, less = 0;  // two sums of products of 32-bit numbers vectorize
        for (int64_t j = 0; j < row.padded; ++j) {
            const uint32_t own = shift(row.classes[j]), other = shift(row.classes[j] ^ 1);
            sum += uint64_t{bits(static_cast<float>(row.values[j])) + own} * other;
            less += uint64_t{own} * other;
        }
        sum -= less;
        if constexpr (std::is_same_v<T, double>) {
            for (int64_t j = 0; j < row.size; ++j) {
                const double p = row.values[j], rest = p - static_cast<double>(static_cast<float>(p));
                sum += bits(rest) * (static_cast<uint64_t>(2 * int64_t{row.classes[j]} + 1) * rest_step);
            }
        }
        const int64_t last = n_ % 2 ? row.find(n_ - 1) : -1;  // this column has no neighbor
        if (last >= 0) {
            const uint64_t other = shift(row.classes[last] ^ 1);
            sum += change(row, last) * (uint64_t{column_step} - other);
        }
        if (!row.may_have_neighbors) return sum;
        for (int64_t j = 0; j < row.size; ++j) {
            const int64_t next = neighbor_at(j);
            if (next >= 0) sum += change(row, j) * change(row, next);
        }
        return sum;
    }

   private:
    static uint32_t shift(int32_t y) { return (static_cast<uint32_t>(y) + 1) * column_step; }

    template <class T>
    static uint64_t change(const TopKRow<T>& row, int64_t j) {
        const uint32_t own = shift(row.classes[j]);
        return uint64_t{bits(static_cast<float>(row.values[j])) + own} - own;
    }

    int64_t n_;
    uint64_t zeros_ = 0;
};

// The first of n rows with a class that does not exist, or n.
inline int64_t row_of_no_class(const TopKRows& rows, int64_t first, int64_t n) {
    uint32_t largest = 0;  // as unsigned integers, negative ones are large
    for (int64_t j = rows.starts[first]; j < rows.starts[first + n]; ++j) {
        largest = std::max(largest, static_cast<uint32_t>(rows.classes[j]));
    }
    if (n == 0 || largest < rows.n_classes) return n;
    const int64_t half = n / 2, before = row_of_no_class(rows, first, half);
    if (before < half || n == 1) return before;
    return half + row_of_no_class(rows, first + half, n - half);
}

// Check rows, and call `visit(i, group, row, u, draw)` for each; return the first bad row, or
// `all_good`. The uniforms of several rows are drawn together. Few rows need their `draw()`, so keys
// for it alone are computed then.
template <class T, class Visit>
inline int64_t each_top_k_row(const TopKRows& rows, const Draws& draws, Visit visit) {
    constexpr int64_t most = TopKGroup<T>::most_rows;
    const bool has_keys = draws.has_score && !draws.ids;
    const TopKContent content(rows.n_classes, (draws.has_score || draws.has_exact) && !draws.ids);
    TopKGroup<T> group(rows);
    TopKCheck<T> check(rows, has_keys);
    uint64_t keys[most];
    double u[most];
    std::fill_n(u, most, 1.0);
    for (int64_t first = 0, n = 0; first < rows.n_rows; first += n) {
        n = group.read(first);
        const auto key_of = [&](int64_t l, auto neighbor_at) {
            return row_key(content.of(group[l], neighbor_at), draws.first + static_cast<uint64_t>(first + l));
        };
        const int64_t n_existing = row_of_no_class(rows, first, n);
        for (int64_t l = 0; l < n; ++l) {
            TopKRow<T>& row = group[l];
            if (l == n_existing || !check.is_good(row)) return first + l;
            if (has_keys) keys[l] = key_of(l, [&](int64_t j) { return check.neighbor_at(row, j); });
        }
        const uint64_t* const ids = draws.ids ? draws.ids + first : keys;
        if (draws.has_score) uniforms(draws.seed, draws.score_use, ids, n, u);
        for (int64_t l = 0; l < n; ++l) {
            TopKRow<T>& row = group[l];
            const auto draw = [&] {
                double result = 0.0;
                if (!draws.has_exact) return result;
                row.may_have_neighbors = true;  // not known without keys
                const auto neighbor_at = [&](int64_t j) {
                    return row.classes[j] % 2 ? -1 : row.find(row.classes[j] + 1);
                };
                if (!draws.ids && !has_keys) keys[l] = key_of(l, neighbor_at);
                uniforms(draws.seed, draws.exact_use, ids + l, 1, &result);
                return result;
            };
            visit(first + l, group, row, u[l], draw);
        }
    }
    return all_good;
}

template <class Visit>
inline int64_t each_top_k_row(const TopKRows& rows, const Draws& draws, Visit visit) {
    if (rows.element == Element::float32) return each_top_k_row<float>(rows, draws, visit);
    return each_top_k_row<double>(rows, draws, visit);
}

// Score the labels, without sorting; a label that is not listed has the score +inf. All classes
// before one that is listed are listed, too.
inline int64_t top_k_label_scores(const TopKRows& rows, const Score& score, const Draws& draws,
                                   const int64_t* labels, double* scores) {
    return each_top_k_row(rows, draws, [&](int64_t i, auto&, auto& row, double u, const auto&) {
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

// Call `visit(at, scores)` for the classes of an ordered row, whole lanes at a time, until all further
// scores exceed `largest`.
template <class T, class Visit>
inline void each_top_k_score(const TopKRow<T>& row, const Score& score, double u, double largest,
                              Visit visit) {
    const double top = row.value_at(0);
    int64_t mass = 0;
    int64_t fixed[n_lanes], before[n_lanes];
    double scores[n_lanes];
    for (int64_t at = 0; at < row.size; at += n_lanes) {
        const T* const p = row.values + at;
        const double least = score.needs_order ? least_score(score, mass, at + 1, top)
                                               : softmax_score(static_cast<double>(p[0]));
        if (at && least > largest) return;
        const int64_t n = std::min(row.padded - at, n_lanes);
        if (!score.needs_order) {
            for (int64_t l = 0; l < n; ++l) scores[l] = softmax_score(static_cast<double>(p[l]));
        } else if (score.by_rank) {
            for (int64_t l = 0; l < n; ++l) scores[l] = score_by_rank(score, at + l + 1, u, top);
        } else {
            for (int64_t l = 0; l < n; ++l) {
                fixed[l] = static_cast<int64_t>(fixed_above_one(static_cast<double>(p[l])) - bits_of_one);
                if (row.is_above) fixed[l] = fixed_point(static_cast<double>(p[l]));
            }
            for (int64_t l = 0; l < n_lanes; ++l) {
                before[l] = mass;
                mass += fixed[l];
            }
            for (int64_t l = 0; l < n; ++l) {
                const double p_before = from_fixed_point(before[l]);
                scores[l] = (p_before + u * static_cast<double>(p[l])) + rank_penalty(score, at + l + 1);
            }
        }
        visit(at, scores);
    }
}

// Score and rank every listed class.
inline int64_t top_k_scores(const TopKRows& rows, const Score& score, const Draws& draws,
                             double* scores, int64_t* ranks) {
    return each_top_k_row(rows, draws, [&](int64_t i, auto& group, auto& row, double u, const auto&) {
        const int64_t start = rows.starts[i] - rows.starts[0];
        group.put_in_order(row);
        each_top_k_score(row, score, u, infinity, [&](int64_t at, const double* own) {
            for (int64_t j = at; j < row.size && j < at + n_lanes; ++j) {
                scores[start + group.index_at(j)] = own[j - at];
                ranks[start + group.index_at(j)] = j + 1;
            }
        });
    });
}

// The smallest and the largest threshold of all classes.
struct ThresholdRange {
    double smallest, largest;

    ThresholdRange(const Thresholds& thresholds, int64_t n_classes) {
        int64_t least = ordered_bits(infinity), most = ordered_bits(-infinity);
        for (const double* limits : {thresholds.upper, thresholds.lower}) {
            for (int64_t y = 0; limits && y < n_classes; ++y) {
                least = std::min(least, ordered_bits(limits[y]));
                most = std::max(most, ordered_bits(limits[y]));
            }
        }
        smallest = thresholds.rank_limit ? -infinity : number_of(least);
        largest = number_of(most);
    }
};

// Where scores of the classes at `at` are within their limits; beyond the row, anywhere.
template <class T>
inline LaneMask within(const TopKRow<T>& row, int64_t at, const double* scores, const double* limits) {
    double own[n_lanes] = {};
    const int64_t n = std::min(row.size - at, n_lanes);
    for (int64_t l = 0; l < n; ++l) own[l] = limits[row.classes[at + l]];
    LaneMask mask = 0;
    for (int64_t l = 0; l < n_lanes; ++l) mask |= LaneMask{scores[l] <= own[l]} << l;
    return mask;
}

// Call `add(i, row, at, members)` for the members of the set of a row among the lanes at `at`, the most
// probable first, and then `end(i, row)`.
template <class Add, class End>
inline int64_t each_top_k_set(const TopKRows& rows, const Score& score, const Draws& draws,
                               const Thresholds& thresholds, bool keep_top, Add add, End end) {
    const ThresholdRange range(thresholds, rows.n_classes);
    const double smallest = range.smallest, largest = range.largest;
    const bool is_one = smallest == largest && !score.needs_order;
    const bool is_float = rows.element == Element::float32;
    const double least = is_float ? least_within<float>(largest) : least_within<double>(largest);
    return each_top_k_row(rows, draws, [&](int64_t i, auto& group, auto& row, double u, const auto& draw) {
        group.put_in_order(row);
        // With one threshold, softmax scores within it are those of the first classes.
        for (int64_t at = 0; is_one && at < row.size; at += n_lanes) {
            const LaneMask lanes = first_lanes(std::min(row.size - at, n_lanes));
            const LaneMask members = where_at_least(row.values + at, least) & lanes;
            add(i, row, at, members | LaneMask{keep_top && at == 0});
            if (members < lanes) break;
        }
        if (is_one) return end(i, row);
        double drawn = -1.0;  // not yet
        each_top_k_score(row, score, u, largest, [&](int64_t at, const double* scores) {
            const LaneMask lanes = first_lanes(std::min(row.size - at, n_lanes));
            LaneMask members = smallest == largest ? where_at_most(scores, smallest)
                                                   : within(row, at, scores, thresholds.upper);
            members &= lanes;
            if (thresholds.lower && smallest < largest) {  // drawing for each row would take longer
                const LaneMask lower = within(row, at, scores, thresholds.lower) & lanes;
                for (LaneMask unsure = members ^ lower; unsure; unsure &= unsure - 1) {
                    const int64_t l = lowest_bit(unsure), y = row.classes[at + l];
                    if (drawn < 0.0) drawn = draw();
                    const bool is_in = scores[l] <= threshold_of(thresholds, y, drawn);
                    members = (members & ~(1u << l)) | LaneMask{is_in} << l;
                }
            }
            for (LaneMask left = thresholds.rank_limit ? members : 0; left; left &= left - 1) {
                const int64_t l = lowest_bit(left);
                const bool is_in = at + l < thresholds.rank_limit[row.classes[at + l]];
                members ^= LaneMask{!is_in} << l;
            }
            members |= LaneMask{keep_top && at == 0};
            add(i, row, at, members);
        });
        end(i, row);
    });
}

// Write the sets one after another, and where each ends.
inline int64_t top_k_sets(const TopKRows& rows, const Score& score, const Draws& draws,
                           const Thresholds& thresholds, bool keep_top, int64_t* ends,
                           ClassList& members) {
    // Room for all entries; pages that are not used take no memory.
    Buffer<int32_t> classes(rows.starts[rows.n_rows] - rows.starts[0] + n_lanes);
    int32_t* next = classes.data();
    const int64_t bad = each_top_k_set(
        rows, score, draws, thresholds, keep_top,
        [&](int64_t, const auto& row, int64_t at, LaneMask kept) {
            next = store_lanes(row.classes + at, kept, next);
        },
        [&](int64_t i, const auto&) { ends[i] = next - classes.data(); });
    if (bad != all_good) return bad;
    members.size = next - classes.data();
    members.classes = classes.release();
    return all_good;
}

inline int64_t top_k_coverage(const TopKRows& rows, const Score& score, const Draws& draws,
                               const int64_t* labels, const Thresholds& thresholds, bool keep_top,
                               const SetCoverage& result) {
    int64_t size = 0;
    bool is_covered = false, has_top = false;
    return each_top_k_set(
        rows, score, draws, thresholds, keep_top,
        [&](int64_t i, const auto& row, int64_t at, LaneMask kept) {
            has_top |= at == 0 && kept & 1;
            for (; kept; kept &= kept - 1) {
                const int64_t y = row.classes[at + lowest_bit(kept)];
                ++size;
                is_covered |= y == labels[i];
                ++result.appearances[y];
            }
        },
        [&](int64_t i, const auto& row) {
            result.sizes[i] = size;
            result.is_covered[i] = is_covered;
            result.top_classes[i] = row.classes[0];
            result.is_accepted[i] = size == 1 && has_top;
            size = 0;
            is_covered = has_top = false;
        });
}

EVENCOVER_END
