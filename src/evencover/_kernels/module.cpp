// The Python module `_native`: checks shapes, releases the GIL, calls the kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "dispatch.hpp"
#include "kernels.hpp"
#include "lost_map.hpp"
#include "module_arrays.hpp"
#include "module_cost.hpp"
#include "philox.hpp"

using namespace nb::literals;

namespace evencover {
namespace {

Element element_of(const nb::dlpack::dtype& type) {
    if (type == nb::dtype<float>()) return Element::float32;
    if (type == nb::dtype<double>()) return Element::float64;
    const auto floating = static_cast<uint8_t>(nb::dlpack::dtype_code::Float);
    expect(type.code == floating && type.bits == 16 && type.lanes == 1,
           "rows must be float16, float32 or float64");
    return Element::float16;
}

// (upper, lower or None, upper_probability or None, rank_limit or None), as in limits.py.
using Limits = std::tuple<Vector<double>, std::optional<Vector<double>>,
                          std::optional<Vector<double>>, std::optional<Vector<int64_t>>>;

Thresholds thresholds_of(const Limits& limits, int64_t n_classes) {
    const auto& [upper, lower, probability, rank_limit] = limits;
    expect_length(upper, n_classes);
    if (rank_limit) expect_length(*rank_limit, n_classes);
    const int64_t* const ranks = rank_limit ? rank_limit->data() : nullptr;
    if (!lower || !probability) return {upper.data(), nullptr, nullptr, ranks};
    expect_length(*lower, n_classes);
    expect_length(*probability, n_classes);
    return {upper.data(), lower->data(), probability->data(), ranks};
}

// The list as an array that frees it.
ClassArray class_array(const ClassList& members) {
    const nb::capsule owner(members.classes ? members.classes : std::malloc(1),
                            [](void* classes) noexcept { std::free(classes); });
    const size_t shape[] = {static_cast<size_t>(members.size)};
    return ClassArray(members.classes, 1, shape, owner);
}

// The arrays of limit_table.py.
struct TableArrays {
    Vector<int32_t> vector_of;
    Matrix<double> top_limits;
    Matrix<int16_t> top_vectors;
    Matrix<double> coin_from, coin_to, limits;
    Matrix<int16_t> plain_ranks, upper_ranks, lower_ranks;
    Matrix<double> chances;
    Matrix<int16_t> chance_ranks;
    Vector<int64_t> always;
    Vector<double> heads;
    Vector<int64_t> head_offsets;
    Vector<double> tails;
    Vector<int64_t> tail_offsets;

    LimitTable checked(int64_t n_classes) const {
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
        for (const auto* each : {&top_limits, &coin_from, &coin_to}) {
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
        expect_offsets(head_offsets, n_pairs, length(heads));
        expect_offsets(tail_offsets, n_pairs, length(tails));
        return {n_plain,
                n_pairs,
                vector_of.data(),
                n_top,
                top_limits.data(),
                top_vectors.data(),
                coin_from.data(),
                coin_to.data(),
                limits.data(),
                plain_ranks.data(),
                upper_ranks.data(),
                lower_ranks.data(),
                chances.data(),
                chance_ranks.data(),
                always.data(),
                heads.data(),
                head_offsets.data(),
                tails.data(),
                tail_offsets.data()};
    }
};

// Rows of scores to be computed: what all kernels take. The methods return the first bad row or -1.
class Block {
   public:
    Block(const std::string& instruction_set, RowArray rows, uint64_t seed,
          std::optional<uint64_t> score_use, std::optional<uint64_t> coin_use,
          std::optional<Vector<uint64_t>> ids, uint64_t first, bool needs_order, double penalty,
          int64_t k_reg, bool by_rank, bool logits, double temperature, double tolerance)
        : kernels_(kernels_for(instruction_set)),
          row_array_(rows),
          id_array_(ids),
          rows_{rows.data(),
                rows.stride(0),
                length(rows),
                static_cast<int64_t>(rows.shape(1)),
                element_of(rows.dtype()),
                logits,
                temperature,
                tolerance},
          score_{needs_order, penalty, k_reg, by_rank},
          draws_{seed,
                 score_use.has_value(),
                 score_use.value_or(0),
                 coin_use.has_value(),
                 coin_use.value_or(0),
                 ids ? ids->data() : nullptr,
                 first} {
        expect(rows_.n_classes >= 1, "rows must have classes");
        expect(rows_.n_rows == 0 || rows_.n_classes == 1 || rows.stride(1) == 1,
               "columns must be adjacent");
        if (ids) expect_length(*ids, rows_.n_rows);
    }

    void row_keys(const Result<uint64_t>& keys) const {
        expect_length(keys, rows_.n_rows);
        nb::gil_scoped_release release;
        kernels_.row_keys(rows_, draws_, keys.data());
    }

