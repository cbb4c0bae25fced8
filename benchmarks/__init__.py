"""The benchmark of `make bench`; see README.md in this folder."""
