"""Damage files at random and read them in a child: what kills it, hangs or is no sentence is told.

Libraries in C may take the whole process with them, so children do the reading: each notes which
file it is at, and where one dies or sleeps the next goes on with the file after it. As a program
it attacks one kind of file for so many seconds:

    python tests/attacks/mutator.py arrow 60
"""

import contextlib
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

MOST_SECONDS = 10  # for one file
MOST_BYTES = 1 << 30  # beyond what the process had before
CORPUS = Path(__file__).parent / "corpus"
NUMBERS = [0, 1, -1, 2, 7, 16, 64, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, -(2**31)]
NUMBERS += [2**32 - 1, 2**53, 2**62, 2**63 - 1, -(2**63)]
TEXTS = [b"0", b"-1", b"9" * 30, b"1e999", b"nan", b"\x00", b'"', b"\xff\xfe", b"\n", b"[[[[", b"{"]

Files = dict[str, bytes]  # one file under the name "", or all files of a store


class Trouble(NamedTuple):
    """What a file did: its number, what happened, and the file."""

    number: int
    what: str
    files: Files


def mutated(rng: random.Random, files: Files) -> Files:
    """One file of the store with a few changes, small ones more often."""
    name = rng.choice(sorted(files))
    content = bytearray(files[name])
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        _change(rng, content)
    return files | {name: bytes(content)}


def _change(rng: random.Random, content: bytearray) -> None:
    size = len(content)
    at = rng.randrange(size) if size else 0
    if size > 64 and rng.random() < 0.5:  # what describes the content is at both ends
        at = rng.choice([rng.randrange(64), size - 1 - rng.randrange(64)])
    length = rng.choice([1, 2, 4, 8, rng.randrange(1, 65)])
    way = rng.randrange(8)
    if way == 0 and size:
        content[at] ^= 1 << rng.randrange(8)
    elif way == 1 and size:
        content[at] = rng.randrange(256)
    elif way == 2:
        form = rng.choice(["<h", "<i", "<q", ">i", ">q"])
        bits = 8 * struct.calcsize(form)
        number = rng.choice(NUMBERS) & ((1 << bits) - 1)
        content[at : at + bits // 8] = number.to_bytes(bits // 8, "little")
    elif way == 3:
        del content[at : at + length]
    elif way == 4:
        content[at:at] = content[at : at + length]
    elif way == 5:
        content[at : at + rng.choice([0, length])] = rng.choice(TEXTS)
    elif way == 6 and rng.random() < 0.3:
        del content[at:]
    elif size:
        other = rng.randrange(size)
        content[at : at + length] = content[other : other + length]


def read_everything(path: Path) -> None:
    """All that a command could ask of a file of data."""
    from evencover.data import as_source
    from evencover.data.files import column_from_file

    errors = []
    for look in (_rows, lambda p: column_from_file(p, "labels"), lambda p: as_source(p).parts()):
        try:
            look(path)
        except _sentences() as error:
            errors.append(error)
    if len(errors) == 3:
        raise errors[0]


def _rows(path: Path) -> None:
    from evencover.data import as_source

    source = as_source(path)
    source.ids  # noqa: B018
    for block in source.blocks():
        block.rows.sum()


def load_model(path: Path) -> None:
    """A model, and a set by it."""
    import numpy as np

    from evencover import load

    model = load(path)
    if model.n_classes_ < 10_000 and "row groups" not in model.needs:
        model.predict_set(np.full((2, model.n_classes_), 1 / model.n_classes_))


def _sentences():
    from evencover import InputError

    return InputError


TARGETS = {"model": load_model}


def attack(
    kind: str, seeds: list[Files], ending: str, folder: Path, numbers: range, most_seconds=1e9
):
    """Read mutants of the seeds; how many were read, how many refused, and all trouble."""
    troubles: list[Trouble] = []
    at, stop_at = numbers.start, time.monotonic() + most_seconds
    counts = [0, 0]
    with mmap.mmap(-1, 32) as shared:
        while at < numbers.stop and time.monotonic() < stop_at:
            shared[:32] = struct.pack("<qqqd", at, 0, 0, time.monotonic())
            with warnings.catch_warnings():  # of threads, which the child does not use
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                _be_child(kind, seeds, ending, folder, range(at, numbers.stop), shared, stop_at)
            what = _watch(child, shared)
            reached, n_read, n_refused, _ = struct.unpack("<qqqd", shared[:32])
            counts[0] += n_read
            counts[1] += n_refused
            if what is None:
                at = reached + 1
                break
            files = mutant(kind, seeds, reached)
            report = folder / "trouble.txt"
            if report.exists():
                what = report.read_text(errors="replace")
                report.unlink()
            troubles.append(Trouble(reached, what, files))
            at = reached + 1
    return at - numbers.start, counts[0], counts[1], troubles


def mutant(kind: str, seeds: list[Files], number: int) -> Files:
    """The mutant of this number, the same in every process."""
    rng = random.Random(f"{kind} {number}")
    return mutated(rng, rng.choice(seeds))


def _watch(child: int, shared: mmap.mmap) -> str | None:
    """Wait for a child; what became of it, None if it came to its end."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        began = struct.unpack("<d", shared[24:32])[0]
        if time.monotonic() - began > MOST_SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"it took more than {MOST_SECONDS} s"
        time.sleep(0.02)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return None if os.WEXITSTATUS(status) == 0 else "no sentence"


def _be_child(kind, seeds, ending, folder, numbers, shared, stop_at) -> None:
    """Never returns: reads one mutant after the other until one is neither read nor refused."""
    code = 1
    try:
        _bound_memory()
        os.environ["EVENCOVER_THREADS"] = "1"  # threads would wait for each other, not for work
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        target, n_read, n_refused = TARGETS.get(kind, read_everything), 0, 0
        path = folder / f"mutant{ending}"
        for number in numbers:
            if time.monotonic() > stop_at:
                break
            write_files(path, mutant(kind, seeds, number))
            shared[:32] = struct.pack("<qqqd", number, n_read, n_refused, time.monotonic())
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    target(path)
                n_read += 1
            except _sentences() as error:
                if "\n" in str(error):
                    raise
                n_refused += 1
            shared[8:24] = struct.pack("<qq", n_read, n_refused)
        code = 0
    except BaseException:
        (folder / "trouble.txt").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def write_files(path: Path, files: Files) -> None:
    """A file, or a store, in the place of what was there."""
    if "" in files:
        path.write_bytes(files[""])
        return
    shutil.rmtree(path, ignore_errors=True)
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)


def read_files(path: Path) -> Files:
    """A file, or all files of a store."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def main() -> None:
    """Attack one kind of file for so many seconds, from a number on."""
    import tempfile

    sys.path[:0] = [str(Path(__file__).parents[1])]
    from attacks.seeds import ENDINGS, seeds_of

    kind, seconds = sys.argv[1], float(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "seeds").mkdir()
        seeds = seeds_of(kind, folder / "seeds")
        found = attack(kind, seeds, ENDINGS[kind], folder, range(first, 10**9), seconds)
    n_all, n_read, n_refused, troubles = found
    print(f"{kind}: {n_all} mutants, {n_read} read, {n_refused} refused, {len(troubles)} troubles")
    for trouble in troubles[:20]:
        print(trouble.number, trouble.what.strip().splitlines()[-1][:200])
    for trouble in troubles:
        with contextlib.suppress(OSError):
            write_files(Path(f"/tmp/trouble-{kind}-{trouble.number}{ENDINGS[kind]}"), trouble.files)


if __name__ == "__main__":
    main()
