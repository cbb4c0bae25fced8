"""Compute the same sets with TorchCP and with evencover. Needs TorchCP: pip install torchcp."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.utils import shuffle
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
data = TensorDataset(torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y))
train, calibration, test = (torch.utils.data.Subset(data, range(a, b)) for a, b in
                            ((0, 600), (600, 1200), (1200, len(data))))  # fmt: skip
cal_loader, test_loader = DataLoader(calibration, 100), DataLoader(test, 100)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(20):
    for inputs, labels in DataLoader(train, 100, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
inputs = torch.stack([row for row, _ in test])

# TorchCP
from torchcp.classification.predictor import ClassConditionalPredictor
from torchcp.classification.score import LAC

theirs = ClassConditionalPredictor(LAC(), model, alpha=0.05)
theirs.calibrate(cal_loader)
masks = theirs.predict(inputs)
found = theirs.evaluate(test_loader)
# evencover
from evencover import ClasswisePredictor


def batches(loader):
    with torch.inference_mode():
        for rows, labels in loader:
            yield model(rows), labels


ours = ClasswisePredictor(alpha=0.05, from_logits=True, keep_top=False)
ours.fit(batches(cal_loader))
sets = ours.predict_set(model(inputs).detach())
report = ours.evaluate(batches(test_loader))
# end

print("coverage:", round(found["coverage_rate"], 4), round(report.marginal_coverage, 4))
print("labels a set:", round(found["average_size"], 4), round(report.avg_size, 4))
other = np.flatnonzero((masks.numpy().astype(bool) != sets.to_mask()).any(axis=1))
print("rows with another set:", len(other), "of", len(sets))
assert len(other) == 0
