"""Readers and writers: any file or array becomes row blocks; bundled and simulated data."""

from evencover.data.languages import Labelled, load_languages
from evencover.data.preprocessing import drop_rare_classes
from evencover.data.source import Block, Source, as_source
from evencover.data.twins import TWINS, TwinParameters, TwinSource, twin

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
