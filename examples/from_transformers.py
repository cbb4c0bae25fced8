"""Calibrate sets for a Hugging Face pipeline; needs ``pip install transformers torch``.

python examples/from_transformers.py MODEL TEXTS.csv   # lines of "text,label"
python examples/from_transformers.py --tiny            # random weights, no download
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from transformers import Pipeline, pipeline

from evencover import StandardPredictor


def class_names(classifier: Pipeline) -> list[str]:
    """Return the labels of the model, in the order of its outputs."""
    labels = classifier.model.config.id2label
    return [labels[index] for index in range(len(labels))]


def batches(classifier: Pipeline, examples: Iterator[tuple[str, str]], size: int = 32) -> Iterator:
    """Yield (probabilities, label names) of a few texts at a time."""
    place = {name: index for index, name in enumerate(class_names(classifier))}
    while batch := list(islice(examples, size)):
        texts, labels = zip(*batch, strict=True)
        rows = np.empty((len(batch), len(place)), dtype=np.float32)
        # top_k=None returns all classes, sorted by score.
        for row, answer in zip(
            rows, classifier(list(texts), top_k=None, batch_size=size), strict=True
        ):
            row[[place[each["label"]] for each in answer]] = [each["score"] for each in answer]
        yield rows, np.array(labels)


def calibrate(classifier: Pipeline, examples: Iterator[tuple[str, str]]) -> StandardPredictor:
    """Fit thresholds on held-out labeled texts."""
    names = class_names(classifier)
    return StandardPredictor(alpha=0.1).fit(batches(classifier, examples), class_names=names)


def read_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Read lines of text and label."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from ((text, label) for text, label in csv.reader(file))


def tiny_pipeline() -> tuple[Pipeline, list[tuple[str, str]]]:
    """Create a model with random weights, and randomly labeled texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = ["[UNK]", "[PAD]", "a", "bee", "an", "ant", "the", "wasp", "sees", "and", "flies"]
    tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens, unk_token="[UNK]", pad_token="[PAD]", model_max_length=32
    )
    shape: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    names = ["ant", "bee", "wasp", "fly", "moth"]
    config = BertConfig(
        vocab_size=len(words), intermediate_size=32, id2label=dict(enumerate(names)),
        label2id={name: i for i, name in enumerate(names)}, **shape,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:  # saved like a trained model
        BertForSequenceClassification(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        classifier = pipeline("text-classification", model=folder)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words[2:], 5)) for _ in range(400)]
    return classifier, [(text, names[rng.integers(len(names))]) for text in texts]


def main(arguments: list[str] | None = None) -> list[list[str]]:
    """Calibrate; print and return a few sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a name on the hub, or a folder")
    parser.add_argument("texts", nargs="?", type=Path)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args(arguments)
    if options.tiny:
        classifier, examples = tiny_pipeline()
    else:
        classifier = pipeline("text-classification", model=options.model)
        examples = list(read_texts(options.texts))
    *calibration, one, two = examples
    predictor = calibrate(classifier, iter(calibration))
    rows, _ = next(batches(classifier, iter([one, two])))
    sets = predictor.predict_set(rows).to_lists(names=True)
    for (text, label), names in zip((one, two), sets, strict=True):
        print(f"{text!r} is {label!r}; the set: {', '.join(names)}")
    return sets


if __name__ == "__main__":
    main()
