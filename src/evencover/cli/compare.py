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
    alpha_of: options.AlphaOf = None,
    floor: options.Floor = None,
    strict_floor: options.StrictFloor = False,
    confidence: options.Confidence = None,
    n_splits: int = 10,
    calibration_fraction: float | None = None,
    n_per_class: int | None = None,
    max_size: float | None = None,
    min_coverage: float | None = None,
    top: options.Top = None,
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
    """Compare methods and scores on your data.

    Every method and score is calibrated and tested on the same random splits. Labels that are not
    among the classes count as misses.

    {methods}

    {scores}

    Parameters
    ----------
    data
        Probabilities and labels; by default the bundled languages.
    methods
        Comma-separated names, or "all"; by default {default_methods}.
    scores
        Comma-separated names, or "all"; by default {default_scores}.
    n_splits
        Number of splits.
    calibration_fraction
        Fraction used for calibration; 0.5 by default.
    n_per_class
        Calibrate on this many examples of each class instead.
    max_size
        Recommend the best with at most this average set size.
    min_coverage
        Recommend only candidates with at least this overall coverage.
    temperature
        Divide logits by this.
    temperatures
        Temperatures to try, separated by commas.
    csv
        Also write the table to this file.
    report
        Also write an HTML report of the comparison.
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
    floors = options.check_floor(floor, strict_floor)
    predictors = [each.set_params(strict_floor=floors["strict_floor"]) for each in predictors]
    if methods == "all" and alpha_of:
        predictors = [each for each in predictors if each.supports_class_alpha]
    if data is None:
        from evencover.data import load_languages

        bundled = load_languages()
        names = list(bundled.class_names)
        source = as_source(bundled.probabilities, bundled.labels, class_names=names)
        source = watch(source, "comparing")
        note(f"no file given: comparing on the bundled data ({source.n_classes} languages)")
    else:
        source = read.open(data, "comparing", allow_unknown=True)
    result = compare(
        source,
        methods=predictors,
        scores=with_scores,
        alpha=options.read_alpha(alpha, alpha_of, source.class_names, source.n_classes),
        floor=floors["floor"],
        confidence=options.number_if_float(confidence),
        n_splits=n_splits,
        calibration_fraction=calibration_fraction,
        n_per_class=n_per_class,
        max_size=max_size,
        min_coverage=min_coverage,
        top=top,
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
