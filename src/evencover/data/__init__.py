"""Read files and arrays as row blocks; bundled and simulated data."""

from evencover.data.languages import Labelled, drop_rare_classes, load_languages
from evencover.data.open import as_source
from evencover.data.simulated import TWINS, TwinParameters, TwinSource, twin
from evencover.data.source import Block, Source

__all__ = [
    "TWINS",
    "Block",
    "Labelled",
    "Source",
    "TwinParameters",
    "TwinSource",
    "as_source",
    "drop_rare_classes",
    "load_languages",
    "twin",
]
