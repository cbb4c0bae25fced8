// NumPy arrays of the Python module, and checks of their shapes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>

namespace nb = nanobind;

namespace evencover {
namespace {

using RowArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
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
    expect(n_parts >= 0, "there must be offsets");
    expect_length(offsets, n_parts + 1);
    const int64_t* const at = offsets.data();
    int64_t falls = 0;  // without a branch, so that compilers vectorize
    for (int64_t i = 0; i < n_parts; ++i) falls |= int64_t{at[i + 1] < at[i]};
    expect(0 <= at[0] && !falls && at[n_parts] <= size, "offsets must increase");
}

void expect_below(const int64_t* values, int64_t n, int64_t least, int64_t end) {
    const auto first = static_cast<uint64_t>(least), last = static_cast<uint64_t>(end) - 1;
    uint64_t signs = 0;  // of differences instead of comparisons, so that compilers vectorize
    for (int64_t i = 0; i < n; ++i) {
        const auto value = static_cast<uint64_t>(values[i]);
        signs |= (value - first) | (last - value);
    }
    expect(signs >> 63 == 0, "class indices and groups must exist");
}

template <class Work>
auto without_gil(Work work) {
    nb::gil_scoped_release release;
    return work();
}

// Allocate a NumPy array.
template <class T>
struct Output {
    nb::object array;
    T* data;

    template <class... Sizes>
    explicit Output(const char* type, Sizes... shape)
        : array(nb::module_::import_("numpy").attr("empty")(nb::make_tuple(shape...), type)),
          data(nb::cast<nb::ndarray<T, nb::c_contig, nb::device::cpu>>(array).data()) {}
};

// Wrap memory from malloc as an array that frees it.
template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> owned(T* data, int64_t n) {
    const nb::capsule owner(data ? static_cast<void*>(data) : std::malloc(1),
                            [](void* memory) noexcept { std::free(memory); });
    const size_t shape[] = {static_cast<size_t>(n)};
    return {data, 1, shape, owner};
}

}  // namespace
}  // namespace evencover
