// Rows of which only some classes are listed: the work grows with the listed classes, not with K.
#pragma once

#include <cstdint>
#include <type_traits>

#include "descending_order.hpp"
#include "prediction_sets.hpp"
#include "random.hpp"
#include "row_check.hpp"

EVENCOVER_BEGIN

// The key of a row is that of the whole row with zeros for the classes that are not listed.
class ListedContent {
   public:
    ListedContent(int64_t n_classes, bool is_needed) : n_(n_classes) {
        if (!is_needed) return;
        for (int64_t j = 0; j + 1 < n_; j += 2) zeros_ += uint64_t{shift(j)} * shift(j + 1);
        if (n_ % 2) zeros_ += uint64_t{shift(n_ - 1)} * column_step;
    }

    template <class T>
    uint64_t of(const int32_t* classes, const T* values, int64_t size) const {
        uint64_t sum = zeros_;
        for (int64_t i = 0; i < size; ++i) {
            const int64_t y = classes[i], first = y - y % 2;
            const uint32_t word = word_of(y, values[i]);
            sum += rest_of(y, values[i]);
            if (first + 1 == n_) {  // the last of an odd number of columns has no neighbor
                sum += (uint64_t{word} - shift(y)) * column_step;
                continue;
            }
            const bool has_neighbor = y == first && i + 1 < size && classes[i + 1] == y + 1;
            const uint32_t neighbor =
                has_neighbor ? word_of(y + 1, values[i + 1]) : shift(y == first ? y + 1 : first);
            sum += uint64_t{word} * neighbor - uint64_t{shift(first)} * shift(first + 1);
            if (has_neighbor) sum += rest_of(y + 1, values[++i]);
        }
        return sum;
    }

   private:
    static uint32_t shift(int64_t j) { return static_cast<uint32_t>(j + 1) * column_step; }
    static uint32_t word_of(int64_t j, float value) { return bits(value) + shift(j); }
    static uint32_t word_of(int64_t j, double value) {
        return bits(static_cast<float>(value)) + shift(j);
    }
    static uint64_t rest_of(int64_t, float) { return 0; }
    static uint64_t rest_of(int64_t j, double value) {
        const double rest = value - static_cast<double>(static_cast<float>(value));
        return bits(rest) * (static_cast<uint64_t>(2 * j + 1) * rest_step);
    }

    int64_t n_;
    uint64_t zeros_ = 0;
};

// One row: its classes in increasing order, and their probabilities.
template <class T>
struct ListedRow {
    const int32_t* classes;
    const T* values;
    int64_t size;

    // Index of a class, or -1.
    int64_t find(int64_t y) const {
        const int32_t* first = classes;
        for (int64_t n = size; n > 0;) {
            const int64_t half = n / 2;
            if (first[half] < y) {
                first += half + 1;
                n -= half + 1;
            } else {
                n = half;
            }
        }
        return first < classes + size && *first == y ? first - classes : -1;
    }

    int64_t top() const {
        int64_t top = 0;
        for (int64_t j = 1; j < size; ++j) top = values[j] > values[top] ? j : top;
        return top;
    }

    // Whether the values are probabilities; what is missing to 1 belongs to other classes. Also
    // find the mass and number of the classes before the one at `place`, by decreasing probability.
    bool scan(int64_t place, double tolerance, Scan& scan) const {
        scan = Scan();
        const T own = place < 0 ? T{} : values[place], more = just_above(own);
        const int64_t middle = place < 0 ? 0 : place;
        in_steps(0, middle, scan, [&](int64_t at, int64_t n) {
            scan_values<true>(values + at, n, own, scan);
        });
        in_steps(middle, size, scan, [&](int64_t at, int64_t n) {
            scan_values<true>(values + at, n, more, scan);
        });
        if (!scan.in_unit_interval && !scan_carefully(place, scan)) return false;
        return size > 0 && from_fixed_point(scan.total) - 1.0 <= tolerance;
    }

   private:
    // The same for rows with values slightly above 1, or -0.0, which are rare.
    bool scan_carefully(int64_t place, Scan& scan) const {
        scan = Scan();
        for (int64_t j = 0; j < size; ++j) {
            const double p = static_cast<double>(values[j]);
            if (!(p >= 0.0 && p <= 1.0 + coarse_tolerance) || scan.total >= too_much) return false;
            const bool is_before = place >= 0 && (values[j] > values[place] ||
                                                  (values[j] == values[place] && j < place));
            scan.total += fixed_point(p);
            scan.mass_before += is_before ? fixed_point(p) : 0;
            scan.count_before += is_before;
        }
        return true;
    }
};

