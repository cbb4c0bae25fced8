// What the Python module offers to the cost of a method: checks shapes, releases the GIL, calls the
// kernels.
#pragma once

#include <string>

#include "dispatch.hpp"
#include "kernels.hpp"
#include "module_arrays.hpp"

namespace evencover {
namespace {

void counts_within(const std::string& instruction_set, const Matrix<double>& ordered,
                   const Vector<int64_t>& classes, const Vector<double>& values,
                   const Result<int64_t>& counts) {
    expect_length(values, length(classes));
    expect_length(counts, length(classes));
    nb::gil_scoped_release release;
    expect_classes(classes, length(ordered));
    kernels_for(instruction_set)
        .counts_within(ordered.data(), static_cast<int64_t>(ordered.shape(1)), classes.data(),
                       values.data(), length(classes), counts.data());
}

void shortfalls(const std::string& instruction_set, const Vector<int64_t>& classes,
                const Vector<bool>& flags, const Vector<double>& wanted, const Vector<double>& has,
                const Result<int64_t>& counts, const Result<double>& sums) {
    const int64_t n = length(classes), n_classes = length(has);
    expect_length(flags, n);
    expect_length(wanted, n);
    expect_length(counts, n_classes);
    expect_length(sums, n_classes);
    nb::gil_scoped_release release;
    expect_classes(classes, n_classes);
    kernels_for(instruction_set)
        .shortfalls({classes.data(), flags.data(), wanted.data(), n, has.data(), n_classes},
                    counts.data(), sums.data());
}

void add_cost(nb::module_& m) {
    m.def("counts_within", &counts_within);
    m.def("shortfalls", &shortfalls);
}

}  // namespace
}  // namespace evencover