    int64_t true_label_scores(const Vector<int64_t>& labels, const Result<double>& scores) const {
        expect_labels(labels);
        expect_length(scores, rows_.n_rows);
        nb::gil_scoped_release release;
        return kernels_.true_label_scores(rows_, score_, draws_, labels.data(), scores.data());
    }

    int64_t score_matrix(const ResultMatrix<double>& scores) const {
        expect_shape(scores, rows_.n_rows, rows_.n_classes);
        nb::gil_scoped_release release;
        return kernels_.score_matrix(rows_, score_, draws_, scores.data());
    }

    std::tuple<ClassArray, int64_t> prediction_sets(const Limits& limits, bool allow_empty,
                                                    const Result<int64_t>& sizes) const {
        expect_length(sizes, rows_.n_rows);
        const Thresholds thresholds = thresholds_of(limits, rows_.n_classes);
        ClassList members;
        int64_t bad;
        {
            nb::gil_scoped_release release;
            bad = kernels_.prediction_sets(rows_, score_, draws_, thresholds, allow_empty,
                                           sizes.data(), members);
        }
        return {class_array(members), bad};
    }

    int64_t set_coverage(const Vector<int64_t>& labels, const Limits& limits, bool allow_empty,
                         const Result<int64_t>& sizes, const Result<bool>& is_covered,
                         const Result<int64_t>& top_classes) const {
        expect_labels(labels);
        expect_length(sizes, rows_.n_rows);
        expect_length(is_covered, rows_.n_rows);
        expect_length(top_classes, rows_.n_rows);
        const Thresholds thresholds = thresholds_of(limits, rows_.n_classes);
        nb::gil_scoped_release release;
        return kernels_.set_coverage(rows_, score_, draws_, labels.data(), thresholds, allow_empty,
                                     {sizes.data(), is_covered.data(), top_classes.data()});
    }

    int64_t set_sizes(const TableArrays& arrays, const ResultMatrix<int64_t>& sizes) const {
        const LimitTable table = arrays.checked(rows_.n_classes);
        expect_shape(sizes, rows_.n_rows, table.n_plain + table.n_pairs);
        nb::gil_scoped_release release;
        return kernels_.set_sizes(rows_, score_, draws_, table, sizes.data());
    }

    int64_t p_values(const Vector<double>& scores, const Vector<int64_t>& offsets,
                     const Vector<int64_t>& group_of_class,
                     const ResultMatrix<double>& result) const {
        expect_length(group_of_class, rows_.n_classes);
        expect_shape(result, rows_.n_rows, rows_.n_classes);
        const int64_t n_groups = length(offsets) - 1;
        expect_offsets(offsets, n_groups, length(scores));
        for (int64_t y = 0; y < rows_.n_classes; ++y) {
            const int64_t g = group_of_class.data()[y];
            expect(g >= -1 && g < n_groups, "groups must exist");
        }
        nb::gil_scoped_release release;
        return kernels_.p_values(
            rows_, score_, draws_,
            {scores.data(), length(scores), offsets.data(), n_groups, group_of_class.data()},
            result.data());
    }

   private:
    void expect_labels(const Vector<int64_t>& labels) const {
        expect_length(labels, rows_.n_rows);
        expect_classes(labels, rows_.n_classes);
    }

    const Kernels& kernels_;
    RowArray row_array_;  // keeps the memory alive
    std::optional<Vector<uint64_t>> id_array_;
    Rows rows_;
    Score score_;
    Draws draws_;
};

// Sets of a few rows at a time, with everything but the rows looked at once.
class ReadySets {
   public:
    ReadySets(const std::string& instruction_set, const Limits& limits, uint64_t seed,
              std::optional<uint64_t> score_use, std::optional<uint64_t> coin_use, bool needs_order,
              double penalty, int64_t k_reg, bool by_rank, bool logits, double temperature,
              bool allow_empty,
              std::array<double, 3> tolerances)
        : kernels_(kernels_for(instruction_set)),
          limits_(limits),
          n_classes_(length(std::get<0>(limits))),
          thresholds_(thresholds_of(limits_, n_classes_)),
          score_{needs_order, penalty, k_reg, by_rank},
          draws_{seed,
                 score_use.has_value(),
                 score_use.value_or(0),
                 coin_use.has_value(),
                 coin_use.value_or(0),
                 nullptr,
                 0},
          logits_(logits),
          temperature_(temperature),
          allow_empty_(allow_empty),
          tolerances_(tolerances) {}

