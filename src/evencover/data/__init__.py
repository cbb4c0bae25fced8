"""Readers and writers: any file or array becomes row blocks; the bundled data set."""

from evencover.data.languages import Labelled, load_languages
from evencover.data.source import Block, Source, as_source

__all__ = ["Block", "Labelled", "Source", "as_source", "load_languages"]
