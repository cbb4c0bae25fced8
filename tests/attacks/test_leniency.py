"""What 0.1.0 let pass, or met with a traceback: settings, offsets, digits, places in memory."""

import json
import struct
import subprocess
import sys

import numpy as np
import pytest
from cli.running import environment
from safetensors.numpy import save_file

from evencover import InputError, StandardPredictor
from evencover.data import as_source


def test_an_unknown_kind_of_kernels_is_one_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "evencover", "info"],
        env=environment(EVENCOVER_KERNELS="foo"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "EVENCOVER_KERNELS must be 'numpy' or 'c++'. Got 'foo'" in line


@pytest.mark.parametrize("offsets", [(0, 16), (-16, 0), (8, 24), (0, 12), (0, 15), (16, 0)])
def test_tensors_lie_where_their_shapes_say_and_nowhere_else(tmp_path, offsets):
    """After one of 16 bytes that begins at 16, so that only the first pair leaves no gap."""
    about = {"dtype": "F32", "shape": [2, 2]}
    header = json.dumps(
        {
            "probs": {**about, "data_offsets": list(offsets)},
            "other": {**about, "data_offsets": [16, 32]},
        }
    ).encode()
    path = tmp_path / "p.safetensors"
    numbers = np.full(8, 0.5, dtype="<f4").tobytes()
    path.write_bytes(struct.pack("<Q", len(header)) + header + numbers)
    if offsets == (0, 16):
        assert as_source(path).n_rows == 2
        return
    with pytest.raises(InputError, match="truncated or not of the kind"):
        as_source(path)


@pytest.mark.parametrize("more", [b"\0", bytes(16)])
def test_bytes_after_the_last_tensor_are_refused(tmp_path, more):
    path = tmp_path / "p.safetensors"
    save_file({"probs": np.full((2, 2), 0.5)}, path)
    assert as_source(path).n_rows == 2
    path.write_bytes(path.read_bytes() + more)
    with pytest.raises(InputError, match=r"p\.safetensors"):
        as_source(path)


def test_a_tensor_that_is_described_twice_is_refused(tmp_path):
    about = '"probs": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}'
    header = f"{{{about}, {about}}}".encode()
    path = tmp_path / "p.safetensors"
    numbers = np.full(4, 0.5, dtype="<f4").tobytes()
    path.write_bytes(struct.pack("<Q", len(header)) + header + numbers)
    with pytest.raises(InputError, match=r"p\.safetensors.* Got 'probs' twice"):
        as_source(path)


@pytest.mark.parametrize("label", ["0_1", "٣", "１", "+1", "1e0"])
def test_only_plain_digits_are_numbers_of_classes(tmp_path, label):
    path = tmp_path / "labels.txt"
    path.write_text(f"{label}\n", encoding="utf-8")
    with pytest.raises(InputError, match="must be integers"):
        list(as_source(np.full((1, 4), 0.25), path).blocks())


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_rows_at_odd_places_in_memory_are_read_like_others(simulate, dtype):
    """As in a mapped .npz file, whose members begin anywhere; sanitizers call it undefined."""
    rows, labels = simulate(200, 5, seed=3, dtype=dtype)
    held = np.zeros(rows.nbytes + 1, dtype=np.uint8)
    odd = held[1:].view(dtype).reshape(rows.shape)
    odd[:] = rows
    assert not odd.flags.aligned
    one, other = (StandardPredictor(score="aps").fit(each, labels) for each in (rows, odd))
    np.testing.assert_array_equal(one.thresholds_, other.thresholds_)
    assert one.predict_set(rows) == one.predict_set(odd)
