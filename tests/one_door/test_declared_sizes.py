"""A file may not ask for more memory than its bytes explain: an error comes before the memory."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli.running import environment
from one_door.material import simulated, top_of, write_lines
from scipy.sparse import coo_array, csr_array, save_npz

from evencover import InputError, StandardPredictor, TopK
from evencover.data import as_source

HUGE = 2**31 - 1
FAR = 2_000_000_000  # a class index
MEMORY = 3 * 2**30  # bytes of address space, of which libraries map most


def sparse(shape, **more):
    """A CSR matrix as scipy.sparse saves it, with the shape that it states."""

    def write(path):
        arrays = {"indices": np.array([0, 1], np.int32), "data": np.array([0.5, 0.2])}
        arrays |= {"indptr": np.array([0, 2], np.int32), "shape": np.array(shape)}
        np.savez(path, **{"format": "csr", **arrays, **more})

    return write


def entries(label, true=0):
    row = [{"label": 0, "score": 0.5}, {"label": label, "score": 0.2}]
    return lambda path: write_lines(path, [{"output": row, "label": true}])


def lists(path):
    write_lines(path, [{"classes": [0, FAR], "scores": [0.5, 0.2], "label": 0}])


def parquet(path):
    columns = {"classes": [[0, FAR]], "scores": [[0.5, 0.2]], "label": [0]}
    pq.write_table(pa.table(columns), path)


FILES = {
    "classes.npz": sparse([1, HUGE]),
    "rows.npz": sparse([HUGE, 5]),
    "both.npz": sparse([HUGE, HUGE]),
    "beyond.npz": sparse([1, 2**62]),
    "product.npz": sparse([2**40, 2**40]),
    "negative.npz": sparse([1, -5]),
    "text.npz": sparse(["1", "5"]),
    "three.npz": sparse([1, 5, 5]),
    "csc.npz": sparse([1, HUGE], format="csc"),
    "class.jsonl": entries(FAR),
    "label.jsonl": entries(1, true=FAR),
    "beyond.jsonl": entries(2**70),
    "negative.jsonl": entries(-1),
    "lists.jsonl": lists,
    "lists.parquet": parquet,
    "timm.csv": lambda path: path.write_text(f"index_0,prob_0,target\n{FAR},0.5,0\n"),
}
COMMANDS = """
import json, sys, traceback
from evencover.cli import main

for name in json.loads(sys.argv[1]):
    labels = ["--labels", "y.txt"] if name.endswith("npz") else []
    for command in (["info", name, *labels], ["calibrate", name, *labels, "-o", "m.safetensors"]):
        print("RUN", *command, file=sys.stderr, flush=True)
        try:
            main(command)
        except SystemExit as stop:
            print("CODE", stop.code, file=sys.stderr, flush=True)
        except BaseException:
            traceback.print_exc()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by setrlimit")
def test_sizes_that_a_file_states_are_checked_before_memory_is_taken(tmp_path):
    """All in one process with little memory, because importing takes longer than they do."""
    import resource

    for name, write in FILES.items():
        write(tmp_path / name)
    (tmp_path / "y.txt").write_text("0\n")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(list(FILES))],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env=environment(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", EVENCOVER_THREADS="1"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        timeout=120,
        check=False,
    )
    runs = done.stderr.split("RUN ")[1:]
    assert len(runs) == 2 * len(FILES), done.stderr[-2000:]
    wrong = [run for run in runs if not is_sentence(run)]
    assert not wrong, "\n".join(wrong)
    assert not (tmp_path / "m.safetensors").exists()


def is_sentence(run):
    """Whether a command ended with one sentence, and not for want of memory."""
    said = [line for line in run.splitlines() if line.startswith("evencover: ")]
    return run.endswith("CODE 2\n") and len(said) == 1 and "memory" not in said[0]


def test_so_are_those_of_a_matrix_in_memory():
    for matrix in (csr_array((1, HUGE)), coo_array(([0.5], ([0], [1])), shape=(1, HUGE))):
        with pytest.raises(InputError, match="class"):
            TopK.from_sparse(matrix)
    with pytest.raises(InputError, match="class"):
        TopK([[3], [4]], [[0.5], [0.5]], n_classes=HUGE)


@pytest.mark.parametrize("n_classes", [1000, 21_843])
def test_few_rows_may_have_many_classes(tmp_path, n_classes):
    """As the top 5 of 20 images by a model of ImageNet-21k."""
    rows, labels = simulated(20, n_classes)
    top = top_of(rows, 5)
    matrix = csr_array((top.values, top.classes, top.starts), shape=top.shape)
    save_npz(tmp_path / "p.npz", matrix)
    for given in (top, matrix, tmp_path / "p.npz"):
        assert StandardPredictor().fit(given, labels).n_classes_ == n_classes
        assert as_source(given).n_classes == n_classes
