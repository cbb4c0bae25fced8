"""Run an exported PyTorch image classifier with ``evencover infer``; needs torch.

MODEL=model.pt2 evencover infer examples/infer_torch.py:predict images/ -o scores/ \
    --class-names names.txt
"""

import os

import numpy as np
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
network = torch.export.load(os.environ["MODEL"]).module().to(device)
SIZE = 224
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def prepare(image):
    """Resize and normalize as in training; threads do this one image at a time."""
    small = np.asarray(image.resize((SIZE, SIZE)), np.float32) / 255
    return torch.from_numpy((small - MEAN) / STD).permute(2, 0, 1)


def predict(prepared):
    """Return one row of logits per image."""
    with torch.inference_mode():
        return network(torch.stack(prepared).to(device)).cpu()


predict.prepare = prepare
