"""Read files and arrays as row blocks; bundled and simulated data."""

from evencover.data.bundled import Labeled, LabeledFiles, load_filetypes, load_languages
from evencover.data.open import as_source
from evencover.data.simulated import SIMULATED, load_simulated
from evencover.data.source import Block, Source

__all__ = [
    "SIMULATED",
    "Block",
    "Labeled",
    "LabeledFiles",
    "Source",
    "as_source",
    "load_filetypes",
    "load_languages",
    "load_simulated",
]
