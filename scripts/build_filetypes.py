"""Build the bundled data set ``src/evencover/data/filetypes.npz``.

Download the packages of ``filetypes_packages.csv`` (PyPI, npm, Debian) into a cache folder and
check their digests. Label each file by its extension, as the table of the model Magika
maps extensions to types. Leave out files whose first bytes contradict the extension. Choose files
by the digest of their content, run the model, and store its outputs, the labels and the names of
the files, but no content. No rule depends on what the model predicts for a file.

Requires numpy, evencover and ``pip install magika==1.0.3 onnxruntime==1.31.1``. The same versions
on the same kind of processor give the same file.

    python scripts/build_filetypes.py --cache .cache/filetypes
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import re
import subprocess
import tarfile
import urllib.parse
import urllib.request
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import magika
import numpy as np
import onnxruntime
from bundled_storage import encode
from magika.types import Seekable
from numpy.typing import NDArray

from evencover.data.bundled import N_STEPS, decode

HERE = Path(__file__).parent
PACKAGES = HERE / "filetypes_packages.csv"
OUTPUT = HERE.parent / "src" / "evencover" / "data" / "filetypes.npz"
MAGIKA = Path(magika.__file__).parent
MODEL = MAGIKA / "models" / "standard_v3_3"

MOST_PER_TYPE = 120
MOST_PER_PACKAGE = 40  # of one type; a package has one style of writing
MOST_OF_A_NAME = 10  # of one type; 'package.json' is not the only JSON file

# --- labels ----------------------------------------------------------------------------------

# Extensions that the table assigns to one type, but that reveal little about the content.
UNCLEAR = {
    "ace": "genome assemblies as well as archives",
    "ai": "PostScript or PDF",
    "cat": "catalogs of many programs",
    "cl": "OpenCL more often than Lisp",
    "cer crt der gpg pem pub": "keys and certificates in text or binary form",
    "dm": "many programs",
    "doc": "plain text more often than Word",
    "hlp": "plain text more often than Windows help",
    "jsonld": "one JSON document, not one per line",
    "l": "lex more often than Lisp",
    "lnk": "linker files as well as shortcuts",
    "mm": "Objective-C++, matrices and mind maps as well as Objective-C",
    "o obj": "ELF objects and meshes more often than COFF",
    "P pro": "Qt projects and others more often than Prolog",
    "pkg": "archives of many programs",
    "pp": "Puppet as well as Pascal",
    "pt pth": "Zope templates and lists of paths more often than PyTorch",
    "snap": "test snapshots more often than packages",
    "sum": "lists of checksums",
    "ts": "translations of Qt and video outside of npm",
    "v": "Coq and V as well as Verilog",
}
# Extensions that the table does not have, but that belong to one of its types.
MORE_EXTENSIONS = {"ex": "elixir", "mk": "makefile", "pm": "perl"}
# The table has no extensions for types that have a file name instead. CMake's ends in .txt.
BY_NAME = {
    ".DS_Store": "dsstore",
    ".dockerignore": "ignorefile",
    ".gitattributes": "gitattributes",
    ".gitignore": "ignorefile",
    ".gitmodules": "gitmodules",
    ".hgignore": "ignorefile",
    ".htaccess": "htaccess",
    ".npmignore": "ignorefile",
    "BUILD": "bazel",
    "BUILD.bazel": "bazel",
    "CMakeLists.txt": "cmake",
    "Dockerfile": "dockerfile",
    "GNUmakefile": "makefile",
    "Gemfile": "gemfile",
    "Makefile": "makefile",
    "Makefile.am": "makefile",
    "WORKSPACE": "bazel",
}
# Extensions with a meaning of their own in a package: one of several languages, or none of them.
BY_PACKAGE = {
    ("npm", "m"): "objectivec",  # modules for iOS
    ("npm", "ts"): "typescript",
    ("fpc", "pp"): "pascal",
    ("ghdl", "proto"): None,  # VHDL with placeholders
    ("gnucobol3", "tex"): None,  # Texinfo
    ("iverilog", "v"): "verilog",
    ("patool", "vhd"): None,  # a virtual disk
    ("perl", "pl"): "perl",
    ("statsmodels", "s"): None,  # S, not assembler
    ("swi-prolog", "pl"): "prolog",
    ("yosys", "v"): "verilog",
}
# Test suites contain files that do not match their extension; a name in the path shows it.
DAMAGED = re.compile(
    r"invalid|corrupt|malformed|broken|faulty|fuzz|crash|trunca|/bad|cve-|wrong|encrypt|git_crypt",
    re.I,
)
# Markup in such folders is written in one of many template languages.
TEMPLATE = re.compile(r"(template|theme|layout)[^.]*\.(x?html?|md|rst|tex|ya?ml)$", re.I)
# Build tools write the files of such folders.
GENERATED = re.compile(r"\.(egg-info|dist-info|deps)/")
# Copies of other projects; files of the project itself come first.
VENDORED = re.compile(r"/(vendor[^/]*|third_party|3rdparty|node_modules)/")
# The first bytes that the format of a binary type requires. 'Makefile.dmg' is no disk image.
SIGNATURES = {
    rb"PK[\x03\x05]": "apk docx epub jar npz odp ods odt pptx xlsb xlsx zip",
    rb"\xd0\xcf\x11\xe0": "ppt",
    rb"\xd0\xcf\x11\xe0|\t[\0\x02\x04\x08]": "xls",  # before Excel 5 without a container
    rb"OTTO|\0\x01\0\0|true|ttcf": "otf ttf",
    rb"\x1aE\xdf\xa3": "mkv webm",
    rb"....(ftyp|moov|mdat|free|skip|wide)": "mp4 qt",
    rb"RIF[FX]....WAVE": "wav",
    rb"RIFF....WEBP": "webp",
    rb"BM": "bmp",
    rb"BZh": "bzip",
    rb"MSCF": "cab",
    rb"ITSF": "chm",
    rb"!<arch>": "deb",
    rb"dex\n": "dex",
    rb".{128}DICM": "dicom",
    rb".*koly.{508}$": "dmg",
    rb"....Bud1": "dsstore",
    rb"\x7fELF": "elf",
    rb"\x01\0\0\0.{36} EMF": "emf",
    rb"fLaC|ID3": "flac",
    rb"FLV": "flv",
    rb"GIF8": "gif",
    rb"\x1f\x8b": "gzip",
    rb"(.{512}|.{1024}|.{2048})?\x89HDF": "h5",
    rb"icns": "icns",
    rb"\0\0\x01\0": "ico",
    rb".{32769}CD001": "iso",
    rb"\xca\xfe\xba\xbe": "javabytecode",
    rb"....jP": "jp2",
    rb"\xff\xd8\xff": "jpeg",
    rb"..-(lh|lz|pm)": "lha",
    rb"MThd": "midi",
    rb"ID3|\xff[\xe0-\xff]": "mp3",
    rb"\x93NUMPY": "npy",
    rb"OggS": "ogg",
    rb"PAR1": "parquet",
    rb"\xa1\xb2\xc3\xd4|\xd4\xc3\xb2\xa1|\xa1\xb2<M|M<\xb2\xa1|\n\r\r\n": "pcap",
    rb".{,1024}%PDF": "pdf",
    rb"MZ": "pebin",
    rb"\x89PNG": "png",
    rb"8BPS": "psd",
    rb"..\r\n|[\x02\x03]\x99\x99\0": "pythonbytecode",
    rb"Rar!": "rar",
    rb"\xed\xab\xee\xdb": "rpm",
    rb"7z\xbc\xaf": "sevenzip",
    rb"SQLite format 3": "sqlite",
    rb"[CFZ]WS": "swf",
    rb"II[*+]\0|MM\0[*+]": "tiff",
    rb"d\d": "torrent",
    rb"\0asm": "wasm",
    rb"\xd7\xcd\xc6\x9a|\x01\0\t\0": "wmf",
    rb"wOFF": "woff",
    rb"wOF2": "woff2",
    rb"\xfd7zXZ": "xz",
}


def read_outputs() -> list[str]:
    """Return the names of the model's outputs, in order."""
    config = json.loads((MODEL / "config.min.json").read_text())
    return list(config["target_labels_space"])


