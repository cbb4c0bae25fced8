"""Reproduce the paper's study: declare a grid, run it, make tables and figures."""

from evencover.experiments.simulated import load_simulated
from evencover.experiments.study import Grid, Results, run, shipped
from evencover.experiments.table import make_table

__all__ = ["Grid", "Results", "load_simulated", "make_table", "run", "shipped"]
