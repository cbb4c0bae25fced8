"""Sets where the model runs: as an ONNX graph, an MLflow model, or an HTTP service."""
