// What the Python module offers to cross-fitting: checks shapes, releases the GIL, calls the kernels.
#pragma once

#include <string>

#include "dispatch.hpp"
#include "kernels.hpp"
#include "module_arrays.hpp"

namespace evencover {
namespace {

// `kept` (3, n) and `held` (4, n) are as long as they need to be for all rows.
void left_out(const std::string& instruction_set, const Vector<int64_t>& labels,
              const Vector<int64_t>& first, const Vector<int8_t>& fold, int64_t number,
              const ResultMatrix<int64_t>& kept, const ResultMatrix<int64_t>& held,
              const ResultMatrix<int64_t>& offsets) {
    const int64_t n = length(labels), n_classes = static_cast<int64_t>(offsets.shape(1)) - 1;
    expect_length(first, n);
    expect_length(fold, n);
    const auto n_kept = static_cast<int64_t>(kept.shape(1)), n_held = n - n_kept;
    expect(n_classes >= 0 && n_held >= 0, "there must be as many rows as are kept");
    expect_shape(kept, 3, n_kept);
    expect_shape(held, 4, n_held);
    expect_length(offsets, 2);
    nb::gil_scoped_release release;
    expect_classes(labels, n_classes);
    int64_t n_left = 0;
    for (int64_t i = 0; i < n; ++i) n_left += fold.data()[i] == number;
    expect(n_left == n_held, "there must be as many rows as are left out");
    int64_t* const k = kept.data();
    int64_t* const h = held.data();
    kernels_for(instruction_set)
        .left_out({labels.data(), first.data(), fold.data(), n, n_classes, number},
                  {k, k + n_kept, k + 2 * n_kept, offsets.data(), h, h + n_held, h + 2 * n_held,
                   h + 3 * n_held, offsets.data() + n_classes + 1});
}

struct BlendArrays {
    Vector<double> own, counts;
    Matrix<double> expected;
    Vector<int64_t> kinds;
    Vector<double> strengths;

    Blends checked() const {
        expect_length(counts, length(own));
        expect_shape(expected, length(expected), length(own));
        expect_length(strengths, length(kinds));
        for (int64_t i = 0; i < length(kinds); ++i) {
            expect(kinds.data()[i] >= 0 && kinds.data()[i] < length(expected), "kinds must exist");
        }
        return {own.data(),   counts.data(),    expected.data(), length(own),
                kinds.data(), strengths.data(), length(kinds)};
    }
};

double blended_quantile(const std::string& instruction_set, const BlendArrays& arrays,
                        int64_t ingredient, int64_t rank) {
    const Blends blends = arrays.checked();
    expect(ingredient >= 0 && ingredient < blends.n_ingredients, "the ingredient must exist");
    expect(rank >= 0 && rank < blends.n_rows, "the rank must exist");
    nb::gil_scoped_release release;
    return kernels_for(instruction_set).blended_quantile(blends, ingredient, rank);
}

void blended_levels(const std::string& instruction_set, const BlendArrays& arrays,
                    const Vector<double>& weights, const Result<double>& levels) {
    const Blends blends = arrays.checked();
    expect_length(weights, blends.n_ingredients);
    expect_length(levels, blends.n_rows);
    nb::gil_scoped_release release;
    kernels_for(instruction_set).blended_levels(blends, weights.data(), levels.data());
}

void add_folds(nb::module_& m) {
    nb::class_<BlendArrays>(m, "Blends")
        .def(nb::init<Vector<double>, Vector<double>, Matrix<double>, Vector<int64_t>,
                      Vector<double>>());
    m.def("left_out", &left_out);
    m.def("blended_quantile", &blended_quantile);
    m.def("blended_levels", &blended_levels);
}

}  // namespace
}  // namespace evencover
