"""What tests of the monitor share."""

import numpy as np
import pytest

from evencover import CoverageMonitor


def updated(predictor, rows, labels, state=None, **how):
    """The snapshot of a monitor that counted rows."""
    monitor = CoverageMonitor(predictor, state=state)
    monitor.update(rows, labels, **how)
    return monitor.snapshot()


def assert_same_counts(found, expected):
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.covered, expected.covered)
    assert found.totals == expected.totals


def assert_same_evidence(found, expected):
    assert_same_counts(found, expected)
    np.testing.assert_allclose(found.evidence.log_e, expected.evidence.log_e)
    np.testing.assert_allclose(found.evidence.log_shift, expected.evidence.log_shift)
    assert found.overall == pytest.approx(expected.overall)
