"""Tables that no page repeats by hand.

```{generated} metrics
```

is written from the code, and

```{evidence} filetypes.csv
```

has the numbers that `make evidence` measured, with the version and the date.
"""

import csv
from collections.abc import Callable, Iterable
from typing import Any

from command_pages import pages
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from evidence_files import DOCS, FOLDER, markdown, read_record


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def metrics() -> list[str]:
    """List the metrics with their formulas."""
    from evencover.evaluation.metrics import METRICS

    def formula(metric: Any) -> Any:
        return metric.formula.replace("c_y", "$c_y$")

    better = {"lower": "lower", "higher": "higher", "neither": "–"}
    return table(
        ["name", "attribute", "meaning", "unit", "better"],
        [
            [
                metric.title,
                f"`{metric.name}`",
                ": ".join(filter(None, (metric.describe("1 - alpha"), formula(metric)))),
                metric.unit,
                better.get(metric.better, "near 1 - alpha"),
            ]
            for metric in METRICS
        ],
    )


def commands() -> list[str]:
    """List the commands with the first paragraph of their help and a link to their page."""

    def summary(text: str) -> str:
        prose = (part for part in text.split("\n\n") if not part.startswith(("#", "```")))
        return next(prose).strip().replace("\n", " ")

    return table(
        ["command", "purpose"],
        [[f"[`{name}`](commands/{name}.md)", summary(text)] for name, text in pages()],
    )


def methods() -> list[str]:
    """List the methods by name, with their summaries."""
    from evencover.predictors import PREDICTORS

    return table(
        ["method", "thresholds"],
        [[f"`{name}`", method.summary] for name, method in PREDICTORS.items()],
    )


def scores() -> list[str]:
    """List the scores by name, with their summaries."""
    from evencover.scores import SCORES

    return table(
        ["score", "definition"], [[f"`{name}`", score.summary] for name, score in SCORES.items()]
    )


def names() -> list[str]:
    """List the names under which files hold their arrays and columns."""
    from evencover.data.columns import (
        ID_KEYS,
        LABEL_KEYS,
        LOGIT_KEYS,
        PREDICTIONS_KEY,
        PROBABILITY_KEYS,
        TRAINER_LABELS_KEY,
    )

    def listed(keys: Iterable[str]) -> str:
        return ", ".join(f"`{key}`" for key in keys)

    trainer = f"; `{PREDICTIONS_KEY}` next to `{TRAINER_LABELS_KEY}` (Hugging Face)"
    return table(
        ["content", "names"],
        [
            ["probabilities", listed(PROBABILITY_KEYS)],
            ["logits", listed(LOGIT_KEYS) + trainer],
            ["labels", listed(LABEL_KEYS)],
            ["ids", listed(ID_KEYS)],
        ],
    )


def delays() -> list[str]:
    """List how many labels of a class an alarm takes after a fall to 70% (benchmarks/delays.py)."""
    with open(FOLDER / "monitoring_delays.csv", newline="") as file:
        heads, *rows = csv.reader(file)
    columns = [index for index, head in enumerate(heads) if head.startswith("to 70%")]
    good = [heads[index].removeprefix("to 70% after ") for index in columns]
    cases = ("one class", "first of 500 classes")
    return table(
        ["labels at 92% before the fall", *good],
        [
            [case, *(row[index] for index in columns)]
            for case in cases
            for row in rows
            if row[0] == f"coverage below target, {case}"
        ],
    )


TABLES: dict[str, Callable[[], list[str]]] = {
    each.__name__: each for each in (commands, delays, methods, metrics, names, scores)
}


class Generated(Directive):
    """Insert one of `TABLES`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the table as part of the page."""
        return parsed(self, TABLES[self.arguments[0]]())


class Evidence(Directive):
    """Insert a file of docs/evidence, and below it when and with which version it was measured."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the file as part of the page."""
        path = FOLDER / self.arguments[0]
        environment = self.state.document.settings.env
        for used in (path, FOLDER / "record.csv"):
            environment.note_dependency(str(used))
        measured = read_record()[path.relative_to(DOCS).as_posix()]
        note = nodes.paragraph("", f"Measured with evencover {measured.version}, {measured.date}.")
        note["classes"].append("measured")
        return [*parsed(self, markdown(path)), note]


def parsed(directive: Directive, lines: list[str]) -> list[nodes.Node]:
    """Parse Markdown as part of the directive's page."""
    place = nodes.Element()
    content = StringList(lines, source=directive.arguments[0])
    directive.state.nested_parse(content, directive.content_offset, place)
    return place.children


def setup(sphinx: Any) -> dict[str, bool]:
    """Register the directives."""
    sphinx.add_directive("generated", Generated)
    sphinx.add_directive("evidence", Evidence)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
