"""Laws of every form: the sets of the same rows in memory, or an InputError, never other sets."""

from contextlib import nullcontext, suppress

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from one_door.drawn import ODD, PLAIN, SPELLINGS, contents, orders, without_one_id
from one_door.forms import (
    APART,
    FORMS,
    LABEL_FILES,
    LISTED,
    TEXT,
    Content,
    NotStorableError,
    written_labels,
)
from one_door.forms import given as in_form
from one_door.material import fitted, named_sets

from evencover import InputError

every_form = pytest.mark.parametrize("form", FORMS)
few = settings(max_examples=examples(6))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("laws")


# ---- what must hold ----------------------------------------------------------------------------


def model_of(form, content, folder, **how):
    """A model that is fitted to rows in a form."""
    rows, apart = in_form(form, content, folder)
    return fitted(rows, **apart, **how)


def sets_of(model, form, content, folder, **how):
    """The sets of rows in a form, by name if classes have names."""
    rows, apart = in_form(form, content._replace(labels=None), folder)
    names = apart.pop("class_names", None)
    is_other = names is not None and tuple(names) != model.class_names_
    sets = model.predict_set(rows, **apart, **({"class_names": names} if is_other else {}), **how)
    return named_sets(sets)


def in_memory(content, names):
    """The model of the same rows as arrays, with its classes in this order."""
    labels = content.labels
    if content.names is None:
        return fitted(content.rows, labels, ids=content.ids)
    if not isinstance(labels[0], str):
        labels = [content.names[y] for y in labels]
    rows = content.rows[:, [content.names.index(name) for name in names]]
    return fitted(rows, labels, ids=content.ids, class_names=list(names))


def expected_sets(model, content):
    """The sets of the rows as arrays, by a model in memory."""
    names, rows = model.class_names_, content.rows
    if names is not None:
        rows = rows[:, [content.names.index(name) for name in names]]
    return named_sets(model.predict_set(rows, ids=content.ids))


def is_plain(names):
    """Whether names are those of the columns of a table without names."""
    return names is None or list(names) == [str(y) for y in range(len(names))]


def assert_same_model(found, content):
    """Whatever the order of its classes, a model knows what that of arrays knows."""
    names = found.class_names_
    if content.names is None:
        assert is_plain(names)
    elif names is None:
        assert is_plain(content.names), "the names are lost"
        names = content.names
    assert sorted(names or ()) == sorted(content.names or names or ())
    expected = in_memory(content, names)
    assert found.class_counts_.tolist() == expected.class_counts_.tolist()
    assert found.thresholds_.tolist() == expected.thresholds_.tolist()
    return expected


def assert_same(form, other, content, folder, **how):
    """A model of one form gives rows in another form the sets of arrays."""
    found = model_of(form, content, folder, **how)
    expected = assert_same_model(found, content)
    assert sets_of(found, other, content, folder, **how) == expected_sets(expected, content)


def may_fail(form, content):
    """An error is right, too, for indices as labels of names in the order of a file."""
    are_indices = content.names is not None and not isinstance(content.labels[0], str)
    is_unclear = are_indices and form in LISTED and form != "TopK"
    return suppress(InputError) if is_unclear else nullcontext()


def is_storable(form, content, folder):
    """Whether a form has a place for all of it; it may be an error before anything is read."""
    try:
        in_form(form, content, folder)
    except NotStorableError:
        return False
    except InputError:
        return True
    return True


def uses_of(form, content, folder):
    """Fit a model to rows in a form; predict with a model of the right classes."""
    model = in_memory(content, content.names)
    return (
        lambda other: model_of(form, other, folder),
        lambda other: sets_of(model, form, other, folder),
    )


# ---- the laws ----------------------------------------------------------------------------------


@every_form
@few
@given(content=contents(), other=st.sampled_from(list(FORMS)))
def test_every_form_gives_the_sets_of_arrays(form, folder, content, other):
    with may_fail(form, content):
        assert_same(form, other, content, folder)


@every_form
@few
@given(data=st.data(), content=contents(with_ids=True))
def test_rows_may_stand_in_any_order(form, folder, data, content):
    order = data.draw(orders(len(content.rows)))
    turned = content.take(order)
    with may_fail(form, content):
        found = model_of(form, turned, folder)
        expected = assert_same_model(found, content)
        straight = expected_sets(expected, content)
        assert sets_of(found, form, turned, folder) == [straight[row] for row in order]


