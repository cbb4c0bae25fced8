"""The whole walk in a real shell, and the many ways of giving data."""

import pytest
from cli.running import assert_found, shell, succeeded

from evencover import load

pq = pytest.importorskip("pyarrow.parquet")


def test_the_whole_walk_begins_and_ends_in_a_real_shell(folder, data, run):
    calibrated = succeeded(
        shell(
            *("calibrate", "cal.npz", "--method", "clustered", "--score", "aps"),
            *("--alpha", "1/5", "-o", "m.safetensors"),
        )
    )
    assert calibrated.out == "m.safetensors: clustered, calibrated on 300 rows of 6 classes\n"
    assert calibrated.err.startswith("note: Clustering is not possible")
    told = succeeded(run("info", "m.safetensors"))
    for words in ("method +clustered", "alpha +1/5", "score +aps", "classes +6"):
        assert_found(words, told.out)
    evaluated = succeeded(run("evaluate", "m.safetensors", "test.npz", "--all"))
    assert evaluated.out.startswith("Target m")
    assert evaluated.err == ""
    predicted = succeeded(shell("predict", "m.safetensors", "new.npy", "-o", "sets.parquet"))
    sets = load("m.safetensors").predict_set(data.rows[300:])
    average = sets.sizes.mean()
    assert predicted.out.startswith(f"sets.parquet: 300 sets, {average:.2f} classes on average")
    assert pq.read_table("sets.parquet").to_pydict() == {
        "set": sets.to_lists(),
        "names": sets.to_lists(names=True),
        "size": sets.sizes.tolist(),
        "accepted": sets.accepted.tolist(),
    }
