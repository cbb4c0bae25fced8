"""Data at hand: the bundled languages, and simulated twins of the paper's data sets."""
