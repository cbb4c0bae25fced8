"""Damage files at random and read them in a child: what kills it, hangs or is no sentence is told.

Libraries in C may take the whole process with them, so children do the reading: each notes which
file it is at, and where one dies or sleeps the next goes on with the file after it. A mutant is a
function of its kind and number. As a program it attacks one kind of file with so many mutants, from
a number on, and says so in one line:

    python tests/attacks/mutator.py arrow 100000 5000000
"""

import contextlib
import errno
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

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]
from attacks.structure import rewrapped, swapped_token

MOST_SECONDS = 10  # for one file
LOOK = 0.02  # seconds between two looks at a child
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


def mutated(rng: random.Random, kind: str, files: Files) -> Files:
    """One file of the store with a few changes, small ones more often, half of them inside it."""
    name = rng.choice(sorted(files))
    content = None
    if rng.random() < 0.5:
        content = rewrapped(rng, kind, files[name], lambda inner: _changed(rng, inner))
    if content is None:
        content = _changed(rng, files[name])
    return files | {name: content}


def _changed(rng: random.Random, whole: bytes) -> bytes:
    if rng.random() < 0.2:
        whole = swapped_token(rng, whole)
    content = bytearray(whole)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        _change(rng, content)
    return bytes(content)


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
    """All that a command could ask of a file of data; refused only if it can give nothing."""
    from evencover.data.open import column_from_file

    error = _refusal(_rows_and_parts, path)
    if _refusal(column_from_file, path, "labels") is not None and error is not None:
        raise error


def _refusal(look, *arguments):
    try:
        look(*arguments)
    except _sentences() as error:
        if _is_trouble(error):
            raise
        return error
    return None


def _rows_and_parts(path: Path) -> None:
    from evencover.data import as_source

    source = as_source(path)
    source.ids  # noqa: B018
    source.parts()
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


def _is_trouble(error: BaseException | None) -> bool:
    """Whether it is no sentence, or hides that more memory was asked for than the bound."""
    if "\n" in str(error) or "allocation failed" in str(error):  # as HDF5 says it
        return True
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, MemoryError) or number == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False


TARGETS = {"model": load_model}


def attack(kind: str, seeds: list[Files], ending: str, folder: Path, numbers: range):
    """Read mutants of the seeds; how many were read, how many refused, and all trouble."""
    troubles: list[Trouble] = []
    at, counts = numbers.start, [0, 0]
    with mmap.mmap(-1, 24) as shared:
        while at < numbers.stop:
            shared[:24] = struct.pack("<qqq", at, 0, 0)
            with warnings.catch_warnings():  # of threads, which the child does not use
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                _be_child(kind, seeds, ending, folder, range(at, numbers.stop), shared)
            what = _watch(child, shared)
            reached, n_read, n_refused = struct.unpack("<qqq", shared[:24])
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
            at = reached + 1
            if "memory" in what and _peak(kind, ending, folder, files) < MOST_BYTES:
                counts[1] += 1  # it asked for what nobody has, and did not get it
            else:
                troubles.append(Trouble(reached, what, files))
    return at - numbers.start, counts[0], counts[1], troubles


def _peak(kind: str, ending: str, folder: Path, files: Files) -> int:
    """How many bytes a child takes that may take any."""
    path = folder / f"mutant{ending}"
    write_files(path, files)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            TARGETS.get(kind, read_everything)(path)
        os._exit(0)
    return os.wait4(child, 0)[2].ru_maxrss << 10


def mutant(kind: str, seeds: list[Files], number: int) -> Files:
    """The mutant of this number, the same in every process."""
    rng = random.Random(f"{kind} {number}")
    return mutated(rng, kind, rng.choice(seeds))


def _watch(child: int, shared: mmap.mmap) -> str | None:
    """Wait for a child; what became of it, None if it came to its end.

    The clock counts looks at the child, not hours: a machine that stood still is no hang.
    """
    at, seconds, last = None, 0.0, time.monotonic()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        reached, now = shared[:8], time.monotonic()
        seconds = seconds + min(now - last, 5 * LOOK) if reached == at else 0.0
        at, last = reached, now
        if seconds > MOST_SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"it took more than {MOST_SECONDS} s"
        time.sleep(LOOK)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return None if os.WEXITSTATUS(status) == 0 else "no sentence"


def _be_child(kind, seeds, ending, folder, numbers, shared) -> None:
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
            write_files(path, mutant(kind, seeds, number))
            shared[:24] = struct.pack("<qqq", number, n_read, n_refused)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    target(path)
                n_read += 1
            except _sentences() as error:
                if _is_trouble(error):
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
    """Attack one kind of file with so many mutants, from a number on."""
    import tempfile

    from attacks.seeds import ENDINGS, seeds_of

    kind, n_mutants, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    numbers = range(first, first + n_mutants)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "seeds").mkdir()
        seeds = seeds_of(kind, folder / "seeds")
        n_all, n_read, n_refused, troubles = attack(kind, seeds, ENDINGS[kind], folder, numbers)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{kind}: mutants {first} to {first + n_all - 1}, {n_all} in all, {n_read} read, "
        f"{n_refused} refused, {len(troubles)} troubles, {used.ru_utime + used.ru_stime:.0f} s of "
        f"processor time, at most {used.ru_maxrss >> 10} MB",
        flush=True,
    )
    for trouble in troubles:
        print(trouble.number, trouble.what.strip().splitlines()[-1][:200])
        with contextlib.suppress(OSError):
            write_files(Path(f"/tmp/trouble-{kind}-{trouble.number}{ENDINGS[kind]}"), trouble.files)


if __name__ == "__main__":
    main()
