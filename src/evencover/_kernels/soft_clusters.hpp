// A mixture of multinomials by expectation maximisation: counts of classes by bin.
//
// Every sum is taken in the order of its index, and exp and log are made of IEEE basic operations,
// as in the reference: the result is the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "buffer.hpp"
#include "four_lanes.hpp"
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

// The counts are kept twice: classes side by side, four at a time, for the likelihood, and bins
// side by side for the sums over classes. Both are padded with zeros, which change no sum.
class SoftClustering {
   public:
    SoftClustering(const SoftClusters& mixture, const double* weights)
        : mixture_(mixture),
          n_clusters_(mixture.n_clusters),
          n_bins_(mixture.n_bins),
          width_((n_bins_ + chunk - 1) / chunk * chunk),
          n_groups_((mixture.n_classes + four - 1) / four),
          by_class_(n_groups_ * n_bins_ * four),
          by_bin_(n_groups_ * four * width_),
          weights_(n_groups_ * n_clusters_ * four),
          improved_(n_clusters_ * four),
          sizes_(n_clusters_),
          masses_(n_clusters_ * width_),
          log_sizes_(n_clusters_),
          log_shapes_(n_clusters_ * n_bins_) {
        for (int64_t y = 0; y < n_groups_ * four; ++y) {
            const bool exists = y < mixture.n_classes;
            for (int64_t b = 0; b < width_; ++b) {
                const bool counts = exists && b < n_bins_;
                const double count = counts ? mixture.counts[y * n_bins_ + b] : 0.0;
                by_bin_[y * width_ + b] = count;
                if (b < n_bins_) by_class_[(y / four * n_bins_ + b) * four + y % four] = count;
            }
            for (int64_t m = 0; m < n_clusters_; ++m) {
                *weight_of(y, m) = exists ? weights[y * n_clusters_ + m] : 0.0;
            }
        }
    }

    void run() {
        start_sums();
        add(0, mixture_.n_classes);
        for (int64_t step = 0; step < mixture_.most_steps; ++step) {
            describe_clusters();
            start_sums();
            Four change = all(0.0);
            for (int64_t y = 0; y < mixture_.n_classes; y += block) {
                const int64_t end = y + block < mixture_.n_classes ? y + block : mixture_.n_classes;
                for (int64_t at = y; at < end; at += four) {
                    change = larger(change, improve(at / four));
                }
                add(y, end);  // while they are in the cache
            }
            double largest = change[0];
            for (int64_t l = 1; l < four; ++l) largest = change[l] > largest ? change[l] : largest;
            if (largest < mixture_.tolerance) return;
        }
    }

    void write(double* weights) {
        for (int64_t y = 0; y < mixture_.n_classes; ++y) {
            for (int64_t m = 0; m < n_clusters_; ++m) weights[y * n_clusters_ + m] = *weight_of(y, m);
        }
    }

   private:
    static constexpr int64_t chunk = 16, block = 64;

    double* weight_of(int64_t y, int64_t m) {
        return weights_.data() + (y / four * n_clusters_ + m) * four + y % four;
    }

    void start_sums() {
        for (int64_t m = 0; m < n_clusters_; ++m) sizes_[m] = 0.0;
        for (int64_t i = 0; i < n_clusters_ * width_; ++i) masses_[i] = 0.0;
    }

    // Adds classes to the clusters by their weights.
    void add(int64_t begin, int64_t end) {
        for (int64_t m = 0; m < n_clusters_; ++m) {
            double size = sizes_[m];
            for (int64_t y = begin; y < end; ++y) size += *weight_of(y, m);
            sizes_[m] = size;
            for (int64_t b = 0; b < width_; b += chunk) {
                double* const mass = masses_.data() + m * width_ + b;
                Four first = load_four(mass), second = load_four(mass + 4);
                Four third = load_four(mass + 8), fourth = load_four(mass + 12);
                for (int64_t y = begin; y < end; ++y) {
                    const Four weight = all(*weight_of(y, m));
                    const double* const counts = by_bin_.data() + y * width_ + b;
                    first += weight * load_four(counts);
                    second += weight * load_four(counts + 4);
                    third += weight * load_four(counts + 8);
                    fourth += weight * load_four(counts + 12);
                }
                store_four(first, mass);
                store_four(second, mass + 4);
                store_four(third, mass + 8);
                store_four(fourth, mass + 12);
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

    // New weights of four classes; returns their largest changes.
    Four improve(int64_t group) {
        const double* const counts = by_class_.data() + group * n_bins_ * four;
        double* const weights = weights_.data() + group * n_clusters_ * four;
        double* const improved = improved_.data();
        Four top = all(-HUGE_VAL), total = all(0.0), change = all(0.0);
        int64_t m = 0;
        for (; m + four <= n_clusters_; m += four) {  // an addition waits for the one before
            const double* const shape = log_shapes_.data() + m * n_bins_;
            Four sums[four];
            for (int64_t i = 0; i < four; ++i) sums[i] = all(log_sizes_[m + i]);
            for (int64_t b = 0; b < n_bins_; ++b) {
                const Four count = load_four(counts + b * four);
                for (int64_t i = 0; i < four; ++i) sums[i] += count * shape[i * n_bins_ + b];
            }
            for (int64_t i = 0; i < four; ++i) {
                top = larger(sums[i], top);
                store_four(sums[i], improved + (m + i) * four);
            }
        }
        for (; m < n_clusters_; ++m) {
            const double* const shape = log_shapes_.data() + m * n_bins_;
            Four sum = all(log_sizes_[m]);
            for (int64_t b = 0; b < n_bins_; ++b) sum += load_four(counts + b * four) * shape[b];
            top = larger(sum, top);
            store_four(sum, improved + m * four);
        }
        for (m = 0; m < n_clusters_; ++m) {
            const Four value = exp_nonpositive(load_four(improved + m * four) - top);
            total += value;
            store_four(value, improved + m * four);
        }
        const int64_t n_missing = (group + 1) * four - mixture_.n_classes;
        for (m = 0; m < n_clusters_; ++m) {
            Four share = load_four(improved + m * four) / total;
            for (int64_t l = four - n_missing; l < four; ++l) share[l] = 0.0;
            change = larger(change, magnitude(share - load_four(weights + m * four)));
            store_four(share, weights + m * four);
        }
        return change;
    }

    const SoftClusters& mixture_;
    const int64_t n_clusters_;
    const int64_t n_bins_;
    const int64_t width_;
    const int64_t n_groups_;
    Buffer<double> by_class_;  // (groups, bins, four)
    Buffer<double> by_bin_;    // (classes, width)
    Buffer<double> weights_;   // (groups, clusters, four)
    Buffer<double> improved_;  // (clusters, four)
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
