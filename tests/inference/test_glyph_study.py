"""The glyph study's pictures, from a font that is always there; the study itself is a script."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

STUDY = Path(__file__).resolve().parents[2] / "scripts" / "glyph_study"
MODULES = ("characters", "drawing", "fonts", "network", "pictures", "training")


@pytest.fixture
def study(monkeypatch):
    """The scripts, importable as they are when they run."""
    monkeypatch.syspath_prepend(STUDY)
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def fonts(tmp_path):
    """Two packages with the fonts that matplotlib brings along."""
    import matplotlib

    place = Path(matplotlib.get_data_path(), "fonts", "ttf")
    for package, name in {"one": "DejaVuSans.ttf", "two": "DejaVuSerif.ttf"}.items():
        (tmp_path / package).mkdir()
        shutil.copy(place / name, tmp_path / package)
    return tmp_path


def test_no_package_is_on_both_sides(study):
    from fonts import HELD_OUT, TRAINING

    assert not set(TRAINING) & set(HELD_OUT)
    assert min(len(TRAINING), len(HELD_OUT)) > 40


def test_about_a_thousand_characters_of_known_scripts(study):
    from characters import CANDIDATES, SCRIPTS, script_of

    assert 950 < len(CANDIDATES) < 1100
    assert len(set(CANDIDATES)) == len(CANDIDATES)
    assert {script_of(each) for each in CANDIDATES} == set(SCRIPTS)
    assert set("AΑА三あ") - set(CANDIDATES) <= {"三"}


def test_glyphs_are_found_and_drawn_the_same_again(study, fonts):
    from drawing import SIDE, draw
    from fonts import glyph_table

    table = glyph_table(["one", "two"], "Aж漢", fonts)
    assert [len(table[each]) for each in "Aж漢"] == [2, 2, 0]
    first, font = draw("A", table["A"], fonts, [1, 2, 3])
    again, same = draw("A", table["A"], fonts, [1, 2, 3])
    other, _ = draw("A", table["A"], fonts, [1, 2, 4])
    np.testing.assert_array_equal(first, again)
    assert font == same
    assert first.shape == (SIDE, SIDE)
    assert (first != other).any()
    assert first.max() > 100


@pytest.mark.deep
def test_from_fonts_to_scores(study, fonts, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    import json

    from fonts import glyph_table
    from pictures import Task, write_held_out, write_training
    from training import train

    from evencover.data import as_source
    from evencover.inference import infer

    names = list("AOX")
    table = glyph_table(["one", "two"], "AOX", fonts)

    def tasks(n_pictures, seed):
        return [Task(i, each, table[each], n_pictures, seed) for i, each in enumerate(names)]

    write_training(tmp_path / "training.npy", tasks(200, 1), fonts)
    write_held_out(tmp_path / "held_out.parquet", tasks(30, 2), fonts)
    (tmp_path / "characters.json").write_text(json.dumps(names))
    pixels = np.load(tmp_path / "training.npy")
    said = []
    train(pixels, np.repeat(range(3), 200), 3, tmp_path, 2, said.append)
    assert [line.split(":")[0] for line in said] == ["epoch 1 of 2", "epoch 2 of 2"]
    monkeypatch.setenv("GLYPH_STUDY", str(tmp_path))
    infer(f"{STUDY / 'network.py'}:Classifier", tmp_path / "held_out.parquet", tmp_path / "scores")
    (block,) = as_source(tmp_path / "scores").blocks()
    assert (block.rows.argmax(axis=1) == block.labels).mean() > 0.8
