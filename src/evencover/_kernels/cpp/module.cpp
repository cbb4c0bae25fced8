// The Python module `_native`: check shapes, release the GIL, call the kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "kernels.hpp"
#include "sorting.hpp"

using namespace nb::literals;

namespace evencover {
namespace {

// The kernels that this machine supports, best first.
struct NamedKernels {
    const char* name;
    const Kernels& kernels;
};

std::vector<NamedKernels> runnable() {
    std::vector<NamedKernels> found;
#ifdef EVENCOVER_X86_DISPATCH
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2");  // such processors also have F16C
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
        found.push_back({"avx512", avx512::kernels});
    }
    if (avx2) found.push_back({"avx2", avx2::kernels});
#endif
    found.push_back({"baseline", baseline::kernels});
    return found;
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const NamedKernels& each : runnable()) names.push_back(each.name);
    return names;
}

const Kernels& kernels_for(const std::string& instruction_set) {
    for (const NamedKernels& each : runnable()) {
        if (each.name == instruction_set) return each.kernels;
    }
    throw std::invalid_argument("unknown instruction set");
}

void expect_good(int64_t bad) {
    if (bad == all_good) return;
    const nb::object error = nb::module_::import_("evencover._kernels.types").attr("BadRow");
    PyErr_SetObject(error.ptr(), nb::int_(bad).ptr());
    throw nb::python_error();
}

Element element_of(const nb::dlpack::dtype& type) {
    if (type == nb::dtype<float>()) return Element::float32;
    if (type == nb::dtype<double>()) return Element::float64;
    const auto floating = static_cast<uint8_t>(nb::dlpack::dtype_code::Float);
    expect(type.code == floating && type.bits == 16 && type.lanes == 1,
           "rows must be float16, float32 or float64");
    return Element::float16;
}

// The arrays of types.py's Thresholds.
struct ThresholdArrays {
    Vector<double> upper;
    std::optional<Vector<double>> lower, upper_probability;
    std::optional<Vector<int64_t>> rank_limit;

    Thresholds checked(int64_t n_classes) const {
        expect_length(upper, n_classes);
        expect(lower.has_value() == upper_probability.has_value(), "a pair has a probability");
        for (const auto* each : {&lower, &upper_probability}) {
            if (*each) expect_length(**each, n_classes);
        }
        if (rank_limit) expect_length(*rank_limit, n_classes);
        return {upper.data(), lower ? lower->data() : nullptr,
                upper_probability ? upper_probability->data() : nullptr,
                rank_limit ? rank_limit->data() : nullptr};
    }
};

constexpr int64_t few_rows = 8;  // take less time than reacquiring the GIL

using Ids = std::optional<Vector<uint64_t>>;
using Counts = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // overwritten

// The arrays of topk.py's TopK.
struct TopKArrays {
    Vector<int64_t> starts;
    Vector<int32_t> classes;
    nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> values;
    int64_t n_classes;
};

// A score and its random numbers; methods take rows, ids, and the index of the first row.
class Scorer {
   public:
    Scorer(const std::string& instruction_set, uint64_t seed, std::optional<uint64_t> score_use,
           std::optional<uint64_t> exact_use, bool needs_order, double penalty, int64_t k_reg,
           bool by_rank, bool logits, std::array<double, 3> tolerances)
        : kernels_(kernels_for(instruction_set)),
          score_{needs_order, penalty, k_reg, by_rank},
          draws_{seed,
                 score_use.has_value(),
                 score_use.value_or(0),
                 exact_use.has_value(),
                 exact_use.value_or(0),
                 nullptr,
                 0},
          logits_(logits),
          tolerances_(tolerances) {}