@every_form
@few
@given(
    data=st.data(),
    content=contents(with_ids=True, texts=True),
    kind=st.sampled_from(LABEL_FILES),
    is_extra=st.booleans(),
)
def test_labels_are_joined_to_their_ids(form, folder, data, content, kind, is_extra):
    order = data.draw(orders(len(content.rows)))
    labels = content.take(order)
    if is_extra:  # a label without a row
        unknown = "row x" if isinstance(content.ids[0], str) else 10**6
        labels = labels._replace(
            ids=[*labels.ids, unknown], labels=[*labels.labels, labels.labels[0]]
        )
    rows, how = in_form(form, content._replace(labels=None), folder)
    apart = written_labels(kind, labels, folder)
    names = content.names if form in LISTED and form != "TopK" else None  # numbers need an order
    how |= {"class_names": names} if names else {}
    assert_same_model(fitted(rows, apart, **how), content)


@every_form
@few
@given(data=st.data(), content=contents(with_names=True, texts=True))
def test_classes_may_stand_in_any_order(form, folder, data, content):
    order = data.draw(orders(content.rows.shape[1]))
    turned = content.with_classes(order)
    assert_same(form, form, turned, folder)
    model = in_memory(content, content.names)
    assert sets_of(model, form, turned, folder) == expected_sets(model, content)


@every_form
@few
@given(data=st.data(), content=contents(with_names=False))
def test_plain_numbers_are_indices_in_any_order(form, folder, data, content):
    order = data.draw(orders(content.rows.shape[1]))
    model = in_memory(content, None)
    numbered = content._replace(rows=content.rows[:, order], names=list(map(str, order)))
    assert sets_of(model, form, numbered, folder) == expected_sets(model, content)


@every_form
@few
@given(
    content=contents(with_names=True, texts=True),
    names=st.lists(PLAIN.map("d{}".format), min_size=7, max_size=7, unique=True),
)
def test_classes_may_be_renamed_but_not_for_some_rows_only(form, folder, content, names):
    names = names[: len(content.names)]
    new = dict(zip(content.names, names, strict=True))
    renamed = content._replace(names=names, labels=[new[y] for y in content.labels])
    assert_same(form, form, renamed, folder)
    model = in_memory(content, content.names)
    for part in (renamed, renamed._replace(names=[*names[:-1], content.names[-1]])):
        with pytest.raises(InputError):
            sets_of(model, form, part, folder)
    plain = in_memory(content._replace(names=None, labels=[0] * len(content.rows)), None)
    with pytest.raises(InputError):
        plain.predict_set(in_form(form if form not in APART else "pandas", renamed, folder)[0])


@every_form
@few
@given(data=st.data(), content=contents(names=ODD, with_names=True, with_ids=True))
def test_odd_names_are_names_or_an_error(form, folder, data, content):
    other = data.draw(st.sampled_from(list(FORMS)))
    with suppress(InputError, NotStorableError):
        assert_same(form, other, content, folder)


@every_form
@few
@given(data=st.data(), content=contents(with_ids=True))
def test_one_missing_id_is_an_error(form, folder, data, content):
    dropped = data.draw(without_one_id(form, content))
    if is_storable(form, dropped, folder):
        for use in uses_of(form, content, folder):
            with pytest.raises(InputError):
                use(dropped)


@every_form
@few
@given(content=contents(with_ids=True))
def test_without_ids_rows_go_by_their_content(form, folder, content):
    without = content._replace(ids=None)
    with may_fail(form, content):
        assert_same(form, form, without, folder)
        if form not in (*APART, "TopK", "entries in memory", "safetensors"):
            found = fitted(*in_form(form, content, folder)[:1], ids=False)
            assert_same_model(found, without)


@every_form
@few
@given(data=st.data(), content=contents(with_ids=True, texts=True))
def test_an_id_that_is_there_twice_is_one_in_memory_too(form, folder, data, content):
    first, second = data.draw(orders(len(content.rows)))[:2]
    ids = list(content.ids)
    ids[first] = ids[second]
    twice = content._replace(ids=ids)
    assert_same(form, form, twice, folder)
    rows, how = in_form(form, twice._replace(labels=None), folder)
    labels = written_labels(data.draw(st.sampled_from(LABEL_FILES)), content, folder)
    with pytest.raises(InputError):
        fitted(rows, labels, **how)
    rows, how = in_form(form, content._replace(labels=None), folder)
    labels = written_labels(data.draw(st.sampled_from(LABEL_FILES)), twice, folder)
    with pytest.raises(InputError):
        fitted(rows, labels, **how)