// Call `visit(i, row, u, draw)` until it returns false for a bad row; return that row, or
// `all_good`.
template <class T, class Visit>
inline int64_t each_listed_row(const ListedRows& rows, const Draws& draws, Visit visit) {
    const bool has_numbers = draws.has_score || draws.has_exact;
    const ListedContent content(rows.n_classes, has_numbers && !draws.ids);
    const auto* values = static_cast<const T*>(rows.values);
    double u = 1.0, draw = 0.0;
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        const int64_t start = rows.starts[i];
        const ListedRow<T> row{rows.classes + start, values + start, rows.starts[i + 1] - start};
        if (has_numbers) {
            const uint64_t key = draws.ids ? draws.ids[i]
                                           : row_key(content.of(row.classes, row.values, row.size),
                                                     draws.first + static_cast<uint64_t>(i));
            if (draws.has_score) u = uniform(draws.seed, draws.score_use, key);
            if (draws.has_exact) draw = uniform(draws.seed, draws.exact_use, key);
        }
        if (!visit(i, row, u, draw)) return i;
    }
    return all_good;
}

template <class Visit>
inline int64_t each_listed_row(const ListedRows& rows, const Draws& draws, Visit visit) {
    if (rows.element == Element::float32) return each_listed_row<float>(rows, draws, visit);
    return each_listed_row<double>(rows, draws, visit);
}

inline void listed_keys(const ListedRows& rows, uint64_t first, uint64_t* keys) {
    const ListedContent content(rows.n_classes, true);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
        const int64_t start = rows.starts[i], size = rows.starts[i + 1] - start;
        const uint64_t hash =
            rows.element == Element::float32
                ? content.of(rows.classes + start, static_cast<const float*>(rows.values) + start,
                             size)
                : content.of(rows.classes + start, static_cast<const double*>(rows.values) + start,
                             size);
        keys[i] = row_key(hash, first + static_cast<uint64_t>(i));
    }
}

// Score the labels; a label that is not listed has the score +inf. All classes before one that is
// listed are listed, too.
inline int64_t listed_label_scores(const ListedRows& rows, const Score& score, const Draws& draws,
                                   const int64_t* labels, double* scores) {
    return each_listed_row(rows, draws, [&](int64_t i, const auto& row, double u, double) {
        const int64_t place = row.find(labels[i]);
        Scan scan;
        if (!row.scan(place, rows.tolerance, scan)) return false;
        scores[i] = infinity;
        if (place < 0) return true;
        const double p = static_cast<double>(row.values[place]);
        const double top = score.by_rank ? static_cast<double>(row.values[row.top()]) : p;
        scores[i] = score.needs_order ? ordered_score(score, p, scan.mass_before,
                                                      scan.count_before + 1, u, top)
                                      : softmax_score(p);
        return true;
    });
}

// Call `visit(index, score, rank)` for the listed classes of a row; ranks only if they are needed.
template <class T>
class ListedScorer {
   public:
    ListedScorer(const Score& score, bool needs_ranks)
        : score_(score), needs_order_(score.needs_order || needs_ranks) {}

    template <class Visit>
    void each(const ListedRow<T>& row, double u, Visit visit) {
        if (!needs_order_) {
            for (int64_t j = 0; j < row.size; ++j) {
                visit(j, softmax_score(static_cast<double>(row.values[j])), 0);
            }
            return;
        }
        places_.reserve(row.size);
        for (int64_t j = 0; j < row.size; ++j) places_[j] = static_cast<int32_t>(j);
        order_.put_first(row.values, places_.data(), row.size);
        const double top = static_cast<double>(row.values[places_[0]]);
        int64_t mass = 0;
        for (int64_t i = 0; i < row.size; ++i) {
            const double p = static_cast<double>(row.values[places_[i]]);
            visit(places_[i],
                  score_.needs_order ? ordered_score(score_, p, mass, i + 1, u, top)
                                     : softmax_score(p),
                  i + 1);
            mass += fixed_point(p);
        }
    }

   private:
    const Score& score_;
    bool needs_order_;
    DescendingOrder<T> order_;
    Buffer<int32_t> places_;
};

