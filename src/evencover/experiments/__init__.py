"""The paper's study as a library: declare a grid, run it, read the tables and figures."""

from evencover.experiments.grid import DataSet, Grid, make_dataset, shipped
from evencover.experiments.results import Results
from evencover.experiments.runner import run

__all__ = ["DataSet", "Grid", "Results", "make_dataset", "run", "shipped"]
