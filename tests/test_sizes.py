"""No result depends on how much is worked on at a time; a small sample is no error."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import environment

import evencover

PARTS = ["files", "methods", "functions", "commands"]
SIZE = r"^[A-Z_, ]*(?:ELEMENTS|NUMBERS|AT_ONCE|CHUNK|MOST_WAITING|VECTORS)[A-Z_, ]* = .*"
OTHER = ("MOST_NUMBERS",)  # of a row, in the fingerprint that models store


def results(sizes, folder, parts):
    """Compute all results in a process of its own."""
    folder.mkdir()
    command = [sys.executable, str(Path(__file__).with_name("every_function.py")), str(folder)]
    done = subprocess.run(
        [*command, *parts], env=environment(EVENCOVER_SIZES=sizes), capture_output=True, timeout=600
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("samples", "parts"),
    [
        pytest.param("", PARTS, id="all"),
        pytest.param("samples", ["files", "functions"], id="samples", marks=pytest.mark.deep),
    ],
)
def test_no_result_depends_on_the_size_of_blocks(tmp_path, samples, parts):
    usual = results(samples, tmp_path / "usual", parts)
    tiny = results(f"blocks,{samples}", tmp_path / "tiny", parts)
    assert len(usual) > 15
    different = {name: [usual[name], tiny.get(name)] for name in usual}
    assert not {name: both for name, both in different.items() if both[0] != both[1]}
    assert not [name for name, result in usual.items() if "NOT WRITTEN" in str(result)]


def test_every_size_can_be_made_small():
    """A constant is a size if its name says so, unless it is listed here."""
    package = Path(evencover.__file__).parent
    for path in package.rglob("*.py"):
        for line in re.findall(SIZE, path.read_text("utf-8"), re.MULTILINE):
            assert re.search(r"at_once\(|sampled\(|^#", line) or line.split()[0] in OTHER, (
                path,
                line,
            )
