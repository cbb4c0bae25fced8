"""Readers: any file or array becomes row blocks; bundled and simulated data."""

from evencover.data.datasets.languages import Labelled, load_languages
from evencover.data.datasets.preprocessing import drop_rare_classes
from evencover.data.datasets.twin_parameters import TWINS, TwinParameters
from evencover.data.datasets.twins import TwinSource, twin
from evencover.data.opening import as_source
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
