"""Run the commands with ``python -m evencover``."""

from evencover.cli import main

if __name__ == "__main__":
    main()
