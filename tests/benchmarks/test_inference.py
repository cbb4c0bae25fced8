"""The benchmark of inference runs through on a few pictures; its times are not looked at."""

import json


def test_three_ways_and_two_sizes(tmp_path, monkeypatch, capsys):
    from benchmarks import inference

    monkeypatch.setattr("sys.argv", ["inference", "--small", "--out", str(tmp_path)])
    inference.main()
    assert (tmp_path / "inference.md").read_text() in capsys.readouterr().out
    found = json.loads((tmp_path / "inference.json").read_text())
    assert set(found["speed"]["seconds"]) == {"ready", "plain", "infer"}
    assert found["speed"]["share_of_plain"] > 0
    assert list(found["memory"]["peak_bytes"]) == ["200", "1000"]
    assert found["memory"]["growth"] < 1.5
