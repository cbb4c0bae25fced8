"""Lets ``python -m evencover`` run the commands."""

from evencover.cli import main

if __name__ == "__main__":
    main()
