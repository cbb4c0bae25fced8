"""A grid defines a study; what it does not know is rejected."""

import numpy as np
import pytest

from evencover import APS, RAPS, ClusteredPredictor, InputError, StandardPredictor
from evencover.experiments import Grid, shipped
from evencover.experiments.study import plan


def grid_of(text, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return Grid.from_toml(path)


def test_the_paper_s_grid_is_the_paper_s(monkeypatch):
    grid = Grid.from_toml("paper")
    names = ["imagenet", "cifar-100", "places365", "inaturalist"]
    assert [dataset.name for dataset in grid.datasets] == names
    assert grid.n_avg == [10, 20, 30, 40, 50, 75, 100, 150]
    assert (grid.repetitions, len(grid.predictors)) == (10, 3 * 2)
    monkeypatch.setattr("evencover.experiments.study.VECTORS_PER_UNIT", 480)
    assert len(plan(grid)) == 4 * 3  # all 480 vectors of a score in one pass over the rows
    assert list(shipped()) == ["heatmap", "languages", "paper", "small"]
    assert all(Grid.from_toml(name).predictors for name in shipped())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("n_avg = [10]", "'datasets'"),
        ("datasets = [", "TOML"),
        *(
            (f"datasets = {value}", name)
            for value, name in [
                ("'languages'", "'datasets'"),
                ("['imagnet']", "'imagenet'"),
                ("['gone.npz']", "gone.npz"),
                ("['languages', 'languages']", "'languages' twice"),
                ("[{name = 'x'}]", "'datasets'"),
            ]
        ),
        *(
            (f"datasets = ['languages']\n{line}", name)
            for line, name in [
                ("color = 1", "'color'"),
                ("methods = ['clusterd']", "'clustered'"),
                ("methods = [{name = 'clustered', gama = 1}]", "'gama'"),
                ("methods = [{name = 'clustered', alpha = 0.2}]", "'alpha'"),
                ("methods = ['standard', 'standard']", "twice"),
                ("scores = [{name = 'raps', lam = 1}]", "lam"),
                ("n_avg = [0]", "'n_avg'"),
                ("n_avg = 10", "'n_avg'"),
                ("alpha = 1", "'alpha'"),
                ("repetitions = 0", "'repetitions'"),
                ("seed = -1", "'random_state'"),
                ("exact = 'yes'", "'exact'"),
                ("scale = 0", "'scale'"),
            ]
        ),
    ],
)
def test_bad_grids_are_rejected(text, name, tmp_path):
    with pytest.raises(InputError, match=name):
        grid_of(text, tmp_path)


@pytest.mark.parametrize("grid", ["papr", "nowhere.toml"])
def test_an_unknown_grid_is_rejected(grid):
    with pytest.raises(InputError, match=grid):
        Grid.from_toml(grid)


def test_paths_begin_at_the_grid_s_folder(tmp_path, data):
    np.savez(tmp_path / "imagenet.npz", softmax=data.rows, labels=data.labels)
    (dataset,) = grid_of("datasets = ['imagenet.npz']", tmp_path).datasets
    assert (dataset.name, dataset.simulated) == ("imagenet", False)
    assert dataset.open_source().labels.tolist() == data.labels.tolist()


def test_a_gamma_by_m_grid_multiplies_clustered_alone():
    grid = Grid(
        datasets=["languages"], methods=["standard", "clustered"],
        gamma=[0.2, 0.5], n_clusters=[2, 3, 4],
    )  # fmt: skip
    expected = [ClusteredPredictor(gamma=g, n_clusters=m) for g in (0.2, 0.5) for m in (2, 3, 4)]
    plain = [StandardPredictor(), ClusteredPredictor()]
    assert list(map(repr, grid.predictors)) == list(map(repr, [*plain, *expected]))


def test_predictors_and_scores_of_one_s_own_are_taken():
    class Mine(StandardPredictor):
        method = "mine"

    scores = [APS(), RAPS(penalty=0.5), {"name": "raps", "k_reg": 2}]
    methods = [Mine(), {"name": "clustered", "gamma": 0.3}, "macro"]
    grid = Grid(datasets=["languages"], exact=[False, True], methods=methods, scores=scores)
    assert [(p.method, p.exact) for p in grid.predictors] == [
        *(("mine", exact) for exact in (False, True)),
        *(("clustered", exact) for exact in (False, True)),
        ("macro", False),  # which cannot be exact
    ]
    assert {p.gamma for p in grid.predictors if p.method == "clustered"} == {0.3}
    assert grid.scores == [APS(), RAPS(penalty=0.5), RAPS(k_reg=2)]
