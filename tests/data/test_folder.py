"""A folder or a pattern of parts is one input; parts that do not fit are named."""

from functools import partial

import numpy as np
import pytest
from inputs import LABELS, NAMES, ROWS, K, N, assert_holds, read, write_file

from evencover import InputError, StandardPredictor
from evencover.data import as_source
from evencover.data.labels import separate_labels

CUTS = [(0, 9), (9, 10), (10, N)]
ENDINGS = ["npy", "npz", "parquet", "arrow", "csv"]


def write_parts(folder, ending, *, labels=LABELS, names=None):
    """part-1, part-2 and part-10: in natural order, not in that of the alphabet."""
    folder.mkdir(exist_ok=True)
    for number, (start, stop) in zip((1, 2, 10), CUTS, strict=True):
        write_part(folder / f"part-{number}.{ending}", ROWS[start:stop], labels[start:stop], names)
    return folder


def write_part(path, rows, labels, names=None):
    if names is None:
        write_file(path.with_suffix(""), path.suffix[1:], rows, labels)
    else:
        np.savez(path, probs=rows, labels=labels, class_names=names)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("pattern", ["", "*", "part-*.{}"])
def test_parts_in_natural_order(tmp_path, block_elements, ending, pattern):
    folder = write_parts(tmp_path / "parts", ending)
    path = folder / pattern.format(ending) if pattern else folder
    source = as_source(path, LABELS if ending == "npy" else None)
    assert source.n_rows == N
    assert_holds(source, ROWS if ending != "csv" else ROWS.astype(np.float64))


def test_what_is_no_data_is_left_out_of_a_folder(tmp_path):
    folder = write_parts(tmp_path, "npz")
    for name in ("manifest.json", "README.md", "_SUCCESS", ".hidden.npz", "_metadata.npz"):
        (folder / name).write_text("not data")
    assert_holds(as_source(folder))


def test_empty_parts_are_left_out(tmp_path):
    for ending in ("npz", "parquet"):
        folder = write_parts(tmp_path / ending, ending)
        write_part(folder / f"part-0.{ending}", ROWS[:0], LABELS[:0])
        assert_holds(as_source(folder))


def test_labels_in_one_file_or_beside_each_part(tmp_path):
    folder = write_parts(tmp_path / "parts", "npy")
    np.save(tmp_path / "y.npy", LABELS)
    assert_holds(as_source(folder, tmp_path / "y.npy"))
    for number, (start, stop) in zip((1, 2, 10), CUTS, strict=True):
        (tmp_path / f"y-{number}.txt").write_text("\n".join(map(str, LABELS[start:stop])))
    assert_holds(as_source(folder, tmp_path / "y-*.txt"))
    assert separate_labels(tmp_path / "y-*.txt").values.tolist() == LABELS.tolist()
    (tmp_path / "y-2.txt").unlink()
    with pytest.raises(InputError, match="one entry per row"):
        as_source(folder, tmp_path / "y-*.txt")


@pytest.mark.parametrize("ending", ENDINGS)
def test_another_number_of_classes(tmp_path, ending):
    folder = write_parts(tmp_path, ending)
    write_part(folder / f"part-2.{ending}", ROWS[:, :3], LABELS % 3)
    with pytest.raises(InputError, match=r"Got 3 classes in '.*part-2"):
        as_source(folder)


def test_other_names_labels_or_kinds(tmp_path):
    folder = write_parts(tmp_path, "npz", names=NAMES)
    other = folder / "part-2.npz"
    wasp = [*NAMES[:2], "wasp", NAMES[3]]
    for words, arrays in {
        r"'wasp' as class 2 in '.*part-2.npz', and 'çédille'": {
            "labels": LABELS,
            "class_names": wasp,
        },
        r"no class names in '.*part-2.npz'": {"labels": LABELS},
        r"no labels in '.*part-2.npz'": {"class_names": NAMES},
    }.items():
        np.savez(other, probs=ROWS, **arrays)
        with pytest.raises(InputError, match=words):
            as_source(folder)
    np.savez(other, logits=ROWS, labels=LABELS, class_names=NAMES)
    with pytest.raises(InputError, match=r"logits in '.*part-2.npz', and probabilities in"):
        as_source(folder)
    np.save(folder / "part-3.npy", ROWS)
    with pytest.raises(InputError, match=r"must have one format\. Got \.npy, \.npz"):
        as_source(folder)


@pytest.mark.parametrize("ending", ["npz", "parquet", "csv"])
def test_a_label_outside_the_classes_is_named_by_file_and_row(tmp_path, block_elements, ending):
    labels = LABELS.copy()
    labels[12] = K
    with pytest.raises(InputError, match=r"Got 4 in row 2 of '.*part-10\.\w+'"):
        read(as_source(write_parts(tmp_path, ending, labels=labels)))


def test_nothing_to_read(tmp_path):
    with pytest.raises(InputError, match="the folder has no file"):
        as_source(tmp_path)
    with pytest.raises(InputError, match=r"none-\*.npy': no file matches"):
        as_source(tmp_path / "none-*.npy")
    (tmp_path / "a.txt").write_text("1")
    with pytest.raises(InputError, match=r"a\.txt': its extension must be one of"):
        as_source(tmp_path / "*.txt")


def test_a_part_that_is_lost_on_the_way_is_named(tmp_path):
    for ending in ENDINGS:
        folder = write_parts(tmp_path / ending, ending)
        source = as_source(folder, LABELS if ending == "npy" else None)
        (folder / f"part-2.{ending}").unlink()
        with pytest.raises(InputError, match=rf"part-2\.{ending}': there is no such file"):
            read(source)
        _, lost, _ = source.parts()
        with pytest.raises(InputError, match=rf"part-2\.{ending}': there is no such file"):
            read(lost)


def test_a_file_whose_name_looks_like_a_pattern(tmp_path):
    np.save(tmp_path / "a[1].npy", ROWS)
    assert_holds(as_source(tmp_path / "a[1].npy", LABELS))


@pytest.mark.parametrize("label", ["", " ", None, float("nan"), 7])
def test_missing_labels_and_numbers_are_not_unknown_names(label):
    rows, names = np.full((4, 2), 0.5), ["ant", "bee"]
    predictor = StandardPredictor(alpha=0.5).fit(rows, [0, 1, 0, 1], class_names=names)
    labels = np.array(["ant", "oak", label, "bee"], dtype=object)
    for call in (predictor.evaluate, partial(StandardPredictor().fit, class_names=names)):
        with pytest.raises(InputError, match="row 2"):
            call(rows, labels)
