"""``evencover cutoffs``: the cutoff of each class from a few reviewed predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from evencover.cli.console import print_text
from evencover.cli.options import Force, Output
from evencover.errors import InputError
from evencover.output.atomic import check_output, write_csv, write_record
from evencover.validation import whole_number

File = str | None
Number = Parameter(name=["--number", "-n"], help="Number of predictions to review.")


def run(
    reviewed: Annotated[File, Parameter(help="Predictions with the answers of a review.")] = None,
    /,
    *,
    output: Annotated[Output, Parameter(help="Cutoffs, sample or predictions to write.")],
    accuracy: Annotated[float, Parameter(help="Target precision of what is kept.")] = 0.9,
    detections: Annotated[File, Parameter(help="All predictions, for their precision.")] = None,
    apply: Annotated[File, Parameter(help="Predictions of which to keep the sure ones.")] = None,
    plan: Annotated[File, Parameter(help="Predictions of which to review a sample.")] = None,
    number: Annotated[int, Number] = 200,
    class_key: Annotated[str | None, Parameter(help="Name of the classes.")] = None,
    score_key: Annotated[str | None, Parameter(help="Name of the scores.")] = None,
    right_key: Annotated[str | None, Parameter(help="Name of the answers.")] = None,
    force: Force = False,
) -> None:
    """Find the cutoff of each class from a few reviewed predictions.

    Draw a sample with --plan, fill in its column 'correct' with yes or no, and pass it to get the
    cutoffs (.csv, or .json: {class: cutoff}) or, with --apply, the predictions that reach them. All
    files have a class and a score per prediction, as BirdNET writes them.
    """
    from evencover.data.detections import read_detections
    from evencover.predictors.cutoffs import fit_cutoffs, review_order

    check_output(
        output,
        [reviewed, detections, apply, plan],
        force=force,
        extensions=(".csv",) if plan or apply else (".csv", ".json"),
    )
    if (reviewed is None) == (plan is None) or sum(map(bool, (plan, detections, apply))) > 1:
        raise InputError("Pass reviews, also with --detections or --apply, or --plan FILE alone.")
    if plan is not None:
        drawn = read_detections(plan, class_key, score_key)
        rows = review_order(drawn.classes)[: whole_number(number, "number", "cutoffs", 1)]
        _write(output, drawn.table.take(rows), "correct", [""] * len(rows))
        n_drawn, n_classes = len(set(drawn.classes[rows])), len(set(drawn.classes))
        print(f"{output}: {len(rows)} predictions of {n_drawn} of {n_classes} classes to review")
        return
    reviews = read_detections(str(reviewed), class_key, score_key, right_key)
    found, text = fit_cutoffs(*reviews[:3], accuracy=accuracy), ""
    if others := apply or detections:
        rest = read_detections(others, class_key, score_key)
        index, kept = found.index_of(rest.classes), found.is_accepted(*rest[:2])
        precision = f"{found.expected[index[kept]].mean():.1%}" if kept.any() else "none"
        text = (
            f" {kept.sum()} of {len(kept)} predictions are kept; expected precision: {precision}. "
            f"{(index < 0).sum()} are not kept because their class has no reviews."
        )
    if apply is not None:
        guaranteed = found.is_guaranteed[index[kept]].tolist()
        _write(output, rest.table.take(np.flatnonzero(kept)), "guaranteed", guaranteed)
    elif output.suffix.lower() == ".json":
        cutoffs = [None if np.isinf(each) else each for each in found.cutoffs.tolist()]
        write_record(output, dict(zip(found.class_names, cutoffs, strict=True)))
    else:
        write_csv(output, found.rows())
    print_text(f"{output}: {found.summary()}{text}")


def _write(path: Path, table: Any, name: str, values: list[Any]) -> None:
    """Write an Arrow table with one more column as CSV."""
    if name in table.column_names:
        raise InputError(f"Predictions must not have a column {name!r} yet; rename it.")
    table = table.append_column(name, [values])
    write_csv(path, table.to_pylist(), table.column_names)
