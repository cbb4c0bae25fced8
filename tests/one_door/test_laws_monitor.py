"""The laws of every form, through the monitor: it counts what it counts in memory, or nothing."""

from contextlib import suppress

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from one_door.drawn import ODD, SPELLINGS, contents, orders, without_one_id
from one_door.forms import APART, FORMS, LABEL_FILES, NotStorableError, written_labels
from one_door.forms import given as in_form
from one_door.material import simulated

from evencover import ClasswisePredictor, CoverageMonitor, InputError

every_form = pytest.mark.parametrize("form", FORMS)
few = settings(max_examples=examples(4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("laws")


def monitor_of(content):
    """A monitor of a model of these classes; its calibration rows have no ids."""
    n_classes = content.rows.shape[1]
    model = ClasswisePredictor(alpha=0.4, score="aps", keep_top=False)
    how = {} if content.names is None else {"class_names": content.names, "labels_are": "indices"}
    model.fit(*simulated(40 * n_classes, n_classes, seed=1), **how)
    return CoverageMonitor(model, tolerance=0.0)


def counts(monitor):
    snapshot = monitor.snapshot()
    return snapshot.rows.tolist(), snapshot.covered.tolist(), snapshot.totals


def expected(content):
    """What a monitor counts of rows, labels and ids in memory."""
    monitor, labels = monitor_of(content), content.labels
    if labels and isinstance(labels[0], str):
        labels = [content.names.index(label) for label in labels]
    how = {} if content.names is None else {"labels_are": "indices"}
    monitor.update(content.rows, np.array(labels), ids=content.ids, **how)
    return counts(monitor)


def assert_counts_the_same(form, content, folder, known=None, **how):
    monitor = monitor_of(known or content)
    rows, apart = in_form(form, content, folder)
    apart.pop("class_names", None)  # those of the model
    try:
        monitor.update(rows, **apart, **how)
    except InputError:
        assert counts(monitor)[2] == (0, 0)
        raise
    assert counts(monitor) == expected(known or content)


@every_form
@few
@given(content=contents())
def test_every_form_is_counted_as_arrays(form, folder, content):
    """Labels that are indices count the classes of the model."""
    assert_counts_the_same(form, content, folder)


@every_form
@few
@given(data=st.data(), content=contents(with_ids=True, texts=True))
def test_rows_and_classes_may_stand_in_any_order(form, folder, data, content):
    turned = content.take(data.draw(orders(len(content.rows))))
    if content.names is not None and form not in APART:
        turned = turned.with_classes(data.draw(orders(len(content.names))))
    assert_counts_the_same(form, turned, folder, known=content)


@every_form
@few
@given(
    data=st.data(), content=contents(with_ids=True, texts=True), kind=st.sampled_from(LABEL_FILES)
)
def test_labels_are_joined_to_their_ids(form, folder, data, content, kind):
    order, monitor = data.draw(orders(len(content.rows))), monitor_of(content)
    rows, how = in_form(form, content._replace(labels=None), folder)
    how.pop("class_names", None)
    monitor.update(rows, written_labels(kind, content.take(order), folder), **how)
    assert counts(monitor) == expected(content)


@every_form
@few
@given(data=st.data(), content=contents(with_ids=True))
def test_rows_may_come_before_their_labels(form, folder, data, content):
    monitor = monitor_of(content)
    rows, how = in_form(form, content._replace(labels=None), folder)
    how.pop("class_names", None)
    monitor.observe(rows, **how)
    spelling = data.draw(st.sampled_from([int, str, np.int64]))
    order = data.draw(orders(len(content.rows)))
    ids = [content.ids[row] for row in order]
    if not isinstance(ids[0], str):
        ids = list(map(spelling, ids))
    monitor.label(ids, [content.labels[row] for row in order])
    assert counts(monitor) == expected(content)
    assert monitor.snapshot().waiting == 0


@every_form
@few
@given(data=st.data(), content=contents(with_ids=True))
def test_ids_may_be_spelled_in_any_type_but_none_may_be_missing(form, folder, data, content):
    if not isinstance(content.ids[0], str):
        kind = SPELLINGS[data.draw(st.sampled_from(["text", "NumPy integer", "unsigned"]))]
        retyped = content._replace(ids=list(map(kind, content.ids)))
        with suppress(NotStorableError):
            assert_counts_the_same(form, retyped, folder, known=content)
    with pytest.raises((InputError, NotStorableError)):
        assert_counts_the_same(form, data.draw(without_one_id(form, content)), folder)


@every_form
@few
@given(content=contents(names=ODD, with_names=True, with_ids=True))
def test_odd_names_are_names_or_an_error(form, folder, content):
    with suppress(InputError, NotStorableError):
        assert_counts_the_same(form, content, folder)


@every_form
@few
@given(content=contents(names=st.sampled_from(list("0123456789")), with_names=True))
def test_digits_are_names_or_indices_or_an_error(form, folder, content):
    are_names = isinstance(content.labels[0], str)
    is_plain = content.names == [str(y) for y in range(len(content.names))]
    with suppress(InputError):
        assert_counts_the_same(form, content, folder)
        assert are_names or is_plain, "it guessed"
    labels_are = "names" if are_names else "indices"
    assert_counts_the_same(form, content, folder, labels_are=labels_are)
