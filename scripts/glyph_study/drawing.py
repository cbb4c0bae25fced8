"""Draw glyphs as small images, slightly rotated, sheared, shifted and noisy."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fonts import POINTS, Font, opened

SIDE = 32
CANVAS = 72


def draw(character: str, fonts: Sequence[Font], folder: Path, key: Sequence[int]) -> Any:
    """Draw (SIDE, SIDE) bytes; return them and the font. The key determines all choices.

    Packages are equally likely, and so are the fonts of a package.
    """
    rng = np.random.default_rng(key)
    packages = sorted({font.package for font in fonts})
    package = packages[rng.integers(len(packages))]
    own = [font for font in fonts if font.package == package]
    font = own[rng.integers(len(own))]
    return _distorted(_large(character, opened(str(folder / font.file), font.index)), rng), font


def _large(character: str, font: Any) -> Any:
    """Draw the glyph in the middle of a large canvas, at its height on the baseline."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (CANVAS, CANVAS))
    ImageDraw.Draw(canvas).text((CANVAS / 2, CANVAS / 2), character, 255, font, anchor="mm")
    return canvas


def _distorted(canvas: Any, rng: np.random.Generator) -> np.ndarray:
    from PIL import Image, ImageFilter

    angle, shear = rng.normal(0, [0.05, 0.08])
    scale = POINTS / 26 * np.exp(rng.normal(0, 0.08))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = scale * turn @ np.array([[1, shear], [0, 1]])
    shift = CANVAS / 2 - matrix @ (np.full(2, SIDE / 2) + rng.normal(0, 0.8, 2))
    soft = canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.6)))
    affine = (*matrix[0], shift[0], *matrix[1], shift[1])
    small = soft.transform(
        (SIDE, SIDE), Image.Transform.AFFINE, affine, resample=Image.Resampling.BILINEAR
    )
    ink = np.asarray(small, dtype=np.float64) * rng.uniform(0.6, 1.0)
    noisy = ink + rng.normal(0, rng.uniform(2, 18), ink.shape)
    return noisy.clip(0, 255).astype(np.uint8)


def as_png(pixels: np.ndarray) -> bytes:
    """Encode an image file."""
    from PIL import Image

    with io.BytesIO() as buffer:
        Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()