    nb::object row_keys(const RowArray& array, const Ids& ids, uint64_t first) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const Output<uint64_t> keys("u8", rows.n_rows);
        if (rows.n_rows <= few_rows) {
            kernels_.row_keys(rows, draws, keys.data);
        } else {
            without_gil([&] { kernels_.row_keys(rows, draws, keys.data); });
        }
        return keys.array;
    }

    template <class Array>
    nb::object true_label_scores(const Array& array, const Ids& ids, uint64_t first,
                                 const Vector<int64_t>& labels) const {
        const auto rows = rows_of(array);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        expect_labels(labels, rows);
        const Output<double> scores("f8", rows.n_rows);
        const auto kernel =
            one_for(rows, kernels_.true_label_scores, kernels_.top_k_label_scores);
        expect_good(without_gil(
            [&] { return kernel(rows, score_, draws, labels.data(), scores.data); }));
        return scores.array;
    }

    nb::object score_matrix(const RowArray& array, const Ids& ids, uint64_t first) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const Output<double> scores("f8", rows.n_rows, rows.n_classes);
        expect_good(without_gil(
            [&] { return kernels_.score_matrix(rows, score_, draws, scores.data); }));
        return scores.array;
    }

    // Return the boundaries of the rows' classes, and the classes; then those of the sets by second
    // thresholds, if there are any (dense rows only).
    template <class Array>
    nb::tuple prediction_sets(const Array& array, const Ids& ids, uint64_t first,
                              const ThresholdArrays& thresholds, bool keep_top,
                              const ThresholdArrays* second_thresholds) const {
        const auto rows = rows_of(array);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const Thresholds own = thresholds.checked(rows.n_classes);
        const auto [start_array, starts] = new_starts(rows.n_rows);
        ClassList members;
        SecondSets second = {};
        nb::object second_starts = nb::none();
        if (second_thresholds) {
            second.thresholds = second_thresholds->checked(rows.n_classes);
            expect(!second.thresholds.rank_limit, "second sets have no limit on ranks");
            const auto [array_of_second, second_ends] = new_starts(rows.n_rows);
            second.ends = second_ends + 1;
            second_starts = nb::cast(array_of_second);
        }
        const auto select = [&, ends = starts + 1] {
            if constexpr (std::is_same_v<Array, RowArray>) {
                return kernels_.prediction_sets(rows, score_, draws, own, keep_top, ends, members,
                                                second_thresholds ? &second : nullptr);
            } else {
                return kernels_.top_k_sets(rows, score_, draws, own, keep_top, ends, members);
            }
        };
        const int64_t bad = rows.n_rows <= few_rows ? select() : without_gil(select);
        const auto classes = owned(members.classes, members.size);
        expect_good(bad);
        if (!second_thresholds) return nb::make_tuple(start_array, classes);
        const auto second_classes = owned(second.members.classes, second.members.size);
        return nb::make_tuple(start_array, classes, second_starts, second_classes);
    }

    template <class Array>
    nb::tuple set_coverage(const Array& array, const Ids& ids, uint64_t first,
                           const Vector<int64_t>& labels, const ThresholdArrays& thresholds,
                           bool keep_top, const Counts& appearances) const {
        const auto rows = rows_of(array);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const Thresholds own = thresholds.checked(rows.n_classes);
        expect_labels(labels, rows);
        expect_length(appearances, rows.n_classes);
        std::fill_n(appearances.data(), rows.n_classes, int64_t{0});
        const Output<int64_t> sizes("i8", rows.n_rows), top_classes("i8", rows.n_rows);
        const Output<bool> is_covered("?", rows.n_rows), is_accepted("?", rows.n_rows);
        const SetCoverage result = {sizes.data, is_covered.data, top_classes.data, is_accepted.data,
                                    appearances.data()};
        const auto kernel = one_for(rows, kernels_.set_coverage, kernels_.top_k_coverage);
        expect_good(without_gil(
            [&] { return kernel(rows, score_, draws, labels.data(), own, keep_top, result); }));
        return nb::make_tuple(sizes.array, is_covered.array, top_classes.array, is_accepted.array);
    }

    nb::object set_sizes(const RowArray& array, const Ids& ids, uint64_t first,
                         const Matrix<double>& upper, const std::optional<Matrix<double>>& lower,
                         const std::optional<Matrix<double>>& upper_probability,
                         const Vector<double>& largest) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const auto n_vectors = static_cast<int64_t>(upper.shape(1));
        expect_length(upper, rows.n_classes);
        expect(lower.has_value() == upper_probability.has_value(), "a pair has a probability");
        for (const auto* each : {&lower, &upper_probability}) {
            if (*each) expect_shape(**each, rows.n_classes, n_vectors);
        }
        expect_length(largest, rows.n_classes);
        const ThresholdTable table = {n_vectors, upper.data(), lower ? lower->data() : nullptr,
                                      upper_probability ? upper_probability->data() : nullptr,
                                      largest.data()};
        const Output<int64_t> sizes("i8", rows.n_rows, n_vectors);
        expect_good(without_gil(
            [&] { return kernels_.set_sizes(rows, score_, draws, table, sizes.data); }));
        return sizes.array;
    }

    nb::object p_values(const RowArray& array, const Ids& ids, uint64_t first,
                        const Vector<double>& scores, const Vector<int64_t>& offsets,
                        const Vector<int64_t>& group_of_class) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const int64_t n_groups = length(offsets) - 1;
        expect_offsets(offsets, n_groups, length(scores));
        expect_length(group_of_class, rows.n_classes);
        expect_below(group_of_class.data(), rows.n_classes, -1, n_groups);
        const GroupedScores groups = {scores.data(), length(scores), offsets.data(), n_groups,
                                      group_of_class.data()};
        const Output<double> result("f8", rows.n_rows, rows.n_classes);
        expect_good(without_gil(
            [&] { return kernels_.p_values(rows, score_, draws, groups, result.data); }));
        return result.array;
    }

    // Return scores and ranks of the listed classes.
    nb::tuple top_k_scores(const TopKArrays& arrays, const Ids& ids, uint64_t first) const {
        const TopKRows rows = rows_of(arrays);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const int64_t n_entries = rows.starts[rows.n_rows] - rows.starts[0];
        const Output<double> scores("f8", n_entries);
        const Output<int64_t> ranks("i8", n_entries);
        expect_good(without_gil([&] {
            return kernels_.top_k_scores(rows, score_, draws, scores.data, ranks.data);
        }));
        return nb::make_tuple(scores.array, ranks.array);
    }

   private:
    // Boundaries of rows, all 0, as an array and its memory.
    static auto new_starts(int64_t n_rows) {
        auto* const starts =
            static_cast<int64_t*>(std::calloc(static_cast<size_t>(n_rows) + 1, 8));
        if (!starts) throw std::bad_alloc();
        return std::make_pair(owned(starts, n_rows + 1), starts);
    }

    TopKRows rows_of(const TopKArrays& arrays) const {
        const int64_t n_rows = length(arrays.starts) - 1, size = length(arrays.values);
        without_gil([&] { expect_offsets(arrays.starts, n_rows, size); });
        expect_length(arrays.classes, size);
        const Element element = element_of(arrays.values.dtype());
        expect(element != Element::float16, "probabilities must be float32 or float64");
        return {arrays.starts.data(), arrays.classes.data(), arrays.values.data(), n_rows,
                arrays.n_classes, element, tolerances_[static_cast<size_t>(element)]};
    }

    Rows rows_of(const RowArray& array) const {
        const Element element = element_of(array.dtype());
        const Rows rows = {array.data(), array.stride(0), length(array),
                           static_cast<int64_t>(array.shape(1)), element, logits_,
                           tolerances_[static_cast<size_t>(element)]};
        expect(rows.n_classes >= 1, "rows must have classes");
        expect(rows.n_rows == 0 || rows.n_classes == 1 || array.stride(1) == 1,
               "columns must be adjacent");
        return rows;
    }

    // Choose the kernel for these rows.
    template <class Dense, class OfTopK>
    static Dense one_for(const Rows&, Dense dense, OfTopK) {
        return dense;
    }
    template <class Dense, class OfTopK>
    static OfTopK one_for(const TopKRows&, Dense, OfTopK of_top_k) {
        return of_top_k;
    }

    Draws draws_of(int64_t n_rows, const Ids& ids, uint64_t first) const {
        Draws draws = draws_;
        draws.first = first;
        if (ids) {
            expect_length(*ids, n_rows);
            draws.ids = ids->data();
        }
        return draws;
    }

    template <class AnyRows>
    static void expect_labels(const Vector<int64_t>& labels, const AnyRows& rows) {
        expect_length(labels, rows.n_rows);
        expect_below(labels.data(), rows.n_rows, 0, rows.n_classes);
    }

    const Kernels& kernels_;
    Score score_;
    Draws draws_;
    bool logits_;
    std::array<double, 3> tolerances_;  // by element
};

