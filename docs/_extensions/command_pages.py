"""A page for each command of the shell, made from the help that the command itself gives."""

from pathlib import Path
from typing import Any

FOLDER = "commands"  # pages are docs/commands/NAME.md


def write_pages(sphinx: Any) -> None:
    """Write the page of each command; what has not changed keeps its date."""
    from evencover.cli.commands import app, name_choices

    name_choices()
    folder = Path(sphinx.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    names = [name for name in app if not name.startswith("-")]
    for name in names:
        page = folder / f"{name}.md"
        text = app[name].generate_docs("markdown", usage_name="evencover")
        if not page.exists() or page.read_text("utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(sphinx: Any) -> dict[str, bool]:
    """Before any page is read."""
    sphinx.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
