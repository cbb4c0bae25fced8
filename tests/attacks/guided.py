"""Fuzzing that looks for new paths through our own readers: atheris, guided by coverage.

For what is read in Python: arrays, texts and models. Readers in C see no guidance, and may take the
process with them; the mutator has those. As a program it makes so many runs of one kind of file:

    python tests/attacks/guided.py model 100000 1

Atheris is no dependency of the tests: pip install atheris (Linux, CPython up to 3.13).
"""

import importlib
import inspect
import os
import pkgutil
import sys
import tempfile
import warnings
from pathlib import Path

import evencover.persistence
from evencover import InputError, data, predictors

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]
from attacks.mutator import TARGETS, _is_trouble, read_everything, write_files
from attacks.seeds import ENDINGS, seeds_of

KINDS = ("npy", "npz", "safetensors", "csv", "jsonl", "model")


def instrument() -> None:
    """Count the branches of all our functions; an editable package is not seen when imported."""
    import atheris

    for package in (data, predictors):  # what is imported later has no counters
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(each.name)
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{evencover.__name__}.") and "_kernels" not in name:
            for holder in [module, *(c for _, c in inspect.getmembers(module, inspect.isclass))]:
                for function in vars(holder).values():
                    if inspect.isfunction(function) and function.__module__ == name:
                        atheris.instrument_func(function)


def main() -> None:
    """Never returns: the exit code is 0 if every file was read or refused in a sentence."""
    import atheris

    kind, n_runs, seed = sys.argv[1:4]
    os.environ["EVENCOVER_THREADS"] = "1"
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp())
    corpus = folder / "corpus"
    for name in ("seeds", "corpus"):
        (folder / name).mkdir()
    for number, files in enumerate(seeds_of(kind, folder / "seeds")):
        write_files(corpus / str(number), files)
    path, target = folder / f"file{ENDINGS[kind]}", TARGETS.get(kind, read_everything)

    def look(content: bytes) -> None:
        path.write_bytes(content)
        try:
            target(path)
        except InputError as error:
            if _is_trouble(error):
                raise

    instrument()
    limits = ["-max_len=20000", "-timeout=10", "-rss_limit_mb=1500", "-print_final_stats=1"]
    found = f"-artifact_prefix={folder}/"
    atheris.Setup(
        [sys.argv[0], f"-runs={n_runs}", f"-seed={seed}", *limits, found, str(corpus)], look
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
