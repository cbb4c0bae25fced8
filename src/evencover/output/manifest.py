"""A folder of parts that can be finished after an interruption, and is complete or says it is not.

`_plan.json` is written first and says what the parts will be and what they are made from; each part
appears whole or not at all; `_manifest.json` is written last. A part that is there is finished, so
whoever comes again with the same plan makes only what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evencover.errors import InputError
from evencover.output.atomic import remove_leftovers
from evencover.output.records import make_folder, read_record, refuse_other_things, write_record

FORMAT = 1
PLAN, MANIFEST = "_plan.json", "_manifest.json"


@dataclass(frozen=True)
class PlannedFolder:
    """A folder and what belongs in it.

    Parameters
    ----------
    folder
        Where the parts go; made if it does not exist.
    made_from
        What the parts are made from: name -> text that differs where the content would.
    parts
        One record for each part: ``file``, ``first_row``, ``rows``.
    """

    folder: Path
    made_from: dict[str, str]
    parts: list[dict[str, Any]]

    def begin(self, *, force: bool = False) -> list[dict[str, Any]]:
        """Write the plan, or check that it is the one that is there; return the missing parts."""
        known = read_record(self.folder / PLAN, _is_plan, "it is damaged; choose another folder")
        plan = {"format": FORMAT, "made_from": self.made_from, "parts": self.parts}
        if known is None:
            refuse_other_things(self.folder, "one that this command began")
        elif known != plan:
            self._make_way(known, force=force)
        if known != plan:
            make_folder(self.folder)
            write_record(self.folder / PLAN, plan)
        return self.missing()

    def missing(self) -> list[dict[str, Any]]:
        """The parts that are not there yet."""
        return [part for part in self.parts if not (self.folder / part["file"]).exists()]

    def finish(self) -> None:
        """Write the manifest, now that every part is there."""
        parts = [
            {**part, "bytes": (self.folder / part["file"]).stat().st_size} for part in self.parts
        ]
        rows = sum(part["rows"] for part in self.parts)
        about = {"format": FORMAT, "made_from": self.made_from, "rows": rows, "parts": parts}
        write_record(self.folder / MANIFEST, about)
        for part in self.parts:
            remove_leftovers(self.folder / part["file"])

    def _make_way(self, known: dict[str, Any], *, force: bool) -> None:
        """Refuse the plan that is there, or take away what it made: manifest first, plan last."""
        theirs = known["made_from"]
        differ = [name for name, text in self.made_from.items() if theirs.get(name) != text]
        if not force:
            raise InputError(
                f"'{self.folder}' holds the parts of another run: it had another "
                f"{' and another '.join(differ) or 'partition'}; choose another folder, or "
                "write it anew with force=True (--force)."
            )
        for file in (MANIFEST, *(part["file"] for part in known["parts"]), PLAN):
            (self.folder / file).unlink(missing_ok=True)


def _is_plan(content: dict[str, Any]) -> bool:
    """Whether its files are names only: nothing outside the folder may be removed."""
    files = [part["file"] for part in content["parts"]]
    return isinstance(content["made_from"], dict) and all(
        isinstance(file, str) and Path(file).name == file for file in files
    )
