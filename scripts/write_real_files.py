"""Write small files with other tools, for tests/data/real_files.

    python scripts/write_real_files.py cleanlab transformers torch scikit-learn -o FOLDER
    python scripts/write_real_files.py autogluon lm-eval lighteval -o FOLDER
    TIMM_INFERENCE=inference.py python scripts/write_real_files.py timm -o FOLDER

Each tool fits a toy model on toy data (or evaluates a tiny language model with random weights) and
writes the file itself. The tools are not dependencies of evencover: install those you need,
preferably in a separate environment. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
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


def language_model(folder: Path) -> Path:
    """Create a tiny GPT-2 with random weights and a tokenizer of single bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(["<end>", *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    config = GPT2Config(
        vocab_size=len(alphabet) + 1,
        n_positions=256,
        n_embd=8,
        n_layer=1,
        n_head=1,
        bos_token_id=0,
        eos_token_id=0,
    )
    where = folder / "model"
    GPT2LMHeadModel(config).save_pretrained(where)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<end>", eos_token="<end>", pad_token="<end>"
    ).save_pretrained(where)
    return where


def questions() -> list[dict[str, Any]]:
    """Return a few questions with the four species as choices."""
    _, _, features, labels = trees()
    return [
        {"question": f"Tree, {h:.1f} high, {g:.1f} thick:", "choices": CLASSES, "answer": y}
        for (h, g), y in zip(features[:8].tolist(), labels[:8].tolist(), strict=True)
    ]


def write_lines(path: Path, records: Iterable[Any]) -> None:
    """Write JSON, one object per line."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


LM_EVAL_TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: {target}
metric_list:
  - metric: {metric}
"""


def lm_eval(folder: Path) -> None:
    """Write samples of three tasks: answers by number, in words, and with mutual information."""
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch)
        model = language_model(where)
        write_lines(where / "trees.jsonl", questions())
        tasks = {
            "number": ("answer", "acc"),
            "words": ('"{{choices[answer]}}"', "acc"),
            "mutual": ("answer", "acc_mutual_info"),
        }
        for name, (target, metric) in tasks.items():
            text = LM_EVAL_TASK.format(
                name=name, data=where / "trees.jsonl", target=target, metric=metric
            )
            (where / f"{name}.yaml").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "lm_eval", "--model", "hf", "--device", "cpu"]
        command += ["--model_args", f"pretrained={model}", "--tasks", ",".join(tasks)]
        command += ["--include_path", scratch, "--log_samples", "--output_path", where / "out"]
        offline(command, where)
        for name in tasks:
            (found,) = where.glob(f"out/**/samples_{name}_*.jsonl")
            shutil.copy(found, folder / f"lm_eval_{name}.jsonl")


def lighteval(folder: Path) -> None:
    """Write details of one multiple-choice task.

    Follows its pipeline, without the list of tasks, which downloads files.
    """
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.metrics import apply_metric
    from lighteval.metrics.metrics import Metrics
    from lighteval.models.transformers.transformers_model import (
        TransformersModel,
        TransformersModelConfig,
    )
    from lighteval.tasks.requests import Doc, SamplingMethod

    docs = []
    for place, question in enumerate(questions()):
        choices = [f" {choice}" for choice in question["choices"]]
        docs.append(Doc(question["question"], choices, question["answer"], task_name="trees|0"))
        docs[-1].id, docs[-1].sampling_methods = str(place), [SamplingMethod.LOGPROBS]
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch)
        config = TransformersModelConfig(
            model_name=str(language_model(where)), batch_size=1, cache_dir=str(where / "cache")
        )
        responses = TransformersModel(config).loglikelihood(docs)
        tracker = EvaluationTracker(str(where / "out"), save_details=True)
        tracker.general_config_logger.log_model_info(config)
        found = apply_metric(responses, docs, [Metrics.loglikelihood_acc.value])
        for doc, response, metrics in zip(docs, responses, found, strict=True):
            tracker.details_logger.log("trees|0", doc, response, metrics)
        tracker.save()
        (written,) = where.glob("out/**/details_*.parquet")
        shutil.copy(written, folder / "lighteval.parquet")


def flat_lighteval(folder: Path) -> None:
    """Write details in the format until 0.10, with answers of several tokens, and of one.

    The log-likelihoods are invented; the model part of 0.10 requires older libraries.
    """
    from types import SimpleNamespace

    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.metrics.utils.metric_utils import MetricCategory
    from lighteval.models.model_output import (
        LoglikelihoodResponse,
        LoglikelihoodSingleTokenResponse,
    )
    from lighteval.tasks.requests import Doc

    numbers = np.random.default_rng(3).normal(-4, 1, (8, len(CLASSES))).tolist()
    for name, category in (
        ("pairs", MetricCategory.MULTICHOICE),
        ("single", MetricCategory.MULTICHOICE_ONE_TOKEN),
    ):
        task = SimpleNamespace(has_metric_category=dict.fromkeys(MetricCategory, False))
        task.has_metric_category[category] = True
        with tempfile.TemporaryDirectory() as scratch:
            tracker = EvaluationTracker(scratch, save_details=True)
            tracker.general_config_logger.model_name = "toy"
            for row, question in zip(numbers, questions(), strict=True):
                doc = Doc(question["question"], question["choices"], question["answer"])
                doc.ctx = doc.query
                given: list[Any] = [LoglikelihoodSingleTokenResponse(row)]
                if name == "pairs":
                    given = [LoglikelihoodResponse((value, value == max(row))) for value in row]
                tracker.details_logger.log("trees", task, doc, given, {"acc": 0})
            tracker.save()
            (written,) = Path(scratch).glob("**/details_*.parquet")
            shutil.copy(written, folder / f"lighteval_0_10_{name}.parquet")


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
    "lm-eval": lm_eval,
    "lighteval": lighteval,
    "lighteval-0.10": flat_lighteval,
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
