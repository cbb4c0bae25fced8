"""A web service for a scikit-learn classifier: prediction sets, with monitored coverage.

python examples/web_service.py          # train, calibrate, send requests, exit
python examples/web_service.py --port 8080    # keep running; open http://127.0.0.1:8080

Needs evencover[serve] and httpx. The classifier reads handwritten digits; then its camera breaks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from starlette.responses import JSONResponse
from starlette.routing import Route

from evencover import ClasswisePredictor, save
from evencover.serving.http import Application
from evencover.serving.service import Service

TOKEN = "for the example only"


def make_service(folder: Path) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Return the application, the classifier, and held-out images with labels."""
    images, labels = load_digits(return_X_y=True)
    train, rest, y_train, y_rest = train_test_split(images, labels, train_size=500, random_state=0)
    cal, new, y_cal, y_new = train_test_split(rest, y_rest, train_size=600, random_state=0)
    classifier = LogisticRegression(max_iter=5000).fit(train, y_train)
    predictor = ClasswisePredictor(alpha=0.1).fit(classifier.predict_proba(cal), y_cal)
    save(predictor, folder / "model.safetensors", force=True)
    service = Service(folder / "model.safetensors", folder / "watch.db")

    async def classify(request: Any) -> Any:
        """Return the prediction sets of images."""
        content = await request.json()
        rows = classifier.predict_proba(np.array(content["images"]))
        sets = service.sets(rows, content["ids"])
        return JSONResponse({"sets": sets.to_lists()})

    app = Application(service, token=TOKEN).asgi()
    app.router.routes.append(Route("/classify", classify, methods=["POST"]))
    return app, classifier, new, y_new


def main(port: int | None = None) -> dict[str, Any]:
    """Request sets, send labels when they are known, and print the monitor's results."""
    with TemporaryDirectory() as folder:
        app, _, images, labels = make_service(Path(folder))
        if port is not None:
            import uvicorn

            uvicorn.run(app, port=port)
            return {}
        from starlette.testclient import TestClient

        found = {}
        with TestClient(app) as client:
            for when, seen in (("at first", images), ("the camera broke", broken(images))):
                ids = [f"{when} {number}" for number in range(len(seen))]
                answer = client.post("/classify", json={"images": seen.tolist(), "ids": ids}).json()
                print(f"{when}: the first sets are {answer['sets'][:3]}")
                sent = {
                    "ids": ids,
                    "labels": labels.tolist(),
                }  # the service has recorded their rows
                headers = {"authorization": f"Bearer {TOKEN}"}
                client.post("/v1/labels", json=sent, headers=headers).raise_for_status()
                found[when] = client.get("/v1/coverage").json()
                print(f"{when}: coverage {found[when]['coverage']:.3f}")
                for test in ("below_target", "score_shift"):
                    print(f"  {found[when][test]['message']}")
        return found


def broken(images: np.ndarray) -> np.ndarray:
    """Black out the lower half of every image."""
    return images * (np.arange(64) < 32)


if __name__ == "__main__":
    main(int(sys.argv[2]) if sys.argv[1:2] == ["--port"] else None)
