"""The fitted value of a predictor: built whole, checked, read-only, and stored as it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np

from evencover import _kernels
from evencover.answers import NO_NODE
from evencover.arrays import Array, FloatArray, to_numpy
from evencover.classes import Classes, as_written, by_class, checked_names
from evencover.data.open import as_source
from evencover.data.source import Block, Expected, Source
from evencover.errors import InputError, warn_caller
from evencover.evaluation.recall import RecallAtK
from evencover.precision import PRECISIONS, warn_of_precision
from evencover.predictors.acceptance import Acceptance
from evencover.predictors.calibration import CalibrationInputs, CalibrationRows
from evencover.predictors.caps import Caps, ScoreSample
from evencover.predictors.guarantees import Needs, some_names
from evencover.predictors.rule import BoundScore, SetRule
from evencover.quantiles import Alpha, ClassAlpha, Groups, Thresholds
from evencover.scores import Score, make_score
from evencover.threads import keeping_threads
from evencover.topk import TopK


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """All that a fit found, and all that it depends on.

    It is built completely and then assigned, so an error before that leaves the old fit as it was.
    Arrays are read-only. The constructor checks that the parts fit each other, also if they come
    from a file.

    Parameters
    ----------
    method
        An unfitted predictor with copies of the parameters of the fit.
    rows
        The calibration rows, with the base scores of their labels.
    thresholds
        Those of the classes, on the method's score.
    state
        What else the method found: a NamedTuple of arrays and numbers, or None.
    inputs
        The inputs of the rows.
    acceptance
        Which predictions to accept, if that was fitted.
    caps
        The classes whose thresholds `max_share` lowers, and its limits, if it is given.
    """

    method: Any  # a BasePredictor, whose module imports this one
    rows: CalibrationRows
    thresholds: Thresholds
    state: Any
    inputs: CalibrationInputs
    acceptance: Acceptance | None = None
    caps: Caps | None = None

    def __post_init__(self) -> None:
        read_only((self.thresholds, self.state, self.inputs, self.acceptance, self.caps))
        _check_rows(self.rows)
        _check_inputs(self.inputs, self.n_classes)
        _check_thresholds(self.thresholds, self.n_classes)
        if self.acceptance is not None:
            _check_acceptance(self.acceptance, self.n_classes)
        if (self.caps is None) != (self.method.max_share is None):
            raise InputError("There must be caps if, and only if, 'max_share' is given.")
        if self.caps is not None:
            _check_caps(self.caps, self.n_classes)
        if not isinstance(self.state, self.method._State):
            name = self.method._State.__name__
            raise TypeError(
                f"The state that {type(self.method).__name__} returns next to the thresholds must "
                f"be {name}. Got {self.state!r}."
            )
        self.method._check_fit(self)

    @classmethod
    def of(cls, predictor: Any) -> Fit:
        """Return a predictor's fit; raise for none, or if a parameter was changed after it."""
        attributes = vars(predictor)
        fit: Fit = attributes.get("fit_") or predictor._any_fit
        kind: Any = type(predictor)
        read = parameters_in(kind)
        now, then = read(attributes), read(vars(fit.method))
        try:
            if now == then:
                return fit
        except ValueError:  # arrays have no truth value
            pass
        for name, value, fitted in zip(predictor._parameter_names(), now, then, strict=True):
            if not np.array_equal(value, fitted):
                remedy = "; 'with_alpha' changes alpha without data" if name == "alpha" else ""
                raise InputError(
                    f"'{name}' of this {kind.__name__} must be that of its fit, "
                    f"{fitted!r}. Got {value!r}; call 'fit' again{remedy}."
                )
        return fit

    @classmethod
    def calibrated(
        cls,
        predictor: Any,
        rows: CalibrationRows,
        inputs: CalibrationInputs,
        limits: Caps | ScoreSample | None = None,
        *,
        acceptance: Acceptance | None = None,
    ) -> Fit:
        """Calibrate the method of a predictor on rows; copy its parameters.

        With `max_share`, `limits` are a sample of these rows, or the caps of an earlier fit.
        """
        method = type(predictor)(**deepcopy(predictor.get_params()) | {"max_share": None})
        score = method._check_parameters().with_counts(rows.class_counts, rows.class_names)
        scored = rows.scored_by(score)
        with keeping_threads():
            thresholds, state = copy(method)._calibrate(scored)  # what it sets on itself is lost
        if thresholds.lower is None:
            method._reject_exact()
        thresholds = method._with_floor(thresholds, scored)
        fit = cls(method, rows, thresholds, state, inputs, acceptance)
        if predictor.max_share is not None:
            assert limits is not None
            vars(fit)["scored_rows"] = scored  # whose order is known
            fit = fit.capped(predictor.max_share, limits)
        fit.warn()
        return fit

    def capped(self, max_share: Any, limits: Caps | ScoreSample) -> Fit:
        """Cap the thresholds of a fit without caps at the limits of a sample or an earlier fit."""
        if isinstance(limits, ScoreSample):
            limits = limits.caps(max_share, self.rule.thresholds)
        standard = self.method._standard(self.scored_rows)
        thresholds, caps = limits.applied(self.thresholds, standard, self.rule.scoring.score)
        method = replace(self.method, max_share=max_share)
        method._check_parameters()
        return replace(self, method=method, thresholds=thresholds, caps=caps)

    def refitted(self, rows: CalibrationRows, inputs: CalibrationInputs, **changed: Any) -> Fit:
        """Calibrate on other rows, or with other parameters; all else as for this fit."""
        method, caps = replace(self.method, **changed), self.caps
        if caps is not None:  # the sample behind their shares is gone
            caps = caps._replace(share=np.full(self.n_classes, np.nan))
        return Fit.calibrated(method, rows, inputs, caps, acceptance=self.acceptance)

    def __reduce__(self) -> Any:
        # Copies and pickles are built by the constructor, too.
        return Fit, tuple(getattr(self, field.name) for field in fields(self))

    # ---- classes and inputs ------------------------------------------------------------------

    @property
    def n_classes(self) -> int:
        """K."""
        return self.rows.n_classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One name per class, or None."""
        return self.rows.class_names

    @cached_property
    def classes(self) -> Classes:
        """The classes, by which labels and inputs are matched."""
        return Classes(self.n_classes, self.class_names)

    @property
    def expected(self) -> Expected:
        """What an input must be like: the classes, the precision and the listed classes."""
        return Expected(self.classes, self.inputs.precision, self.inputs.k)

    @property
    def label_groups(self) -> tuple[str, ...]:
        """The groups that labels of test rows may be, because they may answer."""
        return () if self.acceptance is None else self.acceptance.groups

    def open(self, probabilities: Any, labels: Any = None, ids: Any = None, **how: Any) -> Source:
        """Open rows as a source with the classes of the fit; see `as_source`."""
        return as_source(probabilities, labels, ids=ids, expected=self.expected, **how)

    def check_precision(self, rows: Array) -> None:
        """Warn, once, of rows in memory with another precision than the calibration rows."""
        if "is_checked" not in vars(self) and warn_of_precision(rows, self.inputs.precision):
            vars(self)["is_checked"] = True

    # ---- sets and p-values -------------------------------------------------------------------

    @cached_property
    def alpha(self) -> ClassAlpha:
        """The target miscoverage of each class."""
        return read_only(self.method._class_alpha(self.rows))

    @property
    def keep_top(self) -> bool:
        """Whether every set contains the most probable class; by default, unless it is exact."""
        chosen = self.method.keep_top
        return not self.method.exact if chosen == "auto" else bool(chosen)

    @cached_property
    def rule(self) -> SetRule:
        """The rule that turns rows and ids into sets."""
        method, rows = self.method, self.rows
        score = make_score(method.score).with_counts(rows.class_counts, rows.class_names)
        scoring = BoundScore(score, bool(method.from_logits), method.random_state, assumed=True)
        thresholds = read_only(score.base_thresholds(self.thresholds))
        return SetRule(scoring, thresholds, self.keep_top, self.class_names, self.acceptance)

    @cached_property
    def scored_rows(self) -> CalibrationRows:
        """The rows with the scores that the method compares."""
        return self.rows.scored_by(self.rule.scoring.score)

    @cached_property
    def derived(self) -> Any:
        """What the method derives from the rows and the state for p-values and explanations."""
        return read_only(self.method._derive(self.scored_rows, self.state))

    @property
    def groups(self) -> Groups | None:
        """The groups of calibration scores behind the thresholds, if there are such."""
        return self.derived if isinstance(self.derived, Groups) else None

    def p_values(self, block: Block, *, logits: bool | None = None) -> Any:
        """Compute the p-value of each class in each row (n, K), or of top-k rows a CSR array."""
        scoring, rows, groups = self.rule.scoring.for_input(logits), block.rows, self.groups
        is_top_k, is_exact = isinstance(rows, TopK), self.method.exact
        if groups is not None and not is_top_k and scoring.score.base is scoring.score:
            given = scoring.of_block(block, exact=is_exact)
            calibration = (groups.scores.scores, groups.scores.offsets, groups.of_class)
            with scoring.checking(block):
                return _kernels.p_values(given, *calibration)
        compute = partial(self.method._p_values, self) if groups is None else groups.p_values
        own_share = np.ones(len(rows))
        if is_exact:  # a row itself counts at random
            own_share -= scoring.rank_draws(block)
        if not is_top_k:
            scores = scoring.matrix(block)
            return compute(scores, np.arange(self.n_classes), own_share[:, None])
        from scipy.sparse import csr_array

        # The entries of all rows are one row of the classes that they list.
        scores, own_share = scoring.entries(block), own_share[rows.row_of_entry]
        p_values = compute(scores[None], rows.classes, own_share[None])[0]
        return csr_array((p_values, rows.classes, rows.starts), shape=rows.shape)

    # ---- guarantees and explanations ---------------------------------------------------------

    @cached_property
    def recall(self) -> RecallAtK | None:
        """Recall at k of the calibration rows; None if these have all classes."""
        if not self.rows.may_lack_classes:
            return None
        counts, missing = self.rows.class_counts, np.flatnonzero(self.rows.scores == np.inf)
        listed = counts - np.bincount(self.rows.labels[missing], minlength=self.n_classes)
        return RecallAtK(counts, listed, np.isinf(self.thresholds.upper))

    @cached_property
    def guarantees(self) -> FloatArray:
        """The guaranteed coverage of each class (K,), on average over calibration sets; 0 if none.

        A threshold that is at least the k-th smallest of the class's own n calibration scores
        covers the class with probability k/(n+1) or more.
        """
        by_floor = self.method._floor.guarantees(self.rows.class_counts, self.alpha)
        guarantees = np.maximum(self.method._own_guarantees(self), by_floor)
        if self.recall is not None:
            guarantees = self.recall.limited(guarantees)
        return read_only(np.where(self.is_capped, 0.0, guarantees))

    @cached_property
    def is_capped(self) -> Array:
        """Whether `max_share` lowers the threshold of each class (K,)."""
        caps = self.caps
        return read_only(np.zeros(self.n_classes, bool) if caps is None else caps.is_capped)

    @cached_property
    def share(self) -> FloatArray:
        """The share of the sets of other classes that each class would enter without caps (K,)."""
        return read_only(np.full(self.n_classes, np.nan) if self.caps is None else self.caps.share)

    @property
    def capped_shares(self) -> dict[str, float | None]:
        """The shares of the capped classes, by name or index; None where they are not known."""
        names, shares = self.class_names or range(self.n_classes), self.share.tolist()
        capped = np.flatnonzero(self.is_capped).tolist()
        return {str(names[y]): None if np.isnan(shares[y]) else shares[y] for y in capped}

    @property
    def confidence(self) -> Alpha | None:
        """The share of calibration sets for which the guarantee holds; None: on average."""
        return getattr(self.method, "confidence", None)

    @property
    def targets_average(self) -> bool:
        """Whether the method targets coverage of 1 - alpha over all rows."""
        return bool(self.method._targets_average)

    @property
    def row_needs(self) -> Needs:
        """How many rows a threshold takes."""
        return Needs.at(self.alpha.typical, self.confidence)

    @property
    def weights(self) -> dict[str, FloatArray]:
        """Shares (K,) of the sources of each class's threshold, by name."""
        return self.method._weights(self)

    @property
    def fitted_values(self) -> dict[str, Any]:
        """Plain values worth a column in a table, such as the number of clusters."""
        return self.method._fitted_values(self)

    def warn(self) -> None:
        """Warn of an alpha that seems to be the coverage, and of classes with too few rows."""
        largest = float(self.alpha.values[-1])
        if largest > 0.5:
            warn_caller(
                f"alpha is {largest:g}, the target miscoverage; for coverage {largest:g} use "
                f"alpha={1 - largest:g}."
            )
        recall = None if self.recall is None else self.recall.warning(float(1 - self.alpha.typical))
        if recall is not None:
            warn_caller(recall)
        is_absent = self.rows.class_counts == 0
        n_few = int((np.isinf(self.thresholds.upper) & ~is_absent).sum())
        if n_few and self.thresholds.rank_limit is None:
            takes = f", which takes {self.row_needs.least}" if self.alpha.is_one else ""
            where_listed = " where a row lists them" if self.rows.may_lack_classes else ""
            warn_caller(
                f"{n_few} of {self.n_classes} classes have calibration examples, but too few for a "
                f"finite threshold at alpha = {self.alpha}{takes}; they are always included"
                f"{where_listed}."
            )
        if is_absent.any():
            warn_caller(
                f"{int(is_absent.sum())} of {self.n_classes} classes have no calibration examples"
                f"{some_names(self.class_names, is_absent)}; {self.method._missing_class_note}."
            )

    # ---- the stored form ---------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return what a file holds: plain values, ready for JSON, and arrays."""
        parameters = self.method.get_params() | {"score": make_score(self.method.score)}
        plain = {name: as_json(value) for name, value in parameters.items()}
        about: dict[str, Any] = {}
        arrays: dict[str, Array] = {}
        for name in self._kinds(self.method):
            record = getattr(self, name)
            values = {} if record is None else {key: getattr(record, key) for key in _parts(record)}
            own = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
            arrays |= {f"{name}.{key}": np.ascontiguousarray(value) for key, value in own.items()}
            others = {key: value for key, value in values.items() if key not in own}
            about[name] = None if record is None else others
        return {"method": self.method.method, "parameters": plain, "fit": about}, arrays

    @classmethod
    def from_arrays(cls, method: Any, about: dict[str, Any], arrays: dict[str, Array]) -> Fit:
        """Build the fit of a method from "fit" of `to_arrays`, and its arrays."""
        method._check_parameters()
        kinds, arrays = cls._kinds(method), dict(arrays)
        records: dict[str, Any] = dict.fromkeys(kinds)
        for name, kind in kinds.items():
            names = [key for key in arrays if key.startswith(f"{name}.")]
            own = {key.removeprefix(f"{name}."): arrays.pop(key) for key in names}
            if about[name] is None and not own:
                continue
            values = about[name] | own
            if values.keys() != set(_parts(kind)) or len(values) < len(about[name]) + len(own):
                raise InputError(f"{name} must have {', '.join(_parts(kind))}")
            records[name] = kind(**{key: _as_tuple(value) for key, value in values.items()})
        unknown = arrays.keys() | about.keys() - kinds.keys()
        if unknown:
            raise InputError(f"{', '.join(sorted(unknown))} are unknown")
        return cls(method, **records)

    @staticmethod
    def _kinds(method: Any) -> dict[str, Any]:
        """Return the types of the records that a file holds, by name."""
        return {
            "rows": CalibrationRows,
            "thresholds": Thresholds,
            "state": method._State,
            "inputs": CalibrationInputs,
            "acceptance": Acceptance,
            "caps": Caps,
        }

    @cached_property
    def digest(self) -> str:
        """A hash of all that a file holds."""
        return checksum(*self.to_arrays())


