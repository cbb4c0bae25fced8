"""A model repository for Triton: a classifier, its prediction sets, and both in one ensemble.

python examples/triton/make_models.py models
tritonserver --model-repository models      # then ask the model `classifier_with_sets`

Needs evencover[export]. The classifier reads handwritten digits; use your own network instead, and
change the names and sizes in the three `config.pbtxt` files.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from evencover import ClasswisePredictor, save, to_onnx

MODELS = ("classifier", "sets", "classifier_with_sets")


def main(folder: Path) -> tuple[ClasswisePredictor, np.ndarray, np.ndarray]:
    """Write the repository; return the predictor, and images with labels that are still unseen."""
    images, labels = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    train, rest, y_train, y_rest = train_test_split(images, labels, train_size=500, random_state=0)
    cal, new, y_cal, y_new = train_test_split(rest, y_rest, train_size=600, random_state=0)
    for name in MODELS:  # Triton wants a folder with a version of the ensemble, too
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).parent / name / "config.pbtxt", folder / name)
    classifier = LogisticRegression(max_iter=5000).fit(train, y_train)
    onnx.save(as_onnx(classifier), folder / "classifier/1/model.onnx")
    probabilities = classifier.predict_proba(cal)
    predictor = ClasswisePredictor(alpha=0.1).fit(probabilities, y_cal)
    to_onnx(predictor, folder / "sets/1/model.onnx", force=True)
    save(predictor, folder / "sets/model.safetensors", force=True)  # for `evencover monitor`
    return predictor, new, y_new


def as_onnx(classifier: LogisticRegression) -> onnx.ModelProto:
    """Write a linear classifier as a graph from `pixels` to `probabilities`."""
    n_classes, n_inputs = classifier.coef_.shape
    weights = {"weights": classifier.coef_.T, "biases": classifier.intercept_}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["pixels", "weights", "biases"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
        ],
        "classifier",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["N", n_inputs])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", n_classes])],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


if __name__ == "__main__":
    main(Path(sys.argv[1]))
