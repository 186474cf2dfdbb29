"""What `/metrics` shows, for Prometheus."""

import os
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Metrics:
    """Counters of one worker. With several workers, files in a common folder add them up."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        mine: Any = {"registry": self.registry}
        self.requests = Counter(
            "gradband_requests", "Requests, by route and HTTP status.", ["route", "status"], **mine
        )
        self.seconds = Histogram(
            "gradband_request_seconds", "Time to answer, by route.", ["route"], buckets=SECONDS, **mine
        )
        self.turns = Histogram(
            "gradband_turn_seconds", "Time of a turn, which ends with a commit.", buckets=SECONDS, **mine
        )
        self.turn_sizes = Histogram(
            "gradband_turn_requests", "Requests that were done in one turn.", buckets=SIZES, **mine
        )
        self.failures = Counter(
            "gradband_database_failures", "Turns that the database did not confirm.", **mine
        )
        self.events = Counter(
            "gradband_events", "Committed events, by test and kind.", ["test", "op"], **mine
        )
        self.queue = Gauge(
            "gradband_queue", "Requests that wait for a turn.", multiprocess_mode="livesum", **mine
        )
        self._children: dict[tuple[str, int | str], Any] = {}
        self._times: dict[str, Any] = {}

    def turn(self, size: int, seconds: float, waiting: int) -> None:
        self.queue.set(waiting)
        self.turns.observe(seconds)
        self.turn_sizes.observe(size)

    def count_events(self, written: Mapping[str, Mapping[str, int]]) -> None:
        """Counts committed events, by test and kind."""
        for test, kinds in written.items():
            for kind, count in kinds.items():
                child = self._children.get((test, kind))
                if child is None:
                    child = self._children[test, kind] = self.events.labels(test, kind)
                child.inc(count)

    def request(self, route: str, status: int, seconds: float) -> None:
        child = self._children.get((route, status))
        if child is None:
            child = self._children[route, status] = self.requests.labels(route, str(status))
            self._times.setdefault(route, self.seconds.labels(route))
        child.inc()
        self._times[route].observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus's format, of all workers of this machine."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return generate_latest(together)