@cache
def parameters_in(method: Any) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """Return what reads the values of all parameters of a method from its attributes."""
    return itemgetter(*method._parameter_names())


def checksum(about: Any, arrays: Mapping[str, Array]) -> str:
    """Hash plain values and arrays, whatever their order."""
    text = json.dumps(json.loads(json.dumps(about)), sort_keys=True)
    content = hashlib.blake2b(text.encode(), digest_size=16)
    for name, values in sorted(arrays.items()):
        content.update(f"{name!r} {values.dtype} {values.shape}".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    return content.hexdigest()


def as_json(value: Any) -> Any:
    """Return a parameter as JSON holds it without loss: fractions as text, vectors as lists."""
    if isinstance(value, Score):
        value = value.to_dict()
    named = by_class(value, "parameter")
    if named is not None:
        return {name: as_json(item) for name, item in named.items()}
    if isinstance(value, np.floating):
        return float(str(value))  # a float32 0.01 is the decimal that the user wrote
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__array__"):
        return as_written(to_numpy(value)).tolist()
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _parts(record: Any) -> list[str]:
    """Return the names of the fields of a NamedTuple or dataclass."""
    is_class = is_dataclass(record)
    return [field.name for field in fields(record)] if is_class else list(record._fields)


def _as_tuple(value: Any) -> Any:
    """Return a value from JSON, which has lists for tuples."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def read_only(value: Any) -> Any:
    """Make the arrays of a value read-only; return the value."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, tuple):
        for item in value:
            read_only(item)
    elif is_dataclass(value):
        for item in vars(value).values():
            read_only(item)
    return value


# ---- checks --------------------------------------------------------------------------------------


def check_array(
    values: Any, name: str, dtype: Any, size: int, low: float = -np.inf, high: float = np.inf
) -> None:
    """Raise InputError unless an array has `size` entries of a type in a range, without NaN."""
    found, shape = getattr(values, "dtype", None), np.shape(values)
    if found != dtype or shape != (size,):
        raise InputError(
            f"'{name}' must have {size} entries of the type {np.dtype(dtype)}. Got {found} in the "
            f"shape {shape}."
        )
    # The minimum is NaN if there is one, and that is in no range.
    if size and not (low <= values.min() and (high == np.inf or values.max() <= high)):
        raise InputError(f"'{name}' must be between {low} and {high}. Got other numbers.")


def _check_rows(rows: CalibrationRows) -> None:
    n_rows, n_classes, names = np.size(rows.scores), rows.n_classes, rows.class_names
    if type(n_classes) is not int or n_classes < 2:
        raise InputError(f"There must be at least 2 classes. Got {n_classes!r}.")
    if n_rows == 0:
        raise InputError("There must be at least one calibration row. Got none.")
    check_array(rows.scores, "scores", np.float64, n_rows)
    check_array(rows.labels, "labels", np.int64, n_rows, 0, n_classes - 1)
    check_array(rows.ids, "ids", np.uint64, n_rows)
    if rows.ranks is not None:
        check_array(rows.ranks, "ranks", np.int64, n_rows, 1, n_classes)
    if rows.label_values is not None:
        check_array(rows.label_values, "label_values", np.float64, n_rows)
    if names is not None:
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise InputError("'class_names' must be text.")
        if len(names) != n_classes or len(set(names) - {""}) < n_classes:
            checked_names(names, n_classes, "'class_names'")
    for name in ("by_index", "of_base", "may_lack_classes"):
        if type(getattr(rows, name)) is not bool:
            raise InputError(f"'{name}' must be True or False.")


def _check_thresholds(thresholds: Thresholds, n_classes: int) -> None:
    upper, lower, chance, rank_limit = thresholds
    check_array(upper, "upper", np.float64, n_classes)
    if lower is not None or chance is not None:
        check_array(lower, "lower", np.float64, n_classes)
        check_array(chance, "upper_probability", np.float64, n_classes, 0, 1)
    if rank_limit is not None:
        check_array(rank_limit, "rank_limit", np.int64, n_classes, 0, n_classes)


def _check_inputs(inputs: CalibrationInputs, n_classes: int) -> None:
    k = inputs.k
    if k is not None and (type(k) is not int or not 1 <= k <= n_classes):
        raise InputError(f"'k' must be between 1 and {n_classes}. Got {k!r}.")
    if inputs.precision is not None and inputs.precision not in PRECISIONS:
        raise InputError(f"'precision' must be a known one. Got {inputs.precision!r}.")
    for text, end in inputs.fingerprints:
        if not isinstance(text, str) or type(end) is not int:
            raise InputError("Fingerprints must be text with the index after the last row.")


def _check_caps(caps: Caps, n_classes: int) -> None:
    check_array(caps.cap, "cap", np.float64, n_classes)
    check_array(caps.excess, "excess", np.float64, n_classes)
    check_array(caps.is_capped, "is_capped", np.bool_, n_classes)
    if not np.isnan(caps.share).all():
        check_array(caps.share, "share", np.float64, n_classes, 0, 1)


def _check_acceptance(acceptance: Acceptance, n_classes: int) -> None:
    levels, n_levels = acceptance.levels, acceptance.levels.n_levels
    n_nodes = n_classes + len(levels.groups)
    if levels.node_of_class.shape != (n_levels, n_classes):
        raise InputError(f"'node_of_class' must have {n_levels} levels of {n_classes} classes.")
    nodes = levels.node_of_class.ravel()
    check_array(nodes, "node_of_class", np.int64, len(nodes), NO_NODE, n_nodes - 1)
    check_array(levels.level_of_node, "level_of_node", np.int64, n_nodes, 0, n_levels - 1)
    n_groups, members = len(levels.groups), levels.class_of_group
    check_array(members, "class_of_group", np.int64, n_groups, 0, n_classes - 1)
    for name, dtype in (("limits", np.float64), ("tested", np.int64), ("right", np.int64)):
        values = getattr(acceptance, f"node_{name}")
        if values.shape != (n_levels, n_nodes):
            raise InputError(f"'node_{name}' must have {n_levels} levels of {n_nodes} nodes.")
        check_array(values.ravel(), f"node_{name}", dtype, values.size)
    for share in (acceptance.accuracy, acceptance.confidence):
        if not isinstance(share, float) or not 0 < share < 1:
            raise InputError(f"'accuracy' and 'confidence' must be in (0, 1). Got {share!r}.")
