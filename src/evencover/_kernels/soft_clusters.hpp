// A mixture of multinomials by expectation maximisation: counts of classes by bin.
//
// Every sum is taken in the order of its index, and exp and log are made of IEEE basic operations,
// as in the reference: the result is the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "buffer.hpp"
#include "eight_lanes.hpp"
#include "kernels.hpp"

EVENCOVER_BEGIN

// log(x) of a normal x > 0: the series of 2 atanh(s), s = (m - 1) / (m + 1), for x = m 2**k.
inline double log_positive(double x) {
    const uint64_t b = bits(x);
    int64_t k = static_cast<int64_t>(b >> 52) - 1023;
    double m = double_of((b & 0x000FFFFFFFFFFFFF) | bits_of_one);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        ++k;
    }
    const double s = (m - 1.0) / (m + 1.0), square = s * s;
    double value = 1.0 / 23.0;
    for (int odd = 21; odd >= 1; odd -= 2) value = value * square + 1.0 / odd;
    return 2.0 * s * value + static_cast<double>(k) * 0.6931471805599453;
}

// The counts are kept twice: classes side by side, eight at a time, for the likelihood, and bins
// side by side for the sums over classes. Both are padded with zeros, which change no sum. An
// addition waits for the one before, so eight sums are under way at a time.
class SoftClustering {
   public:
    SoftClustering(const SoftClusters& mixture, const double* weights)
        : mixture_(mixture),
          n_clusters_(mixture.n_clusters),
          n_bins_(mixture.n_bins),
          width_((n_bins_ + chunk - 1) / chunk * chunk),
          n_groups_((mixture.n_classes + eight - 1) / eight),
          by_class_(n_groups_ * n_bins_ * eight),
          by_bin_(n_groups_ * eight * width_),
          weights_(n_groups_ * n_clusters_ * eight),
          improved_(n_clusters_ * eight),
          sizes_(n_clusters_),
          masses_(n_clusters_ * width_),
          log_sizes_(n_clusters_),
          log_shapes_(n_clusters_ * n_bins_) {
        for (int64_t y = 0; y < n_groups_ * eight; ++y) {
            const bool exists = y < mixture.n_classes;
            for (int64_t b = 0; b < width_; ++b) {
                const bool counts = exists && b < n_bins_;
                const double count = counts ? mixture.counts[y * n_bins_ + b] : 0.0;
                by_bin_[y * width_ + b] = count;
                if (b < n_bins_) by_class_[(y / eight * n_bins_ + b) * eight + y % eight] = count;
            }
            for (int64_t m = 0; m < n_clusters_; ++m) {
                *weight_of(y, m) = exists ? weights[y * n_clusters_ + m] : 0.0;
            }
        }
    }

    void run() {
        start_sums();
        add(0, n_groups_);
        for (int64_t step = 0; step < mixture_.most_steps; ++step) {
            describe_clusters();
            start_sums();
            double change = 0.0;
            for (int64_t group = 0; group < n_groups_; group += block) {
                const int64_t end = group + block < n_groups_ ? group + block : n_groups_;
                for (int64_t g = group; g < end; ++g) {
                    const double here = improve(g);
                    change = here > change ? here : change;
                }
                add(group, end);  // while they are in the cache
            }
            if (change < mixture_.tolerance) return;
        }
    }

    void write(double* weights) {
        for (int64_t y = 0; y < mixture_.n_classes; ++y) {
            for (int64_t m = 0; m < n_clusters_; ++m) weights[y * n_clusters_ + m] = *weight_of(y, m);
        }
    }

   private:
    static constexpr int64_t chunk = 16, block = 8;

    double* weight_of(int64_t y, int64_t m) {
        return weights_.data() + (y / eight * n_clusters_ + m) * eight + y % eight;
    }

    void start_sums() {
        for (int64_t m = 0; m < n_clusters_; ++m) sizes_[m] = 0.0;
        for (int64_t i = 0; i < n_clusters_ * width_; ++i) masses_[i] = 0.0;
    }

    // Adds groups of classes to the clusters by their weights.
    void add(int64_t begin, int64_t end) {
        int64_t m = 0;
        for (; m + 2 <= n_clusters_; m += 2) add_to<2>(m, begin, end);
        if (m < n_clusters_) add_to<1>(m, begin, end);
    }

    // To n clusters from m on, whose sums stay in registers.
    template <int n>
    void add_to(int64_t m, int64_t begin, int64_t end) {
        for (int64_t b = 0; b < width_; b += chunk) {
            double* const mass = masses_.data() + m * width_ + b;
            Eight low[n], high[n];
            double size[n];
            for (int i = 0; i < n; ++i) {
                low[i] = load_eight(mass + i * width_);
                high[i] = load_eight(mass + i * width_ + eight);
                size[i] = sizes_[m + i];
            }
            for (int64_t group = begin; group < end; ++group) {
                const double* const weights = weights_.data() + (group * n_clusters_ + m) * eight;
                const double* const counts = by_bin_.data() + group * eight * width_ + b;
                EVENCOVER_NOT_UNROLLED
                for (int64_t l = 0; l < eight; ++l) {
                    const Eight first = load_eight(counts + l * width_);
                    const Eight second = load_eight(counts + l * width_ + eight);
                    for (int i = 0; i < n; ++i) {
                        const double weight = weights[i * eight + l];
                        low[i] += first * weight;
                        high[i] += second * weight;
                        size[i] += weight;
                    }
                }
            }
            for (int i = 0; i < n; ++i) {
                store_eight(low[i], mass + i * width_);
                store_eight(high[i], mass + i * width_ + eight);
                if (b + chunk == width_) sizes_[m + i] = size[i];
            }
        }
    }

