"""Write a page for each command from its help."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = "commands"  # pages are docs/commands/NAME.md


def pages() -> Iterator[tuple[str, str]]:
    """Yield name and text of each command; subcommands are sections of its page."""
    from evencover.cli.main import make_app
    from evencover.cli.options import fill_in_choices

    app = make_app()
    fill_in_choices(app)
    # cyclopts 5 includes how it was run: python -m sphinx
    whole = app.generate_docs("markdown").replace(" -m sphinx", "")
    for section in re.split(r"^(?=## evencover \w)", whole, flags=re.MULTILINE)[1:]:
        text = section.partition("## evencover --")[0]  # options of the application follow
        name = text.split(maxsplit=3)[2]
        yield name, re.sub(r"^#(?=#+ )", "", text, flags=re.MULTILINE)


def write_pages(sphinx: Any) -> None:
    """Write the page of each command; unchanged pages keep their modification time."""
    folder = Path(sphinx.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for name, text in pages():
        page = folder / f"{name}.md"
        if not page.exists() or page.read_text("utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(sphinx: Any) -> dict[str, bool]:
    """Write the pages before Sphinx reads any."""
    sphinx.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
