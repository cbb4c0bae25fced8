"""``evencover compare``: compare methods and scores on repeated splits."""

from __future__ import annotations

from pathlib import Path

from evencover.cli import options
from evencover.cli.console import note, print_table, print_text, watch
from evencover.data.location import as_location
from evencover.data.open import as_source
from evencover.output.atomic import reject_existing
from evencover.output.writers import write_csv


def run(
    data: str | None = None,
    /,
    *,
    methods: str | None = None,
    scores: str | None = None,
    alpha: options.Alpha = "0.1",
    confidence: options.Confidence = None,
    n_splits: int = 10,
    calibration_fraction: float | None = None,
    n_per_class: int | None = None,
    max_size: float | None = None,
    min_coverage: float | None = None,
    groups: options.Groups = None,
    prevalence: options.Prevalence = None,
    settings: options.Settings = None,
    temperature: float = 1.0,
    temperatures: str | None = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    csv: Path | None = None,
    report: Path | None = None,
    force: options.Force = False,
    read: options.Input = options.READ,
) -> None:
    """Compare methods and scores on repeated splits of one labelled data set.

    Parameters
    ----------
    data
        Probabilities and labels; by default the bundled data set (505 languages).
    methods
        Names, separated by commas, or "all": also {more_methods}.
    scores
        Names, separated by commas, or "all": also {more_scores}.
    n_splits
        How many times the rows are split.
    calibration_fraction
        Share of the rows that calibrates; one half by default.
    n_per_class
        Calibrate on this many rows of each class instead.
    max_size
        Recommend only candidates with sets of at most this many classes on average.
    min_coverage
        Recommend only candidates that cover at least this share of all rows.
    temperature
        Divides logits.
    temperatures
        Several of them, separated by commas: everything is tried with each.
    csv
        Also write the table to this file.
    report
        Also write a page (.html) with the table and a chart.
    """
    from evencover.comparison.compare import DEFAULT_METHODS, DEFAULT_SCORES, compare

    if csv is not None:
        reject_existing(csv, force=force)
    if report is not None:
        from evencover.report import require_extra, write_comparison

        require_extra()
        reject_existing(report, force=force)
    predictors, with_scores = options.make_methods_and_scores(
        DEFAULT_METHODS if methods is None else methods.split(","),
        DEFAULT_SCORES if scores is None else scores.split(","),
        options.read_settings(settings, groups=groups, prevalence=prevalence),
    )
    if data is None:
        from evencover.data import load_languages

        bundled = load_languages()
        source = watch(as_source(bundled.probabilities, bundled.labels), "comparing")
        note(f"no file given: comparing on the bundled data ({source.n_classes} languages)")
    else:
        source = read.open(data, "comparing")
    result = compare(
        source,
        methods=predictors,
        scores=with_scores,
        alpha=options.number_if_float(alpha),
        confidence=options.number_if_float(confidence),
        n_splits=n_splits,
        calibration_fraction=calibration_fraction,
        n_per_class=n_per_class,
        max_size=max_size,
        min_coverage=min_coverage,
        temperature=temperature,
        temperatures=None
        if temperatures is None
        else options.numbers(temperatures, "temperatures"),
        random_state=seed,
    )
    if csv is not None:
        write_csv(csv, result.rows())
    if report is not None:
        name = "the bundled languages" if data is None else as_location(data).name
        write_comparison(result, report, title=f"Comparison on {name}", force=force)
    if as_json:
        options.print_json(result.to_dict())
        return
    print_table(*result.table(), title=result.heading(), least=["CovGap", "coverage"])
    print_text(result.reason)