nb::object random_bits(const std::string& instruction_set, uint64_t seed, uint64_t use,
                       const Vector<uint64_t>& ids) {
    const Kernels& kernels = kernels_for(instruction_set);
    const Output<uint64_t> result("u8", length(ids));
    without_gil([&] { kernels.random_bits(seed, use, ids.data(), length(ids), result.data); });
    return result.array;
}

nb::tuple sample_labels(const std::string& instruction_set, const Vector<int64_t>& labels,
                        uint64_t start, int64_t n_classes, uint64_t largest, int64_t stride) {
    const Kernels& kernels = kernels_for(instruction_set);
    const int64_t n = length(labels);
    expect(n_classes >= 1 && stride >= 1, "there must be classes");
    expect_below(labels.data(), n, 0, n_classes + 1);
    LabelSample sample = {labels.data(), n, start, n_classes, largest, stride};
    const Output<int64_t> drawn("i8", n);
    const Output<uint64_t> hashes("u8", n);
    sample.drawn = drawn.data;
    sample.hashes = hashes.data;
    without_gil([&] { kernels.sample_labels(sample); });
    const nb::slice first(sample.n_drawn);
    return nb::make_tuple(sample.total, drawn.array[first], hashes.array[first]);
}

template <class Number>
nb::object ascending_order(const Vector<Number>& values) {
    expect(length(values) < int64_t{1} << 31, "there must be fewer numbers");
    const Output<int64_t> order("i8", length(values));
    without_gil([&] { ascending(values.data(), length(values), order.data); });
    return order.array;
}

