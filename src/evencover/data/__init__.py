"""Read files and arrays as row blocks; bundled data."""

from evencover.data.bundled import Labeled, LabeledFiles, load_filetypes, load_languages
from evencover.data.open import as_source
from evencover.data.source import Block, Source

__all__ = [
    "Block",
    "Labeled",
    "LabeledFiles",
    "Source",
    "as_source",
    "load_filetypes",
    "load_languages",
]
