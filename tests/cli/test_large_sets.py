"""Caps on the command line: models, texts and tables name capped classes with their price."""

import csv
import json

from cli.running import assert_found, succeeded

from evencover import load


def test_capped_classes_are_named_wherever_a_model_is_described(folder, run):
    options = ("--method", "classwise", "--alpha", "0.02", "--max-share", "0.1")
    succeeded(run("calibrate", "cal.npz", *options, "-o", "m.safetensors"))
    fitted = load("m.safetensors")
    assert fitted.is_capped_.any()
    words = " ".join(succeeded(run("info", "m.safetensors")).out.split())
    assert_found("Covering '.*' at 98% would put it into .*% of the sets of other classes", words)
    about = json.loads(succeeded(run("info", "m.safetensors", "--json")).out)
    assert about["capped_classes"] == fitted.fit_.capped_shares
    succeeded(run("evaluate", "m.safetensors", "test.npz", "--csv", "classes.csv"))
    with open("classes.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["is_capped"] == "True" for row in rows] == fitted.is_capped_.tolist()
    assert [float(row["share_of_other_sets"]) for row in rows] == fitted.share_.tolist()
    updated = succeeded(run("update", "m.safetensors", "test.npz", "-o", "u.safetensors"))
    assert_found("caps are those of the first calibration", updated.out)
    later = json.loads(succeeded(run("info", "u.safetensors", "--json")).out)
    assert "Caps are those of the first calibration" in later["guarantee"]
    other = succeeded(run("evaluate", "m.safetensors", "test.npz", "--alpha", "0.1", "--json"))
    assert set(json.loads(other.out)["share"]) == {None}