@cache
def read_extensions() -> dict[str, str]:
    """Return the type of each extension that belongs to one type."""
    table = json.loads((MAGIKA / "config" / "content_types_kb.min.json").read_text())
    pairs = [
        (extension, name) for name in read_outputs() for extension in table[name]["extensions"]
    ]
    counts = Counter(extension for extension, _ in pairs)
    unclear = {extension for extensions in UNCLEAR for extension in extensions.split()}
    usable = {one: name for one, name in pairs if counts[one] == 1 and one not in unclear}
    return usable | MORE_EXTENSIONS


class Package(NamedTuple):
    """One archive of a registry."""

    registry: str
    name: str
    version: str
    sha256: str
    path: str  #: below the URL that the registry's own client uses; of PyPI, the file's name


def label(package: Package, path: str, extensions: dict[str, str]) -> str | None:
    """Return the type of a file by its name, or None."""
    name = path.rsplit("/", 1)[-1]
    if name.startswith("._"):  # macOS attributes
        return None
    if any(pattern.search(path) for pattern in (DAMAGED, TEMPLATE, GENERATED)):
        return None
    if name in BY_NAME:
        return BY_NAME[name]
    stem, _, extension = name.rpartition(".")
    if not stem:
        return None
    for key in ((package.registry, extension), (package.name, extension)):
        if key in BY_PACKAGE:
            return BY_PACKAGE[key]
    # R and S are types of their own, TXT is not, and Po is no translation.
    if extension not in extensions and extension.isupper():
        extension = extension.lower()
    return extensions.get(extension)


