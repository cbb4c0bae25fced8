"""What all tests share: the oracle on the path, and simulated outputs of a many-class model."""

import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))

from depth import IS_DEEP, examples  # noqa: E402  (it is found on the path)

# The same examples in every run of the short form; a failure of the deep form prints how to repeat
# it. No database in the work tree, and a busy machine is no failure.
settings.register_profile(
    "depth",
    max_examples=examples(20),
    derandomize=not IS_DEEP,
    print_blob=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("depth")

MARKED = ("browser", "cluster", "statistical")  # folders whose tests carry their name as a mark
SHARING = ("tests/browser", "tests/cluster")  # what they start takes seconds: it is started once
# Their tests share nothing, so each goes to the next free worker; a file would take minutes.
APART = (
    *("tests/statistical/", "tests/kernels/test_native.py"),
    *("tests/test_sizes.py", "tests/attacks/test_sanitizers.py"),
)
LONGEST = (
    "test_sanitizers.py test_sizes.py test_emulated.py test_kills.py test_states.py cluster "
    "browser predictors kernels docs serving experiments cli statistical inference attacks report"
)


def pytest_collection_modifyitems(items):
    """Mark by folder, and begin with what takes long."""
    for item in items:
        if folder_of(item) in MARKED:
            item.add_marker(folder_of(item))
    place = {name: number for number, name in enumerate(LONGEST.split())}

    def rank(item):
        return min(place.get(name, len(place)) for name in (item.path.name, folder_of(item)))

    items.sort(key=rank)


def folder_of(item):
    """The folder of a test below tests/, or its file if it is in none; "src" for doctests."""
    is_ours = item.path.is_relative_to(TESTS)
    return item.path.relative_to(TESTS).parts[0] if is_ours else "src"


@pytest.hookimpl(wrapper=True)
def pytest_report_teststatus(report):
    """Name a failed test when it fails: a run that is stopped prints no summary."""
    category, letter, word = yield
    return category, f"{letter} {report.nodeid}\n" if report.failed else letter, word


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker takes a file at a time, a folder that shares a browser or cluster, or a test."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            folder, _, _ = nodeid.partition("/test_")
            if folder in SHARING:
                return folder
            return nodeid if nodeid.startswith(APART) else super()._split_scope(nodeid)

    return Scheduling(config, log)


class Data(NamedTuple):
    rows: np.ndarray
    labels: np.ndarray


@pytest.fixture(scope="session")
def simulate():
    """Softmax outputs of a model that finds some classes easy and others hard.

    `long_tail` makes class sizes fall like a power of their rank and leaves a fifth of the classes
    empty. `ties` is None, "saturated" (one-hot up to rounding), "duplicated" (each row several
    times) or "quantised" (multiples of 1/64, which sum to 1 exactly).
    """

    def make(n_rows, n_classes, seed=0, *, long_tail=False, ties=None, dtype=np.float64):
        rng = np.random.default_rng([seed, n_rows, n_classes])
        weights = np.ones(n_classes)
        if long_tail:
            weights = (1 + np.arange(n_classes)) ** -1.0
            weights[-(-n_classes * 4 // 5) :] = 0
        labels = rng.choice(n_classes, n_rows, p=weights / weights.sum())
        logits = rng.normal(size=(n_rows, n_classes))
        difficulty = rng.permutation(np.linspace(0.5, 6, n_classes))
        logits[np.arange(n_rows), labels] += difficulty[labels] * rng.exponential(size=n_rows)
        if ties == "saturated":
            logits *= 40
        if ties == "duplicated":
            copied = rng.integers(0, max(1, n_rows // 4), n_rows)
            logits, labels = logits[copied], labels[copied]
        rows = np.exp(logits - logits.max(axis=1, keepdims=True))
        rows /= rows.sum(axis=1, keepdims=True)
        if ties == "quantised":
            rows = np.array([rng.multinomial(64, row) / 64 for row in rows])
        return Data(rows.astype(dtype), labels)

    return make


@pytest.fixture(scope="session")
def quietly():
    """Fit without evencover's own warnings (every other warning is still an error)."""

    def fit(predictor, *arguments, **named):
        from evencover import EvencoverWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvencoverWarning)
            return predictor.fit(*arguments, **named)

    return fit
