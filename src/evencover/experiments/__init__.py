"""The paper's study as a library: declare a grid, run it, read the tables and figures."""

from evencover.experiments.datasets import DataSet, make_dataset
from evencover.experiments.grid import Grid, shipped
from evencover.experiments.results import Results
from evencover.experiments.runner import run

__all__ = ["DataSet", "Grid", "Results", "make_dataset", "run", "shipped"]
