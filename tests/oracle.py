"""The paper, transcribed naively: loops, sorting, exact fractions, one row at a time.

It shares nothing with the package. What chance decides (one uniform per row, the D1/D2 order, the
k-means labels) is handed in; everything else is computed here the slow way, from the paper and
from the numbered decisions in docs/architecture.md ("decision" below).
"""

import math
import struct
from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

INFINITY = float("inf")
SCALE = 2**52


def fixed_point(probability):
    """Decision 2: p scaled by 2**52 (exact) and rounded once, as a whole number."""
    return round(float(probability) * SCALE)


WORD, DOUBLE_WORD = 2**32, 2**64


def float32_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def row_content(row):
    return content_of_doubles(np.asarray(row, dtype=np.float64).tobytes())


@lru_cache(maxsize=4096)  # of bytes: 0 and -0 differ; tests ask for the same rows again and again
def content_of_doubles(row):
    """Products of neighboring columns' float32 bits, shifted by the column, and what is left."""
    words, rest = [], 0
    for column, value in enumerate(np.frombuffer(row).tolist()):
        near = float(np.float32(value))
        words.append((float32_bits(near) + (column + 1) * 0x9E3779B1) % WORD)
        left = value - near if math.isfinite(near) else 0.0
        (left_bits,) = struct.unpack("<Q", struct.pack("<d", left))
        rest += left_bits * (2 * column + 1) * 0x9E3779B97F4A7C15
    if len(words) % 2:
        words.append(0x9E3779B1)
    pairs = zip(words[::2], words[1::2], strict=True)
    return (sum(a * b for a, b in pairs) + rest) % DOUBLE_WORD


def mixed(x):
    """SplitMix64's finaliser."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % DOUBLE_WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % DOUBLE_WORD
    return x ^ (x >> 31)


def row_keys(rows, first=0):
    """A mix of each row's content and its place."""
    return [
        mixed((mixed(row_content(row)) + place) % DOUBLE_WORD)
        for place, row in enumerate(rows, start=first)
    ]


def decreasing_order(row):
    """Classes by decreasing probability, equal ones by class index (decision 3)."""
    return sorted(range(len(row)), key=lambda y: (-row[y], y))


def score_row(name, row, u=1.0, penalty=0.01, k_reg=5):
    """Every class's score in one row. Not randomized is u = 1: the class's whole own mass."""
    row = [float(p) for p in row]
    if name == "softmax":
        return [1.0 - p for p in row]
    if name == "saps":
        return saps_row(row, float(u))
    scores, ahead = [0.0] * len(row), 0
    for rank, y in enumerate(decreasing_order(row), start=1):
        scores[y] = ahead / SCALE + float(u) * row[y]
        if name == "raps":
            scores[y] += penalty * max(0, rank - k_reg)
        ahead += fixed_point(row[y])
    return scores


def saps_row(row, u, penalty=0.2):
    """Huang et al. 2024: u p_max for the first, p_max + lambda (rank - 2 + u) for the others."""
    scores = [0.0] * len(row)
    order = decreasing_order(row)
    top = row[order[0]]
    for rank, y in enumerate(order, start=1):
        scores[y] = u * top if rank == 1 else top + penalty * (rank - 2 + u)
    return scores


def pas_row(row, prevalence):
    """Ding, Fermanian, Salmon 2025: -p / prevalence, p rounded as 1 - p rounds it."""
    return [-(1.0 - (1.0 - float(p))) / n for p, n in zip(row, prevalence, strict=True)]


def exact_score(name, row, label, u=1, penalty=Fraction(1, 100), k_reg=5):
    """The paper's formula for one class in exact arithmetic, without any rounding at all."""
    row = [Fraction(float(p)) for p in row]
    if name == "softmax":
        return 1 - row[label]
    order = decreasing_order(row)
    rank = order.index(label) + 1
    if name == "saps":
        u, top = Fraction(float(u)), row[order[0]]
        return u * top if rank == 1 else top + Fraction(1, 5) * (rank - 2 + u)
    score = sum((row[y] for y in order[: rank - 1]), Fraction(0)) + Fraction(float(u)) * row[label]
    return score + (max(0, penalty * (rank - k_reg)) if name == "raps" else 0)


def score_matrix(name, rows, uniforms=None, **parameters):
    uniforms = [1] * len(rows) if uniforms is None else list(uniforms)
    return [score_row(name, row, u, **parameters) for row, u in zip(rows, uniforms, strict=True)]


