"""Prediction sets over HTTP: sets of rows, labels that feed the monitor, what it says."""
