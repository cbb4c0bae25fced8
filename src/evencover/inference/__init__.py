"""A trained classifier and raw inputs to a score file, which everything else here reads."""

from evencover.inference.run import Inferred, infer

__all__ = ["Inferred", "infer"]
