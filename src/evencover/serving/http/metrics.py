"""Figures for Prometheus."""

from __future__ import annotations

from typing import Any

from evencover.serving.http.service import Service


class Metrics:
    """Counts of requests and rows, how long they took, and what the monitor says."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry: Any = CollectorRegistry()
        of: Any = {"registry": self.registry}
        self.requests = Counter(
            "evencover_requests", "Requests by address and status.", ["path", "status"], **of
        )
        self.seconds = Histogram(
            "evencover_request_seconds", "Time to answer a request.", ["path"], **of
        )
        self.rows = Counter("evencover_rows", "Rows whose sets were made.", **of)
        self.labelled = Gauge("evencover_labelled_rows", "Labelled rows that were counted.", **of)
        self.covered = Gauge("evencover_covered_rows", "Those whose set held their label.", **of)
        self.alarms = Gauge(
            "evencover_alarm", "1 if a question about coverage has an alarm.", ["question"], **of
        )
        self.classes = Gauge("evencover_classes_in_alarm", "Classes that break the promise.", **of)
        self.reloads = Counter("evencover_model_reloads", "New models taken up.", **of)
        self.failures = Counter(
            "evencover_model_reload_failures", "New models that could not be read.", **of
        )

    def text(self, service: Service) -> tuple[bytes, str]:
        """The page for Prometheus, and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        found = service.coverage()
        self.labelled.set(found["rows"])
        self.covered.set(sum(round(c["rows"] * (c["coverage"] or 0)) for c in found["classes"]))
        for question in ("promise", "overall", "change"):
            self.alarms.labels(question).set(found[question]["alarm"])
        self.classes.set(sum(each["alarm"] for each in found["classes"]))
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
