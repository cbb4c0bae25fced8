"""Name the types of your own files with Google's model Magika, as prediction sets.

    pip install evencover magika==1.0.3
    python examples/name_files.py           # the files of Python's standard library
    python examples/name_files.py FOLDER

evencover contains outputs of this model for 10,563 files, so there is nothing to label.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
import warnings
from pathlib import Path

import numpy as np
from magika import Magika

from evencover import EvencoverWarning, PooledPredictor, StandardPredictor
from evencover.data import load_filetypes

LEFT_OUT = {"__pycache__", "site-packages"}  # folders
TYPES = {".py": "python", ".so": "elf", ".toml": "toml", ".txt": "txt", ".xml": "xml"}


def calibrate() -> tuple[StandardPredictor, PooledPredictor]:
    """Fit one threshold for all types, and one threshold per type."""
    probabilities, labels, names, _ = load_filetypes()
    standard = StandardPredictor(alpha=0.1).fit(probabilities, labels, class_names=names)
    pooled = PooledPredictor(alpha=0.1).fit(probabilities, labels, class_names=names)
    return standard, pooled


def run_model(folder: Path) -> tuple[list[Path], np.ndarray]:
    """Return the files of a folder, and the model's probability of every type for each."""
    model = Magika()
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not LEFT_OUT & set(path.relative_to(folder).parts):
            _, features = model._get_result_or_features_from_path(path)
            if features is not None:  # Magika names tiny files by rules
                files.append((path, features))
    probabilities = model._get_raw_predictions(files)
    return [path.relative_to(folder) for path, _ in files], np.asarray(probabilities)


def main(folder: Path) -> None:
    """Name the files of a folder, and compare the sets with the extensions."""
    warnings.simplefilter("ignore", EvencoverWarning)  # some types have no calibration file
    standard, pooled = calibrate()
    paths, probabilities = run_model(folder)
    one, per_type = standard.predict_set(probabilities), pooled.predict_set(probabilities)

    print(f"{len(paths)} files, Python {platform.python_version()}")
    sets = list(zip(paths, one.to_lists(names=True), per_type.to_lists(names=True), strict=True))
    print(f"{'file':<30}{'one threshold':<15}one per type")
    for path, names, more_names in [row for row in sets if row[0].suffix == ".txt"][:8]:
        print(f"{path.as_posix():<30}{', '.join(names):<15}{', '.join(more_names)}")

    # The model does not see the extension, so it can serve as the label.
    labels = [TYPES.get(path.suffix) for path in paths]
    print("\ntype    files  one threshold  one per type  labels per set")
    for name in [name for name in TYPES.values() if name in labels]:
        rows = [row for row, label in enumerate(labels) if label == name]
        covered = [np.mean([name in sets[row][column] for row in rows]) for column in (1, 2)]
        size = per_type.sizes[rows].mean()
        print(f"{name:<8}{len(rows):>5}{covered[0]:>15.0%}{covered[1]:>14.0%}{size:>16.1f}")

    print("\nthresholds     accepted  of these right")
    top = [names[0] for _, names, _ in sets]
    labeled = np.array([label is not None for label in labels])
    right = np.array([name == label for name, label in zip(top, labels, strict=True)])
    for title, accepted in {"one": one.accepted, "one per type": per_type.accepted}.items():
        share, accuracy = accepted[labeled].mean(), right[labeled & accepted].mean()
        print(f"{title:<15}{share:>8.0%}{accuracy:>16.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("stdlib")))
