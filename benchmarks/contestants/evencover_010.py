"""evencover 0.1.0, for what must not become slower; its interface is ours."""

from benchmarks.contestants.evencover import Contestant

__all__ = ["Contestant"]
