"""Write small files with other tools, for tests/data/real_files.

    python scripts/write_real_files.py cleanlab transformers torch scikit-learn -o FOLDER
    python scripts/write_real_files.py autogluon -o FOLDER
    TIMM_INFERENCE=inference.py python scripts/write_real_files.py timm -o FOLDER

Each tool fits a toy model on toy data and writes the file itself. The tools are not dependencies of
evencover: install those you need, preferably in a separate environment. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = ["ash", "birch", "cedar", "oak"]
N_TRAIN, N_TEST = 120, 24


def trees() -> tuple[Any, Any, Any, Any]:
    """Simulate two measurements of trees and their species: training and held-out data."""
    random = np.random.default_rng(7)
    labels = random.permutation(np.arange(N_TRAIN + N_TEST) % len(CLASSES))
    centers = np.array([[0, 0], [2, 0], [0, 2], [2, 2]])
    features = (centers[labels] + random.normal(size=(len(labels), 2))).astype(np.float32)
    return features[:N_TRAIN], labels[:N_TRAIN], features[N_TRAIN:], labels[N_TRAIN:]


def tree_frames() -> tuple[Any, Any]:
    """Return the data as frames with species names and consecutive row numbers."""
    import pandas as pd

    frames = []
    train, train_labels, test, labels = trees()
    for features, kinds, start in ((train, train_labels, 0), (test, labels, N_TRAIN)):
        frame = pd.DataFrame(features, columns=["height", "girth"]).assign(
            tree=np.array(CLASSES)[kinds]
        )
        frame.index = range(start, start + len(frame))
        frames.append(frame)
    return frames[0], frames[1]


def cleanlab(folder: Path) -> None:
    """Compute out-of-sample probabilities by its cross-validation."""
    from cleanlab.count import estimate_confident_joint_and_cv_pred_proba
    from sklearn.linear_model import LogisticRegression

    _, _, features, labels = trees()
    _, pred_probs = estimate_confident_joint_and_cv_pred_proba(
        features, labels, clf=LogisticRegression(), cv_n_folds=3, seed=0
    )
    np.save(folder / "cleanlab_pred_probs.npy", pred_probs)
    np.save(folder / "cleanlab_labels.npy", labels)
    np.savez(folder / "cleanlab.npz", pred_probs=pred_probs, labels=labels)


def scikit_learn(folder: Path) -> None:
    """Write `predict_proba` as a frame, with the index and true species of the test rows."""
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    train, test = tree_frames()
    model = LogisticRegression().fit(train[["height", "girth"]], train["tree"])
    frame = pd.DataFrame(
        model.predict_proba(test[["height", "girth"]]), columns=model.classes_, index=test.index
    )
    frame.to_csv(folder / "scikit_learn.csv")
    frame.assign(y_true=test["tree"]).to_csv(folder / "scikit_learn_labelled.csv")
    frame.assign(y_true=test["tree"]).to_json(
        folder / "scikit_learn.jsonl", orient="records", lines=True
    )
    frame.assign(y_true=test["tree"]).to_parquet(folder / "scikit_learn.parquet")


def autogluon(folder: Path) -> None:
    """Write the frame of a TabularPredictor: the index, and a column per species."""
    from autogluon.tabular import TabularPredictor

    train, test = tree_frames()
    with tempfile.TemporaryDirectory() as models:
        predictor = TabularPredictor("tree", path=models, verbosity=0)
        predictor.fit(
            train, hyperparameters={"XT": {"n_estimators": 10}}, fit_weighted_ensemble=False
        )
        frame = predictor.predict_proba(test)
    frame.to_csv(folder / "autogluon.csv")
    frame.to_parquet(folder / "autogluon.parquet")
    test["tree"].to_csv(folder / "autogluon_labels.csv", index=False)


def trainer_output() -> Any:
    """Run `Trainer.predict` of a tiny BERT with random weights."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    _, _, features, labels = trees()
    tokens = np.clip((features + 4) * 6, 0, 63).astype(int)
    rows = [
        {"input_ids": row, "labels": y}
        for row, y in zip(tokens.tolist(), labels.tolist(), strict=True)
    ]
    config = BertConfig(
        vocab_size=64,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        num_labels=len(CLASSES),
    )
    with tempfile.TemporaryDirectory() as where:
        options = TrainingArguments(where, report_to=[], use_cpu=True)
        return Trainer(BertForSequenceClassification(config), options).predict(rows)


