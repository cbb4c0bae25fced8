"""Workers of a cluster read top-k rows: from memory, from a folder and from a list of files."""

import numpy as np
from scipy.sparse import csr_array

from evencover import StandardPredictor, TopK


def test_workers_read_top_k_rows(client, tmp_path):
    rng = np.random.default_rng(26)
    rows = rng.dirichlet(np.full(12, 0.3), 300)
    labels = (rng.random((300, 1)) > np.cumsum(rows, axis=1)).sum(axis=1).clip(max=11)
    classes = np.argsort(-rows, axis=1)[:, :4]
    top = TopK(classes, np.take_along_axis(rows, classes, axis=1), n_classes=12)
    paths = []
    for start in range(0, 300, 100):
        part = top[start : start + 100]
        matrix = csr_array((part.values, part.classes, part.starts), shape=part.shape)
        arrays = {name: getattr(matrix, name) for name in ("indices", "indptr", "data", "shape")}
        paths.append(str(tmp_path / f"{start}.npz"))
        np.savez(paths[-1], format="csr", labels=labels[start : start + 100], **arrays)
    expected = StandardPredictor().fit(top, labels)
    for data in ((top, labels), (tmp_path,), (paths,)):
        predictor = StandardPredictor().fit(*data, executor=client)
        assert np.array_equal(predictor.thresholds_, expected.thresholds_)
        sets = predictor.predict_set(data[0], executor=client)
        assert sets.to_lists() == expected.predict_set(top).to_lists()
