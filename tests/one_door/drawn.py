"""What hypothesis draws: small rows with ids, labels and names, and what may be wrong with them."""

import numpy as np
from hypothesis import strategies as st
from one_door.forms import TEXT, Content

PLAIN = st.text("abcdefgh", min_size=2, max_size=6).map("c{}".format)
ODD = st.sampled_from(
    [
        *(
            "0",
            "1",
            "2",
            "3",
            "7",
            "10",
            "007",
            "1.5",
            "-1",
            "1e3",
            " ",
            "\u3000",
            " a",
            "a",
            "a ",
            "A",
        ),
        *("NA", "nan", "None", "null", "true", "inf", "=x", "+x", "-x", "@x", "'x", '"x"', "x,y"),
        *("id", "ids", "label", "labels", "y", "Y", "score", "probs", "index", "output", "classes"),
        *("x\ty", "x;y", "x|y", "é", "e\u0301", "label_0", "prob_0", "__index_level_0__", "time"),
    ]
)


@st.composite
def contents(draw, names=PLAIN, *, with_names=None, with_ids=None, texts=None):
    """Rows with ids and labels, from a seed; small, so that every row counts."""
    n_rows, n_classes = draw(st.integers(3, 30)), draw(st.integers(3, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.dirichlet(np.full(n_classes, 0.5), n_rows)
    labels = rng.integers(0, n_classes, n_rows).tolist()
    with_names = draw(st.booleans()) if with_names is None else with_names
    with_ids = draw(st.booleans()) if with_ids is None else with_ids
    listed = draw(st.lists(names, min_size=n_classes, max_size=n_classes, unique=True))
    numbers = rng.permutation(10**4)[:n_rows].tolist()
    ids = draw(st.sampled_from([numbers, [f"row {n}" for n in numbers]]))
    texts = draw(st.booleans()) if texts is None else texts
    if with_names and texts:
        labels = [listed[y] for y in labels]
    return Content(rows, listed if with_names else None, ids if with_ids else None, labels)


def orders(n):
    return st.permutations(range(n)).map(list)


SPELLINGS = {
    "text": str,
    "float": float,
    "NumPy integer": np.int32,
    "NumPy text": lambda n: np.str_(str(n)),
    "NumPy float": np.float32,
    "unsigned": np.uint64,
}


@st.composite
def without_one_id(draw, form, content):
    """The same rows, of which one has no id, or something else in its place."""
    is_text = isinstance(content.ids[0], str)
    missing = [None, "", " ", float("nan"), 0.5, True, b"x"]
    if form in TEXT:
        missing = [None, "", " "]  # all else may be text
    elif form in ("dictionary", "npz", "safetensors"):
        missing = ["", " "] if is_text else [float("nan"), 0.5]  # without a change of the others
    elif form == "polars":
        missing = missing[:5]  # it takes True for 1
    row = draw(st.integers(0, len(content.rows) - 1))
    ids = [*content.ids[:row], draw(st.sampled_from(missing)), *content.ids[row + 1 :]]
    return content._replace(ids=ids)
