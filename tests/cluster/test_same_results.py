"""Threads, processes and a cluster give the same bytes, however the rows are cut into parts."""

import json
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest
from sklearn.base import clone

from evencover import InputError, StandardPredictor, predict_to_folder, save
from evencover.cli import main
from evencover.data import as_source, readers
from evencover.data.fingerprint import KEPT_ELEMENTS, MOST_ROWS
from evencover.engine import executors
from evencover.experiments import Grid, load_simulated, run
from evencover.predictors import make_predictor
from evencover.report.content import report_content

from .conftest import N_CLASSES, N_ROWS, use_small_blocks

NAMES = [f"class {index}" for index in range(N_CLASSES)]


def saved_bytes(predictor, tmp_path):
    save(predictor, tmp_path / "model.safetensors", force=True)
    return (tmp_path / "model.safetensors").read_bytes()


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def fitted(parts):
    predictor = StandardPredictor(alpha=0.07, score="aps", exact=True, random_state=3)
    return predictor.fit(parts, class_names=NAMES)


@pytest.fixture(scope="module", params=["client", "processes", "threads"])
def executor(request, client):
    if request.param == "client":
        yield client
    else:
        # A fork of this process would copy locks that threads of the client hold.
        spawn = partial(
            ProcessPoolExecutor, mp_context=get_context("spawn"), initializer=use_small_blocks
        )
        pool = spawn if request.param == "processes" else ThreadPoolExecutor
        with pool(2) as made:
            yield made


def test_an_executor_gives_the_local_bytes(executor, fitted, parts, tmp_path):
    source = as_source(parts)
    assert sum(1 for _ in source.blocks()) > len(source.parts()) > 1  # rows are cut twice
    again = clone(fitted).fit(parts, class_names=NAMES, executor=executor)
    assert saved_bytes(again, tmp_path) == saved_bytes(fitted, tmp_path)
    sets = again.predict_set(parts, executor=executor)
    assert sets == fitted.predict_set(parts)
    assert list(sets.class_names) == NAMES
    mine, theirs = again.evaluate(parts, executor=executor), fitted.evaluate(parts)
    assert json.dumps(mine.to_dict()) == json.dumps(theirs.to_dict())
    assert all(map(np.array_equal, mine.confusions, theirs.confusions))
    predict_to_folder(again, parts, tmp_path / "there", executor=executor)
    predict_to_folder(fitted, parts, tmp_path / "here")
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")


@pytest.mark.parametrize(
    "method",
    ["pooled", *(pytest.param(m, marks=pytest.mark.deep) for m in ("classwise", "clustered"))],
)
def test_every_method_calibrates_on_a_cluster_as_here(method, client, parts, tmp_path):
    own = {"n_clusters": 4} if method == "clustered" else {}
    for more in ({"max_share": 0.05}, {"alpha": {"3": 0.02, "default": 0.1}, "floor": 0.8}):
        here = make_predictor(method, score="aps", **own, **more).fit(parts)
        there = clone(here).fit(parts, executor=client)
        assert here.is_capped_.any() == ("max_share" in more)
        assert saved_bytes(there, tmp_path) == saved_bytes(here, tmp_path)
        sets = there.predict_set(parts, executor=client)
        assert sets.to_lists() == here.predict_set(parts).to_lists()


def test_ids_travel_with_their_rows(fitted, parts, client):
    ids = np.random.default_rng(0).permutation(N_ROWS)
    here = fitted.predict_set(parts, ids=ids)
    assert fitted.predict_set(parts, ids=ids, executor=client.get_executor()) == here
    assert here != fitted.predict_set(parts)
    with pytest.raises(InputError, match="'ids'"):
        fitted.predict_set(parts, ids=ids[1:], executor=client)


def test_arrays_and_streams_are_sent_block_by_block(fitted, table, parts, client):
    expected = fitted.predict_set(parts)
    assert fitted.predict_set(table.rows, executor=client) == expected
    stream = (table.rows[start : start + 500] for start in range(0, N_ROWS, 500))
    assert fitted.predict_set(stream, executor=client) == expected


def test_the_page_tells_the_same(fitted, parts, client):
    ids = [f"row {row}" for row in range(N_ROWS)]
    expected = report_content(fitted, parts, ids=ids)
    assert report_content(fitted, parts, ids=ids, executor=client) == expected


def test_a_list_of_paths_is_one_input_and_a_dask_collection_none(fitted, parts, client):
    from dask import bag

    paths = sorted(map(str, parts.iterdir()))
    assert fitted.predict_set(paths, executor=client) == fitted.predict_set(parts)
    with pytest.raises(InputError, match="to_zarr"):
        fitted.predict_set(bag.from_sequence(paths), executor=client)


@pytest.fixture
def received(monkeypatch):
    """Bytes of every result that comes back to this process."""
    sizes, fetch = [], executors.fetch

    def weighed(future):
        result = fetch(future)
        sizes.append(len(pickle.dumps(result)))
        return result

    monkeypatch.setattr(executors, "fetch", weighed)
    return sizes


# The rows that are kept to test whether labels belong to them: numbers, keys, labels, top classes.
SAMPLE = 4 * KEPT_ELEMENTS + 24 * MOST_ROWS


def test_calibration_brings_back_at_most_16_bytes_a_row_and_a_sample(parts, client, received):
    StandardPredictor().fit(parts, executor=client)
    assert 9 * N_ROWS <= sum(received) <= 16 * N_ROWS + SAMPLE


@pytest.mark.parametrize("where", ["address", pytest.param("local", marks=pytest.mark.deep)])
def test_the_commands_run_on_a_cluster(where, client, parts, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("EVENCOVER_THREADS", "1")
    monkeypatch.chdir(parts.parent)  # a relative path means the same file to a worker
    address = "local" if where == "local" else client.scheduler.address
    outputs = {}
    for name, options in {"here": [], "there": ["--dask", address]}.items():
        folder = tmp_path / name
        folder.mkdir()
        model = str(folder / "m.safetensors")
        if where == "local":  # starting a cluster takes time: once is enough
            main(["calibrate", parts.name, "-o", model, "--method", "classwise", *options])
            outputs[name] = [*files_of(folder).values()]
            continue
        main(["calibrate", parts.name, "-o", model, "--score", "aps", *options])
        main(["predict", model, parts.name, "-o", str(folder / "sets"), *options])
        capsys.readouterr()
        main(["evaluate", model, parts.name, "--json", *options])
        parted = files_of(folder / "sets")
        assert "_plan.json" in parted
        outputs[name] = [capsys.readouterr().out, (folder / "m.safetensors").read_bytes(), parted]
    assert outputs["here"] == outputs["there"]


def test_the_study_gives_the_same_bytes_on_a_cluster(client, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "PART_ELEMENTS", 1 << 15)
    grid = Grid(
        datasets=["cifar-100"],
        scale=0.2,
        methods=["standard", "clustered", "rc3p"],
        scores=["softmax", "pas"],
        n_avg=[10, 20],
        repetitions=2,
    )
    assert len(load_simulated("cifar-100", scale=0.2).parts()) == 4
    run(grid, tmp_path / "here")
    run(grid, tmp_path / "there", executor=client)
    here, there = (tmp_path / name / "results.csv" for name in ("here", "there"))
    assert there.read_bytes() == here.read_bytes()
