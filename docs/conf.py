"""Sphinx configuration."""

from evencover import __version__

project = "evencover"
author = "The evencover developers"
release = version = __version__
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build"]
numpydoc_show_class_members = False
autodoc_typehints = "description"
html_theme = "alabaster"
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]
