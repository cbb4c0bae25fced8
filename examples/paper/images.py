"""Split folders of images into training and held-out data, and convert them to tensors."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.utils.data import Dataset

ENDINGS = (".jpeg", ".jpg", ".png", ".webp")


class Picture(NamedTuple):
    """Path and class name of an image."""

    path: Path
    label: str


def list_pictures(folder: Path, part: int | None = None) -> list[Picture]:
    """List all images below the subfolders of a folder, by name.

    A class is a subfolder, or a part of its name between underscores. iNaturalist 2021 names them
    number_kingdom_phylum_class_order_family_genus_species: part 5 is the family.
    """
    found = []
    for sub in sorted(each for each in folder.iterdir() if each.is_dir()):
        label = sub.name if part is None else sub.name.split("_")[part]
        files = sorted(each for each in sub.rglob("*") if each.suffix.lower() in ENDINGS)
        found += [Picture(path, label) for path in files]
    if not found:
        raise SystemExit(f"'{folder}' must have one subfolder of images per class.")
    return found


def split(
    pictures: Sequence[Picture], folder: Path, share: float
) -> tuple[list[Picture], list[Picture]]:
    """Split the images into about this fraction and the rest, by a hash of the path."""

    def draw(picture: Picture) -> float:
        name = picture.path.relative_to(folder).as_posix().encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) / 2**64

    drawn = [(picture, draw(picture) < share) for picture in pictures]
    return [each for each, mine in drawn if mine], [each for each, mine in drawn if not mine]


def write_table(path: Path, pictures: Sequence[Picture]) -> None:
    """Write the table that ``evencover infer`` reads."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows((picture.path.absolute(), picture.label) for picture in pictures)


class Pictures(Dataset):
    """Images with class indices, prepared by a processor of transformers.

    With a seed, images are cropped and flipped randomly. The seed and the index determine the crop,
    so an interrupted training continues with the same images.
    """

    def __init__(
        self, pictures: Sequence[Picture], names: Sequence[str], processor: Any, seed: int | None
    ) -> None:
        self.pictures, self.processor, self.seed = pictures, processor, seed
        self.place = {name: index for index, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        path, label = self.pictures[number]
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")  # as infer
        if self.seed is not None:
            image = cut_at_random(image, np.random.default_rng([self.seed, number]))
        prepared = self.processor(images=[image], return_tensors="pt")
        return prepared["pixel_values"][0], self.place[label]


def cut_at_random(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Crop 30% to 100% of the image, and flip it half of the time."""
    share, shape = rng.uniform(0.3, 1.0), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
    width = min(image.width, max(1, round((share * image.width * image.height * shape) ** 0.5)))
    height = min(image.height, max(1, round((share * image.width * image.height / shape) ** 0.5)))
    left = int(rng.integers(image.width - width + 1))
    top = int(rng.integers(image.height - height + 1))
    part = image.crop((left, top, left + width, top + height))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else part
