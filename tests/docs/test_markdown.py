"""What the pages show runs: every Python block, and the commands of the front page.

The blocks of a page run one after the other in one namespace, in an empty folder. A block that
begins with the name of a file is written to that file, for later blocks to import. Where a page
speaks of the reader's own arrays, files and machines, a prelude puts small ones in their place.
"""

import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from evencover.cli import main
from evencover.data import load_languages
from evencover.predictors import PREDICTORS
from evencover.scores import SCORES

ROOT = Path(__file__).parents[2]
FOLDERS = ("howto", "explanations", "research")  # the others are generated
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(ROOT.glob("docs/*.md")),
        *(path for name in FOLDERS for path in sorted(ROOT.glob(f"docs/{name}/*.md"))),
    ]
}
N_CLASSES = 20

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


WITH_PYTHON = [name for name, text in PAGES.items() if python_blocks(text)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _forget(tmp_path):
    """Leave methods, scores and modules as they were."""
    known = (PREDICTORS, SCORES)
    before = [set(each) for each in known]
    yield
    for each, were in zip(known, before, strict=True):
        for name in set(each) - were:
            del each[name]
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture(scope="session")
def arrays():
    """The rows of the first languages: some calibrate, some test, some are new."""
    rows, labels, _ = load_languages()
    few = labels < N_CLASSES
    rows, labels = rows[few, :N_CLASSES], labels[few]
    rows = rows / rows.sum(axis=1, keepdims=True)
    return {
        "probabilities": rows[::2],
        "labels": labels[::2],
        "test_probabilities": rows[1::2],
        "test_labels": labels[1::2],
        "new_probabilities": rows[1::4],
    }


def reader_with_arrays(text, arrays, monkeypatch):
    """The reader has the probabilities of a model, and labels."""
    return text, dict(arrays)


def reader_with_a_taxonomy(text, arrays, monkeypatch):
    """The reader also has class names and their groups."""
    names = [f"language {k}" for k in range(N_CLASSES)]
    lines = [f"{name},family {k % 3}" for k, name in enumerate(names)]
    Path("taxonomy.csv").write_text("\n".join(["language,family", *lines]), encoding="utf-8")
    return text, dict(arrays, names=names)


def reader_with_sites(text, arrays, monkeypatch):
    """The reader has the probabilities of two sites."""
    n_rows, n_new = len(arrays["labels"]), len(arrays["new_probabilities"])
    return text, dict(arrays, site=np.arange(n_rows) % 2, new_site=np.arange(n_new) % 2)


def reader_with_files(text, arrays, monkeypatch):
    """The reader has a folder of Parquet files, and a bucket, which is here in memory."""
    import fsspec

    write_parquet("calibration", arrays["probabilities"], arrays["labels"])
    bucket = fsspec.filesystem("memory")
    for name in ("probs", "labels"):
        with bucket.open(f"/bucket/{name}.npy", "wb") as file:
            np.save(file, arrays["probabilities" if name == "probs" else name])
    return text.replace("s3://", "memory://"), {}


def reader_with_a_cluster(text, arrays, monkeypatch):
    """The reader has a scheduler, a bucket and a shared folder: threads and folders here."""
    monkeypatch.setattr("dask.distributed.Client", lambda address: ThreadPoolExecutor(2))
    for name, what in {"bucket/calibration": "", "bucket/test": "test_"}.items():
        write_parquet(name, arrays[f"{what}probabilities"], arrays[f"{what}labels"])
    write_parquet("shared/new", arrays["new_probabilities"])
    return text.replace("s3://bucket/", "bucket/").replace('"/shared/', '"shared/'), {}


def write_parquet(folder, rows, labels=None):
    """Two files in the folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(folder).mkdir(parents=True)
    for number in range(2):
        mine = slice(number, None, 2)
        columns = {} if labels is None else {"labels": labels[mine]}
        table = pa.table({"probs": rows[mine].tolist(), **columns})
        pq.write_table(table, f"{folder}/{number}.parquet")


def reader_with_a_file(text, arrays, monkeypatch):
    """The reader has one Parquet file."""
    write_parquet("data", arrays["probabilities"], arrays["labels"])
    Path("data/0.parquet").rename("DATA.parquet")
    return text, {}


def reader_with_a_network(text, arrays, monkeypatch):
    """The reader has a network, loaders and requests: here the rows themselves are its inputs."""
    torch = pytest.importorskip("torch")
    rows, labels = (torch.from_numpy(np.array(arrays[key])) for key in ("probabilities", "labels"))
    loader = [(rows[:200].log(), labels[:200]), (rows[200:].log(), labels[200:])]
    return text, {
        "model": torch.nn.Identity(),
        "calibration_loader": loader,
        "test_loader": loader,
        "inputs": rows[:5].log(),
        "request_ids": range(5),
    }


PRELUDES = {
    "README.md": reader_with_arrays,
    "docs/howto/accept_or_review.md": reader_with_a_taxonomy,
    "docs/howto/stronger_guarantees.md": reader_with_arrays,
    "docs/methods.md": reader_with_sites,
    "docs/files.md": reader_with_files,
    "docs/howto/cluster.md": reader_with_a_cluster,
    "docs/howto/file.md": reader_with_a_file,
    "docs/howto/network.md": reader_with_a_network,
}


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs(page, folder, arrays, monkeypatch, capsys):
    prelude = PRELUDES.get(page)
    text, namespace = prelude(PAGES[page], arrays, monkeypatch) if prelude else (PAGES[page], {})
    namespace["__name__"] = "page"
    for code in python_blocks(text):
        named = re.match(r"# (\w+\.py)\n", code)
        if named:
            (folder / named[1]).write_text(code, encoding="utf-8")
        else:
            exec(compile(code, page, "exec"), namespace)


def test_pages_with_python_are_found():
    assert set(PRELUDES) <= set(WITH_PYTHON)
    assert {"CONTRIBUTING.md", "docs/quickstart.md"} <= set(WITH_PYTHON)


@pytest.mark.parametrize("page", ["docs/quickstart.md", "README.md"])
def test_the_commands_of_a_page_run(page, folder, arrays, capsys):
    if page == "README.md":
        np.savez("CAL.npz", probs=arrays["probabilities"], labels=arrays["labels"])
        np.savez("TEST.npz", probs=arrays["test_probabilities"], labels=arrays["test_labels"])
        np.save("NEW.npy", arrays["new_probabilities"])
    else:
        exec(compile(python_blocks(PAGES[page])[0], page, "exec"), {})
    commands = re.findall(r"^    evencover (.*)$", PAGES[page], re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        if command != "compare":  # all methods on the bundled data
            main(shlex.split(command, comments=True))
    written = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "report.html"} < written
    assert written & {"sets.csv", "sets.parquet"}


def test_the_site_can_write_every_formula():
    """Docutils knows a part of LaTeX, and the site is built rarely."""
    from docutils.utils.math.latex2mathml import tex2mathml

    found = 0
    for text in PAGES.values():
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
        blocks, lines = r"\$\$(.*?)\$\$", r"(?<!\$)\$(?![$\s])([^$\n]+?)\$(?!\$)"
        for is_block, pattern in ((True, blocks), (False, lines)):
            for formula in re.findall(pattern, prose, re.DOTALL):
                assert "<math" in tex2mathml(formula, as_block=is_block)
                found += 1
    assert found > 100
