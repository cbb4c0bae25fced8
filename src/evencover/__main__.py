"""Lets ``python -m evencover`` run the commands."""

from evencover.cli import main

main()
