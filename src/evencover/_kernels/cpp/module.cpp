// The Python module `_native`: check shapes, release the GIL, call the kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "kernels.hpp"
#include "lost_map.hpp"

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

// The arrays of types.py's ThresholdTable.
struct TableArrays {
    Vector<int32_t> vector_of;
    Matrix<double> top_limits;
    Matrix<int16_t> top_vectors;
    Matrix<double> draw_from, draw_to, limits;
    Matrix<int16_t> plain_ranks, upper_ranks, lower_ranks;
    Matrix<double> chances;
    Matrix<int16_t> chance_ranks;
    Vector<int64_t> always;
    Vector<double> upper_only;
    Vector<int64_t> upper_only_offsets;
    Vector<double> lower_only;
    Vector<int64_t> lower_only_offsets;

    ThresholdTable checked(int64_t n_classes) const {
        const auto n_plain = static_cast<int64_t>(plain_ranks.shape(1));
        const auto n_pairs = static_cast<int64_t>(upper_ranks.shape(1));
        const int64_t n_vectors = n_plain + n_pairs;
        expect_length(vector_of, n_vectors);
        for (int64_t j = 0; j < n_vectors; ++j) {
            const int32_t vector = vector_of.data()[j];
            expect(vector >= 0 && vector < n_vectors, "vectors must exist");
        }
        const auto n_top = static_cast<int64_t>(top_limits.shape(1));
        expect(n_top >= 1, "there must be limits");
        for (const auto* each : {&top_limits, &draw_from, &draw_to}) {
            expect_shape(*each, n_classes, n_top);
        }
        expect_shape(top_vectors, n_classes, n_top);
        for (int64_t i = 0; i < n_classes * n_top; ++i) {
            const int16_t vector = top_vectors.data()[i];
            expect(vector >= 0 && vector < n_vectors, "vectors must exist");
        }
        expect_shape(limits, n_classes, n_plain + 2 * n_pairs);
        expect_shape(plain_ranks, n_classes, n_plain);
        for (const auto* each : {&upper_ranks, &lower_ranks, &chance_ranks}) {
            expect_shape(*each, n_classes, n_pairs);
        }
        expect_shape(chances, n_classes, n_pairs);
        expect_length(always, n_vectors);
        expect_offsets(upper_only_offsets, n_pairs, length(upper_only));
        expect_offsets(lower_only_offsets, n_pairs, length(lower_only));
        return {n_plain,
                n_pairs,
                vector_of.data(),
                n_top,
                top_limits.data(),
                top_vectors.data(),
                draw_from.data(),
                draw_to.data(),
                limits.data(),
                plain_ranks.data(),
                upper_ranks.data(),
                lower_ranks.data(),
                chances.data(),
                chance_ranks.data(),
                always.data(),
                upper_only.data(),
                upper_only_offsets.data(),
                lower_only.data(),
                lower_only_offsets.data()};
    }
};

using Ids = std::optional<Vector<uint64_t>>;
using Counts = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // overwritten