def true_scores(matrix, labels):
    return [row[label] for row, label in zip(matrix, labels, strict=True)]


def rank(n, alpha):
    """ceil((n + 1)(1 - alpha)), with alpha the fraction that the user meant."""
    return math.ceil((n + 1) * (1 - Fraction(alpha)))


def quantile(level, scores):
    """The smallest a in A such that a `level` fraction of A is <= a; infinite beyond 1."""
    if level > 1:
        return INFINITY
    ascending, needed = sorted(scores), math.ceil(level * len(scores))
    for a in ascending:
        if bisect_right(ascending, a) >= needed:
            return a
    raise AssertionError("no quantile")


def conformal_quantile(scores, alpha, less=0):
    """q-hat, or with `less` = 1 the q-tilde of the appendix; rank 0 is -inf (decision 6)."""
    n, k = len(scores), rank(len(scores), alpha) - less
    if k == 0:
        return -INFINITY
    if n == 0 or k > n:
        return INFINITY
    return quantile(Fraction(k, n), scores)


def exact_pair(scores, alpha):
    """(q-hat, q-tilde, probability of q-hat) of "Auxiliary randomization"."""
    n, level = len(scores), 1 - Fraction(alpha)
    b = Fraction(rank(n, alpha), n + 1) - level
    c = level - Fraction(rank(n, alpha) - 1, n + 1)
    return conformal_quantile(scores, alpha), conformal_quantile(scores, alpha, 1), c / (b + c)


def standard_groups(scores, labels, n_classes):
    return [list(scores)] * n_classes


def classwise_groups(scores, labels, n_classes):
    groups = [[] for _ in range(n_classes)]
    for s, y in zip(scores, labels, strict=True):
        groups[y].append(s)
    return groups


def clustered_groups(scores, labels, n_classes, cluster_of_class):
    """Scores of D2 by cluster; a null class (-1) is compared with all of D2."""
    pools = {}
    for s, y in zip(scores, labels, strict=True):
        pools.setdefault(cluster_of_class[y], []).append(s)
    everything = list(scores)
    return [everything if m == -1 else pools.get(m, []) for m in cluster_of_class]


def thresholds(groups, alpha):
    pools = {id(g): g for g in groups}  # classes that share a pool share its quantile
    limits = {key: conformal_quantile(g, alpha) for key, g in pools.items()}
    return [limits[id(g)] for g in groups]


def prediction_sets(matrix, groups, alpha):
    limits = thresholds(groups, alpha)
    return [[y for y, q in enumerate(limits) if row[y] <= q] for row in matrix]


def exact_prediction_sets(matrix, groups, alpha, uniforms):
    """One uniform per row; each class's group has its own coin probability (decision 6)."""
    pairs = {key: exact_pair(g, alpha) for key, g in {id(g): g for g in groups}.items()}
    sets = []
    for row, u in zip(matrix, uniforms, strict=True):
        coin = Fraction(float(u))
        limit = {g: upper if coin < chance else low for g, (upper, low, chance) in pairs.items()}
        sets.append([y for y, g in enumerate(groups) if row[y] <= limit[id(g)]])
    return sets


def p_values_of(predictor, rows, **options):
    """Return a predictor's p-values in full; None for a method that has none."""
    if predictor.method in ("interpolated", "rc3p"):
        return None
    p = predictor.predict_p(rows, **options)
    return p.toarray() if hasattr(p, "toarray") else p


def ascending(sets):
    """Each row's classes by their index: predictors list the most probable first."""
    return [sorted(members) for members in sets.to_lists()]


def with_top_class(sets, rows):
    """keep_top=True: every set contains the most probable class."""
    return [
        sorted({*members, max(range(len(row)), key=lambda y: (float(row[y]), -y))})
        for members, row in zip(sets, rows, strict=True)
    ]


def p_values(matrix, groups):
    """(1 + #{group scores >= s}) / (n + 1), as fractions."""
    ascending = {key: sorted(g) for key, g in {id(g): g for g in groups}.items()}
    return [
        [
            Fraction(1 + len(g) - bisect_left(ascending[id(g)], s), len(g) + 1)
            for s, g in zip(row, groups, strict=True)
        ]
        for row in matrix
    ]