    // Logarithms of the clusters' shares of all classes, and of their smoothed distributions.
    void describe_clusters() {
        const double n = static_cast<double>(mixture_.n_classes + n_clusters_);
        for (int64_t m = 0; m < n_clusters_; ++m) {
            log_sizes_[m] = log_positive((sizes_[m] + 1.0) / n);
            double* const shape = masses_.data() + m * width_;
            for (int64_t b = 0; b < n_bins_; ++b) shape[b] += mixture_.smoothing[b];
            double total = shape[0];
            for (int64_t b = 1; b < n_bins_; ++b) total += shape[b];
            for (int64_t b = 0; b < n_bins_; ++b) {
                log_shapes_[m * n_bins_ + b] = log_positive(shape[b] / total);
            }
        }
    }

    // The logarithms of how likely eight classes are under n clusters from m on.
    template <int n>
    Eight likelihoods(int64_t m, const double* counts, Eight top) {
        const double* const shape = log_shapes_.data() + m * n_bins_;
        Eight sums[n];
        for (int i = 0; i < n; ++i) sums[i] = all_eight(log_sizes_[m + i]);
        for (int64_t b = 0; b < n_bins_; ++b) {
            const Eight count = load_eight(counts + b * eight);
            for (int i = 0; i < n; ++i) sums[i] += count * shape[i * n_bins_ + b];
        }
        for (int i = 0; i < n; ++i) {
            top = larger(sums[i], top);
            store_eight(sums[i], improved_.data() + (m + i) * eight);
        }
        return top;
    }

    // How likely they are, `top` being 1; adds that to the total.
    template <int n>
    Eight exponentials(int64_t m, Eight top, Eight total) {
        double* const improved = improved_.data() + m * eight;
        Eight values[n];
        for (int i = 0; i < n; ++i) values[i] = load_eight(improved + i * eight) - top;
        exp_nonpositive<n>(values);
        for (int i = 0; i < n; ++i) {
            total += values[i];
            store_eight(values[i], improved + i * eight);
        }
        return total;
    }

    // New weights of eight classes; returns their largest change.
    double improve(int64_t group) {
        const double* const counts = by_class_.data() + group * n_bins_ * eight;
        double* const weights = weights_.data() + group * n_clusters_ * eight;
        double* const improved = improved_.data();
        Eight top = all_eight(-HUGE_VAL), total = all_eight(0.0), change = all_eight(0.0);
        int64_t m = 0;
        for (; m + 4 <= n_clusters_; m += 4) top = likelihoods<4>(m, counts, top);
        for (; m < n_clusters_; ++m) top = likelihoods<1>(m, counts, top);
        for (m = 0; m + 4 <= n_clusters_; m += 4) total = exponentials<4>(m, top, total);
        for (; m < n_clusters_; ++m) total = exponentials<1>(m, top, total);
        const int64_t n_left = mixture_.n_classes - group * eight;
        for (m = 0; m < n_clusters_; ++m) {
            double* const own = weights + m * eight;
            const Eight before = load_eight(own), share = load_eight(improved + m * eight) / total;
            change = larger(change, magnitude(share - before));
            store_eight(share, own);
        }
        double changes[eight];
        store_eight(change, changes);
        double largest = 0.0;
        for (int64_t l = 0; l < eight; ++l) {
            if (l < n_left) {
                largest = changes[l] > largest ? changes[l] : largest;
            } else {  // no class: it weighs nothing
                for (m = 0; m < n_clusters_; ++m) weights[m * eight + l] = 0.0;
            }
        }
        return largest;
    }

    const SoftClusters& mixture_;
    const int64_t n_clusters_;
    const int64_t n_bins_;
    const int64_t width_;
    const int64_t n_groups_;
    Buffer<double> by_class_;  // (groups, bins, eight)
    Buffer<double> by_bin_;    // (classes, width)
    Buffer<double> weights_;   // (groups, clusters, eight)
    Buffer<double> improved_;  // (clusters, eight)
    Buffer<double> sizes_;
    Buffer<double> masses_;  // (clusters, width)
    Buffer<double> log_sizes_;
    Buffer<double> log_shapes_;  // (clusters, bins)
};

inline void soft_clusters(const SoftClusters& mixture, double* weights) {
    SoftClustering clustering(mixture, weights);
    clustering.run();
    clustering.write(weights);
}

EVENCOVER_END