// The arrays of topk.py's TopK.
struct ListedArrays {
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
        const Draws draws = draws_of(rows, ids, first);
        const Output<uint64_t> keys("u8", rows.n_rows);
        without_gil([&] { kernels_.row_keys(rows, draws, keys.data); });
        return keys.array;
    }

    nb::object true_label_scores(const RowArray& array, const Ids& ids, uint64_t first,
                                 const Vector<int64_t>& labels) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows, ids, first);
        expect_labels(labels, rows);
        const Output<double> scores("f8", rows.n_rows);
        expect_good(without_gil([&] {
            return kernels_.true_label_scores(rows, score_, draws, labels.data(), scores.data);
        }));
        return scores.array;
    }

    nb::object score_matrix(const RowArray& array, const Ids& ids, uint64_t first) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows, ids, first);
        const Output<double> scores("f8", rows.n_rows, rows.n_classes);
        expect_good(without_gil(
            [&] { return kernels_.score_matrix(rows, score_, draws, scores.data); }));
        return scores.array;
    }

    // Return the boundaries of the rows' classes, and the classes.
    nb::tuple prediction_sets(const RowArray& array, const Ids& ids, uint64_t first,
                              const ThresholdArrays& thresholds, bool keep_top) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows, ids, first);
        const Thresholds own = thresholds.checked(rows.n_classes);
        auto* const starts =
            static_cast<int64_t*>(std::calloc(static_cast<size_t>(rows.n_rows) + 1, 8));
        if (!starts) throw std::bad_alloc();
        const auto start_array = owned(starts, rows.n_rows + 1);
        ClassList members;
        const auto select = [&] {
            return kernels_.prediction_sets(rows, score_, draws, own, keep_top, starts + 1,
                                            members);
        };
        // A few rows take less time than reacquiring the GIL.
        const int64_t bad = rows.n_rows <= 8 ? select() : without_gil(select);
        const auto classes = owned(members.classes, members.size);
        expect_good(bad);
        for (int64_t i = 0; i < rows.n_rows; ++i) starts[i + 1] += starts[i];
        return nb::make_tuple(start_array, classes);
    }

    nb::tuple set_coverage(const RowArray& array, const Ids& ids, uint64_t first,
                           const Vector<int64_t>& labels, const ThresholdArrays& thresholds,
                           bool keep_top, const Counts& appearances) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows, ids, first);
        const Thresholds own = thresholds.checked(rows.n_classes);
        expect_labels(labels, rows);
        const Output<int64_t> sizes("i8", rows.n_rows), top_classes("i8", rows.n_rows);
        const Output<bool> is_covered("?", rows.n_rows), is_accepted("?", rows.n_rows);
        expect_length(appearances, rows.n_classes);
        std::fill_n(appearances.data(), rows.n_classes, int64_t{0});
        expect_good(without_gil([&] {
            return kernels_.set_coverage(rows, score_, draws, labels.data(), own, keep_top,
                                         {sizes.data, is_covered.data, top_classes.data, is_accepted.data,
                                          appearances.data()});
        }));
        return nb::make_tuple(sizes.array, is_covered.array, top_classes.array, is_accepted.array);
    }

    nb::object set_sizes(const RowArray& array, const Ids& ids, uint64_t first,
                         const TableArrays& arrays) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows, ids, first);
        const ThresholdTable table = arrays.checked(rows.n_classes);
        const Output<int64_t> sizes("i8", rows.n_rows, table.n_plain + table.n_pairs);
        expect_good(without_gil(
            [&] { return kernels_.set_sizes(rows, score_, draws, table, sizes.data); }));
        return sizes.array;
    }

    nb::object p_values(const RowArray& array, const Ids& ids, uint64_t first,
                        const Vector<double>& scores, const Vector<int64_t>& offsets,
                        const Vector<int64_t>& group_of_class) const {
        const Rows rows = rows_of(array);
        const Draws draws = draws_of(rows, ids, first);
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

    // The same for rows of which only some classes are listed.
    nb::object listed_label_scores(const ListedArrays& arrays, const Ids& ids, uint64_t first,
                                   const Vector<int64_t>& labels) const {
        const ListedRows rows = listed(arrays);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        expect_length(labels, rows.n_rows);
        const Output<double> scores("f8", rows.n_rows);
        expect_good(without_gil([&] {
            return kernels_.listed_label_scores(rows, score_, draws, labels.data(), scores.data);
        }));
        return scores.array;
    }

    nb::tuple listed_scores(const ListedArrays& arrays, const Ids& ids, uint64_t first) const {
        const ListedRows rows = listed(arrays);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const int64_t n_listed = rows.starts[rows.n_rows] - rows.starts[0];
        const Output<double> scores("f8", n_listed);
        const Output<int64_t> ranks("i8", n_listed);
        expect_good(without_gil([&] {
            return kernels_.listed_scores(rows, score_, draws, scores.data, ranks.data);
        }));
        return nb::make_tuple(scores.array, ranks.array);
    }

    nb::tuple listed_sets(const ListedArrays& arrays, const Ids& ids, uint64_t first,
                          const ThresholdArrays& thresholds, bool keep_top) const {
        const ListedRows rows = listed(arrays);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const Thresholds own = thresholds.checked(rows.n_classes);
        const Output<int64_t> starts("i8", rows.n_rows + 1);
        starts.data[0] = 0;
        // Room for all entries and one vector more; pages that are not used take no memory.
        const int64_t n_listed = rows.starts[rows.n_rows] - rows.starts[0];
        std::unique_ptr<int32_t, decltype(&std::free)> members(
            static_cast<int32_t*>(std::malloc(static_cast<size_t>(n_listed + 16) * 4)), std::free);
        if (!members) throw std::bad_alloc();
        expect_good(without_gil([&] {
            return kernels_.listed_sets(rows, score_, draws, own, keep_top, starts.data + 1,
                                        members.get());
        }));
        return nb::make_tuple(starts.array, owned(members.release(), starts.data[rows.n_rows]));
    }

    nb::tuple listed_coverage(const ListedArrays& arrays, const Ids& ids, uint64_t first,
                              const Vector<int64_t>& labels, const ThresholdArrays& thresholds,
                              bool keep_top, const Counts& appearances) const {
        const ListedRows rows = listed(arrays);
        const Draws draws = draws_of(rows.n_rows, ids, first);
        const Thresholds own = thresholds.checked(rows.n_classes);
        expect_length(labels, rows.n_rows);
        const Output<int64_t> sizes("i8", rows.n_rows), top_classes("i8", rows.n_rows);
        const Output<bool> is_covered("?", rows.n_rows), is_accepted("?", rows.n_rows);
        expect_length(appearances, rows.n_classes);
        std::fill_n(appearances.data(), rows.n_classes, int64_t{0});
        expect_good(without_gil([&] {
            return kernels_.listed_coverage(rows, score_, draws, labels.data(), own, keep_top,
                                            {sizes.data, is_covered.data, top_classes.data, is_accepted.data,
                                          appearances.data()});
        }));
        return nb::make_tuple(sizes.array, is_covered.array, top_classes.array, is_accepted.array);
    }

   private:
    ListedRows listed(const ListedArrays& arrays) const {
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

    Draws draws_of(const Rows& rows, const Ids& ids, uint64_t first) const {
        return draws_of(rows.n_rows, ids, first);
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

    static void expect_labels(const Vector<int64_t>& labels, const Rows& rows) {
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
                        uint64_t start, const Vector<bool>& is_sampled, uint64_t largest,
                        int64_t stride) {
    const Kernels& kernels = kernels_for(instruction_set);
    const int64_t n = length(labels), n_classes = length(is_sampled);
    expect(n_classes >= 1 && stride >= 1, "there must be classes");
    expect_below(labels.data(), n, 0, n_classes + 1);
    LabelSample sample = {labels.data(), n, start, is_sampled.data(), n_classes, largest, stride};
    const Output<int64_t> of_classes("i8", n), drawn("i8", n);
    const Output<uint64_t> hashes("u8", n);
    sample.of_classes = of_classes.data;
    sample.drawn = drawn.data;
    sample.hashes = hashes.data;
    without_gil([&] { kernels.sample_labels(sample); });
    const nb::slice first(sample.n_of_classes), second(sample.n_drawn);
    return nb::make_tuple(sample.total, of_classes.array[first], drawn.array[second],
                          hashes.array[second]);
}

nb::object counts_within(const std::string& instruction_set, const Matrix<double>& ordered,
                         const Vector<int64_t>& classes, const Vector<double>& values) {
    const Kernels& kernels = kernels_for(instruction_set);
    const int64_t n = length(classes);
    expect_length(values, n);
    expect_below(classes.data(), n, 0, length(ordered));
    const Output<int64_t> counts("i8", n);
    without_gil([&] {
        kernels.counts_within(ordered.data(), static_cast<int64_t>(ordered.shape(1)),
                              classes.data(), values.data(), n, counts.data);
    });
    return counts.array;
}

nb::tuple shortfalls(const std::string& instruction_set, const Vector<int64_t>& classes,
                     const Vector<bool>& flags, const Vector<double>& wanted,
                     const Vector<double>& has) {
    const Kernels& kernels = kernels_for(instruction_set);
    const int64_t n = length(classes), n_classes = length(has);
    expect_length(flags, n);
    expect_length(wanted, n);
    expect_below(classes.data(), n, 0, n_classes);
    const Output<int64_t> counts("i8", n_classes);
    const Output<double> sums("f8", n_classes);
    without_gil([&] {
        kernels.shortfalls(
            {classes.data(), flags.data(), wanted.data(), n, has.data(), n_classes}, counts.data,
            sums.data);
    });
    return nb::make_tuple(counts.array, sums.array);
}

}  // namespace

NB_MODULE(_native, m) {
    nb::class_<ThresholdArrays>(m, "Thresholds")
        .def(nb::init<Vector<double>, std::optional<Vector<double>>, std::optional<Vector<double>>,
                      std::optional<Vector<int64_t>>>(),
             "upper"_a, "lower"_a.none(), "upper_probability"_a.none(), "rank_limit"_a.none());
    nb::class_<TableArrays>(m, "ThresholdTable")
        .def(nb::init<Vector<int32_t>, Matrix<double>, Matrix<int16_t>, Matrix<double>,
                      Matrix<double>, Matrix<double>, Matrix<int16_t>, Matrix<int16_t>,
                      Matrix<int16_t>, Matrix<double>, Matrix<int16_t>, Vector<int64_t>,
                      Vector<double>, Vector<int64_t>, Vector<double>, Vector<int64_t>>(),
             nb::kw_only(), "vector_of"_a, "top_limits"_a, "top_vectors"_a, "draw_from"_a,
             "draw_to"_a, "limits"_a, "plain_ranks"_a, "upper_ranks"_a, "lower_ranks"_a,
             "chances"_a, "chance_ranks"_a, "always"_a, "upper_only"_a,
             "upper_only_offsets"_a, "lower_only"_a,
             "lower_only_offsets"_a);
    nb::class_<ListedArrays>(m, "ListedRows")
        .def(nb::init<Vector<int64_t>, Vector<int32_t>,
                      nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>, int64_t>(),
             "starts"_a, "classes"_a, "values"_a, "n_classes"_a);
    nb::class_<Scorer>(m, "Scorer")
        .def(nb::init<const std::string&, uint64_t, std::optional<uint64_t>,
                      std::optional<uint64_t>, bool, double, int64_t, bool, bool,
                      std::array<double, 3>>())
        .def("row_keys", &Scorer::row_keys, "rows"_a, "ids"_a.none(), "first"_a)
        .def("true_label_scores", &Scorer::true_label_scores, "rows"_a, "ids"_a.none(), "first"_a,
             "labels"_a)
        .def("score_matrix", &Scorer::score_matrix, "rows"_a, "ids"_a.none(), "first"_a)
        .def("prediction_sets", &Scorer::prediction_sets, "rows"_a, "ids"_a.none(), "first"_a,
             "thresholds"_a, "keep_top"_a)
        .def("set_coverage", &Scorer::set_coverage, "rows"_a, "ids"_a.none(), "first"_a, "labels"_a,
             "thresholds"_a, "keep_top"_a, "appearances"_a)
        .def("set_sizes", &Scorer::set_sizes, "rows"_a, "ids"_a.none(), "first"_a, "table"_a)
        .def("p_values", &Scorer::p_values, "rows"_a, "ids"_a.none(), "first"_a, "scores"_a,
             "offsets"_a, "group_of_class"_a)
        .def("listed_label_scores", &Scorer::listed_label_scores, "rows"_a, "ids"_a.none(),
             "first"_a, "labels"_a)
        .def("listed_scores", &Scorer::listed_scores, "rows"_a, "ids"_a.none(), "first"_a)
        .def("listed_sets", &Scorer::listed_sets, "rows"_a, "ids"_a.none(), "first"_a,
             "thresholds"_a, "keep_top"_a)
        .def("listed_coverage", &Scorer::listed_coverage, "rows"_a, "ids"_a.none(), "first"_a,
             "labels"_a, "thresholds"_a, "keep_top"_a, "appearances"_a);
    m.def("random_bits", &random_bits);
    m.def("sample_labels", &sample_labels);
    m.def("counts_within", &counts_within);
    m.def("shortfalls", &shortfalls);
    m.def("instruction_sets", &instruction_sets, "What this machine can run, best first.");
    m.def("say_when_a_map_is_lost", &say_when_a_map_is_lost,
          "End the process with these words where a mapped file was cut short.");
}

}  // namespace evencover