    // Where each row's classes begin, the classes, and the first bad row or -1.
    std::tuple<PlaceArray, ClassArray, int64_t> sets(
        const RowArray& rows, const std::optional<Vector<uint64_t>>& ids) const {
        const int64_t n = length(rows);
        expect(static_cast<int64_t>(rows.shape(1)) == n_classes_, "rows must have the classes");
        expect(n_classes_ == 1 || rows.stride(1) == 1, "columns must be adjacent");
        const Element element = element_of(rows.dtype());
        const Rows table = {rows.data(), rows.stride(0), n,
                            n_classes_,  element,        logits_,
                            temperature_, tolerances_[static_cast<size_t>(element)]};
        Draws draws = draws_;
        if (ids) {
            expect_length(*ids, n);
            draws.ids = ids->data();
        }
        auto* const places = static_cast<int64_t*>(std::calloc(static_cast<size_t>(n) + 1, 8));
        const nb::capsule place_owner(places, [](void* memory) noexcept { std::free(memory); });
        ClassList members;
        const int64_t bad = kernels_.prediction_sets(table, score_, draws, thresholds_,
                                                     allow_empty_, places + 1, members);
        for (int64_t i = 0; i < n; ++i) places[i + 1] += places[i];
        const size_t shape[] = {static_cast<size_t>(n) + 1};
        return {PlaceArray(places, 1, shape, place_owner), class_array(members), bad};
    }

   private:
    const Kernels& kernels_;
    Limits limits_;  // keeps the memory alive
    int64_t n_classes_;
    Thresholds thresholds_;
    Score score_;
    Draws draws_;
    bool logits_;
    double temperature_;
    bool allow_empty_;
    std::array<double, 3> tolerances_;  // by element
};

void random_bits(const std::string& instruction_set, uint64_t seed, uint64_t use,
                 const Vector<uint64_t>& ids, const Result<uint64_t>& result) {
    expect_length(result, length(ids));
    nb::gil_scoped_release release;
    kernels_for(instruction_set).random_bits(seed, use, ids.data(), length(ids), result.data());
}

void uniforms(const std::string& instruction_set, uint64_t seed, uint64_t use,
              const Vector<uint64_t>& ids, const Result<double>& result) {
    expect_length(result, length(ids));
    nb::gil_scoped_release release;
    kernels_for(instruction_set).uniforms(seed, use, ids.data(), length(ids), result.data());
}

// One counter of four words, to compare with published values.
std::array<uint32_t, 4> philox(const std::array<uint32_t, 4>& counter, uint64_t key) {
    baseline::PhiloxCounters<1> c = {{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}};
    baseline::philox(c, key);
    return {c[0][0], c[1][0], c[2][0], c[3][0]};
}

}  // namespace

NB_MODULE(_native, m) {
    nb::class_<TableArrays>(m, "LimitTable")
        .def(nb::init<Vector<int32_t>, Matrix<double>, Matrix<int16_t>, Matrix<double>,
                      Matrix<double>, Matrix<double>, Matrix<int16_t>, Matrix<int16_t>,
                      Matrix<int16_t>, Matrix<double>, Matrix<int16_t>, Vector<int64_t>, Vector<double>, Vector<int64_t>, Vector<double>,
                      Vector<int64_t>>(),
             nb::kw_only(), "vector_of"_a, "top_limits"_a, "top_vectors"_a, "coin_from"_a,
             "coin_to"_a, "limits"_a, "plain_ranks"_a,
             "upper_ranks"_a, "lower_ranks"_a, "chances"_a, "chance_ranks"_a, "always"_a, "heads"_a,
             "head_offsets"_a, "tails"_a, "tail_offsets"_a);
    nb::class_<Block>(m, "Block")
        .def(nb::init<const std::string&, RowArray, uint64_t, std::optional<uint64_t>,
                      std::optional<uint64_t>, std::optional<Vector<uint64_t>>, uint64_t, bool,
                      double, int64_t, bool, bool, double, double>(),
             "instruction_set"_a, "rows"_a, nb::kw_only(), "seed"_a, "score_use"_a.none(),
             "coin_use"_a.none(), "ids"_a.none(), "first"_a, "needs_order"_a, "penalty"_a,
             "k_reg"_a, "by_rank"_a, "logits"_a, "temperature"_a, "tolerance"_a)
        .def("row_keys", &Block::row_keys)
        .def("true_label_scores", &Block::true_label_scores)
        .def("score_matrix", &Block::score_matrix)
        .def("prediction_sets", &Block::prediction_sets)
        .def("set_coverage", &Block::set_coverage)
        .def("set_sizes", &Block::set_sizes)
        .def("p_values", &Block::p_values);
    add_cost(m);
    m.def("instruction_sets", &instruction_sets, "What this machine can run, best first.");
    nb::class_<ReadySets>(m, "ReadySets")
        .def(nb::init<const std::string&, Limits, uint64_t, std::optional<uint64_t>,
                      std::optional<uint64_t>, bool, double, int64_t, bool, bool, double, bool,
                      std::array<double, 3>>())
        .def("sets", &ReadySets::sets, "rows"_a, "ids"_a.none());
    m.def("say_when_a_map_is_lost", &say_when_a_map_is_lost,
          "End the process with these words where a mapped file was cut short.");
    m.def("random_bits", &random_bits);
    m.def("uniforms", &uniforms);
    m.def("philox", &philox, "Philox4x32-10 of four 32-bit counter words under a 64-bit key.");
}

}  // namespace evencover
