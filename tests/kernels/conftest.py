"""What the kernel tests share: a reference that computes each thing once."""

import pickle

import pytest

from evencover._kernels import reference


def remembering(kernel):
    """The same kernel, asked once per input; its callers only read what it returns."""
    known = {}

    def ask(*arguments, **options):
        key = pickle.dumps((arguments, options))
        if key not in known:
            known.clear()  # the next comparisons are about other rows or another score
            known[key] = kernel(*arguments, **options)
        return known[key]

    return ask


@pytest.fixture(scope="module")
def quick_reference():
    """All sets of a block under all limits follow from one matrix of scores: sort once for all."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("score_matrix", "rank_matrix", "row_numbers"):
            patch.setattr(reference, name, remembering(getattr(reference, name)))
        yield
