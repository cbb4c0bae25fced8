"""The benchmark of the kernels runs through on few rows; its times are not looked at."""

import pytest

pytest.importorskip("evencover._kernels._native", reason="the C++ kernels were not built")


def test_every_kernel_is_measured(monkeypatch, capsys):
    from benchmarks import kernels

    monkeypatch.setattr(
        "sys.argv", ["kernels", "--rows", "300", "--classes", "20", "--repeats", "1"]
    )
    kernels.main()
    lines = capsys.readouterr().out.splitlines()
    head = next(place for place, line in enumerate(lines) if line.split()[:1] == ["ns/el"])
    measured = {
        line[:32].strip(): [float(cell) for cell in line[32:].split()] for line in lines[head + 1 :]
    }
    assert len(measured) == 3 * 8 + 4
    # Every job took some time on one thread and on two; ratios on few rows may round to 0.
    assert all(one > 0 and two > 0 for one, _, two, _, _ in measured.values())
