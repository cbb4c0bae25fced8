"""Run a trained classifier on images or texts and write a score file."""

from evencover.inference.run import Inferred, infer

__all__ = ["Inferred", "infer"]
