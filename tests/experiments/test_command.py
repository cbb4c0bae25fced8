"""``evencover experiment`` end to end."""

import pytest

from evencover.cli import main

GRID = """
title = "A small study"
datasets = ["cifar-100"]
scale = 0.1
scores = ["softmax"]
n_avg = [10, 20]
repetitions = 2
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    (folder / "grid.toml").write_text(GRID)
    main(["experiment", "run", str(folder / "grid.toml"), "-o", str(folder / "out")])
    return folder / "out"


def test_run_table_and_figures(study, capsys, tmp_path):
    main(["experiment", "table", str(study)])
    text = capsys.readouterr().out
    assert text.startswith("**A small study**")
    assert "cifar-100 (simulated)" in text
    main(["experiment", "table", str(study), "--format", "latex"])
    assert "\n\\begin{table}\n" in capsys.readouterr().out
    main(["experiment", "figures", str(study), "-o", str(tmp_path / "f"), "--format", "svg"])
    shown = capsys.readouterr().out.split()
    assert shown == [str(tmp_path / "f" / f"cifar-100{kind}.svg") for kind in ("", "-classes")]


def test_the_name_of_a_bundled_grid_is_no_path(tmp_path, monkeypatch, capsys):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "thesis.txt").write_text("all my work")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["experiment", "run", "small", "-o", "small"])
    assert "new or empty folder" in capsys.readouterr().err  # not: it is the input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "papr", "-o", "x"], "'papr'"),
        (["run", "small"], "--output"),
        (["run", "languages", "-o", "{study}"], "another data set"),
        (["table", "nowhere"], "'nowhere'"),
        (["table", "{study}", "--format", "word"], "word"),
        (["figures", "{study}", "-o", "{tmp}", "--format", "gif"], "'gif'"),
    ],
)
def test_errors_are_one_sentence_and_exit_2(study, arguments, message, capsys, tmp_path):
    filled = [each.format(study=study, tmp=tmp_path) for each in arguments]
    with pytest.raises(SystemExit) as stop:
        main(["experiment", *filled])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("evencover: ")
    assert message in error
