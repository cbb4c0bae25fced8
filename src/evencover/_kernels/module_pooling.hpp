// What the Python module offers to POOLED: checks shapes, releases the GIL, calls the kernels.
#pragma once

#include <string>
#include <tuple>

#include "dispatch.hpp"
#include "kernels.hpp"
#include "module_arrays.hpp"

namespace evencover {
namespace {

void soft_clusters(const std::string& instruction_set, const Matrix<double>& counts,
                   const Vector<double>& smoothing, int64_t most_steps, double tolerance,
                   const ResultMatrix<double>& weights) {
    const int64_t n_classes = length(counts);
    const auto n_bins = static_cast<int64_t>(counts.shape(1));
    const auto n_clusters = static_cast<int64_t>(weights.shape(1));
    expect(n_clusters >= 1 && n_bins >= 1, "there must be clusters and bins");
    expect_shape(weights, n_classes, n_clusters);
    expect_length(smoothing, n_bins);
    nb::gil_scoped_release release;
    kernels_for(instruction_set)
        .soft_clusters({counts.data(), n_classes, n_bins, smoothing.data(), n_clusters, most_steps,
                        tolerance},
                       weights.data());
}

void mixture_levels(const std::string& instruction_set, const Matrix<double>& weights,
                    const Matrix<double>& functions, const Vector<int64_t>& classes,
                    const Vector<double>& u, const Result<double>& levels) {
    const auto n_clusters = static_cast<int64_t>(weights.shape(1));
    expect(length(functions) >= 2, "there must be edges");
    expect_shape(functions, length(functions), n_clusters);
    expect_length(u, length(classes));
    expect_length(levels, length(classes));
    nb::gil_scoped_release release;
    expect_classes(classes, length(weights));
    kernels_for(instruction_set)
        .mixture_levels({weights.data(), functions.data(), n_clusters, length(functions) - 1},
                        classes.data(), u.data(), length(classes), levels.data());
}

void mixture_masses(const std::string& instruction_set, const Matrix<double>& weights,
                    const Vector<int64_t>& classes, const Vector<int16_t>& bins,
                    const ResultMatrix<double>& masses) {
    const auto n_clusters = static_cast<int64_t>(weights.shape(1));
    expect_shape(masses, length(masses), n_clusters);
    expect_length(bins, length(classes));
    nb::gil_scoped_release release;
    expect_classes(classes, length(weights));
    for (int64_t i = 0; i < length(bins); ++i) {
        expect(bins.data()[i] >= 0 && bins.data()[i] < length(masses), "bins must exist");
    }
    kernels_for(instruction_set)
        .mixture_masses(weights.data(), n_clusters, classes.data(), bins.data(), length(classes),
                        masses.data());
}

// Rows that were held out, by class, and what the levels of classes are made of.
struct HeldOutArrays {
    Vector<int16_t> own_points;
    Vector<int64_t> own_offsets;
    Vector<double> held_ranks;
    Vector<int64_t> held_offsets;
    int64_t n_points;
    double aim;
    Vector<double> strengths, targets;

