"""Words that readers stumbled over stay away, from pages, messages and help."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = {".md", ".py", ".j2", ".js", ".rst"}
PLACES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "src", "examples")


@cache
def texts(root=ROOT):
    """Every text that somebody reads, in one line each: sentences in code are broken and quoted."""
    found = []
    for place in PLACES:
        path = root / place
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.suffix in ENDINGS and "_build" not in file.parts:
                words = file.read_text(encoding="utf-8")
                words = re.sub(r'"\s+f?"', "", words)
                found.append((file.relative_to(root), re.sub(r"\s+", " ", words)))
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        r"leans on the others",
        r"`--methods?` \S+ know ",
        r"given the distribution that the others",
        r"(has|have) a say of",
        r"[Ss]urely (broken|less|more|get|undercovered)",
        r"look let down",
        r"died while at it",
        r"without, there are standard",
        r"There are no p-values with the method",
        r"nothing but less data",
        r"Of Dask's collections an array",
        r"must fit one by one",
        r"[Pp]ass --force",
        r"--dask needs",
        r"\)TERED",
        r"labels that hold the true one for 90% of the rows",
        r"of a perfect method",
        # zsh takes brackets without quotes for a pattern
        r"pip install [^'\s]*\[",
    ],
)
def test_readers_do_not_stumble_again(pattern):
    found = [str(file) for file, text in texts() if re.search(pattern, text)]
    assert found == []


def test_the_front_page_says_how_to_install_all_that_it_shows():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.index("## Install") < page.index("pip install '.[all]'") < page.index("## Use it")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extras,) = re.findall(r'^all = \["evencover\[(.*)\]"\]$', project, re.MULTILINE)
    needed = {"arrow", "dask", "export", "hdf5", "plot", "remote", "report", "serve", "zarr"}
    assert needed <= set(extras.split(","))
