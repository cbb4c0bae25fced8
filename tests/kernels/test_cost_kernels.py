"""What the cost of a method asks of the kernels: the same bits from both, and what NumPy says."""

import numpy as np
import pytest
from kernels.compare import same_bits


@pytest.mark.parametrize("n", [1, 2, 3, 100])
@pytest.mark.parametrize("n_values", [0, 1, 5, 64])
def test_values_within_others(n, n_values):
    rng = np.random.default_rng([n, n_values])
    ordered = np.sort(np.round(rng.random((7, n)), 1), axis=1)
    classes = rng.integers(0, 7, n_values)
    values = rng.choice([-np.inf, 0.0, 0.1, 0.5, 0.55, 1.0, np.inf], n_values)
    (counts,) = same_bits("counts_within", ordered, classes, values)
    np.testing.assert_array_equal(counts, (ordered[classes] <= values[:, None]).sum(axis=1))


def test_what_rows_lack():
    rng = np.random.default_rng(0)
    classes, flags, wanted = rng.integers(0, 5, 200), rng.random(200) < 0.4, rng.random(200)
    has = np.append(rng.random(5), 0.5)  # nobody is of the last class
    counts, sums = same_bits("shortfalls", classes, flags, wanted, has)
    own = flags & (classes == 3)
    assert (counts[3], counts[5], sums[5]) == (own.sum(), 0, 0)
    assert sums[3] == pytest.approx(np.maximum(wanted[own] - has[3], 0).sum())
