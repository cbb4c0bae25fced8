"""The commands: read, call the library, print. Results on stdout, notes on stderr."""

from evencover.cli.main import main as main
