"""The study on a cluster: the same bytes as here; twins are computed where they are used."""

import pickle

import numpy as np

from evencover.data import source, twin
from evencover.experiments import Grid, run


def test_the_study_gives_the_same_bytes_on_a_cluster(client, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "PART_ELEMENTS", 1 << 15)
    grid = Grid(
        datasets=["cifar-100"],
        scale=0.2,
        methods=["standard", "clustered", "rc3p"],
        scores=["softmax", "aps", "pas"],
        n_avg=[10, 20],
        exact=[False, True],
        repetitions=2,
    )
    assert len(twin("cifar-100", scale=0.2).parts()) == 4
    run(grid, tmp_path / "here")
    run(grid, tmp_path / "there", executor=client)
    for name in ("results.csv", "results.parquet"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_a_twin_travels_in_parts(monkeypatch):
    whole = twin("places365", scale=0.05, random_state=3)
    expected = whole.rows(0, whole.n_rows)
    monkeypatch.setattr(source, "PART_ELEMENTS", 1000 * whole.n_classes)
    parts = pickle.loads(pickle.dumps(whole.parts()))
    assert len(parts) == -(-whole.n_rows // 1000)
    blocks = [block for part in parts for block in part.blocks()]
    assert np.concatenate([block.rows for block in blocks]).tobytes() == expected.tobytes()
    assert np.array_equal(np.concatenate([block.labels for block in blocks]), whole.labels)