def interpolated_thresholds(scores, labels, n_classes, alpha, tau, largest):
    """Interp-Q; an infinite threshold counts as the maximum if something finite is mixed in."""
    common = conformal_quantile(scores, alpha)
    result = []
    for own_scores in classwise_groups(scores, labels, n_classes):
        parts = [(tau, conformal_quantile(own_scores, alpha)), (1 - tau, common)]
        parts = [(weight, q) for weight, q in parts if weight > 0]
        if all(q == INFINITY for _, q in parts):
            result.append(INFINITY)
        else:
            result.append(sum(weight * (largest if q == INFINITY else q) for weight, q in parts))
    return result


def rc3p_limits(scores, ranks, labels, n_classes, alpha):
    """(q_y, k_y): the smallest k with top-k error below alpha, and the level that is left."""
    alpha = Fraction(alpha)
    own_ranks = classwise_groups(ranks, labels, n_classes)
    result = []
    for own, seen in zip(classwise_groups(scores, labels, n_classes), own_ranks, strict=True):
        if not own:
            result.append((INFINITY, n_classes))
            continue
        for k in range(1, n_classes + 1):
            error = Fraction(sum(r > k for r in seen), len(seen))
            if error < alpha:
                break
        result.append((conformal_quantile(own, alpha - error), k))
    return result


def macro_weights(labels, n_classes):
    counts = class_counts(labels, n_classes)
    n_seen = sum(n > 0 for n in counts)
    return [Fraction(1, n_seen * counts[y]) for y in labels]


def macro_threshold(scores, labels, n_classes, alpha):
    """The smallest score up to which the weights reach 1 - (alpha - max weight)."""
    weights = macro_weights(labels, n_classes)
    level, reached = 1 - (Fraction(alpha) - max(weights)), 0
    for q in sorted(set(scores)):
        reached += sum(w for s, w in zip(scores, weights, strict=True) if s == q)
        if reached >= level:
            return q
    return INFINITY


def fuzzy_limits(scores, labels, n_classes, bandwidth, alpha):
    """Quantile at 1 - alpha of all scores, by a Gaussian kernel on the classes' places by size."""
    counts = class_counts(labels, n_classes)
    order = sorted(range(n_classes), key=lambda y: (counts[y], y))
    place = [order.index(y) / n_classes for y in range(n_classes)]
    result = []
    for y in range(n_classes):
        width = bandwidth / math.sqrt(counts[y] + 1)
        weight = [math.exp(-0.5 * ((place[y] - place[z]) / width) ** 2) for z in range(n_classes)]
        rows = sorted((s, weight[z]) for s, z in zip(scores, labels, strict=True))
        aim = float(1 - Fraction(alpha)) * (sum(w for _, w in rows) + 1)
        running, limit = 0.0, INFINITY
        for s, w in rows:
            running += w
            if running >= aim * (1 - 1e-12):
                limit = s
                break
        result.append(limit)
    return result


def class_counts(labels, n_classes):
    return [len(group) for group in classwise_groups(labels, labels, n_classes)]


def clustering_parameters(labels, n_classes, alpha, gamma=None, n_clusters=None):
    """The paper's gamma = K / (75 + K) and M = floor(gamma n~ / 2); a given one is kept."""
    counts = class_counts(labels, n_classes)
    n_tilde = max(Fraction(min(counts)), 1 / Fraction(alpha) - 1)
    k = sum(c >= n_tilde for c in counts)
    if gamma is None:
        gamma = Fraction(k, 75 + k)
    if n_clusters is None:
        n_clusters = math.floor(Fraction(gamma) * n_tilde / 2)
    return gamma, n_clusters


def split(order, gamma):
    """Exactly floor(gamma N) rows to D1, the first ones of a random order of the rows."""
    n_first = math.floor(Fraction(gamma) * len(order))
    return sorted(order[:n_first]), sorted(order[n_first:])


def embedding(scores, labels, n_classes, alpha):
    """Quantiles of each class of D1: (classes, z, weights); a rare class is left out (null)."""
    alpha = Fraction(alpha)
    taus = sorted({Fraction(t, 10) for t in (5, 6, 7, 8, 9)} | {1 - alpha})
    enough = 1 / min(alpha, Fraction(1, 10)) - 1
    classes, z, weights = [], [], []
    for c, own in enumerate(classwise_groups(scores, labels, n_classes)):
        if len(own) < enough:
            continue
        levels = [Fraction(math.ceil((len(own) + 1) * tau), len(own)) for tau in taus]
        classes.append(c)
        z.append([quantile(level, own) for level in levels])
        weights.append(math.sqrt(len(own)))
    return classes, z, weights


