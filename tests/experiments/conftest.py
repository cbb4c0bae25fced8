"""A small study that several tests read."""

import pytest

from evencover.experiments import Grid, run


@pytest.fixture(scope="session")
def data(simulate):
    return simulate(900, 12, seed=3, long_tail=True)


@pytest.fixture(scope="session")
def make_grid(data):
    def make(**changes):
        options = {
            "datasets": [("mine", *data)],
            "n_avg": [10, 20],
            "exact": [False, True],
            "repetitions": 3,
            "seed": 7,
        }
        return Grid(**options | changes)

    return make


@pytest.fixture(scope="session")
def results(make_grid):
    return run(make_grid())


@pytest.fixture(scope="session")
def folder(make_grid, tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "results"
    run(make_grid(), path)
    return path
