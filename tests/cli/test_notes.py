"""Notes: what the user should know goes to stderr and is no error."""

import pytest
from cli.running import shell, succeeded


def test_the_calibration_file_is_no_test_file(model, run):
    result = succeeded(run("evaluate", model, "cal.npz"))
    assert result.err.startswith("note: These 300 rows were used for calibration")
    assert result.err.count("\n") == 1
    assert result.out.startswith("Target met")
    assert succeeded(run("evaluate", model, "test.npz")).err == ""


@pytest.mark.parametrize(
    "setting", ["error::UserWarning", pytest.param("ignore", marks=pytest.mark.deep)]
)
def test_notes_are_shown_whatever_python_thinks_of_warnings(folder, setting):
    arguments = ("calibrate", "cal.npz", "--method", "clustered", "-o", "m.safetensors")
    result = succeeded(shell(*arguments, PYTHONWARNINGS=setting))
    assert result.err.startswith("note: Clustering is not possible")
