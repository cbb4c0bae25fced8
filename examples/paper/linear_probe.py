"""Train a linear head on frozen self-supervised features, as the paper does for ImageNet.

    python examples/paper/linear_probe.py IMAGES/ -o imagenet/ --encoder facebook/dinov2-base

writes imagenet/scores: the logits of all held-out images. Run encoder and head on new images with

    PROBE=imagenet evencover infer examples/paper/linear_probe.py:Probe NEW/ -o scores/

Features are computed once and saved; after an interruption, the same command continues.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from images import Picture, list_pictures, split
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoImageProcessor, AutoModel

ABOUT, HEAD = "about.json", "head.safetensors"
PART_ROWS = 4096


class Encoder:
    """A frozen model of transformers: images to one vector each."""

    def __init__(self, name: str, device: str) -> None:
        self.device = torch.device(device)
        self.processor = AutoImageProcessor.from_pretrained(name)
        self.model = AutoModel.from_pretrained(name).to(self.device).eval()

    @torch.inference_mode()
    def __call__(self, images: list[Image.Image]) -> np.ndarray:
        """Return the model's pooled output, or the mean over positions."""
        prepared = self.processor(images=images, return_tensors="pt").to(self.device)
        outputs = self.model(**prepared)
        pooled = getattr(outputs, "pooler_output", None)
        if pooled is None:
            pooled = outputs.last_hidden_state.mean(dim=1)
        return pooled.flatten(1).float().cpu().numpy()


def extract(pictures: list[Picture], encoder: Encoder, folder: Path, batch_size: int) -> np.ndarray:
    """Compute and save the features of all images."""
    path, count = folder / "features.npy", folder / "n_features.txt"
    done = int(count.read_text()) if path.is_file() and count.is_file() else 0
    features = np.load(path, mmap_mode="r+") if done else None
    for start in range(done, len(pictures), batch_size):
        images = []
        for picture in pictures[start : start + batch_size]:
            with Image.open(picture.path) as opened:
                images.append(ImageOps.exif_transpose(opened).convert("RGB"))  # as infer
        found = encoder(images)
        if features is None:
            shape = (len(pictures), found.shape[1])
            features = np.lib.format.open_memmap(path, "w+", np.float16, shape)
        features[start : start + len(found)] = found
        features.flush()
        count.with_suffix(".part").write_text(str(start + len(found)))
        os.replace(count.with_suffix(".part"), count)
    assert features is not None
    return features


def train_head(features: np.ndarray, labels: np.ndarray, n_classes: int, epochs: int) -> nn.Linear:
    """Train one linear layer on standardized features, by Adam with a decreasing rate."""
    torch.manual_seed(0)
    inputs = torch.from_numpy(np.asarray(features, dtype=np.float32))
    mean, deviation = inputs.mean(0), inputs.std(0).clamp_min(1e-6)
    head = nn.Linear(inputs.shape[1], n_classes)
    optimizer = torch.optim.Adam(head.parameters(), 1e-3)
    size = min(512, len(inputs))
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(inputs) // size))
    truth = torch.from_numpy(labels)
    for _ in range(epochs):
        for chosen in torch.randperm(len(inputs)).split(size):
            outputs = head((inputs[chosen] - mean) / deviation)
            loss = nn.functional.cross_entropy(outputs, truth[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
    with torch.no_grad():  # fold the scaling into the layer
        head.weight /= deviation
        head.bias -= head.weight @ mean
    return head


class Probe:
    """Encoder and head as one model for ``evencover infer``; PROBE is the folder with both."""

    def __init__(self) -> None:
        folder = Path(os.environ["PROBE"])
        about = json.loads((folder / ABOUT).read_text("utf-8"))
        self.class_names = about["class_names"]
        self.identity = about["encoder"]
        self.encoder = Encoder(about["encoder"], "cpu")
        self.head = load_file(folder / HEAD)

    def __call__(self, images: list[Image.Image]) -> torch.Tensor:
        """Compute logits of a batch."""
        features = torch.from_numpy(self.encoder(images).astype(np.float16)).float()
        return features @ self.head["weight"].T + self.head["bias"]


def write_scores(
    folder: Path, head: nn.Linear, features: Any, chosen: np.ndarray, labels: np.ndarray,
    pictures: list[Picture], about: dict[str, Any],
) -> None:  # fmt: skip
    """Write the scores of held-out images, with the columns of ``evencover infer``."""
    folder.mkdir(exist_ok=True)
    names = about["class_names"]
    for number, start in enumerate(range(0, len(chosen), PART_ROWS)):
        rows = chosen[start : start + PART_ROWS]
        with torch.inference_mode():
            inputs = torch.from_numpy(np.asarray(features[rows], dtype=np.float32))
            logits = head(inputs).numpy()
        columns = {
            "id": [str(pictures[row].path) for row in rows],
            "logits": pa.FixedSizeListArray.from_arrays(logits.ravel(), len(names)),
            "label": labels[rows],
        }
        table = pa.table(columns).replace_schema_metadata({"class_names": json.dumps(names)})
        pq.write_table(table, folder / f"part-{number:05d}.parquet")


def main(arguments: list[str] | None = None) -> None:
    """Compute features, train the head, write scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--encoder", default="facebook/dinov2-base")
    parser.add_argument("--share", type=float, default=0.1, help="of the images to train on")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    pictures = list_pictures(options.images)
    names = sorted({picture.label for picture in pictures})
    place = {name: index for index, name in enumerate(names)}
    labels = np.array([place[picture.label] for picture in pictures])
    training = {each.path for each in split(pictures, options.images, options.share)[0]}
    is_mine = np.array([picture.path in training for picture in pictures])
    encoder = Encoder(options.encoder, options.device)
    features = extract(pictures, encoder, options.output, options.batch_size)
    head = train_head(features[is_mine], labels[is_mine], len(names), options.epochs)
    about = {"encoder": options.encoder, "class_names": names}
    (options.output / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    save_file(head.state_dict(), options.output / HEAD)
    chosen = np.flatnonzero(~is_mine)
    write_scores(options.output / "scores", head, features, chosen, labels, pictures, about)
    print(json.dumps({"training": int(is_mine.sum()), "scores": len(chosen)}))


if __name__ == "__main__":
    main()
