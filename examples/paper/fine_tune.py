"""Fine-tune all layers of a pretrained ResNet-50 on a fraction of a folder, as in the paper.

    python examples/paper/fine_tune.py IMAGES/ -o cifar/ --preset cifar-100
    evencover infer cifar/model cifar/held_out.csv -o cifar/scores

The folder has one subfolder per class. held_out.csv lists the held-out images, for calibration and
test. After an interruption, the same command continues.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from images import Picture, Pictures, list_pictures, split, write_table
from torch import nn
from torch.utils.data import DataLoader, Subset
from transformers import AutoImageProcessor, AutoModelForImageClassification


class Preset(NamedTuple):
    """Settings of a data set in the paper's appendix: training fraction, epochs, part of names."""

    share: float
    epochs: int
    part: int | None = None


PRESETS = {
    "cifar-100": Preset(0.5, 30),
    "places365": Preset(0.9, 1),
    "inaturalist": Preset(0.5, 1, part=5),
}
MOMENTUM, DECAY = 0.9, 1e-4


def load_model(name: str, names: list[str]) -> Any:
    """Load the pretrained model with a new last layer."""
    return AutoModelForImageClassification.from_pretrained(
        name,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
        ignore_mismatched_sizes=True,
    )


def train(
    model: Any,
    pictures: list[Picture],
    names: list[str],
    processor: Any,
    options: argparse.Namespace,
) -> None:
    """Train by SGD with momentum and a cosine learning rate; save checkpoints."""
    device = torch.device(options.device)
    model.to(device).train()
    optimizer = torch.optim.SGD(
        model.parameters(), options.rate, momentum=MOMENTUM, weight_decay=DECAY
    )
    n_batches = -(-len(pictures) // options.batch_size)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * n_batches)
    state_file = options.output / "training.pt"
    done = _resume(state_file, model, optimizer, rate, device)
    for epoch in range(done // n_batches, options.epochs):
        data = Pictures(pictures, names, processor, seed=epoch)
        order = np.random.default_rng([options.seed, epoch]).permutation(len(data))
        rest = order[(done - epoch * n_batches) * options.batch_size :]
        loader = DataLoader(
            Subset(data, rest.tolist()), options.batch_size, num_workers=options.workers
        )
        for inputs, labels in loader:
            outputs = model(pixel_values=inputs.to(device)).logits
            loss = nn.functional.cross_entropy(outputs, labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
            done += 1
            if done % options.keep_every == 0:
                _keep(state_file, model, optimizer, rate, done)
                print(f"step {done} of {options.epochs * n_batches}: loss {loss.item():.3f}")
    _keep(state_file, model, optimizer, rate, done)


def _keep(path: Path, model: Any, optimizer: Any, rate: Any, done: int) -> None:
    parts = {"model": model, "optimizer": optimizer, "rate": rate}
    state = {name: part.state_dict() for name, part in parts.items()} | {"done": done}
    torch.save(state, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)


def _resume(path: Path, model: Any, optimizer: Any, rate: Any, device: Any) -> int:
    """Load a checkpoint, if any; return the number of completed steps."""
    if not path.is_file():
        return 0
    state = torch.load(path, map_location=device, weights_only=True)
    for name, part in {"model": model, "optimizer": optimizer, "rate": rate}.items():
        part.load_state_dict(state[name])
    print(f"continuing after step {state['done']}")
    return int(state["done"])


def main(arguments: list[str] | None = None) -> None:
    """Split, train, and save the model in the format of transformers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--preset", choices=PRESETS, default="cifar-100")
    parser.add_argument(
        "--model", default="microsoft/resnet-50", help="a name on the hub or folder"
    )
    parser.add_argument("--share", type=float, help="of the images to train on")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--part", type=int, help="of the sub-folders' names that is the class")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--keep-every", type=int, default=200, help="steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    for name, value in PRESETS[options.preset]._asdict().items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.output.mkdir(parents=True, exist_ok=True)
    pictures = list_pictures(options.images, options.part)
    names = sorted({picture.label for picture in pictures})
    training, held_out = split(pictures, options.images, options.share)
    write_table(options.output / "held_out.csv", held_out)
    torch.manual_seed(options.seed)
    processor = AutoImageProcessor.from_pretrained(options.model)
    model = load_model(options.model, names)
    train(model, training, names, processor, options)
    model.to("cpu").eval().save_pretrained(options.output / "model")
    processor.save_pretrained(options.output / "model")
    about = {"training": len(training), "held out": len(held_out), "classes": len(names)}
    print(json.dumps(about))


if __name__ == "__main__":
    main()
