// Arrays as the Python module takes them, and the checks of their shapes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>

namespace nb = nanobind;

namespace evencover {
namespace {

using RowArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Result = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using ResultMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ClassArray = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;
using PlaceArray = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

void expect(bool condition, const char* rule) {
    if (!condition) throw std::invalid_argument(rule);
}

template <class A>
int64_t length(const A& array) {
    return static_cast<int64_t>(array.shape(0));
}

template <class A>
void expect_length(const A& array, int64_t n) {
    expect(length(array) == n, "an array has the wrong length");
}

template <class A>
void expect_shape(const A& matrix, int64_t n_rows, int64_t n_columns) {
    expect(length(matrix) == n_rows && static_cast<int64_t>(matrix.shape(1)) == n_columns,
           "a matrix has the wrong shape");
}

void expect_offsets(const Vector<int64_t>& offsets, int64_t n_parts, int64_t size) {
    expect_length(offsets, n_parts + 1);
    for (int64_t i = 0; i < n_parts; ++i) {
        expect(0 <= offsets.data()[i] && offsets.data()[i] <= offsets.data()[i + 1] &&
                   offsets.data()[i + 1] <= size,
               "offsets must increase");
    }
}

void expect_classes(const Vector<int64_t>& classes, int64_t n_classes) {
    for (int64_t i = 0; i < length(classes); ++i) {
        expect(classes.data()[i] >= 0 && classes.data()[i] < n_classes, "class indices must exist");
    }
}

}  // namespace
}  // namespace evencover