def can_cluster(n_clusters, n_clusterable):
    """Decision 5: otherwise the method is STANDARD on all calibration rows."""
    return n_clusters >= 2 and n_clusterable > n_clusters


def weighted_inertia(z, weights, assignment):
    """What k-means minimises, with the centroids that belong to the assignment."""
    total = 0.0
    for m in set(assignment):
        mine = [i for i, a in enumerate(assignment) if a == m]
        mass = sum(weights[i] for i in mine)
        centre = [sum(weights[i] * z[i][d] for i in mine) / mass for d in range(len(z[0]))]
        total += sum(
            weights[i] * sum((a - b) ** 2 for a, b in zip(z[i], centre, strict=True)) for i in mine
        )
    return total


# Metrics (section 3.2 and appendix); classes without validation rows are left out (decision 7) ----


def class_coverage(sets, labels, n_classes):
    """The fraction covered of each class; None where there is no validation row."""
    hits, counts = [0] * n_classes, [0] * n_classes
    for members, y in zip(sets, labels, strict=True):
        counts[y] += 1
        hits[y] += y in members
    return [Fraction(h, n) if n else None for h, n in zip(hits, counts, strict=True)]


def metrics(sets, labels, n_classes, alpha):
    level = 1 - Fraction(alpha)
    coverage = [c for c in class_coverage(sets, labels, n_classes) if c is not None]
    gaps = [c - level for c in coverage]
    return {
        "marginal_coverage": Fraction(
            sum(y in m for m, y in zip(sets, labels, strict=True)), len(sets)
        ),
        "macro_coverage": sum(coverage) / len(coverage),
        "covgap": 100 * sum(abs(g) for g in gaps) / len(gaps),
        "frac_undercovered": Fraction(
            sum(c <= level - Fraction(1, 10) for c in coverage), len(coverage)
        ),
        "frac_below_half": Fraction(sum(c < Fraction(1, 2) for c in coverage), len(coverage)),
        "avg_size": Fraction(sum(len(m) for m in sets), len(sets)),
        "n_classes_evaluated": len(coverage),
    }


def mean_absolute_deviation(n, level):
    """E |B/n - level| for B ~ Binomial(n, level), summed over the whole pmf."""
    level = Fraction(level)
    return sum(
        math.comb(n, b) * level**b * (1 - level) ** (n - b) * abs(Fraction(b, n) - level)
        for b in range(n + 1)
    )


def noise_floor(labels, n_classes, alpha):
    """The CovGap of a method whose every class is covered with exactly 1 - alpha."""
    counts = [n for n in class_counts(labels, n_classes) if n]
    seen = {n: mean_absolute_deviation(n, 1 - Fraction(alpha)) for n in set(counts)}
    return 100 * sum(seen[n] for n in counts) / len(counts)


def confident_rank(n, alpha, confidence):
    """The smallest k with P(Binomial(n, 1 - alpha) >= k) <= 1 - confidence, in fractions."""
    chances = [math.comb(n, j) * (1 - alpha) ** j * alpha ** (n - j) for j in range(n + 1)]
    return next(k for k in range(n + 2) if sum(chances[k:]) <= 1 - confidence)


def guard_rank(n, alpha, risk=Fraction(1, 10)):
    """The largest k with P(Binomial(n, 1 - alpha) < k) <= 0.1, in fractions."""
    alpha = Fraction(alpha)
    chances = [math.comb(n, j) * (1 - alpha) ** j * alpha ** (n - j) for j in range(n + 1)]
    return max(k for k in range(n + 1) if sum(chances[:k]) <= risk)


