"""Compare cutoffs from a few reviews with today's practice, for docs/howto/cutoffs.md.

python scripts/cutoffs_study.py FILE.npz    writes docs/evidence/cutoffs.csv and cutoffs.md, and
                                            cutoffs_light.svg and cutoffs_dark.svg in docs/images

Predictions are the most probable classes of recorded outputs (see birds_study.py for FILE), and
their probabilities are the scores. Of each class with 40 predictions or more, n random ones are
reviewed, and all others measure what is kept.

Today's practice is that of BirdNET-Analyzer: a logistic regression of the reviews of a class on
its scores, and as cutoff the score at which it reaches the target. Where all reviews are right
there is no regression; then either the lowest reviewed score is the cutoff, or all is kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from birds_study import read
from evidence_output import write_pictures, write_table, write_text
from sklearn.linear_model import LogisticRegression

from evencover import fit_cutoffs
from evencover.data import load_filetypes, load_languages
from evencover.plotting import BLUE, ORANGE

N_SPLITS, LEAST = 10, 40
SETTINGS = ((0.9, 5), (0.9, 10), (0.9, 30), (0.95, 5), (0.95, 10))
PICTURE = ("birds", 0.9, 5)


class Predictions(NamedTuple):
    """Predicted classes (n,), their scores, and whether they are right."""

    classes: Any
    scores: Any
    is_right: Any

    @classmethod
    def of(cls, rows: Any, labels: Any) -> Predictions:
        """Take the most probable class of each row, of classes with enough predictions."""
        classes, scores = rows.argmax(axis=1), rows.max(axis=1).astype(np.float64)
        kept = np.bincount(classes)[classes] >= LEAST
        classes = np.unique(classes[kept], return_inverse=True)[1]
        return cls(classes, scores[kept], (rows.argmax(axis=1) == labels)[kept])

    def take(self, rows: Any) -> Predictions:
        """Return some of the predictions."""
        return Predictions(*(values[rows] for values in self))

    def split(self, n: int, seed: int) -> tuple[Predictions, Predictions]:
        """Return n random predictions of each class, and the others."""
        order = np.random.default_rng(seed).permutation(len(self.classes))
        order = order[np.argsort(self.classes[order], kind="stable")]
        counts = np.bincount(self.classes)
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.take(order[place < n]), self.take(order[place >= n])


def by_model(reviews: Predictions, accuracy: float) -> Any:
    """Return our cutoffs, in the order of the classes."""
    return fit_cutoffs(
        [f"{k:06}" for k in reviews.classes], *reviews[1:], accuracy=accuracy
    ).cutoffs


def by_regression(reviews: Predictions, accuracy: float, *, keep_all: bool = False) -> Any:
    """Return a cutoff for each class by itself."""
    cutoffs = np.full(reviews.classes.max() + 1, np.inf)
    for k in range(len(cutoffs)):
        _, scores, is_right = reviews.take(reviews.classes == k)
        if is_right.all():
            cutoffs[k] = -np.inf if keep_all else scores.min()
        elif is_right.any():
            model = LogisticRegression(C=55).fit(scores[:, None], is_right)  # as BirdNET-Analyzer
            slope, start = model.coef_[0, 0], model.intercept_[0]
            if slope > 0:
                cutoffs[k] = (np.log(accuracy / (1 - accuracy)) - start) / slope
    return cutoffs


def one_cutoff(reviews: Predictions, accuracy: float) -> Any:
    """Return the lowest cutoff at which the reviews of all classes together reach the target."""
    order = np.argsort(-reviews.scores)
    precision = np.cumsum(reviews.is_right[order]) / np.arange(1, len(order) + 1)
    reaches = np.flatnonzero(precision >= accuracy)
    cutoff = reviews.scores[order[reaches[-1]]] if len(reaches) else np.inf
    return np.full(reviews.classes.max() + 1, cutoff)


WAYS = {
    "evencover": by_model,
    "a regression per class": by_regression,
    "the same, keeping classes whose reviews are all right": (
        lambda reviews, accuracy: by_regression(reviews, accuracy, keep_all=True)
    ),
    "one cutoff for all": one_cutoff,
}


def measure(found: Predictions, accuracy: float, n: int) -> dict[str, Any]:
    """Count the tested, kept and right predictions of each class (3, K), for each way."""
    n_classes = found.classes.max() + 1
    counts = {way: np.zeros((3, n_classes)) for way in WAYS}
    for seed in range(N_SPLITS):
        reviews, tested = found.split(n, seed)
        for way, find in WAYS.items():
            kept = tested.scores >= find(reviews, accuracy)[tested.classes]
            for row, chosen in enumerate((kept | ~kept, kept, kept & tested.is_right)):
                counts[way][row] += np.bincount(tested.classes[chosen], minlength=n_classes)
    return counts


def overall(counts: Any) -> tuple[float, float]:
    """Return the share of predictions that is kept, and their precision."""
    n_tested, n_kept, n_right = counts.sum(axis=1)
    return n_kept / n_tested, n_right / n_kept


def draw(found: dict[str, Any], accuracy: float, ink: str) -> Any:
    """Draw the precision of each class against its kept share, in one panel per way."""
    ways = ["evencover", "a regression per class", "one cutoff for all"]
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 3), sharey=True, layout="constrained")
    for ax, way in zip(axes, ways, strict=True):
        n_tested, n_kept, n_right = found[way]
        some = n_kept > 0
        color = BLUE if way == "evencover" else ORANGE
        x, y = n_kept[some] / n_tested[some], n_right[some] / n_kept[some]
        ax.plot(100 * x, 100 * y, "o", color=color, markersize=3.5, alpha=0.6)
        ax.axhline(100 * accuracy, color=ink, linestyle="--", linewidth=1)
        share, precision = overall(found[way])
        ax.set_title(f"{way}\n{share:.0%} kept, {precision:.0%} right", fontsize=10, color=ink)
        ax.set(xlabel="kept share of a class, %", xlim=(-4, 104))
    axes[0].set_ylabel(f"precision, % (target: {accuracy:.0%})")
    return figure


def main() -> None:
    """Measure once, write the table, draw both themes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    data = {
        "birds": Predictions.of(*read(parser.parse_args().file)[:2]),
        "languages": Predictions.of(*load_languages()[:2]),
        "file types": Predictions.of(*load_filetypes()[:2]),
    }
    table = [("data", "target", "reviews per class", *WAYS)]
    for name, predictions in data.items():
        for accuracy, n in SETTINGS:
            found = measure(predictions, accuracy, n)
            cells = ["{:.1%} ({:.1%})".format(*overall(counts)) for counts in found.values()]
            table.append((name, f"{accuracy:.0%}", n, *cells))
            if (name, accuracy, n) == PICTURE:
                write_text("cutoffs.md", caption(found, accuracy, n))
                write_pictures("cutoffs", lambda ink, f=found, a=accuracy: draw(f, a, ink))
    write_table("cutoffs.csv", table)


def caption(found: dict[str, Any], accuracy: float, n: int) -> str:
    """State how many classes of the picture fall short by more than ten points."""
    low = {}
    for way, (_, n_kept, n_right) in found.items():
        low[way] = int((n_right < (accuracy - 0.1) * n_kept).sum())
    n_classes = found["evencover"].shape[1]
    counts = [low[way] for way in ("evencover", "a regression per class", "one cutoff for all")]
    return (
        f"Each dot is one of {n_classes} bird species, with {n} reviews; means over {N_SPLITS} "
        f"random choices of the reviews.\nPrecision is below {accuracy - 0.1:.0%} for {counts[0]} "
        f"species with evencover, for {counts[1]} with a regression per class, and for {counts[2]} "
        "with one cutoff."
    )


if __name__ == "__main__":
    main()
