"""Run an ONNX image classifier with ``evencover infer``; needs onnxruntime and evencover[images].

MODEL=model.onnx evencover infer examples/infer_onnx.py:predict images/ -o scores/ \
    --class-names names.txt
"""

import os

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(os.environ["MODEL"])
pixels = session.get_inputs()[0]
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def prepare(image):
    """Resize and normalize as in training; threads do this one image at a time."""
    height, width = pixels.shape[2:]
    small = np.asarray(image.resize((width, height)), np.float32) / 255
    return ((small - MEAN) / STD).transpose(2, 0, 1)


def predict(prepared):
    """Return one row of logits per image."""
    return session.run(None, {pixels.name: np.stack(prepared)})[0]


predict.prepare = prepare
