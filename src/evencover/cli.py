"""The commands, thin: read, call the library, show. Results on stdout, notes on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
import numpy as np
from cyclopts import App, Parameter

import evencover
from evencover._validation import EvencoverWarning, InputError
from evencover.console import note, print_table, watch
from evencover.data.atomic import atomic_path, refuse_existing
from evencover.data.source import Source, as_source

if TYPE_CHECKING:
    from evencover.evaluation import GroupCoverage

app = App(
    name="evencover",
    help="Prediction sets that cover every class, not just the average one.",
    version=f"evencover {evencover.__version__}",
    help_format="plaintext",
)

Output = Annotated[Path, Parameter(name=["--output", "-o"])]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Switch = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Input:
    """How the data file is to be read."""

    labels: Path | None = None
    "File with one label per row (.npy, .npz or text), if they are not with the probabilities."
    logits: Switch = False
    "The numbers are logits; a softmax is applied."
    ids: Path | None = None
    "File with one stable id per row; the same id always gets the same random choices."

    def open(self, data: Path, what: str) -> Source:
        """The data as a source that shows its progress."""
        from evencover.data.files import column_from_file

        labels = None if self.labels is None else column_from_file(self.labels)
        return watch(as_source(data, labels, logits=True if self.logits else None), what)

    def row_ids(self) -> Any:
        """The ids, or None."""
        from evencover.data.files import column_from_file

        return None if self.ids is None else column_from_file(self.ids, "ids")


READ = Input()


@app.command
def calibrate(
    data: Path,
    /,
    *,
    output: Output,
    method: str = "pooled",
    score: str = "softmax",
    alpha: str = "0.1",
    exact: Switch = False,
    allow_empty: bool = True,
    randomize: bool = True,
    penalty: float | None = None,
    k_reg: int | None = None,
    gamma: float | None = None,
    n_clusters: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    force: Switch = False,
    read: Input = READ,
) -> None:
    """Learn the thresholds from held-out rows with labels, and save them as a model.

    Parameters
    ----------
    data
        Probabilities and labels: .npz, .npy with --labels, .parquet or .arrow.
    output
        Where to write the model (.safetensors).
    method
        standard, classwise, clustered or pooled.
    score
        softmax, aps or raps.
    alpha
        Miscoverage level: sets aim at coverage 1 - alpha. A decimal or a fraction such as 1/3.
    exact
        Randomise the thresholds so that coverage is exactly 1 - alpha.
    allow_empty
        Whether sets may be empty; if not, an empty set is given the most probable class.
    randomize
        Whether APS and RAPS draw a uniform number per row.
    penalty
        RAPS: the price (lambda) of each rank beyond k-reg; 0.01 by default.
    k_reg
        RAPS: the rank up to which nothing is paid; 5 by default.
    gamma
        Clustered: share of the rows that find the clusters; by the paper's rule by default.
    n_clusters
        Clustered: number of clusters; by the paper's rule by default.
    temperature
        Divides logits.
    seed
        Fixes every random choice.
    force
        Overwrite an existing file.
    """
    from evencover.persistence import save
    from evencover.predictors import make_predictor

    output = refuse_existing(output, force=force)
    if output.suffix != ".safetensors":
        raise InputError(f"A model's ending must be .safetensors. Got '{output}' instead.")
    own = {"gamma": gamma, "n_clusters": n_clusters}
    parameters = {name: value for name, value in own.items() if value is not None}
    if parameters and method.lower() != "clustered":
        raise InputError("--gamma and --n-clusters belong to the method 'clustered'.")
    source = read.open(data, "calibrating")
    predictor = make_predictor(
        method,
        alpha=_number_if_float(alpha),
        score=_score(score, randomize=randomize, penalty=penalty, k_reg=k_reg),
        exact=exact,
        allow_empty=allow_empty,
        from_logits=bool(source.logits),
        temperature=temperature,
        random_state=seed,
        **parameters,
    )
    predictor.fit(source, ids=read.row_ids())
    save(predictor, output, force=force)
    print(
        f"{output}: {predictor.method}, calibrated on {predictor.n_calibration_} rows "
        f"of {predictor.n_classes_} classes"
    )


@app.command
def predict(
    model: Path, data: Path, /, *, output: Output, force: Switch = False, read: Input = READ
) -> None:
    """Write the prediction set of every row.

    Parameters
    ----------
    model
        Written by calibrate.
    data
        Probabilities of new rows.
    output
        Where to write the sets: .parquet, .npz, .jsonl or .csv.
    force
        Overwrite an existing file.
    """
    from evencover.data.writers import check_sets_format, write_sets
    from evencover.persistence import load

    output = refuse_existing(output, force=force)
    check_sets_format(output)
    predictor = load(model)
    source = read.open(data, "predicting")
    sizes = []

    def counted(blocks: Any) -> Any:
        for sets in blocks:
            sizes.append((len(sets), len(sets.indices)))
            yield sets

    blocks = counted(predictor.predict_set_blocks(source, ids=read.row_ids()))
    n_rows = write_sets(output, blocks, source.class_names)
    average = sum(members for _, members in sizes) / n_rows
    print(f"{output}: {n_rows} sets, {average:.2f} classes on average")


@app.command
def evaluate(
    model: Path,
    data: Path,
    /,
    *,
    as_json: Json = False,
    read: Input = READ,
) -> None:
    """Measure coverage, of every class and on average, and set sizes on held-out rows.

    Parameters
    ----------
    model
        Written by calibrate.
    data
        Probabilities and labels of rows that neither trained nor calibrated.
    as_json
        Print every number as JSON.
    """
    from evencover.persistence import load

    predictor = load(model)
    report = predictor.evaluate(read.open(data, "evaluating"), ids=read.row_ids())
    if as_json:
        _print_json(report.to_dict())
        return
    print(report)
    groups = report.by_calibration_count()
    if report.cluster_of_class is not None:
        groups += report.by_cluster()
    titles = ["classes", "how many", "test rows", "coverage", "mean of classes", "CovGap"]
    print_table(titles, [_group_cells(group) for group in groups])


@app.command
def report(
    model: Path,
    data: Path,
    /,
    *,
    output: Output,
    title: str | None = None,
    force: Switch = False,
    read: Input = READ,
) -> None:
    """Write a page that shows which classes are let down, and why: one HTML file, no network.

    Parameters
    ----------
    model
        Written by calibrate.
    data
        Probabilities and labels of rows that neither trained nor calibrated.
    output
        Where to write the page (.html).
    title
        What the page is called; by default after the data file.
    force
        Overwrite an existing file.
    """
    from evencover.persistence import load
    from evencover.report import require_extra, write_report

    require_extra()
    output = refuse_existing(output, force=force)
    predictor = load(model)
    source = read.open(data, "reporting")
    title = f"Coverage of {data.name}" if title is None else title
    write_report(output, predictor, source, ids=read.row_ids(), title=title, force=force)
    print(f"{output}: open it in a browser")


@app.command
def info(
    file: Path | None = None,
    /,
    *,
    as_json: Json = False,
    read: Input = READ,
) -> None:
    """Tell what a model or a data file holds; without a file, what this installation runs on.

    Parameters
    ----------
    file
        A model written by calibrate, or a file with probabilities.
    as_json
        Print everything as JSON.
    """
    from evencover import description

    if file is None:
        about = description.of_installation()
    elif file.suffix == ".safetensors":
        from evencover.persistence import load

        about = description.of_model(load(file))
    else:
        about = description.of_data(read.open(file, "reading"))
    if as_json:
        _print_json(about)
    else:
        description.show(about)


@app.command
def recommend(
    data: Path, /, *, alpha: str = "0.1", as_json: Json = False, read: Input = READ
) -> None:
    """Say which method suits these labels, why, what to expect, and what would change it.

    Parameters
    ----------
    data
        Probabilities and labels of the calibration rows.
    alpha
        Miscoverage level.
    as_json
        Print the advice as JSON.
    """
    from evencover.advice import recommend as advise

    source = read.open(data, "reading")
    if not source.has_labels:
        raise InputError(f"Advice needs labels. Got none with {source.name}; pass --labels.")
    labels = np.concatenate([np.asarray(block.labels) for block in source.blocks()])
    advice = advise(labels, source.n_classes, _number_if_float(alpha))
    if as_json:
        _print_json(advice.to_dict())
    else:
        print(advice)


@app.command
def compare(
    data: Path | None = None,
    /,
    *,
    methods: str = "standard,classwise,clustered,pooled",
    scores: str = "softmax,aps,raps",
    alpha: str = "0.1",
    n_splits: int = 10,
    calibration_fraction: float | None = None,
    n_per_class: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    as_json: Json = False,
    csv: Path | None = None,
    report: Path | None = None,
    force: Switch = False,
    read: Input = READ,
) -> None:
    """Compare methods and scores on repeated splits of one labelled data set.

    Parameters
    ----------
    data
        Probabilities and labels; by default the bundled data set (505 languages).
    methods
        Names, separated by commas.
    scores
        Names, separated by commas.
    alpha
        Miscoverage level.
    n_splits
        How many times the rows are split.
    calibration_fraction
        Share of the rows that calibrates; one half by default.
    n_per_class
        Calibrate on so many rows of each class instead.
    temperature
        Divides logits.
    seed
        Fixes every random choice.
    as_json
        Print every number as JSON.
    csv
        Also write the table to this file.
    report
        Also write a page (.html) with the table and a chart.
    force
        Overwrite an existing file.
    """
    from evencover.comparison import compare as run

    if csv is not None:
        refuse_existing(csv, force=force)
    if report is not None:
        from evencover.report import require_extra, write_comparison

        require_extra()
        refuse_existing(report, force=force)
    if data is None:
        from evencover.data import load_languages

        bundled = load_languages()
        source = watch(as_source(bundled.probabilities, bundled.labels), "comparing")
        note(f"no file given: comparing on the bundled data ({source.n_classes} languages)")
    else:
        source = read.open(data, "comparing")
    result = run(
        source,
        methods=methods.split(","),
        scores=scores.split(","),
        alpha=_number_if_float(alpha),
        n_splits=n_splits,
        calibration_fraction=calibration_fraction,
        n_per_class=n_per_class,
        temperature=temperature,
        random_state=seed,
    )
    if csv is not None:
        _write_csv(csv, result.rows())
    if report is not None:
        name = "the bundled languages" if data is None else data.name
        write_comparison(report, result, title=f"Comparison on {name}", force=force)
    if as_json:
        _print_json(result.to_dict())
        return
    print_table(*result.table(), title=result.heading())
    print(result.reason)


def _group_cells(group: GroupCoverage) -> list[str]:
    numbers = [f"{group.coverage:.3f}", f"{group.mean_class_coverage:.3f}", f"{group.covgap:.2f}"]
    return [group.group, str(group.n_classes), str(group.n_rows), *numbers]


def _score(name: str, *, randomize: bool, penalty: float | None, k_reg: int | None) -> Any:
    from evencover.scores import make_score

    given = {"penalty": penalty, "k_reg": k_reg}
    parameters: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if not randomize:
        parameters["randomize"] = False
    return make_score({"name": name, **parameters})


def _number_if_float(alpha: str) -> Any:
    """Keep alpha as it was written unless it is a plain decimal, which Python shows the same."""
    try:
        return float(alpha)
    except ValueError:
        return alpha


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    import csv

    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _print_json(value: Any) -> None:
    print(json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    """The same value with null for numbers that JSON lacks: NaN and infinite thresholds."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main(arguments: list[str] | None = None) -> None:
    """Run a command; bad input is one sentence on stderr and exit code 2."""
    shown: set[str] = set()

    def show_warning(message: Any, category: Any, *details: Any) -> None:
        if issubclass(category, EvencoverWarning) and str(message) not in shown:
            shown.add(str(message))
            note(str(message))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", EvencoverWarning)
            warnings.showwarning = show_warning  # type: ignore[assignment]
            app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output went away
        _discard_stdout()
        sys.exit(141)
    except (InputError, cyclopts.CycloptsError, OSError) as error:
        print(f"evencover: {' '.join(str(error).split())}", file=sys.stderr)
        if isinstance(error, OSError):  # perhaps stdout itself is full
            _discard_stdout()
        sys.exit(2)


def _discard_stdout() -> None:
    """Let Python flush what is left at exit without complaining again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
