"""Figures show the numbers of the study."""

from copy import deepcopy

import numpy as np
import pytest

from evencover import InputError
from evencover.experiments import run
from evencover.experiments.figures import draw_classes, draw_curves, draw_heatmap, write_figures
from evencover.experiments.study import coverage_of


@pytest.fixture(scope="module")
def tuned(make_grid):
    return run(
        make_grid(
            scores=["softmax"], methods=["clustered"], exact=False, n_avg=[20, 40],
            gamma=[0.3, 0.6], n_clusters=[2, 3, 4],
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def small(make_grid):
    return run(make_grid(scores=["softmax"], n_avg=[20], repetitions=2))


@pytest.mark.parametrize("exact", [False, True])
def test_curves_are_the_means_and_bands_1_96_standard_errors(results, exact):
    figure = draw_curves(results, "mine", exact=exact)
    axes = np.array(figure.axes).reshape(4, 3)
    assert [ax.get_title() for ax in axes[0]] == ["softmax", "aps", "raps"]
    metrics = {
        "CovGap": "covgap",
        "AvgSize": "avg_size",
        "FracUnderCov": "frac_undercovered",
        "TrueGap": "true_gap",
    }
    assert [ax.get_ylabel() for ax in axes[:, 0]] == list(metrics)
    rows = [
        row for row in results.summary()
        if row["score"] == "aps" and row["method"] == "classwise" and row["exact"] == exact
    ]  # fmt: skip
    for ax, metric in zip(axes[:, 1], metrics.values(), strict=True):
        line = next(line for line in ax.lines if line.get_label() == "CLASSWISE")
        assert line.get_xdata().tolist() == [10, 20]
        np.testing.assert_allclose(line.get_ydata(), [row[metric] for row in rows])
        band = ax.collections[[l.get_label() for l in ax.lines].index("CLASSWISE")]  # noqa: E741
        top = band.get_paths()[0].vertices[:, 1].max()
        assert top == pytest.approx(max(r[metric] + 1.96 * r[f"{metric}_se"] for r in rows))
    floor = next(line for line in axes[0, 0].lines if "noise floor" in line.get_label())
    np.testing.assert_allclose(floor.get_ydata(), [row["covgap_noise_floor"] for row in rows])


def test_the_heat_map_holds_every_gamma_and_m(tuned, tmp_path):
    assert draw_curves(tuned, "mine", exact=True) is None
    paths = write_figures(tuned, tmp_path)
    assert [path.name for path in paths][-1] == "mine-softmax-covgap-heatmap.png"
    with pytest.raises(InputError, match="exists already"):
        write_figures(tuned, tmp_path)
    figure = draw_heatmap(tuned, "mine", "softmax")
    first, second = figure.axes[:2]
    assert [ax.get_title() for ax in (first, second)] == ["n_avg = 20", "n_avg = 40"]
    shown = np.asarray(first.images[0].get_array())
    _, *rows = [row for row in tuned.summary() if row["n_avg"] == 20]
    np.testing.assert_allclose(shown.ravel(), [row["covgap"] for row in rows])
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["0.3", "0.6"]
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["2", "3", "4"]
    best = np.unravel_index(shown.argmin(), shown.shape)
    assert first.patches[0].get_xy() == (best[1] - 0.5, best[0] - 0.5)


def test_a_circle_marks_the_paper_s_choice(tuned):
    def circles(results):
        ax = draw_heatmap(results, "mine", "softmax").axes[0]
        return [c.get_offsets().tolist() for c in ax.collections if "paper" in c.get_label()]

    assert not circles(tuned)  # it found no clusters
    chosen = deepcopy(tuned)
    for row in chosen.records:
        if not row["parameters"]:
            row |= {"gamma": 0.45, "M": 3}
    assert circles(chosen) == [[[1, pytest.approx(0.5)]]]


def test_the_classes_let_down_are_those_with_the_least_coverage(results):
    figure = draw_classes(results, "mine")
    cell = {"score": "softmax", "method": "standard", "n_avg": 20, "exact": False}
    (row,) = [row for row in results.classes if cell.items() <= row.items()]
    coverage = coverage_of(row)
    known = np.flatnonzero(np.isfinite(coverage))
    least = known[np.argsort(coverage[known], kind="stable")][0]
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels[0] == f"class {least}"


def test_files_by_extension_and_unsuitable_ones(small, tmp_path):
    paths = write_figures(small, tmp_path / "new", "pdf")
    assert [path.name for path in paths] == ["mine.pdf", "mine-randomized.pdf", "mine-classes.pdf"]
    assert all(path.read_bytes().startswith(b"%PDF") for path in paths)
    (tmp_path / "file").write_text("")
    for arguments, words in (((tmp_path, "gif"), "'gif'"), ((tmp_path / "file",), "folder")):
        with pytest.raises(InputError, match=words):
            write_figures(small, *arguments)
