"""``evencover compare`` and ``recommend``: which method and score to use for your data."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evencover.cli import options
from evencover.cli.console import note, watch
from evencover.data.location import as_location
from evencover.data.open import as_source
from evencover.errors import printable
from evencover.output.atomic import check_output, write_csv

if TYPE_CHECKING:
    from evencover.comparison.result import Candidate


def compare(
    data: str | None = None,
    /,
    *,
    methods: str | None = None,
    scores: str | None = None,
    alpha: options.Alpha = "0.1",
    alpha_of: options.AlphaOf = None,
    floor: options.Floor = None,
    max_share: str | None = None,
    n_splits: int = 10,
    calibration_sizes: str = "0.5",
    settings: options.Settings = None,
    seed: options.Seed = 0,
    show_all: options.All = False,
    as_json: options.Json = False,
    csv: Path | None = None,
    report: Path | None = None,
    force: options.Force = False,
    read: options.Input = options.READ,
) -> None:
    """Compare methods and scores on your data.

    Every method and score is calibrated and tested on the same random splits. Labels that are not
    among the classes count as misses.

    {methods}

    {scores}

    Parameters
    ----------
    data
        Probabilities and labels; by default the bundled file types.
    methods
        Comma-separated names, or "all"; by default {default_methods}.
    scores
        Comma-separated names, or "all"; by default {default_scores}.
    max_share
        Largest shares of sets that a class may enter, e.g. none,0.1.
    n_splits
        Number of splits.
    calibration_sizes
        Examples per class, e.g. 10,20,50, or a fraction of all.
    csv
        Also write the table to this file.
    report
        Also write an HTML report of the comparison.
    """
    from evencover import comparison
    from evencover.comparison.compare import DEFAULT_METHODS, DEFAULT_SCORES

    inputs = [data, *read.files, *options.files_among(alpha_of, settings)]
    if csv is not None:
        check_output(csv, inputs, force=force)
    if report is not None:
        from evencover.report import require_extra, write_comparison

        check_output(report, [*inputs, csv], force=force, extensions=options.PAGE)
        require_extra()
    predictors, with_scores = options.make_methods_and_scores(
        DEFAULT_METHODS if methods is None else methods.split(","),
        DEFAULT_SCORES if scores is None else scores.split(","),
        options.read_settings(settings),
        class_alpha=bool(alpha_of),
    )
    floors = options.read_floor(floor)
    if floors == {"floor": None}:
        predictors = [predictor.set_params(floor=None) for predictor in predictors]
    if data is None:
        from evencover.data import load_filetypes

        bundled = load_filetypes()
        names = list(bundled.class_names)
        source = as_source(bundled.probabilities, bundled.labels, class_names=names)
        source = watch(source, "comparing")
        note("no file given: comparing on the bundled data (214 file types)")
    else:
        source = read.open(data, "comparing")
    result = comparison.compare(
        source,
        methods=predictors,
        scores=with_scores,
        alpha=options.read_alpha(alpha, alpha_of, source.class_names, source.n_classes),
        floor=floors.get("floor"),
        max_share=max_share
        and [
            None if share == "none" else options.number_if_float(share)
            for share in max_share.split(",")
        ],
        n_splits=n_splits,
        calibration_sizes=[
            int(size) if size.is_integer() else size
            for size in options.numbers(calibration_sizes, "calibration-sizes")
        ],
        random_state=seed,
    )
    if csv is not None:
        write_csv(csv, result.rows())
    if report is not None:
        name = "the bundled file types" if data is None else as_location(data).name
        write_comparison(result, report, title=f"Comparison on {name}", force=force)
    if as_json:
        options.print_json(result.to_dict())
        return
    print(printable(result.summary(everything=show_all, more="--all")))
    if result.recommended is not None:
        more = {"alpha": [alpha], "alpha-of": alpha_of, "floor": [floor], "set": settings}
        print(_next_command(result.recommended, data, more))


def recommend(
    data: str,
    /,
    *,
    alpha: options.Alpha = "0.1",
    floor: options.Floor = None,
    max_share: options.MaxShare = None,
    read: options.Input = options.READ,
) -> None:
    """Recommend a method for calibration data.

    Four methods are compared on one split of the data into halves; 'compare' tries several splits
    and scores.

    Parameters
    ----------
    data
        Probabilities and labels of the calibration set.
    """
    from evencover import comparison

    advice = comparison.recommend(
        read.open(data, "reading"),
        alpha=options.number_if_float(alpha),
        **options.read_floor(floor),
        max_share=max_share,
    )
    print(printable(str(advice)))
    if advice.comparison.recommended is not None:
        chosen: dict[str, list[str | None]] = {"alpha": [alpha], "floor": [floor]}
        print(_next_command(advice.comparison.recommended, data, chosen))


def _next_command(
    candidate: Candidate, data: str | None, chosen: Mapping[str, Sequence[str | None] | None]
) -> str:
    """Return the command that calibrates a candidate, without options at their defaults."""
    from evencover.predictors import DEFAULT_METHOD

    taken = options.parameters_of(candidate.method, candidate.score)
    pairs = [pair for pair in chosen.get("set") or () if pair]
    settings = [pair for pair in pairs if pair.split("=")[0].replace("-", "_") in taken]
    cap = None if candidate.max_share is None else str(candidate.max_share)
    chosen = {"method": [candidate.method], "score": [candidate.score], **chosen}
    chosen |= {"max-share": [cap], "set": settings}
    defaults = {"alpha": "0.1", "method": DEFAULT_METHOD, "score": "softmax"}
    texts = [
        f"--{name} {shlex.quote(value)}"
        for name, values in chosen.items()
        for value in values or ()
        if value not in (None, defaults.get(name))
    ]
    name = "DATA" if data is None else shlex.quote(data)
    return " ".join(["Next: evencover calibrate", name, *texts, "-o model.safetensors"])