    HeldOut rows() const {
        const int64_t n_classes = length(own_offsets) - 1;
        expect_offsets(own_offsets, n_classes, length(own_points));
        expect_offsets(held_offsets, n_classes, length(held_ranks));
        expect_length(targets, length(strengths));
        expect(n_points >= 1, "there must be points");
        for (int64_t i = 0; i < length(own_points); ++i) {
            expect(own_points.data()[i] >= 0 && own_points.data()[i] < n_points,
                   "points must exist");
        }
        return {own_points.data(),   own_offsets.data(), held_ranks.data(),
                held_offsets.data(), n_classes,          n_points,
                aim};
    }
    Strengths blended() const { return {strengths.data(), targets.data(), length(strengths)}; }
};

void normal_losses(const std::string& instruction_set, const HeldOutArrays& arrays,
                   const Vector<double>& mean, const Vector<double>& deviation,
                   const Vector<double>& scores, const Vector<double>& table, double reach,
                   const ResultMatrix<double>& losses) {
    const HeldOut rows = arrays.rows();
    expect_length(mean, rows.n_classes);
    expect_length(deviation, rows.n_classes);
    expect_length(scores, rows.n_points);
    expect(length(table) >= 2, "the table must have two entries");
    expect_shape(losses, length(arrays.strengths), rows.n_classes);
    const NormalPrior prior = {mean.data(),  deviation.data(), scores.data(),
                               table.data(), length(table),    reach};
    nb::gil_scoped_release release;
    kernels_for(instruction_set).normal_losses(rows, arrays.blended(), prior, losses.data());
}

void cluster_losses(const std::string& instruction_set, const HeldOutArrays& arrays,
                    const Matrix<double>& weights, const Matrix<double>& functions,
                    const ResultMatrix<double>& losses) {
    const HeldOut rows = arrays.rows();
    const auto n_clusters = static_cast<int64_t>(weights.shape(1));
    expect(n_clusters >= 1, "there must be clusters");
    expect_shape(weights, rows.n_classes, n_clusters);
    expect_shape(functions, rows.n_points, n_clusters);
    expect_shape(losses, length(arrays.strengths), rows.n_classes);
    nb::gil_scoped_release release;
    kernels_for(instruction_set)
        .cluster_losses(rows, arrays.blended(), {weights.data(), functions.data(), n_clusters},
                        losses.data());
}

void bin_counts(const std::string& instruction_set, const Vector<double>& u,
                const Vector<int64_t>& classes, int64_t n_bins, const Result<int16_t>& bins,
                const ResultMatrix<double>& counts) {
    const auto n_coarse = static_cast<int64_t>(counts.shape(1));
    expect(n_coarse >= 1 && n_bins >= n_coarse && n_bins < 1 << 15 && n_bins % n_coarse == 0,
           "bins must be parts of coarse ones");
    expect_length(u, length(classes));
    expect_length(bins, length(classes));
    nb::gil_scoped_release release;
    expect_classes(classes, length(counts));
    for (int64_t i = 0; i < length(u); ++i) {
        expect(u.data()[i] >= 0.0 && u.data()[i] <= 1.0, "ranks must be from 0 to 1");
    }
    kernels_for(instruction_set)
        .bin_counts(u.data(), classes.data(), length(u), n_bins, n_coarse, bins.data(),
                    counts.data());
}

void class_moments(const std::string& instruction_set, const Vector<double>& values,
                   const Vector<int64_t>& classes, const Result<double>& counts,
                   const Result<double>& means, const Result<double>& squares) {
    expect_length(values, length(classes));
    expect_length(means, length(counts));
    expect_length(squares, length(counts));
    nb::gil_scoped_release release;
    expect_classes(classes, length(counts));
    kernels_for(instruction_set)
        .class_moments(values.data(), classes.data(), length(classes), length(counts),
                       counts.data(), means.data(), squares.data());
}

std::tuple<double, double, double, double> weighted_line(
    const std::string& instruction_set, const Vector<double>& x, const Vector<double>& y,
    const Vector<double>& noise, double between, bool has_slope) {
    expect_length(y, length(x));
    expect_length(noise, length(x));
    nb::gil_scoped_release release;
    const Line line =
        kernels_for(instruction_set)
            .weighted_line({x.data(), y.data(), noise.data(), length(x)}, between, has_slope);
    return {line.centre_x, line.centre_y, line.slope, line.squares};
}

void add_pooling(nb::module_& m) {
    nb::class_<HeldOutArrays>(m, "HeldOut")
        .def(nb::init<Vector<int16_t>, Vector<int64_t>, Vector<double>, Vector<int64_t>, int64_t,
                      double, Vector<double>, Vector<double>>());
    m.def("soft_clusters", &soft_clusters);
    m.def("mixture_levels", &mixture_levels);
    m.def("mixture_masses", &mixture_masses);
    m.def("bin_counts", &bin_counts);
    m.def("class_moments", &class_moments);
    m.def("weighted_line", &weighted_line);
    m.def("normal_losses", &normal_losses);
    m.def("cluster_losses", &cluster_losses);
}

}  // namespace
}  // namespace evencover