@cache
def read_signatures() -> dict[str, re.Pattern[bytes]]:
    """Return the pattern of the first bytes of each type that has one."""
    return {
        name: re.compile(pattern, re.DOTALL)
        for pattern, names in SIGNATURES.items()
        for name in names.split()
    }


# --- files -----------------------------------------------------------------------------------


class File(NamedTuple):
    """A labeled file."""

    digest: str  #: of its content
    label: str
    id: str  #: package/path
    features: NDArray[np.uint16]  #: what the model gets: the first and last bytes


def read_packages() -> list[Package]:
    """Read the list of packages."""
    with PACKAGES.open(newline="") as file:
        return [Package(**row) for row in csv.DictReader(file)]


@cache
def registry_url(registry: str) -> str:
    """Ask the registry's own client (apt-get, npm, pip) for its base URL."""
    if registry == "pypi":
        from pip._internal.commands import create_command

        return f"{create_command('download').parser.get_default_values().index_url}/"
    command = {
        "debian": ["apt-get", "indextargets", "--format", "$(REPO_URI)"],
        "npm": ["npm", "config", "get", "registry"],
    }[registry]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return min(printed.split(), key=len)  # not that of security updates


def url_of(package: Package) -> str:
    """Return the URL of an archive."""
    base = registry_url(package.registry)
    if package.registry != "pypi":
        return base + package.path
    page = f"{base}{package.name}/"
    with urllib.request.urlopen(page, timeout=180) as response:
        links = re.findall(r'href="([^"#]+)', response.read().decode())
    link = next(link for link in links if link.rsplit("/", 1)[-1] == package.path)
    return urllib.parse.urljoin(page, link)


def download(package: Package, folder: Path) -> Path:
    """Download an archive unless the folder has it, and check its digest."""
    name = package.path.rsplit("/", 1)[-1]
    archive = folder / f"{package.registry}-{package.sha256[:16]}-{name}"
    if not archive.exists():
        with urllib.request.urlopen(url_of(package), timeout=180) as response:
            archive.write_bytes(response.read())
    if hashlib.sha256(archive.read_bytes()).hexdigest() != package.sha256:
        raise SystemExit(f"{archive} does not have the digest of {PACKAGES.name}; delete it.")
    return archive


def read_archive(archive: Path) -> Iterator[tuple[str, io.BufferedIOBase]]:
    """Iterate over the regular files of an archive: path and content."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for member in zipped.infolist():
                if not member.is_dir():
                    yield member.filename, io.BytesIO(zipped.read(member))
        return
    with tarfile.open(archive, "r|*") as tar:
        for entry in tar:
            if entry.isfile():
                content = tar.extractfile(entry)
                assert content is not None
                yield entry.name.removeprefix("./"), content


@cache
def get_model() -> magika.Magika:
    """Return the model, one per process."""
    return magika.Magika()


def read_files(package: Package, folder: Path) -> list[File]:
    """Read the files that have a label, and choose `MOST_PER_PACKAGE` of each type."""
    model, extensions, signatures = get_model(), read_extensions(), read_signatures()
    files = defaultdict[str, dict[str, File]](dict)
    tops = set[str]()
    for path, content in read_archive(download(package, folder)):
        tops.add(path.partition("/")[0])
        file_label = label(package, path, extensions)
        if file_label is None:
            continue
        data = content.read()
        if file_label in signatures and not signatures[file_label].match(data):
            continue
        digest = hashlib.sha256(data).hexdigest()
        of_type = files[file_label]
        if digest in of_type or (
            len(of_type) >= MOST_PER_PACKAGE and digest > sorted(of_type)[MOST_PER_PACKAGE - 1]
        ):
            continue
        # Rules name files of less than 8 bytes; the model gets the others.
        known, features = model._get_result_or_features_from_seekable(Seekable(io.BytesIO(data)))
        if known is None:
            values = np.array([*features.beg, *features.end], dtype=np.uint16)
            of_type[digest] = File(digest, file_label, path, values)
    # Most archives have one top folder, with the version in its name.
    start = len(min(tops)) + 1 if len(tops) == 1 else 0
    return [
        of_type[digest]._replace(id=f"{package.name}/{of_type[digest].id[start:]}")
        for of_type in files.values()
        for digest in sorted(of_type)[:MOST_PER_PACKAGE]
    ]


def choose(files: list[File]) -> list[File]:
    """Choose the rows: each content once, at most `MOST_PER_TYPE` per type, from many packages."""
    labels = defaultdict[str, set[str]](set)
    unique: dict[str, File] = {}
    for file in files:
        labels[file.digest].add(file.label)
        unique.setdefault(file.digest, file)
    by_type = defaultdict[str, list[tuple[bool, int, File]]](list)
    taken: Counter[tuple[str, str, bool]] = Counter()
    for file in sorted(unique.values(), key=lambda file: file.digest):
        if len(labels[file.digest]) == 1:  # LICENSE.md may be a copy of LICENSE.txt
            is_copy = VENDORED.search(file.id) is not None
            source = (file.label, file.id.partition("/")[0], is_copy)
            by_type[file.label].append((is_copy, taken[source], file))
            taken[source] += 1
    chosen = []
    for of_type in by_type.values():
        names: Counter[str] = Counter()
        kept = []
        # Take one file of each package, then a second one of each, and so on.
        for *_, file in sorted(of_type, key=lambda ranked: (*ranked[:2], ranked[2].digest)):
            name = file.id.rsplit("/", 1)[-1]
            names[name] += 1
            if names[name] <= MOST_OF_A_NAME or name in BY_NAME:
                kept.append(file)
        chosen += kept[:MOST_PER_TYPE]
    # A fixed random order that no other row changes. Digests below 0x80 are for development.
    return sorted(chosen, key=lambda file: hashlib.sha256(file.id.encode()).digest())


# --- outputs ---------------------------------------------------------------------------------


def predict(features: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the softmax outputs (N, K) of the network, before the thresholds of the tool."""
    # One file at a time in one thread: the outputs depend on the size of a batch.
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(MODEL / "model.onnx", options)
    rows = [session.run(["target_label"], {"bytes": row[None]})[0] for row in features.astype("i4")]
    return np.concatenate(rows)


