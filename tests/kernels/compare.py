"""Ask both kernels the same question: equal types, shapes and bits, on every instruction set."""

import numpy as np
import pytest
from kernels.cases import KINDS, SCORES, draws_of, random_thresholds

from evencover._kernels import BadRow, Formula, KernelInput, ThresholdTable, reference

native = pytest.importorskip(
    "evencover._kernels.native", reason="the C++ kernels were not built", exc_type=ImportError
)
INSTRUCTION_SETS = native._native.instruction_sets()
PAIRS = [(native, instruction_set) for instruction_set in INSTRUCTION_SETS]


def ask(kernel, *arguments, logits=None, **options):
    """Call a kernel with rows, or with formula, rows and draws, if they are scored."""
    if isinstance(arguments[0], Formula):
        formula, rows, draws, *arguments = arguments
        arguments = [KernelInput(rows, formula, draws, logits), *arguments]
    elif logits is not None:
        arguments = [KernelInput(arguments[0], logits=logits), *arguments[1:]]
    return kernel(*arguments, **options)


def outcome(kernels, name, *arguments, **options):
    """What a kernel returns, as a list of arrays, or the bad row that it names."""
    try:
        result = ask(getattr(kernels, name), *arguments, **options)
    except BadRow as bad:
        return ["bad row", bad.row]
    return list(result) if isinstance(result, tuple) else [result]


def assert_same(ours, expected):
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def same_bits(name, *arguments, **options):
    """Compare one kernel with the reference, which is asked once; return its answer."""
    expected = outcome(reference, name, *arguments, **options)
    with pytest.MonkeyPatch.context() as patch:
        for instruction_set in INSTRUCTION_SETS:
            patch.setattr(native, "INSTRUCTION_SET", instruction_set)
            assert_same(outcome(native, name, *arguments, **options), expected)
    return expected


def all_same_bits(rng, rows, logits=False, scores=SCORES, kinds=KINDS):
    """Compare every kernel on the same rows."""
    n, k = rows.shape
    options = {"logits": logits}
    labels = rng.integers(0, k, size=n)
    thresholds = [random_thresholds(rng, k, kind) for kind in kinds]
    ranked = [each._replace(rank_limit=rng.integers(1, k + 1, size=k)) for each in thresholds]
    few = thresholds[len(thresholds) // 2]._replace(rank_limit=rng.integers(1, 4, size=k))
    same_bits("true_label_ranks", rows, labels, **options)
    same_bits("rank_matrix", rows, **options)
    for score in scores:
        draws = draws_of(rng, score, n, with_ids=bool(rng.integers(2)))
        given = (score.kernel, rows, draws)
        same_bits("true_label_scores", *given, labels, **options)
        same_bits("score_matrix", *given, **options)
        for each in [*thresholds, ranked[-1], few]:
            for keep_top in (True, False):
                more = {"keep_top": keep_top, **options}
                same_bits("prediction_sets", *given, each, **more)
                same_bits("set_coverage", *given, labels, each, **more)
        for vectors in [
            thresholds,
            [each for each in thresholds if each.lower is None],
            thresholds[:1],
            [*thresholds[:2], *ranked[-2:], thresholds[-1]],
            ranked[:2],
        ]:
            same_bits("set_sizes", *given, ThresholdTable(vectors), **options)
        _same_second_sets(given, [*thresholds, ranked[-1], few], thresholds, logits)
        _same_p_values(rng, given, options)


def _same_second_sets(given, firsts, seconds, logits):
    """Sets in one pass are those of two calls; the classes of second sets are in any order."""
    formula, rows, draws = given
    draws = draws._replace(first=0)
    for number, first in enumerate(firsts):
        second = seconds[(number + 1) % len(seconds)]
        names = ("prediction_sets", formula, rows, draws)
        expected = [
            outcome(reference, *names, each, keep_top=keep_top, logits=logits)
            for each, keep_top in ((first, True), (second, False))
        ]
        with pytest.MonkeyPatch.context() as patch:
            for kernels, instruction_set in [(reference, None), *PAIRS]:
                patch.setattr(native, "INSTRUCTION_SET", instruction_set)
                bare = KernelInput(None, formula, draws._replace(ids=None), logits)
                try:
                    found = kernels.ready_sets(bare, first, second, keep_top=True)(rows, draws.ids)
                except BadRow as error:
                    found = ["bad row", error.row]
                if isinstance(expected[0][0], str):
                    assert found == expected[0]
                    continue
                assert_same(found[:2], expected[0])
                assert_same(_sorted(*found[2:]), _sorted(*expected[1]))


def _sorted(starts, classes):
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return starts, classes[np.lexsort((classes, rows))]


def _same_p_values(rng, given, options):
    """Groups 0 to 2 have scores, group 3 is empty, and -1 is none."""
    formula, rows, draws = given
    groups = np.sort(rng.integers(0, 3, size=50))
    scores = np.round(rng.random(50), 2)
    scores = scores[np.lexsort((scores, groups))]
    offsets = np.searchsorted(groups, np.arange(5))
    group_of_class = rng.integers(-1, 4, size=rows.shape[1])
    for each in (draws, draws._replace(exact_use=None)):
        same_bits("p_values", formula, rows, each, scores, offsets, group_of_class, **options)
