"""On small simulated data the published orderings appear. Everything is seeded."""

import pytest

from evencover.experiments import Grid, run

# Short form: tests/data/test_simulated.py compares one data set with the published table.
pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def study():
    grids = [
        Grid(
            datasets=["imagenet"], scale=0.2, scores=["softmax", "aps"],
            n_avg=[10, 20, 50, 100, 150], repetitions=10,
        ),
        Grid(
            datasets=["inaturalist"], scale=0.1, scores=["softmax"],
            n_avg=[10, 20, 50], repetitions=10,
        ),
    ]  # fmt: skip
    return {
        (row["dataset"], row["score"], row["method"], row["n_avg"]): row
        for grid in grids
        for row in run(grid).summary()
    }


@pytest.fixture(scope="module")
def covgap(study):
    return lambda *key: study[key]["covgap"]


@pytest.mark.parametrize("n_avg", [20, 50])
def test_clustered_is_best_with_softmax_and_few_rows(covgap, n_avg):
    clustered = covgap("imagenet", "softmax", "clustered", n_avg)
    assert clustered < covgap("imagenet", "softmax", "standard", n_avg) - 0.5
    assert clustered < covgap("imagenet", "softmax", "classwise", n_avg) - 0.2


def test_classwise_is_far_behind_with_very_few_rows(covgap):
    for method in ("standard", "clustered"):
        other = covgap("imagenet", "softmax", method, 10)
        assert covgap("imagenet", "softmax", "classwise", 10) > other + 1.5


@pytest.mark.parametrize("n_avg", [100, 150])
def test_classwise_catches_up_with_many_rows(covgap, n_avg):
    classwise = covgap("imagenet", "softmax", "classwise", n_avg)
    assert classwise < covgap("imagenet", "softmax", "clustered", n_avg) + 0.3
    assert classwise < covgap("imagenet", "softmax", "standard", n_avg) - 1


@pytest.mark.parametrize("n_avg", [10, 20, 50])
def test_standard_is_close_with_aps(covgap, n_avg):
    standard = covgap("imagenet", "aps", "standard", n_avg)
    assert standard < covgap("imagenet", "aps", "clustered", n_avg) + 0.6
    assert standard < covgap("imagenet", "softmax", "standard", n_avg) - 1


@pytest.mark.parametrize(("n_avg", "share"), [(10, 0.5), (20, 0.3), (50, 0.1)])
def test_classwise_sets_explode_on_the_long_tail(study, n_avg, share):
    classwise, clustered = (
        study["inaturalist", "softmax", method, n_avg] for method in ("classwise", "clustered")
    )
    assert classwise["avg_size"] > share * classwise["n_classes"]
    assert classwise["avg_size"] > 5 * clustered["avg_size"]
