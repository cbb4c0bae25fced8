"""Record what examples/name_files.py prints, in parts: a step of `make evidence`.

python scripts/record_magika.py     writes docs/evidence/magika_*.txt; needs magika
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from evidence_output import write_text

EXAMPLE = Path(__file__).parents[1] / "examples" / "name_files.py"
PARTS = ("sets", "types", "review")


def main() -> None:
    """Run the example on Python's standard library."""
    command = [sys.executable, str(EXAMPLE)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    for part, text in zip(PARTS, printed.split("\n\n"), strict=True):
        write_text(f"magika_{part}.txt", text)


if __name__ == "__main__":
    main()