def print_summary(exact: NDArray[np.float32], labels: NDArray[np.intp], names: list[str]) -> None:
    """Print a description of the data set and the error of its storage."""
    counts = np.bincount(labels, minlength=len(names))
    correct = exact.argmax(axis=1) == labels
    print(f"N = {len(labels)}, K = {len(names)}, {(counts > 0).sum()} types with files")
    print(f"{(counts >= 40).sum()} types with 40 or more, {(counts == counts.max()).sum()} full")
    print(f"accuracy {correct.mean():.4f}, mean confidence {exact.max(axis=1).mean():.4f}")
    by_class = np.argsort(labels, kind="stable")
    stored = np.empty_like(exact)
    n_steps = N_STEPS["filetypes"]
    stored[by_class] = decode(*encode(exact[by_class].astype(np.float64), n_steps), n_steps)
    rows = np.arange(len(labels))
    change = np.abs(stored[rows, labels].astype(np.float64) - exact[rows, labels])
    print(f"accuracy as stored {(stored.argmax(axis=1) == labels).mean():.4f}")
    print(
        f"change of the true type's probability: mean {change.mean():.5f}, max {change.max():.4f}"
    )
    for name, count in sorted(zip(names, counts, strict=True), key=lambda pair: -pair[1]):
        print(f"{name} {count}", end="; ")
    print()


def write(files: list[File], exact: NDArray[np.float32], output: Path) -> None:
    """Describe and write the data set."""
    names = read_outputs()
    labels = np.array([names.index(file.label) for file in files])
    print_summary(exact, labels, names)

    by_class = np.argsort(labels, kind="stable")
    steps, medians = encode(exact[by_class].astype(np.float64), N_STEPS["filetypes"])
    ids = "\n".join(files[row].id for row in by_class)
    unfinished = output.with_suffix(".part.npz")
    np.savez_compressed(
        unfinished,
        steps=steps,
        medians=medians,
        labels=labels.astype(np.uint8),
        class_names=np.array(names),
        ids=np.frombuffer(ids.encode(), dtype=np.uint8),
    )
    unfinished.replace(output)
    digest = hashlib.sha256(output.read_bytes()).hexdigest()
    print(f"wrote {output.name}, {output.stat().st_size / 1e6:.2f} MB, SHA-256 {digest}")


def build(folder: Path, output: Path) -> None:
    """Run every step and write ``output``."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        by_package = pool.map(partial(read_files, folder=folder), read_packages())
        files = choose([file for files in by_package for file in files])
        parts = np.array_split([file.features for file in files], 8)
        exact = np.concatenate(list(pool.map(predict, parts)))
    write(files, exact, output)


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path(".cache/filetypes"), help="of archives")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the .npz file to write")
    arguments = parser.parse_args()
    build(arguments.cache, arguments.output)


if __name__ == "__main__":
    main()
