"""Whatever is wrong is one sentence, exit code 2, and nothing is written."""

import csv
import os
import struct
import zlib
from functools import partial

import numpy as np
import pytest
from cli.running import assert_found, refused, run_here, succeeded
from inference.samples import NAMES, read, write_model, write_pictures, write_texts
from PIL import Image

BAD = """
import numpy as np

def nan(images):
    rows = np.ones((len(images), 4))
    rows[-1, 2] = np.nan
    return rows

def short(images):
    return np.ones((1, 4))

def flat(images):
    return np.ones(len(images))

def shape(images):
    return np.ones((len(images), 5)) @ np.ones((4, 4))

def growing(images, calls=[]):
    calls.append(0)
    return np.ones((len(images), 4 + (len(calls) > 2)))

def large(images):
    return np.full((len(images), 4), 1e300)

class Unready:
    def __init__(self):
        raise KeyError("WEIGHTS")

number = 5
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with pictures and texts, a good model and a file of bad ones."""
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "data", 3)
    write_texts(tmp_path / "texts.csv", 12)
    write_model(tmp_path)
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "empty" / "blue").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def run(capsys, folder):
    return partial(run_here, capsys, "infer", "-o", "scores")


@pytest.mark.parametrize(
    ("model", "data", "options", "sentence"),
    [
        ("none.onnx", "data", (), "infer_onnx.py.*none.onnx': there is no such"),
        ("notes.txt", "data", (), "notes.txt': it is neither"),
        ("none.py:f", "data", (), "none.py"),
        ("mine.py:f", "data", (), "has no attribute .f."),
        ("bad.py:Unready", "data", (), "Cannot load the model .*: it raised KeyError: 'WEIGHTS'"),
        ("bad.py:number", "data", (), "must be a function. Got int"),
        ("mine.py:pictures", "nowhere", (), "'nowhere': there is no such file or folder"),
        ("mine.py:pictures", "empty", (), "at least one of the images"),
        ("mine.py:pictures", "notes.txt", (), "'notes.txt' must"),
        ("mine.py:pictures", "data", ("--batch-size", 0), "'batch_size'.* at least 1"),
        ("mine.py:texts", "texts.csv", ("--input-key", "words"), "input_key.*'words'.*text, label"),
        ("mine.py:nameless", "data", (), "must name its 4 classes.*--class-names"),
        ("bad.py:nan", "data", (), "nan for 'red/002.png', class 2"),
        ("bad.py:short", "data", (), r"one row per input.*\(1, 4\).* 12 inputs"),
        ("bad.py:flat", "data", (), r"one row per input.*\(12,\)"),
        ("bad.py:shape", "data", (), "12 inputs from 'blue/000.png' on: ValueError"),
        ("bad.py:growing", "data", ("--batch-size", 4, "--class-names", "names.txt"), "of 4 real"),
        ("bad.py:large", "data", (), "finite numbers. Got 1e.300"),
    ],
)
def test_one_sentence_and_nothing_written(run, folder, model, data, options, sentence):
    assert_found(sentence, refused(run(model, data, *options)))
    written = {path.name for path in (folder / "scores").glob("*")}
    assert written <= {"_plan.json"}  # where the model changed its mind half-way


def test_output_begun_with_another_model_or_other_data(run, folder):
    succeeded(run("mine.py:pictures", "data"))
    with (folder / "mine.py").open("a") as file:
        file.write("\n# other weights")
    assert_found(
        "files of another run with another model;", refused(run("mine.py:pictures", "data"))
    )
    assert "12 rows" in succeeded(run("mine.py:pictures", "data", "--force")).out
    (folder / "data" / "red" / "002.png").unlink()
    assert_found("with another input;", refused(run("mine.py:pictures", "data")))
    assert len(read(folder / "scores")) == 12


def test_moving_everything_is_no_other_model(run, folder, monkeypatch):
    succeeded(run("mine.py:pictures", "data"))
    assert "1 of them there already" in succeeded(run(str(folder / "mine.py:pictures"), "data")).out


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"


def unreadable(folder):
    """The listed ids, each with its reason."""
    with (folder / "scores" / "_unreadable.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row["reason"] for row in csv.DictReader(file)}


def png_header(width, height):
    """The beginning of a PNG file, which states its size."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    checked = header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n\0\0\0\r" + checked + b"\0\0\0\0IDAT"


def test_files_that_cannot_be_read_as_images_are_listed_with_the_reason(run, folder, monkeypatch):
    """PostScript would start Ghostscript, a pipe would block, and 16 bits would be cut off."""
    (folder / "bin").mkdir()
    (folder / "bin" / "gs").write_text(f"#!/bin/sh\ntouch '{folder}/started'\n")
    (folder / "bin" / "gs").chmod(0o755)
    red = folder / "data" / "red"
    (red / "bytes.png").write_bytes(b"?")
    (red / "text.png").write_bytes(POSTSCRIPT)
    (red / "large.png").write_bytes(png_header(8500, 8500))
    Image.new("1", (1, 101)).save(red / "narrow.png")
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(red / "deep.png")
    os.mkfifo(red / "pipe.png")
    (red / "link.png").symlink_to(folder / "nowhere.png")
    (red / "round").symlink_to(folder / "data")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    result = succeeded(run("mine.py:pictures", "data"))
    assert "7 of 19 inputs could not be read; they are listed in scores/_unreadable" in result.err
    assert_found(r"^scores: 12 rows of logits in \d files; accuracy ", result.out)
    reasons = {
        **{"bytes": "cannot identify", "text": "cannot identify", "large": "8500 x 8500"},
        **{"narrow": "1 x 101", "deep": "8 bits", "pipe": "not a regular file", "link": "No such"},
    }
    listed = unreadable(folder)
    assert set(listed) == {f"red/{name}.png" for name in reasons}
    for name, reason in reasons.items():
        assert reason in listed[f"red/{name}.png"]
    assert not (folder / "started").exists()


def test_no_readable_image(run, folder):
    for path in (folder / "data").glob("*/*.png"):
        path.write_bytes(b"?")
    line = refused(run("mine.py:pictures", "data"))
    assert_found("no readable input. Got 'red/002.png': cannot identify", line)


def test_a_file_name_that_is_not_unicode(run, folder):
    source = folder / "data" / "red" / "000.png"
    os.link(source, os.fsencode(folder / "data" / "red") + b"/caf\xe9.png")
    with open(os.fsencode(folder / "data" / "red") + b"/bad\xe9.png", "wb") as file:
        file.write(b"?")
    succeeded(run("mine.py:pictures", "data"))
    assert read(folder / "scores").column("id").to_pylist()[-1] == r"red/caf\udce9.png"
    assert list(unreadable(folder)) == [r"red/bad\udce9.png"]
    os.rename(folder / "data" / "red", os.fsencode(folder / "data") + b"/r\xe9d")
    assert_found("udce9d", refused(run("mine.py:pictures", "data", "--force")))
