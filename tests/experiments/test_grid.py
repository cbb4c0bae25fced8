"""A grid says what is tried; what it does not understand is refused in one sentence."""

import numpy as np
import pytest

from evencover import APS, RAPS, ClusteredPredictor, InputError, StandardPredictor
from evencover.experiments import Grid, shipped
from evencover.experiments.study import plan


def grid_of(text, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return Grid.from_toml(path)


def test_the_shipped_grids_are_good():
    assert list(shipped()) == ["heatmap", "languages", "paper", "small"]
    for name in shipped():
        assert Grid.from_toml(name).settings


def test_the_paper_s_grid_is_the_paper_s(monkeypatch):
    grid = Grid.from_toml("paper")
    assert [each.name for each in grid.datasets] == [
        "imagenet", "cifar-100", "places365", "inaturalist",
    ]  # fmt: skip
    assert grid.n_avg == [10, 20, 30, 40, 50, 75, 100, 150]
    assert grid.repetitions == 10
    assert len(grid.settings) == 3 * 2
    monkeypatch.setattr("evencover.experiments.study.VECTORS_PER_UNIT", 480)
    # All 480 vectors of a score in one pass over the rows.
    assert len(plan(grid)) == 4 * 3


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("n_avg = [10]", "'datasets'"),
        ("datasets = [", "TOML"),
        *(
            (f"datasets = {value}", name)
            for value, name in [
                ("'languages'", "'datasets'"),
                ("[]", "'datasets'"),
                ("['imagnet']", "'imagenet'"),
                ("['gone.npz']", "gone.npz"),
                ("['languages', 'languages']", "'languages' twice"),
                ("[{path = 'gone.npz', rows = 3}]", "'rows'"),
                ("[{name = 'x'}]", "'path'"),
                ("[3]", "'datasets'"),
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
                ("scores = ['apps']", "'apps'"),
                ("scores = [{name = 'raps', lam = 1}]", "lam"),
                ("n_avg = [0]", "'n_avg'"),
                ("n_avg = 10", "'n_avg'"),
                ("alpha = 1", "'alpha'"),
                ("repetitions = 0", "'repetitions'"),
                ("sampling = 'rndom'", "'random'"),
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
    grid = grid_of("datasets = ['imagenet.npz']", tmp_path)
    assert grid.datasets[0].name == "imagenet"
    assert not grid.datasets[0].simulated
    assert grid.datasets[0].open_source().n_classes == 12


def test_labels_may_lie_apart_and_logits_are_said(tmp_path, data):
    np.save(tmp_path / "z.npy", np.log(data.rows))
    np.save(tmp_path / "y.npy", data.labels)
    text = "datasets = [{name = 'z', path = 'z.npy', labels = 'y.npy', logits = true}]"
    source = grid_of(text, tmp_path).datasets[0].open_source()
    assert source.has_labels
    assert source.logits is True


def test_a_gamma_by_m_grid_multiplies_clustered_alone():
    grid = Grid(
        datasets=["languages"], methods=["standard", "clustered"], n_avg=[10],
        gamma=[0.2, 0.5], n_clusters=[2, 3, 4],
    )  # fmt: skip
    assert [each.parameters for each in grid.settings] == ["", *(
        f"gamma={gamma}, n_clusters={number}" for gamma in (0.2, 0.5) for number in (2, 3, 4)
    )]  # fmt: skip


def test_predictors_and_scores_of_one_s_own_are_taken():
    class Mine(StandardPredictor):
        method = "mine"

    grid = Grid(
        datasets=["languages"], exact=[False, True],
        methods=[Mine(), ClusteredPredictor(gamma=0.3), {"name": "pooled", "exact": False}],
        scores=[APS(), RAPS(penalty=0.5), {"name": "raps", "k_reg": 2, "label": "raps 2"}],
    )  # fmt: skip
    assert [(each.name, each.parameters, each.predictor.exact) for each in grid.settings] == [
        *(("mine", "", exact) for exact in (False, True)),
        *(("clustered", "gamma=0.3", exact) for exact in (False, True)),
        ("pooled", "", False),
    ]
    names = ["aps", "RAPS(randomize=True, penalty=0.5, k_reg=5)", "raps 2"]
    assert [each.name for each in grid.scores] == names


def test_the_hash_sees_all_that_decides_the_numbers(make_grid, data):
    base = make_grid()
    assert make_grid(title="another name").configuration["digest"] == base.configuration["digest"]
    changed = [
        make_grid(n_avg=[10]),
        make_grid(seed=8),
        make_grid(alpha=0.2),
        make_grid(alpha=[0.1, 0.2]),
        make_grid(repetitions=4),
        make_grid(exact=False),
        make_grid(sampling="balanced"),
        make_grid(scores=["softmax", "aps", {"name": "raps", "penalty": 0.5, "label": "raps"}]),
        make_grid(methods=["standard", "classwise", ClusteredPredictor(gamma=0.3)]),
        make_grid(datasets=[("mine", data.rows, data.labels[::-1].copy())]),
        make_grid(datasets=[("yours", *data)]),
    ]
    assert len({each.configuration["digest"] for each in [base, *changed]}) == len(changed) + 1


def test_the_hash_sees_the_content_of_files(tmp_path, data):
    digests = set()
    for factor in (1.0, 1.0, 0.5):
        np.savez(tmp_path / "p.npz", softmax=data.rows**factor, labels=data.labels)
        digests.add(Grid(datasets=[tmp_path / "p.npz"]).configuration["digest"])
    assert len(digests) == 2