@every_form
@few
@given(data=st.data(), content=contents(with_names=True, texts=True))
def test_a_class_that_is_there_twice_is_an_error(form, folder, data, content):
    first, second = data.draw(orders(len(content.names)))[:2]
    names = list(content.names)
    names[first] = names[second]
    twice = content._replace(names=names)
    if is_storable(form, twice, folder):
        for use in uses_of(form, content, folder):
            with pytest.raises(InputError):
                use(twice)


@every_form
@few
@given(data=st.data(), content=contents(with_names=True, texts=True))
def test_a_class_that_is_missing_is_an_error(form, folder, data, content):
    column = data.draw(st.integers(0, len(content.names) - 1))
    names = [name for name in content.names if name != content.names[column]]
    fit, predict = uses_of(form, content, folder)
    if form not in LISTED:  # top-k rows may leave out a class
        with pytest.raises(InputError):
            predict(Content(np.delete(content.rows, column, axis=1), names, content.ids))
    if form in (*APART, "dictionary", "npz", "safetensors", "TopK"):  # whose names are apart
        for use in (fit, predict):
            with pytest.raises(InputError):
                use(content._replace(names=names))


@every_form
@few
@given(data=st.data(), content=contents(texts=True))
def test_a_label_that_is_missing_is_an_error(form, folder, data, content):
    row, is_text = data.draw(st.integers(0, len(content.rows) - 1)), content.names is not None
    missing = [None, "", float("nan")]
    if form in ("dictionary", "npz", "safetensors"):
        missing = [""] if is_text else [float("nan")]
    bad = data.draw(st.sampled_from(missing))
    labels = [*content.labels[:row], bad, *content.labels[row + 1 :]]
    dropped = content._replace(labels=labels)
    if is_storable(form, dropped, folder):
        with pytest.raises(InputError):
            model_of(form, dropped, folder)


@every_form
@few
@given(data=st.data(), content=contents(with_ids=True))
def test_ids_may_be_spelled_in_any_type(form, folder, data, content):
    """A float may be text in a file without types; then it is another id."""
    if isinstance(content.ids[0], str):
        content = content._replace(ids=[int(i[4:]) for i in content.ids])
    spelling = data.draw(st.sampled_from(list(SPELLINGS)))
    retyped = content._replace(ids=list(map(SPELLINGS[spelling], content.ids)))
    is_text = "float" in spelling and form in TEXT
    is_right = suppress(InputError) if is_text else may_fail(form, content)
    with suppress(NotStorableError), is_right:
        found = model_of(form, retyped, folder)
        if is_text:
            retyped = retyped._replace(ids=list(map(str, retyped.ids)))
            names = found.class_names_
            kept = [in_memory(part, names).thresholds_.tolist() for part in (content, retyped)]
            assert found.thresholds_.tolist() in kept
        else:
            expected = assert_same_model(found, content)
            assert sets_of(found, form, retyped, folder) == expected_sets(expected, content)


@every_form
@few
@given(data=st.data(), content=contents(with_names=True, texts=False))
def test_labels_may_be_of_any_type(form, folder, data, content):
    names = [lambda y: content.names[y], lambda y: np.str_(content.names[y])]
    numbers = list(SPELLINGS.values())
    if form in LISTED:  # other text may name a class that no row lists
        numbers = [SPELLINGS["NumPy integer"], SPELLINGS["unsigned"]]
    kinds = [*names, *numbers]
    retyped = content._replace(labels=list(map(data.draw(st.sampled_from(kinds)), content.labels)))
    with suppress(NotStorableError, InputError):
        rows, how = in_form(form, retyped, folder)
        assert_same_model(fitted(rows, **how), content)


@every_form
@few
@given(data=st.data(), content=contents(names=st.sampled_from(list("0123456789")), with_names=True))
def test_digits_are_names_or_indices_or_an_error(form, folder, data, content):
    """The classes are called by digits, in any order; labels are their names or indices."""
    are_names = isinstance(content.labels[0], str)
    with suppress(InputError):
        assert_same_model(model_of(form, content, folder), content)
        assert are_names or is_plain(content.names), "it guessed"
    if is_plain(content.names) or (form in LISTED and not are_names):  # in the order of which list?
        return
    found = model_of(form, content, folder, labels_are="names" if are_names else "indices")
    expected = assert_same_model(found, content)
    assert sets_of(found, form, content, folder) == expected_sets(expected, content)
