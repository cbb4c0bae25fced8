"""A folder of parts that can be finished after an interruption, and is complete or says it is not.

`_plan.json` is written first and says what the parts will be and what they are made from; each part
appears whole or not at all; `_manifest.json` is written last. A part that is there is finished, so
whoever comes again with the same plan makes only what is missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evencover._validation import InputError
from evencover.output.atomic import atomic_path

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
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"Cannot write '{self.folder}': it is a file, and must be a folder.")
        known = _read(self.folder / PLAN)
        plan = {"format": FORMAT, "made_from": self.made_from, "parts": self.parts}
        if known != plan:
            self._refuse_others(known, force=force)
            self._remove_files(known)
            try:
                self.folder.mkdir(exist_ok=True)
            except OSError as error:
                reason = error.strerror or str(error)
                raise InputError(f"Cannot write '{self.folder}': {reason}.") from error
            _write(self.folder / PLAN, plan)
        return [part for part in self.parts if not (self.folder / part["file"]).exists()]

    def finish(self) -> None:
        """Write the manifest, now that every part is there."""
        parts = [
            {**part, "bytes": (self.folder / part["file"]).stat().st_size} for part in self.parts
        ]
        rows = sum(part["rows"] for part in self.parts)
        about = {"format": FORMAT, "made_from": self.made_from, "rows": rows, "parts": parts}
        _write(self.folder / MANIFEST, about)
        for part in self.parts:  # what was half-written when somebody was killed
            for rest in self.folder.glob(f".{part['file']}.*.part"):
                rest.unlink(missing_ok=True)

    def _refuse_others(self, known: dict[str, Any] | None, *, force: bool) -> None:
        if known is None:
            if self.folder.is_dir() and any(self.folder.iterdir()):
                raise InputError(
                    f"'{self.folder}' must be a new or empty folder, or one that this command "
                    "began. Got one that holds other files."
                )
            return
        if force:
            return
        theirs = known["made_from"]
        differ = [name for name, text in self.made_from.items() if theirs.get(name) != text]
        raise InputError(
            f"'{self.folder}' holds the parts of another run: it had another "
            f"{' and another '.join(differ) or 'partition'}; choose another folder, or pass "
            "--force to write it anew."
        )

    def _remove_files(self, known: dict[str, Any] | None) -> None:
        """Take away what another plan made, its manifest first and its plan last."""
        files = [] if known is None else [part["file"] for part in known["parts"]]
        for file in (MANIFEST, *files, PLAN):
            (self.folder / file).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files = [part["file"] for part in content["parts"]]
        if not isinstance(content["made_from"], dict) or any(
            not isinstance(file, str) or Path(file).name != file for file in files
        ):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise InputError(f"Cannot read '{path}': it is damaged; choose another folder.") from None
    return dict(content)


def _write(path: Path, content: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
