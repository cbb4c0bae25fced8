"""Simulated data have the shape and class counts of their score file, however they are read."""

import numpy as np
import pytest
from depth import usual_sizes_only

from evencover import InputError, compare
from evencover.data import Source
from evencover.experiments.simulated import (
    CENTRE_LIMIT,
    CENTRE_STEP,
    EXTRA_SLOT,
    POINT_LIMIT,
    POINT_STEP,
    SIMULATED,
    class_counts,
    load_simulated,
)

NAMES = list(SIMULATED)
# Rows, classes, share of the rarest 5% of the classes relative to 5%, and normalised entropy of the
# class counts of the authors' score files.
PUBLISHED = {
    "imagenet": (1_153_051, 1000, 0.7905, 0.99975),
    "cifar-100": (30_000, 100, 0.904, 0.99978),
    "places365": (183_996, 365, 0.7687, 0.99957),
    "inaturalist": (1_324_900, 633, 0.1214, 0.85962),
}


def read(simulated_source: Source) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(simulated_source.blocks())
    return np.concatenate([b.rows for b in blocks]), np.concatenate([b.labels for b in blocks])


@pytest.mark.parametrize("name", NAMES)
def test_counts_follow_the_published_quantiles(name: str) -> None:
    n_rows, n_classes, rarest_share, entropy = PUBLISHED[name]
    counts = class_counts(SIMULATED[name])
    assert (len(counts), counts.sum()) == (n_classes, n_rows)
    least, *inner, most = SIMULATED[name].count_quantiles
    assert (counts.min(), counts.max()) == (least, most)
    np.testing.assert_allclose(np.quantile(counts, [0.25, 0.5, 0.75, 0.9]), inner, rtol=0.005)
    rarest = np.sort(counts)[: n_classes // 20].sum() / (0.05 * n_rows)
    assert rarest == pytest.approx(rarest_share, abs=0.002)
    share = counts / counts.sum()
    assert -(share @ np.log(share)) / np.log(n_classes) == pytest.approx(entropy, abs=0.006)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_probabilities_that_know_something_about_the_label(name: str) -> None:
    rows, labels = read(load_simulated(name, scale=0.02))
    assert rows.dtype == np.float32
    assert rows.min() >= 0
    np.testing.assert_allclose(rows.sum(axis=1, dtype=np.float64), 1, rtol=0, atol=1e-5)
    right = rows.argmax(axis=1) == labels
    assert 0.4 < right.mean() < 1


def test_same_bytes_with_one_thread_and_one_row_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = read(load_simulated("cifar-100", scale=0.3))
    monkeypatch.setenv("EVENCOVER_THREADS", "1")
    again = load_simulated("cifar-100", scale=0.3)
    assert read(again)[0].tobytes() == rows.tobytes()
    np.testing.assert_array_equal(again.labels, labels)
    for row in (0, 17, 8999):
        assert again.reader.rows(row, row + 1).tobytes() == rows[row].tobytes()


@pytest.mark.parametrize(("name", "scale"), [("cifar-100", 0.03), ("inaturalist", 0.2)])
def test_scale_keeps_rows_per_class_and_imbalance(name: str, scale: float) -> None:
    n_rows, n_classes, *_ = PUBLISHED[name]
    wanted = max(10, round(scale * n_classes))
    small = load_simulated(name, scale=scale)
    assert small.n_classes == wanted
    assert small.n_rows == pytest.approx(n_rows * wanted / n_classes, abs=1)
    counts, full = np.bincount(small.labels), class_counts(SIMULATED[name])
    assert len(counts) == wanted
    assert np.median(counts) == pytest.approx(np.median(full), rel=0.15)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("imagnet", {}),
        ("random_state", {"random_state": -1}),
        *(("scale", {"scale": scale}) for scale in (0, -1, 1.5, float("nan"), "half", True)),
    ],
)
def test_bad_parameters_are_named(name: str, wrong: dict) -> None:
    with pytest.raises(InputError, match=f"'{name}'"):
        load_simulated("cifar-100" if wrong else name, **wrong)


@pytest.mark.parametrize("name", NAMES)
def test_products_of_the_latent_space_are_exact_in_float32(name: str) -> None:
    largest = (POINT_LIMIT / POINT_STEP) * (CENTRE_LIMIT / CENTRE_STEP) * SIMULATED[name].dimensions
    assert largest <= 2**24
    assert SIMULATED[name].dimensions <= EXTRA_SLOT


@usual_sizes_only
def test_simulated_cifar_behaves_as_published() -> None:
    # Ding et al. (2023), Table 2, n_avg = 50, softmax: CovGap and AvgSize.
    published = {"standard": (4.1, 7.9), "classwise": (3.8, 11.9), "clustered": (2.9, 9.3)}
    comparison = compare(
        load_simulated("cifar-100"),
        methods=list(published),
        scores=["softmax"],
        n_splits=5,
        calibration_sizes=50 * 100 / 30_000,
    )
    for candidate in comparison.candidates:
        covgap, avg_size = published[candidate.method]
        assert candidate.mean("covgap") == pytest.approx(covgap, abs=0.6)
        assert candidate.mean("avg_size") == pytest.approx(avg_size, rel=0.2)
    assert comparison.best.method == "clustered"
