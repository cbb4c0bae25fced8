"""What surrounds a command is hostile: disks, pipes, devices, memory, terminals."""

import ctypes
import os
import resource

import numpy as np
import pytest
from attacks.forked import command
from depth import IS_DEEP
from inputs import read

from evencover import InputError, StandardPredictor, save
from evencover.data import as_source
from evencover.predictors import make_predictor, method_names

K = 5
NEW_NAMESPACE, READ_ONLY = 0x20000, 1
SMALL = ["predict", "m.safetensors", "new.npy", "-o"]


@pytest.fixture(scope="module")
def made(tmp_path_factory, simulate):
    folder = tmp_path_factory.mktemp("surroundings")
    rows, labels = simulate(400, K, seed=4)
    np.savez(folder / "cal.npz", softmax=rows, labels=labels)
    np.save(folder / "new.npy", np.tile(rows, (40, 1)).astype(np.float32))
    save(StandardPredictor().fit(rows, labels), folder / "m.safetensors")
    (folder / "out").mkdir()
    (folder / "grid.toml").write_text('datasets = ["cal.npz"]\nn_avg = [5]\nrepetitions = 2\n')
    return folder


def sentence(done):
    """What a command said that was refused: one line, no traceback."""
    (line,) = done.said.splitlines()
    assert done.code == 2
    assert line.startswith("evencover: ")
    assert len(line) < 1100
    return line


def mounted(folder, options, flags=0):
    """A file system of its own over out/, which only the child sees and which ends with it."""

    def prepare():
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(NEW_NAMESPACE) or libc.mount(b"none", b"/", None, 0x44000, None):
            os._exit(77)
        path = str(folder / "out").encode()
        if libc.mount(b"tmpfs", path, b"tmpfs", flags, options):
            os._exit(77)

    return prepare


WRITERS = {
    "model": ["calibrate", "cal.npz", "--method", "classwise", "-o", "out/m.safetensors"],
    **{end: [*SMALL, f"out/sets.{end}"] for end in ("parquet", "jsonl", "csv")},
    "folder": [*SMALL, "out/sets"],
    "study": ["experiment", "run", "grid.toml", "-o", "out/study"],
}


@pytest.mark.parametrize("name", WRITERS if IS_DEEP else ["model", "csv", "folder"])
@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_takes_nothing(made, name, kind):
    options, flags = (b"size=4k", 0) if kind == "full" else (b"size=1m", READ_ONLY)
    done = command(WRITERS[name], made, before=mounted(made, options, flags))
    if done.code == 77:
        pytest.skip("only root may mount")
    words = ("No space left", "Read-only file system")[kind == "read-only"]
    assert words in sentence(done)
    assert list((made / "out").iterdir()) == []


def test_pipes_and_devices_are_no_data_and_no_output(made, tmp_path):
    os.mkfifo(tmp_path / "p.npy")
    np.save(tmp_path / "q.npy", np.full((4, 2), 0.5))
    for path in (tmp_path / "p.npy", "/dev/zero", f"{tmp_path}/p*.npy"):
        with pytest.raises(InputError, match="device or a pipe"):
            as_source(path)
    assert as_source(tmp_path).n_rows == 4  # a pipe in a folder is passed by
    (tmp_path / "m.safetensors").symlink_to("/dev/zero")
    done = command(["predict", tmp_path / "m.safetensors", "new.npy", "-o", "out/a.csv"], made)
    assert "device or a pipe" in sentence(done)
    os.mkfifo(tmp_path / "page.html")
    output = ["-o", tmp_path / "page.html", "--force"]
    done = command(["report", "m.safetensors", "cal.npz", *output], made)
    assert "device or a pipe" in sentence(done)


def test_too_little_memory_is_one_sentence(made, tmp_path):
    rows = np.full((1, 10_000_000), 1e-7, dtype=np.float32)
    np.save(tmp_path / "p.npy", rows)

    def little_memory():
        pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115
        most = pages * resource.getpagesize() + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    arguments = ["compare", "p.npy", "--labels", "y.txt"]
    (tmp_path / "y.txt").write_text("0\n")
    done = command(arguments, tmp_path, before=little_memory)
    note, error = done.said.splitlines()
    assert done.code == 2
    assert "by position" in note
    assert "memory" in error


def test_names_in_errors_are_short_and_harmless_to_terminals(made, tmp_path):
    path = tmp_path / "a\x1b[31mb.npz"
    np.savez(path, **{"x" * 5000: np.ones((3, 2))})
    line = sentence(command(["info", path], made))
    assert "\x1b" not in line
    assert "[31mb.npz" in line


@pytest.mark.parametrize("label", ["x", "0_1", "٣", "１", "+1", "1e0"])
def test_only_plain_digits_are_class_indices(tmp_path, label):
    (tmp_path / "p.csv").write_text("0.5,0.5\n" * 4)
    (tmp_path / "y.txt").write_text(f"0\n1\n{label}\n1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"row 2 of '.*y\.txt'"):
        read(as_source(tmp_path / "p.csv", tmp_path / "y.txt"))


@pytest.mark.parametrize("key", ["class_names", "labels", "ids"])
@pytest.mark.parametrize("order", "<>")
def test_characters_beyond_unicode_are_refused(tmp_path, key, order):
    """NumPy writes any 32 bits as a character; Python itself ends in a SystemError at them."""
    text = np.array([0x61, 0x10FFFF, 0x110000, 0x61], order + "u4").view(order + "U1")
    given = {"labels": [0, 1, 0, 1], "class_names": [*"abcd"], key: text}
    np.savez(tmp_path / "p.npz", probs=np.full((4, 4), 0.25), **given)
    with pytest.raises(InputError, match=f"'{key}'"):
        as_source(tmp_path / "p.npz")


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("method", method_names())
def test_one_row_is_enough_or_refused(method):
    rows = np.full((1, 4), 0.25)
    own = {"groups": [0, 0, 1, 1]} if method == "grouped" else {}
    try:
        predictor = make_predictor(method, **own).fit(rows, [0])
    except InputError:
        return
    assert predictor.predict_set(rows).to_lists() == [[0, 1, 2, 3]]
