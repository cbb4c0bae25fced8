"""Pictures as the numbers that an ONNX model takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover._types import Array

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels
SHARE = 0.875  # of the shorter side is kept when nothing else is said
BILINEAR = 2
LARGE = 384  # from here on ConvNext and ResNet models squeeze the picture instead of cutting it


@dataclass(frozen=True)
class Preprocessing:
    """Resize, cut out the middle, scale, subtract the mean, divide by the deviation.

    Parameters
    ----------
    resize
        (height, width), or the length of the shorter side, or None to leave it.
    crop
        (height, width) of the middle part that is kept, or None for all.
    factor, mean, deviation
        Each pixel becomes (pixel * factor - mean) / deviation.
    resample
        The number that pillow has for the way of resizing.
    channels_last, grey, dtype
        What the model takes.
    """

    resize: tuple[int, int] | int | None
    crop: tuple[int, int] | None
    factor: float = 1 / 255
    mean: Sequence[float] = (0.0,)
    deviation: Sequence[float] = (1.0,)
    resample: int = BILINEAR
    channels_last: bool = False
    grey: bool = False
    dtype: Any = np.float32

    @classmethod
    def usual(cls, size: tuple[int, int], **layout: Any) -> Preprocessing:
        """What most models of ImageNet were trained with."""
        own = (0.5, 0.5) if layout.get("grey") else (MEAN, DEVIATION)
        mean, deviation = (np.atleast_1d(each).tolist() for each in own)
        shorter = round(min(size) / SHARE)
        return cls(shorter, size, mean=mean, deviation=deviation, **layout)

    @classmethod
    def from_config(cls, config: dict[str, Any], **layout: Any) -> Preprocessing:
        """What Hugging Face's ``preprocessor_config.json`` says."""
        resize: tuple[int, int] | int | None = None
        crop: tuple[int, int] | None = None
        if config.get("do_resize", True):
            resize = _pair(config.get("size", 224))
            # A plain number is the shorter side where the middle is cut out, else both sides.
            cuts = config.get("do_center_crop") or config.get("crop_pct") is not None
            if isinstance(config.get("size"), int) and not cuts:
                resize = (config["size"], config["size"])
            if config.get("crop_pct") is not None and isinstance(resize, int):
                whole = (resize, resize)
                resize, crop = (
                    (int(resize / config["crop_pct"]), whole) if resize < LARGE else (whole, None)
                )
        if config.get("do_center_crop"):
            size = _pair(config.get("crop_size", config.get("size", 224)))
            crop = (size, size) if isinstance(size, int) else size
        normalizes = config.get("do_normalize", True)
        return cls(
            resize,
            crop,
            config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0,
            tuple(config.get("image_mean", MEAN)) if normalizes else (0.0,),
            tuple(config.get("image_std", DEVIATION)) if normalizes else (1.0,),
            config.get("resample", BILINEAR),
            **layout,
        )

    @property
    def shape(self) -> tuple[int, int] | None:
        """Height and width of what comes out, if it is the same for all pictures."""
        if self.crop is not None or not isinstance(self.resize, tuple):
            return self.crop
        return self.resize

    def __call__(self, image: Any) -> Array:
        """One picture as an array."""
        image = self._cut(self._resized(image.convert("L") if self.grey else image))
        pixels = np.asarray(image)
        if self.grey:
            pixels = pixels[:, :, None]
        if self.dtype != np.uint8:
            pixels = pixels.astype(np.float32) * np.float32(self.factor)
            mean, deviation = (np.asarray(each, np.float32) for each in (self.mean, self.deviation))
            pixels = (pixels - mean) / deviation
        if not self.channels_last:
            pixels = pixels.transpose(2, 0, 1)
        return np.ascontiguousarray(pixels, dtype=self.dtype)

    def _resized(self, image: Any) -> Any:
        if self.resize is None:
            return image
        if isinstance(self.resize, tuple):
            height, width = self.resize
        else:
            short = min(image.size)
            width, height = (int(self.resize * side / short) for side in image.size)
        return image.resize((width, height), self.resample)

    def _cut(self, image: Any) -> Any:
        """The middle; what is smaller than that is filled up with black."""
        if self.crop is None:
            return image
        height, width = self.crop
        left, top = (image.width - width) // 2, (image.height - height) // 2
        return image.crop((left, top, left + width, top + height))


def _pair(size: Any) -> tuple[int, int] | int:
    """(height, width), or the length of the shorter side."""
    if isinstance(size, dict):
        if "shortest_edge" in size:
            return int(size["shortest_edge"])
        return int(size["height"]), int(size["width"])
    return int(size)
