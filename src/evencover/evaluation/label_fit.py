"""Test whether labels belong to their rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray

LEAST_TESTED = 50
# Labels fit if random ones would fit as well with probability 1e-6; see `label_fit`.
SURELY_FIT = 4.75
LEAST_EXPECTED, LEAST_SHARE = 16.0, 1 / 8
MOST_STEPS, STILL = 100, 1e-3  # of the iteration for expected labels


class LabelFit(NamedTuple):
    """How well labels fit their rows, in a sample; see `label_fit`.

    ``excess`` and ``expected_excess`` count standard deviations above permuted labels: of these
    labels, and of labels drawn from the rows' probabilities. ``recoded_accuracy`` is that of labels
    renamed one by one as they fit best, if it is far above the accuracy. ``is_mismatch`` states
    whether they fit like permuted or renamed ones, which the rows rule out.
    """

    accuracy: float
    permuted_accuracy: float
    excess: float
    expected_excess: float
    recoded_accuracy: float | None
    is_mismatch: bool

    def sentence(self, matching: str) -> str:
        """Return the warning; `matching` states how labels were matched to rows."""
        start = f"Accuracy is {self.accuracy:.1%}"
        if self.recoded_accuracy is not None:
            return (
                f"{start}, and {self.recoded_accuracy:.1%} if labels are renamed: labels and "
                f"probabilities have the classes in different orders; {matching}."
            )
        return (
            f"{start}, {self.permuted_accuracy:.1%} with permuted labels: rows and labels do not "
            f"belong together; {matching}."
        )


def label_fit(
    rows: Array,
    labels: IntArray,
    *,
    top: IntArray | None = None,
    stride: int = 1,
    logits: bool = False,
) -> LabelFit | None:
    """Test whether labels (n,) fit their rows (n, K) better than permuted labels.

    The rows are in random order. Rows of many classes may have the numbers of every `stride`-th
    class only, if their labels are among these and `top` (n,) has the most probable class of all.

    Every row ranks the labels of all rows by their numbers, which works for probabilities and
    logits alike. If a share u of them is below the row's own label (ties count half), the label
    scores -log(1 - u), which has mean 1 and variance 1 for labels that have nothing to do with the
    row. The sum of the scores is compared with its mean and variance over all permutations of the
    labels (Hoeffding 1951), so frequent labels gain nothing. The difference, in standard
    deviations, is the `excess`.

    A small excess alone is no fault: the model may be weak. So it is compared with the excess that
    the model itself implies, for labels drawn from its probabilities, each as often as it occurs
    here (the probabilities are scaled to these sums, Sinkhorn 1967). Labels are a mismatch if that
    is at least 16, but the excess is below an eighth of it and below 4.75 (1e-6). Permuted labels
    are missed with probability 0.02 at an expected excess of 16, 0.001 at 24 and 1e-6 at 38. Labels
    of a model with only a quarter of the excess that it claims, such as 61% right and 95% claimed
    of two equal classes, are mistaken for a mismatch with the same probabilities. Perfect
    probabilities reach 16 with 50 rows of 10 classes or more, and with 260 rows of two.

    A second test finds labels that count classes in another order, of which some may coincide: one
    half of the rows yields the best renaming, one label to one class, and with it the other half
    must have more than twice as many hits, significantly at 1e-6.

    Return None for fewer than 50 rows, or one label only: a constant cannot be tested.
    """
    present, label_index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(labels) < LEAST_TESTED or len(present) < 2:
        return None
    top = rows.argmax(axis=1) if top is None else top
    hits, of_labels = float((top == labels).mean()), counts / len(labels)
    of_top = np.bincount(top, minlength=int(present[-1]) + 1)[present] / len(labels)
    recoded = None if hits > 0.5 else _recoded_accuracy(top, labels)
    accuracy = (hits, float(of_labels @ of_top))
    for n_rows in (LEAST_TESTED, 8 * LEAST_TESTED):  # that suffice for most models
        excess = _least_excess(rows[:n_rows], labels[:n_rows] // stride)
        if excess > SURELY_FIT:
            return LabelFit(*accuracy, excess, excess, recoded, recoded is not None)
    numbers = rows[:, present // stride].astype(np.float64)
    scores = -np.log1p(-_shares_below(numbers, of_labels))
    centered = scores - scores.mean(axis=0)
    centered -= (centered @ of_labels)[:, None]
    spread = float(np.sqrt((centered**2 @ counts).sum() / (len(labels) - 1)))
    if not spread:
        return None
    expected = _expected_labels(numbers, counts, logits=logits)
    centered /= spread
    excess = float(centered[np.arange(len(labels)), label_index].sum())
    expected_excess = float((expected * centered).sum())
    least = min(SURELY_FIT, LEAST_SHARE * expected_excess)
    is_random = expected_excess >= LEAST_EXPECTED and excess < least
    return LabelFit(*accuracy, excess, expected_excess, recoded, is_random or recoded is not None)


def _least_excess(rows: Array, labels: IntArray) -> float:
    """Return a lower bound of the excess in one pass: mean and variance are at most 1 and 2."""
    present, label_index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    numbers = rows[:, present]
    of_label = numbers[np.arange(len(labels)), label_index][:, None]
    below = ((numbers < of_label) + 0.5 * (numbers == of_label)) @ (counts / len(labels))
    return float((-np.log1p(-below) - 1).sum() / np.sqrt(2 * len(labels)))


def _shares_below(numbers: FloatArray, of_labels: FloatArray) -> FloatArray:
    """Return the share of labels below each label in its row (n, D); ties count half."""
    order = np.argsort(numbers, axis=1)
    ordered, upto = np.take_along_axis(numbers, order, 1), np.cumsum(of_labels[order], axis=1)
    is_last = np.append(ordered[:, 1:] != ordered[:, :-1], np.ones((len(order), 1), bool), axis=1)
    # The shares up to the end of a run of ties, and up to the end of the run before.
    end = np.where(is_last, upto, np.inf)
    end = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    start = np.where(is_last, upto, 0.0)
    start = np.append(np.zeros((len(order), 1)), start[:, :-1], axis=1)
    start = np.maximum.accumulate(start, axis=1)
    shares = np.empty_like(numbers)
    np.put_along_axis(shares, order, (start + end) / 2, 1)
    return shares


def _expected_labels(numbers: FloatArray, counts: IntArray, *, logits: bool) -> FloatArray:
    """Scale the rows' probabilities (n, D) to one label per row and `counts` rows per label."""
    if logits:
        numbers = np.exp(numbers - numbers.max(axis=1, keepdims=True))
    expected = np.maximum(numbers, 1e-12)
    for _ in range(MOST_STEPS):
        expected = expected * (counts / expected.sum(axis=0))
        sums = expected.sum(axis=1, keepdims=True)
        expected /= sums
        if np.abs(sums - 1).max() < STILL:
            break
    return expected


def _recoded_accuracy(top: IntArray, labels: IntArray) -> float | None:
    """Return the accuracy of renamed labels, if renaming is what they need; see `label_fit`."""
    half = len(labels) // 2
    pairs, counts = np.unique(np.stack([labels[:half], top[:half]]), axis=1, return_counts=True)
    names: dict[int, int] = {}
    taken: set[int] = set()
    for label, predicted in pairs[:, np.argsort(-counts, kind="stable")].T.tolist():
        if label not in names and predicted not in taken:
            names[label] = predicted
            taken.add(predicted)
    # A label may be larger than any of the first half.
    new_names = np.full(int(labels.max()) + 1, -1)
    new_names[list(names)] = list(names.values())
    renamed = new_names[labels[half:]]
    before, after = top[half:] == labels[half:], top[half:] == renamed
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    is_significant = gained - lost > SURELY_FIT * np.sqrt(max(gained + lost, 1))
    return float(after.mean()) if is_significant and after.sum() > 2 * before.sum() else None