def transformers(folder: Path) -> None:
    """Write logits and labels of a Trainer as arrays."""
    output = trainer_output()
    np.savez(
        folder / "transformers.npz", predictions=output.predictions, label_ids=output.label_ids
    )


def torch_files(folder: Path) -> None:
    """Write logits and labels of a linear layer with `torch.save`."""
    import torch

    torch.manual_seed(0)
    _, _, features, labels = trees()
    layer = torch.nn.Linear(2, len(CLASSES))
    with torch.inference_mode():
        logits = layer(torch.tensor(features))
    torch.save((logits.softmax(1), torch.tensor(labels)), folder / "torch_pair.pt")
    torch.save({"logits": logits, "labels": torch.tensor(labels)}, folder / "torch_dictionary.pt")
    torch.save({"model": layer, "logits": logits}, folder / "torch_with_a_module.pt")


def timm(folder: Path) -> None:
    """Run inference.py for a tiny network with random weights on single-color images.

    The script is in timm's repository, not in its package: TIMM_INFERENCE is its path.
    """
    import timm as library
    import torch
    from PIL import Image

    torch.manual_seed(0)
    _, _, features, labels = trees()
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch)
        network = library.create_model("test_vit", num_classes=len(CLASSES))
        torch.nn.init.normal_(network.head.weight)
        torch.save(network.state_dict(), where / "weights.pth")
        for place, ((height, girth), y) in enumerate(zip(features, labels, strict=True)):
            color = tuple(int(np.clip((value + 3) * 30, 0, 255)) for value in (height, girth, y))
            (where / "pictures" / CLASSES[y]).mkdir(parents=True, exist_ok=True)
            picture = Image.new("RGB", (32, 32), color)
            picture.save(where / "pictures" / CLASSES[y] / f"{place:02}.png")
        for name, options in TIMM_OPTIONS.items():
            command = [sys.executable, os.environ["TIMM_INFERENCE"], where / "pictures"]
            command += ["--model", "test_vit", "--checkpoint", where / "weights.pth"]
            command += ["--num-classes", str(len(CLASSES)), "--device", "cpu", "--workers", "0"]
            command += ["--no-console-results", "--results-dir", folder.resolve()]
            command += ["--results-file", name, "--results-format", "csv", "parquet"]
            offline([*command, *options], where)
    kinds = sorted(CLASSES[y] for y in labels)  # folders are read by name
    (folder / "timm_labels.txt").write_text("".join(f"{CLASSES.index(k)}\n" for k in kinds))


TIMM_OPTIONS = {
    "timm": ["--topk", "0"],
    "timm_logits": ["--topk", "0", "--output-type", "logit"],
    "timm_columns": ["--topk", "0", "--results-separate-col"],
    "timm_best": [],
    "timm_best_3": ["--topk", "3", "--include-index"],
    "timm_best_3_columns": ["--topk", "3", "--include-index", "--results-separate-col"],
}


def offline(command: list[Any], where: Path) -> None:
    """Run a tool offline, with temporary caches."""
    kept = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(where / "cache")}
    subprocess.run([str(part) for part in command], cwd=where, env=os.environ | kept, check=True)


WRITERS: dict[str, Callable[[Path], None]] = {
    "cleanlab": cleanlab,
    "scikit-learn": scikit_learn,
    "autogluon": autogluon,
    "transformers": transformers,
    "torch": torch_files,
    "timm": timm,
}


def main() -> None:
    """Write the files of the given tools."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tools", nargs="+", choices=list(WRITERS))
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the files")
    options = parser.parse_args()
    for tool in options.tools:
        WRITERS[tool](options.output)


if __name__ == "__main__":
    main()
