"""The predictor that owns everything but the one step in which methods differ."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from evencover import _kernels
from evencover._kernels import Draws
from evencover._validation import (
    Array,
    EvencoverWarning,
    FloatArray,
    InputError,
    IntArray,
    NotFittedError,
    class_labels,
    flag,
    raise_bad_row,
    real_number,
)
from evencover.data.source import Block, IterableSource, Source, as_source
from evencover.engine.blocks import Work, cut, fold_source, known_ids, map_source, workers_of
from evencover.engine.scattered import ScatteredRows
from evencover.evaluation.confusions import Confusions
from evencover.evaluation.report import CoverageReport, Tally
from evencover.predictors.merging import gathered, joined, most_confused, total
from evencover.predictors.parameters import Parameters
from evencover.quantiles import Alpha, Thresholds, calibration_scores, exact_alpha
from evencover.randomness import check_random_state, places, row_ids
from evencover.scores import Score, make_score
from evencover.sets import PredictionSets

Result = TypeVar("Result")


class BasePredictor(Parameters):
    """Prediction sets {y : s(x, y) <= threshold of y}, with thresholds learnt by the method.

    Parameters
    ----------
    alpha
        Miscoverage level in (0, 1); sets aim at coverage 1 - alpha. Read as the decimal or
        fraction that was written, so ranks are exact.
    score
        "softmax", "aps", "raps", "saps", "pas", or a `Score`.
    exact
        Randomise between two neighbouring ranks so that coverage is 1 - alpha, not at least
        1 - alpha; a row's set then depends on its id (or content) and `random_state`.
    allow_empty
        If False, an empty set is given the most probable class.
    from_logits
        The input holds logits; a softmax is applied to ``logits / temperature``.
    temperature
        Divides logits; only used with them.
    random_state
        Whole number that, with a row's id (or content and place), fixes every random choice.

    Attributes
    ----------
    thresholds_
        (K,) threshold of each class; +inf means the class is in every set.
    class_counts_
        (K,) calibration rows of each class.
    n_classes_, n_calibration_
        K, and the number of calibration rows.
    class_names_
        One name per class, or None.
    fingerprint_
        Tells the calibration rows from others; None after `fit_scores`.
    """

    method: ClassVar[str]
    # Whether exact=True means something, and whether fit needs the ranks of the true labels.
    supports_exact: ClassVar[bool] = True
    needs_ranks: ClassVar[bool] = False
    # What `save` keeps of a fit, beside the parameters.
    fitted_arrays: ClassVar[tuple[str, ...]] = (
        "thresholds_",
        "lower_thresholds_",
        "upper_probability_",
        "class_counts_",
    )
    fitted_values: ClassVar[tuple[str, ...]] = (
        "n_classes_",
        "n_calibration_",
        "class_names_",
        "fingerprint_",
    )
    # What only p-values need, however large: workers that make sets are not sent it.
    p_value_arrays: ClassVar[tuple[str, ...]] = ()

    thresholds_: FloatArray
    lower_thresholds_: FloatArray | None
    upper_probability_: FloatArray | None
    class_counts_: IntArray
    n_classes_: int
    n_calibration_: int
    class_names_: Sequence[str] | None
    fingerprint_: str | None

    def __init__(
        self,
        *,
        alpha: Alpha = 0.1,
        score: Score | str = "softmax",
        exact: bool = False,
        allow_empty: bool = True,
        from_logits: bool = False,
        temperature: float = 1.0,
        random_state: int = 0,
    ) -> None:
        self.alpha = alpha
        self.score = score
        self.exact = exact
        self.allow_empty = allow_empty
        self.from_logits = from_logits
        self.temperature = temperature
        self.random_state = random_state

    # ---- calibration -------------------------------------------------------------------------

    @abstractmethod
    def _calibrate(self, scores: FloatArray, labels: IntArray, ids: Array) -> Thresholds:
        """The method itself: thresholds from the true labels' scores.

        `class_counts_` and `n_classes_` are set when this is called.
        """

    def _kept_thresholds(self) -> Thresholds | None:
        """The thresholds from what the fit keeps, by which `load` checks them; None: elsewhere."""
        return None

    def _p_values(self, rows: Array, draws: Draws, logits: bool) -> tuple[FloatArray, int]:
        """P-values of every class (n, K), and the first bad row (-1: none)."""
        score, classes = self.score_, np.arange(self.n_classes_)
        scores, bad = _kernels.score_matrix(
            score.base, rows, draws, logits=logits, temperature=self.temperature
        )
        if bad >= 0:
            return scores, bad
        # Without a coin the row counts as one whole row more.
        own_share = 1.0 - _kernels.row_numbers(rows, draws._replace(score_use=None))[1]
        return self._p_of_scores(score.from_base(scores, classes), classes, own_share), -1

    def _p_of_scores(
        self, scores: FloatArray, classes: IntArray, own_share: FloatArray
    ) -> FloatArray:
        """P-values from scores (n, J) of rows as members of `classes` (J,).

        A row itself counts as `own_share` (n,) of one more calibration row.
        """
        raise InputError(f"There are no p-values with the method '{self.method}' here.")

    def fit(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        class_names: Sequence[str] | None = None,
        executor: Any = None,
        gather: bool = True,
    ) -> Self:
        """Learn the thresholds from calibration rows that the model was not trained on.

        Parameters
        ----------
        probabilities
            (N, K) array-like, the path of a file, or an iterable of (n, K) blocks or
            (block, labels) pairs; with an executor also a Dask array, or a list or Dask bag of
            paths.
        labels
            (N,) class indices; may come with the file or the blocks.
        ids
            (N,) stable row ids, integers or text, from which a row's random numbers follow; by
            default they follow from the row's content and place in the input.
        class_names
            One name per class, carried along to the prediction sets.
        executor
            Where the rows are read and scored: None for this process's threads, a
            `concurrent.futures` executor, or a `dask.distributed` client. The result is the same.
        gather
            Whether all N scores and labels are brought here. If not, the same thresholds are
            found by several passes over scores that stay where they were made; the predictor then
            has no p-values.
        """
        self._check_parameters()
        source = as_source(probabilities, labels, class_names=class_names)
        if not source.has_labels:
            raise InputError(
                f"Calibration needs labels. Got none with {source.name}; pass 'labels' "
                "(--labels on the command line)."
            )
        if not flag(gather, "gather", "fit"):
            return self._fit_scattered(source, ids, executor)
        parts = self._map(source, ids, self._score_block, merge=joined, executor=executor)
        scores, labels, *ranks = gathered(parts, source.n_rows)
        known = make_score(self.score).known(np.bincount(labels, minlength=source.n_classes))
        more: dict[str, Any] = {"ranks": ranks[0]} if ranks else {}
        self.fit_scores(
            known.from_base(scores, labels),
            labels,
            source.n_classes,
            ids=ids,
            class_names=source.class_names,
            **more,
        )
        self.fingerprint_ = source.fingerprint
        return self

    def fit_scores(
        self,
        scores: Any,
        labels: Any,
        n_classes: int,
        *,
        ids: Any = None,
        class_names: Sequence[str] | None = None,
    ) -> Self:
        """Learn the thresholds from the true labels' scores (N,): all that most methods need."""
        self._check_parameters()
        scores = calibration_scores(scores)
        labels = class_labels(labels, n_classes, len(scores))
        if len(scores) == 0:
            raise InputError("There must be at least one calibration row. Got none.")
        self.n_classes_, self.n_calibration_ = int(n_classes), len(scores)
        self.class_names_, self.fingerprint_ = class_names, None
        self.class_counts_ = np.bincount(labels, minlength=n_classes)
        if ids is None:
            ids = places(0, len(scores))
        else:
            ids = row_ids(ids, len(scores))
            self._warn_of_repeated_ids(ids)
        thresholds = self._calibrate(scores, labels, ids)
        self.thresholds_, self.lower_thresholds_, self.upper_probability_, _ = thresholds
        self._warn_of_missing_classes()
        return self

    def _fit_scattered(self, source: Source, ids: Any, executor: Any) -> Self:
        """`fit` with all scores left where they were made."""
        if isinstance(source, IterableSource):
            raise InputError(
                "With gather=False the rows may be read several times. Got an iterator, which can "
                "be read once; pass files or an array."
            )
        score = make_score(self.score)
        if score.base is not score:
            raise InputError(
                f"'gather' must be True for the score {score.name!r}, which needs the number of "
                "rows of each class before any score."
            )
        with workers_of(executor) as workers:
            parts = cut(source, known_ids(source, ids))
            work = Work(self._on(source, self._score_block), joined)
            rows = ScatteredRows.score(workers, work, parts)
            self.n_classes_, self.class_names_ = source.n_classes, source.class_names
            self.class_counts_ = rows.by(np.arange(source.n_classes)).counts
            self.n_calibration_ = int(self.class_counts_.sum())
            thresholds = self._calibrate_scattered(rows)
            self.thresholds_, self.lower_thresholds_, self.upper_probability_, _ = thresholds
            self.fingerprint_ = rows.fingerprint().hexdigest()
        self._warn_of_missing_classes()
        return self

    def _calibrate_scattered(self, rows: ScatteredRows) -> Thresholds:
        """`_calibrate` of rows that are not in one place, for methods that can."""
        raise InputError(
            f"'gather' must be True for the method {self.method!r}, which needs all scores in one "
            "place; without, there are standard, classwise and clustered."
        )

    def _score_block(
        self, block: Block, ids: Array | None, logits: bool, *, calibrating: bool = True
    ) -> tuple[Array, ...]:
        """Base scores of the true labels, the labels, and the labels' ranks where needed.

        Labels and ranks take as few bytes as their number allows.
        """
        assert block.labels is not None
        score = make_score(self.score)
        options: Any = {"logits": logits, "temperature": self.temperature}
        draws = score.draws(self.random_state, ids, block.start, calibrating=calibrating)
        scores, bad = _kernels.true_label_scores(
            score.base, block.rows, draws, block.labels, **options
        )
        self._refuse(block, bad, logits)
        labels = block.labels.astype(np.min_scalar_type(block.rows.shape[1] - 1))
        if not self.needs_ranks:
            return scores, labels
        ranks, _ = _kernels.true_label_ranks(block.rows, block.labels, **options)
        return scores, labels, ranks.astype(np.min_scalar_type(block.rows.shape[1]))

    def _warn_of_repeated_ids(self, ids: Array) -> None:
        n_repeated = len(ids) - len(np.unique(ids))
        if n_repeated:
            warnings.warn(
                f"{n_repeated} of {len(ids)} rows have the id of an earlier row; rows with the "
                "same id share their random numbers, and all count as independent examples.",
                EvencoverWarning,
                stacklevel=4,
            )

    def _warn_of_missing_classes(self) -> None:
        missing = int((self.class_counts_ == 0).sum())
        if missing:
            warnings.warn(
                f"{missing} of {self.n_classes_} classes have no calibration examples; "
                f"{self._fate_of_missing_classes()}.",
                EvencoverWarning,
                stacklevel=4,
            )

    def _fate_of_missing_classes(self) -> str:
        return "they use the standard threshold"

    @property
    def score_(self) -> Score:
        """The score, with what the calibration labels decide filled in."""
        return make_score(self.score).known(self.class_counts_)

    @property
    def limits_(self) -> Thresholds:
        """All that decides whether a class is in a set."""
        rank_limits = getattr(self, "rank_limits_", None)
        pair = self.lower_thresholds_, self.upper_probability_
        return Thresholds(self.thresholds_, *pair, rank_limits)

    # ---- prediction --------------------------------------------------------------------------

    def predict_set(
        self, probabilities: Any, *, ids: Any = None, executor: Any = None
    ) -> PredictionSets:
        """The prediction set of each row.

        Parameters
        ----------
        probabilities, executor
            As in `fit`.
        ids
            (N,) stable row ids; the same id always gets the same random choices. Without them,
            equal rows that arrive one at a time share their fate.
        """
        return PredictionSets.concatenate(
            self.predict_set_blocks(probabilities, ids=ids, executor=executor)
        )

    def predict_set_blocks(
        self, probabilities: Any, *, ids: Any = None, executor: Any = None
    ) -> Iterator[PredictionSets]:
        """`predict_set` as a stream of row blocks, for inputs and outputs larger than memory."""
        source = self._source_like_calibration(probabilities)
        merge = PredictionSets.concatenate
        return self._map(source, ids, self._for_sets()._set_block, merge=merge, executor=executor)

    def predict_p(self, probabilities: Any, *, ids: Any = None) -> FloatArray:
        """Conformal p-value of each class in each row (N, K).

        p = (1 + #{calibration scores of y's group >= s(x, y)}) / (n + 1), where a method forms
        groups of classes. The set at any level a is {y : p > a}; a true label's p-value is at
        most a with probability at most a, among the rows of its group. With ``exact=True`` the
        1 is replaced by a uniform number, which makes that probability exactly a.
        """
        self._require_scores("P-values")
        source = self._source_like_calibration(probabilities)
        return np.concatenate(list(self._map(source, ids, self._p_block)))

    def evaluate(
        self, probabilities: Any, labels: Any = None, *, ids: Any = None, executor: Any = None
    ) -> CoverageReport:
        """Coverage and size of the sets on held-out rows; no sets are kept in memory.

        Parameters are those of `fit`. What an executor's workers send back does not grow with
        the rows.
        """
        source = self._source_like_calibration(probabilities, labels)
        if not source.has_labels:
            raise InputError(
                f"Evaluation needs labels. Got none with {source.name}; pass 'labels' "
                "(--labels on the command line)."
            )
        count = self._on(source, self._for_sets()._tally_block)
        tally, confusions = fold_source(source, ids, count, total, most_confused, executor)
        return self._coverage_report(source, tally, confusions)

    def _coverage_report(
        self, source: Source, tally: Tally, confusions: Confusions
    ) -> CoverageReport:
        """The report on rows that have been read and counted."""
        if self._is_calibration_data(source):
            warnings.warn(
                f"These {self.n_calibration_} rows are the calibration rows themselves; the "
                "figures are too good. Use rows that were held out.",
                EvencoverWarning,
                stacklevel=3,
            )
        return CoverageReport.from_tally(
            tally,
            self.alpha,
            class_names=source.class_names,
            calibration_counts=self.class_counts_,
            cluster_of_class=getattr(self, "cluster_of_class_", None),
            thresholds=self.thresholds_,
            confusions=confusions,
        )

    def _is_calibration_data(self, source: Source) -> bool:
        return self.fingerprint_ is not None and self.fingerprint_ == source.fingerprint

    def _set_block(self, block: Block, ids: Array | None, logits: bool) -> PredictionSets:
        score = self.score_
        sizes, indices, bad = _kernels.prediction_sets(
            score.base,
            block.rows,
            self._draws(block, ids),
            score.base_thresholds(self.limits_),
            **self._set_options(logits),
        )
        self._refuse(block, bad, logits)
        return PredictionSets.from_sizes(sizes, indices, self.n_classes_, self.class_names_)

    def _tally_block(
        self, block: Block, ids: Array | None, logits: bool
    ) -> tuple[Tally, Confusions]:
        assert block.labels is not None
        score, labels = self.score_, block.labels
        sizes, is_covered, top_classes, bad = _kernels.set_coverage(
            score.base,
            block.rows,
            self._draws(block, ids),
            labels,
            score.base_thresholds(self.limits_),
            **self._set_options(logits),
        )
        self._refuse(block, bad, logits)
        tally = Tally.of_rows(labels, is_covered, sizes, self.n_classes_)
        return tally, Confusions.of(labels, top_classes, self.n_classes_)

    def _draws(self, block: Block, ids: Array | None) -> Draws:
        """The random numbers of rows whose sets are wanted."""
        return self.score_.draws(self.random_state, ids, block.start, exact=self.exact)

    def _set_options(self, logits: bool) -> dict[str, Any]:
        options = {"allow_empty": self.allow_empty, "logits": logits}
        return {**options, "temperature": self.temperature}

    def _p_block(self, block: Block, ids: Array | None, logits: bool) -> FloatArray:
        fitted = copy(self)  # `_p_values` may read the score as it was given
        fitted.score = self.score_
        p, bad = fitted._p_values(block.rows, self._draws(block, ids), logits)
        self._refuse(block, bad, logits)
        return p

    def _require_scores(self, who: str) -> None:
        if any(getattr(self, name, 0) is None for name in self.p_value_arrays):
            raise InputError(
                f"{who} need all calibration scores. This predictor was calibrated with "
                "gather=False, which keeps none; fit it with gather=True."
            )

    # ---- what both share ---------------------------------------------------------------------

    def _map(
        self,
        source: Source,
        ids: Any,
        function: Callable[[Block, Array | None, bool], Result],
        *,
        merge: Callable[[Iterable[Result]], Result] | None = None,
        executor: Any = None,
    ) -> Iterator[Result]:
        """Apply ``function(block, row ids, are they logits)`` to the blocks of a source.

        One result for each block or, on an executor, one for each part: the `merge` of its blocks.
        """
        return map_source(source, ids, self._on(source, function), merge, executor)

    def _on(
        self, source: Source, function: Callable[[Block, Array | None, bool], Result]
    ) -> Callable[[Block, Array | None], Result]:
        logits = self.from_logits if source.logits is None else source.logits
        return partial(_on_block, function, logits)

    def _for_sets(self) -> Self:
        """A copy without what only p-values need: workers are sent no more than they use."""
        lean = copy(self)
        for name in self.p_value_arrays:
            lean.__dict__.pop(name, None)
        return lean

    def _source_like_calibration(self, probabilities: Any, labels: Any = None) -> Source:
        if not hasattr(self, "thresholds_"):
            raise NotFittedError(
                f"This {type(self).__name__} is not calibrated yet; call 'fit' with calibration "
                "probabilities and labels first."
            )
        source = as_source(probabilities, labels)
        if source.n_classes != self.n_classes_:
            raise InputError(
                f"The input must have the {self.n_classes_} classes of the calibration data. "
                f"Got {source.n_classes} classes in {source.name}."
            )
        if source.class_names is None or self.class_names_ is None:
            source.class_names = self.class_names_ or source.class_names
        elif list(source.class_names) != list(self.class_names_):
            differ = next(
                place
                for place, pair in enumerate(
                    zip(source.class_names, self.class_names_, strict=True)
                )
                if pair[0] != pair[1]
            )
            raise InputError(
                "The classes must have the names and the order of the calibration data. "
                f"Got {source.class_names[differ]!r} as class {differ} of {source.name}, "
                f"which was {self.class_names_[differ]!r}."
            )
        return source

    def _refuse(self, block: Block, bad: int, logits: bool) -> None:
        if bad >= 0:
            place = block.place(bad)
            raise_bad_row(block.rows[bad], block.start + bad, logits=logits, place=place)

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        exact_alpha(self.alpha, owner)
        make_score(self.score)
        for name in ("exact", "allow_empty", "from_logits"):
            flag(getattr(self, name), name, owner)
        if self.exact and not self.supports_exact:
            raise InputError(
                f"The 'exact' parameter of {owner} must be False, because its coverage does not "
                "come from one conformal rank that could be randomised. Got True instead."
            )
        real_number(self.temperature, "temperature", owner, 0, open_low=True)
        check_random_state(self.random_state, owner)


def _on_block(
    function: Callable[[Block, Array | None, bool], Result],
    logits: bool,
    block: Block,
    ids: Array | None,
) -> Result:
    return function(block, ids, logits)
