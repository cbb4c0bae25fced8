"""The commands take every kind of input: folders, patterns, addresses, files of labels."""

import json

import numpy as np
import pytest
from inputs import LABELS, ROWS, N, list_array, pa, write_table
from safetensors.numpy import save_file

from evencover.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    for number, rows in ((1, slice(0, 9)), (2, slice(9, N))):
        table = pa.table({"probs": list_array("fixed", ROWS[rows]), "labels": LABELS[rows]})
        write_table(tmp_path / "parts" / f"{number}.parquet", table)
        np.save(tmp_path / f"y{number}.npy", LABELS[rows])
    return tmp_path


def info(capsys, *arguments):
    main(["info", "--json", *map(str, arguments)])
    return json.loads(capsys.readouterr().out)


def thresholds(capsys, *arguments):
    main(["calibrate", *arguments, "-o", "m.safetensors", "--alpha", "0.3", "--force"])
    capsys.readouterr()
    return info(capsys, "m.safetensors")["thresholds"]


def test_info_tells_a_model_from_data_by_what_the_file_says(capsys):
    save_file({"probs": ROWS, "labels": LABELS}, "p.safetensors")
    main(["calibrate", "p.safetensors", "-o", "model.safetensors", "--method", "standard"])
    capsys.readouterr()
    assert info(capsys, "model.safetensors")["method"] == "standard"
    assert info(capsys, "p.safetensors")["holds"] == "probabilities"


def test_folders_patterns_and_labels_apart_give_the_same_model(folder, capsys):
    np.savez("whole.npz", probs=ROWS, labels=LABELS)
    np.save("p.npy", ROWS)
    expected = thresholds(capsys, "whole.npz")
    assert thresholds(capsys, "parts") == expected
    assert thresholds(capsys, "parts/*.parquet") == expected
    assert thresholds(capsys, "parts", "--labels", "y*.npy") == expected
    assert thresholds(capsys, "p.npy", "--labels", "y*.npy") == expected
    assert thresholds(capsys, (folder / "whole.npz").as_uri()) == expected


def test_addresses_reach_the_reader_as_they_were_written(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["info", "memory://bucket/absent.npy"])
    assert caught.value.code == 2
    assert "'memory://bucket/absent.npy': there is no such file" in capsys.readouterr().err
