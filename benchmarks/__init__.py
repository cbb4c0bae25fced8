"""The benchmark behind `make bench`; see README.md beside this file."""
