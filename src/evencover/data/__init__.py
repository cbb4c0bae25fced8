"""Readers and writers: any file or array becomes row blocks; bundled and simulated data."""

from evencover.data.datasets.languages import Labelled, load_languages
from evencover.data.datasets.preprocessing import drop_rare_classes
from evencover.data.datasets.twins import TWINS, TwinParameters, TwinSource, twin
from evencover.data.source import Block, Source, as_source

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