// Score and rank every listed class.
inline int64_t listed_scores(const ListedRows& rows, const Score& score, const Draws& draws,
                             double* scores, int64_t* ranks) {
    ListedScorer<float> floats(score, ranks != nullptr);
    ListedScorer<double> doubles(score, ranks != nullptr);
    const int64_t begin = rows.starts[0];
    return each_listed_row(rows, draws, [&](int64_t i, const auto& row, double u, double) {
        Scan scan;
        if (!row.scan(-1, rows.tolerance, scan)) return false;
        const int64_t start = rows.starts[i] - begin;
        const auto visit = [&](int64_t j, double s, int64_t rank) {
            scores[start + j] = s;
            if (ranks) ranks[start + j] = rank;
        };
        if constexpr (std::is_same_v<std::decay_t<decltype(*row.values)>, float>) {
            floats.each(row, u, visit);
        } else {
            doubles.each(row, u, visit);
        }
        return true;
    });
}

// The members of each row's set, as indices into the row, the most probable first.
template <class Use>
inline int64_t each_listed_set(const ListedRows& rows, const Score& score, const Draws& draws,
                               const Thresholds& thresholds, bool keep_top, Use use) {
    ListedScorer<float> floats(score, thresholds.rank_limit != nullptr);
    ListedScorer<double> doubles(score, thresholds.rank_limit != nullptr);
    DescendingOrder<float> float_order;
    DescendingOrder<double> double_order;
    Buffer<int32_t> members;
    const auto list = [&](const auto& row, double u, double draw, auto& scorer, auto& order) {
        members.reserve(row.size + 1);
        int64_t size = 0;
        scorer.each(row, u, [&](int64_t j, double s, int64_t rank) {
            const int64_t y = row.classes[j];
            const bool in_rank = !thresholds.rank_limit || rank <= thresholds.rank_limit[y];
            members[size] = static_cast<int32_t>(j);
            size += (s <= threshold_of(thresholds, y, draw)) & in_rank;
        });
        // Without ranks the members come by class; with ranks they are in order already.
        if (!score.needs_order && !thresholds.rank_limit) {
            order.put_first(row.values, members.data(), size);
        }
        const auto top = static_cast<int32_t>(row.top());
        if (keep_top && (size == 0 || members[0] != top)) {
            for (int64_t j = size; j > 0; --j) members[j] = members[j - 1];
            members[0] = top;
            ++size;
        }
        return size;
    };
    return each_listed_row(rows, draws, [&](int64_t i, const auto& row, double u, double draw) {
        Scan scan;
        if (!row.scan(-1, rows.tolerance, scan)) return false;
        int64_t size = 0;
        if constexpr (std::is_same_v<std::decay_t<decltype(*row.values)>, float>) {
            size = list(row, u, draw, floats, float_order);
        } else {
            size = list(row, u, draw, doubles, double_order);
        }
        use(i, row, members.data(), size);
        return true;
    });
}

inline int64_t listed_sets(const ListedRows& rows, const Score& score, const Draws& draws,
                           const Thresholds& thresholds, bool keep_top, int64_t* sizes,
                           ClassList& members) {
    Buffer<int32_t> classes(1);
    int64_t n_classes = 0;
    const int64_t bad = each_listed_set(
        rows, score, draws, thresholds, keep_top,
        [&](int64_t i, const auto& row, const int32_t* places, int64_t size) {
            classes.reserve(n_classes + size);
            for (int64_t j = 0; j < size; ++j) classes[n_classes++] = row.classes[places[j]];
            sizes[i] = size;
        });
    if (bad != all_good) return bad;
    members.size = n_classes;
    members.classes = classes.release();
    return all_good;
}

inline int64_t listed_coverage(const ListedRows& rows, const Score& score, const Draws& draws,
                               const int64_t* labels, const Thresholds& thresholds, bool keep_top,
                               const SetCoverage& result) {
    return each_listed_set(
        rows, score, draws, thresholds, keep_top,
        [&](int64_t i, const auto& row, const int32_t* places, int64_t size) {
            bool is_covered = false;
            for (int64_t j = 0; j < size; ++j) {
                is_covered |= row.classes[places[j]] == labels[i];
                ++result.appearances[row.classes[places[j]]];
            }
            const int64_t top = row.top();
            result.sizes[i] = size;
            result.is_covered[i] = is_covered;
            result.top_classes[i] = row.classes[top];
            result.is_accepted[i] = size == 1 && places[0] == top;
        });
}

EVENCOVER_END