def normal_model(x, labels, n_classes, examples_per_class=None):
    """POOLED's mean and spread of each class: random effects with a line in log(1 + n).

    Below 1.5 examples per class, in all of the data, variance within classes is padded with rows
    of the pooled variance. The slope shrinks by four times its own variance. A class without rows
    counts as having as many as the rarest one.
    """
    own = classwise_groups(x, labels, n_classes)
    seen = [c for c in range(n_classes) if own[c]]
    mean = {c: sum(own[c]) / len(own[c]) for c in seen}
    squares = [sum((v - mean[c]) ** 2 for v in own[c]) if own[c] else 0.0 for c in range(n_classes)]
    missing = len(x) * max(1.5 / (examples_per_class or len(x) / len(seen)) - 1, 0)
    pooled_variance = sum((v - sum(x) / len(x)) ** 2 for v in x) / len(x)
    within = (sum(squares) + missing * pooled_variance) / (len(x) - len(seen) + missing)
    n = np.array([len(own[c]) for c in seen])
    m = np.array([mean[c] for c in seen])
    columns = [np.ones(len(seen)), *([np.log1p(n)] if np.ptp(n) else [])]
    design = np.stack(columns, axis=1)

    def line(between):
        root = 1 / np.sqrt(between + within / n)
        return np.linalg.lstsq(design * root[:, None], m * root, rcond=None)[0], root

    def excess(between):
        beta, root = line(between)
        return (((m - design @ beta) * root) ** 2).sum() - (len(seen) - design.shape[1])

    between = brentq(excess, 1e-9, 1e3) if excess(1e-9) > 0 else 0.0
    beta, root = line(between)
    slope = beta[1] if len(beta) > 1 else 0.0
    weights = root**2 / (root**2).sum()
    middle = weights @ np.log1p(n)
    height = beta[0] + slope * middle
    if slope:
        variance = np.linalg.inv((design * root[:, None] ** 2).T @ design)[1, 1]
        slope *= max(0.0, 1 - 4 * variance / slope**2)
    between = max(between, 1e-3)
    kappa, found = within / between, []
    for c in range(n_classes):
        n_own = len(own[c])
        expected = height + slope * (math.log1p(max(n_own, n.min())) - middle)
        mu = (n_own * mean.get(c, 0.0) + kappa * expected) / (n_own + kappa)
        variance = (40 * within + squares[c]) / (40 + max(n_own - 1, 0))
        found.append((mu, math.sqrt(variance * (1 + 1 / (n_own + kappa)))))
    return found


def pooled(scores, labels, folds, n_classes, alpha, guarded=True):
    """c, t and thresholds of POOLED; the scores are distinct and ascend."""
    n_rows = len(scores)
    x = norm.ppf((np.arange(n_rows) + 0.5) / n_rows)
    examples_per_class = n_rows / len(set(labels))

    def prior(model, c, below):
        (mu, sigma), u = model[c], below / n_rows
        return 0.9 * norm.cdf((norm.ppf(min(max(u, 1e-7), 1 - 1e-7)) - mu) / sigma) + 0.1 * u

    models = {}
    for f in set(folds):
        other = [i for i in range(n_rows) if folds[i] != f]
        models[f] = normal_model(x[other], labels[other], n_classes, examples_per_class)
    v = [prior(models[folds[i]], labels[i], i) for i in range(n_rows)]
    q = sorted(v)[math.ceil((1 - alpha) * n_rows) - 1]
    top = bottom = 0.0
    for c in range(n_classes):
        d = [(v[i] <= q) - (1 - alpha) for i in range(n_rows) if labels[i] == c]
        pairs = len(d) * (len(d) - 1)
        if pairs:
            squared_gap = sum(a * b for j, a in enumerate(d) for k, b in enumerate(d) if j != k)
            weight = pairs / (1 + pairs / 200)
            top, bottom = top + weight * squared_gap / pairs, bottom + weight
    strength = min(max(alpha * (1 - alpha) / (top / bottom) - 1, 5), 200) if top > 0 else 200

    def guard(n):
        return guard_rank(n, Fraction(str(alpha))) if guarded else 0

    levels = []
    for i in range(n_rows):
        own = [j for j in range(n_rows) if labels[j] == labels[i] and folds[j] != folds[i]]
        before = sum(j < i for j in own)
        level = (before + strength * v[i]) / (len(own) + strength)
        levels.append(-1 if before < guard(len(own)) else level)  # in the set, whatever t is
    t = sorted(levels)[math.ceil((n_rows + 1) * (1 - Fraction(str(alpha)))) - 1]
    model, limits = normal_model(x, labels, n_classes), []
    for c in range(n_classes):
        own = [j for j in range(n_rows) if labels[j] == c]
        within = [-INFINITY]
        for place, score in enumerate([*scores, INFINITY]):
            before = sum(j < place for j in own)
            if (before + strength * prior(model, c, place)) / (len(own) + strength) <= t:
                within.append(score)
        k = guard(len(own))
        limits.append(max(within[-1], scores[own[k - 1]] if k else -INFINITY))
    return strength, t, limits
