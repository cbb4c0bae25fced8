"""No command writes over one of its inputs, with or without --force."""

import os
from pathlib import Path
from typing import get_args

import pytest
from cli.running import NAMES, refused, succeeded
from cli.test_help import commands
from depth import IS_DEEP

from evencover.cli.main import make_app

OUTPUTS = {"--output", "--csv", "--report"}
INPUTS = {"MODEL", "DATA", "RESULTS", "GRID", "REVIEWED", "--detections", "--apply", "--plan"}
INPUTS |= {"--labels", "--class-names", "--taxonomy", "--alpha-of", "--set"}
# Other texts; a new option must be in one of these lists.
NO_PATHS = {"--probabilities-key", "--labels-key", "--ids-key", "--labels-are", "--input-key"}
NO_PATHS |= {"--class-key", "--score-key", "--right-key", "--max-share"}
NO_PATHS |= {"--method", "--methods", "--score", "--scores", "--alpha", "--floor", "--dask"}
NO_PATHS |= {"--calibration-sizes", "--state", "--period", "--format", "--host", "FILE"}


def arguments_of(command):
    """Return the arguments of a command, without the groups that hold some of them."""
    if command.default_command is None:
        return []
    return [
        argument for argument in command.assemble_argument_collection() if not argument.children
    ]


def is_output(argument):
    return not OUTPUTS.isdisjoint(argument.names)


def is_text(argument):
    return {str, Path, list[str]} & {argument.hint, *get_args(argument.hint)}


APP = commands(make_app())
CASES = [
    (name, output.names[-1], source.names[0])
    for name, command in APP.items()
    for output in arguments_of(command)
    if is_output(output)
    for source in arguments_of(command)
    if source.names[0] in INPUTS
]


def test_every_text_is_an_input_or_an_output_or_no_path():
    for name, command in APP.items():
        for argument in filter(is_text, arguments_of(command)):
            assert not (OUTPUTS | INPUTS | NO_PATHS).isdisjoint(argument.names), (name, argument)


def files_of(command):
    """Write a file for every input that the command takes; return the files by argument."""
    files = {}
    for argument in arguments_of(command):
        if argument.names[0] in INPUTS:
            file = Path(f"{argument.names[0].strip('-').lower()}.csv")
            file.write_text(f"precious {file}")
            files[argument.names[0]] = file
    return files


def line_of(name, files, *more):
    """Return a command line with all these files."""
    named = [word for option in files if option.startswith("-") for word in (option, files[option])]
    plain = [file for argument, file in files.items() if not argument.startswith("-")]
    return [*name.split(), *plain, *named, *more]


# One input of each output, and one output of each input, but for the deep tests.
COVERING = {(name, output): source for name, output, source in CASES}
COVERED = {(name, source): output for name, output, source in CASES}


@pytest.mark.parametrize(
    ("name", "output", "source"),
    [
        case
        for case in CASES
        if IS_DEEP or COVERING[case[0], case[1]] == case[2] or COVERED[case[0], case[2]] == case[1]
    ],
)
def test_no_output_is_an_input(tmp_path, monkeypatch, run, name, output, source):
    monkeypatch.chdir(tmp_path)
    command = APP[name]
    files = files_of(command)
    before = {file: file.read_text() for file in tmp_path.iterdir()}
    can_force = any("--force" in argument.names for argument in arguments_of(command))
    for force in [(), ("--force",)][: 1 + can_force]:
        said = refused(run(*line_of(name, files, output, files[source], *force)))
        assert f"is the input '{files[source]}'" in said
    assert {file: file.read_text() for file in tmp_path.iterdir()} == before


def in_a_folder(file):
    Path("rows").mkdir()
    (Path("rows") / file).write_bytes(Path(file).read_bytes())
    return "rows", f"rows/{file}"


def linked(make):
    def link(file):
        make(file, "other.npz")
        return file, "other.npz"

    return link


ALIASES = {
    "hard link": linked(os.link),
    "link": linked(os.symlink),
    "in a folder": in_a_folder,
    "new in a folder": lambda file: (in_a_folder(file)[0], "rows/new.npz"),
    "glob": lambda file: ("*.npz", file),
    "new in a glob": lambda file: ("*.npz", "new.npz"),
    "URL": lambda file: (Path(file).absolute().as_uri(), file),
    "way round": lambda file: (file, f"../{Path.cwd().name}/{file}"),
    "folder": lambda file: (file, "."),
}


@pytest.mark.parametrize("alias", ALIASES.values(), ids=ALIASES)
def test_an_input_is_known_by_any_other_name(model, folder, run, alias):
    data, output = alias("test.npz")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert "the input" in refused(run("predict", model, data, "-o", output, "--force"))
    after = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert after == before


def test_a_glob_of_columns_is_no_path(folder, run, data):
    columns = [f"p_{name}" for name in NAMES]
    lines = [",".join([*columns, "label"])]
    lines += [",".join(map(str, [*row, y])) for row, y in zip(*data, strict=True)]
    (folder / "p_cal.csv").write_text("\n".join(lines), encoding="utf-8")
    arguments = ("-o", "p_model.safetensors", "--probabilities-key", "p_*")
    succeeded(run("calibrate", "p_cal.csv", *arguments))


def test_two_outputs_are_two_files(run):
    arguments = ("--csv", "new.html", "--report", "new.html")
    assert "'new.html'" in refused(run("compare", "cal.npz", *arguments))


def test_a_folder_of_sets_is_no_input_of_itself(model, folder, run):
    succeeded(run("predict", model, "new.npy", "-o", "sets"))
    part = next((folder / "sets").glob("part-*"))
    before = part.read_bytes()
    for data in (part, "sets", "sets/*.parquet"):
        assert "the input" in refused(run("predict", model, data, "-o", "sets", "--force"))
    assert part.read_bytes() == before