// Return the order, and where each group begins.
nb::tuple group_order(const Vector<int64_t>& groups, int64_t n_groups,
                      const std::optional<Vector<int64_t>>& rows) {
    expect_below(groups.data(), length(groups), -1, n_groups);
    if (rows) expect_below(rows->data(), length(*rows), 0, length(groups));
    const int64_t n = length(rows ? *rows : groups);
    const Output<int64_t> order("i8", n), offsets("i8", n_groups + 1);
    without_gil([&] {
        by_group(groups.data(), rows ? rows->data() : nullptr, n, n_groups, order.data,
                 offsets.data);
    });
    return nb::make_tuple(order.array, offsets.array);
}

nb::object ranks_in_groups(const Vector<int64_t>& groups, int64_t n_groups) {
    expect_below(groups.data(), length(groups), 0, n_groups);
    const Output<int64_t> ranks("i8", length(groups));
    without_gil([&] { rank_within(groups.data(), length(groups), n_groups, ranks.data); });
    return ranks.array;
}

}  // namespace

NB_MODULE(_native, m) {
    // A server that is stopped still has a rule; the system frees it with the process.
    nb::set_leak_warnings(false);
    nb::class_<ThresholdArrays>(m, "Thresholds")
        .def(nb::init<Vector<double>, std::optional<Vector<double>>, std::optional<Vector<double>>,
                      std::optional<Vector<int64_t>>>(),
             "upper"_a, "lower"_a.none(), "upper_probability"_a.none(), "rank_limit"_a.none());
    nb::class_<TopKArrays>(m, "TopKRows")
        .def(nb::init<Vector<int64_t>, Vector<int32_t>,
                      nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>, int64_t>(),
             "starts"_a, "classes"_a, "values"_a, "n_classes"_a);
    nb::class_<Scorer>(m, "Scorer")
        .def(nb::init<const std::string&, uint64_t, std::optional<uint64_t>,
                      std::optional<uint64_t>, bool, double, int64_t, bool, bool,
                      std::array<double, 3>>())
        .def("row_keys", &Scorer::row_keys, "rows"_a, "ids"_a.none(), "first"_a)
        .def("true_label_scores", &Scorer::true_label_scores<RowArray>, "rows"_a, "ids"_a.none(),
             "first"_a, "labels"_a)
        .def("true_label_scores", &Scorer::true_label_scores<TopKArrays>, "rows"_a,
             "ids"_a.none(), "first"_a, "labels"_a)
        .def("score_matrix", &Scorer::score_matrix, "rows"_a, "ids"_a.none(), "first"_a)
        .def("prediction_sets", &Scorer::prediction_sets<RowArray>, "rows"_a, "ids"_a.none(), "first"_a,
             "thresholds"_a, "keep_top"_a, "second"_a.none() = nb::none())
        .def("set_coverage", &Scorer::set_coverage<RowArray>, "rows"_a, "ids"_a.none(), "first"_a,
             "labels"_a, "thresholds"_a, "keep_top"_a, "appearances"_a)
        .def("set_coverage", &Scorer::set_coverage<TopKArrays>, "rows"_a, "ids"_a.none(),
             "first"_a, "labels"_a, "thresholds"_a, "keep_top"_a, "appearances"_a)
        .def("set_sizes", &Scorer::set_sizes, "rows"_a, "ids"_a.none(), "first"_a, "upper"_a,
             "lower"_a.none(), "upper_probability"_a.none(), "largest"_a)
        .def("p_values", &Scorer::p_values, "rows"_a, "ids"_a.none(), "first"_a, "scores"_a,
             "offsets"_a, "group_of_class"_a)
        .def("score_entries", &Scorer::top_k_scores, "rows"_a, "ids"_a.none(), "first"_a)
        .def("prediction_sets", &Scorer::prediction_sets<TopKArrays>, "rows"_a, "ids"_a.none(), "first"_a,
             "thresholds"_a, "keep_top"_a, "second"_a.none() = nb::none());
    m.def("random_bits", &random_bits);
    m.def("ascending", &ascending_order<double>);
    m.def("ascending", &ascending_order<uint64_t>);
    m.def("by_group", &group_order, "groups"_a, "n_groups"_a, "rows"_a.none());
    m.def("rank_within", &ranks_in_groups);
    m.def("sample_labels", &sample_labels);
    m.def("instruction_sets", &instruction_sets, "What this machine can run, best first.");
}

}  // namespace evencover
