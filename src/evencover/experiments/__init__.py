"""Reproduce the paper's study: declare a grid, run it, make tables and figures."""

from evencover.experiments.grid import DataSet, Grid, make_dataset, shipped
from evencover.experiments.results import Results
from evencover.experiments.runner import run

__all__ = ["DataSet", "Grid", "Results", "make_dataset", "run", "shipped"]
