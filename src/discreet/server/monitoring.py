"""Log lines in JSON on standard error, one per request, and metrics for Prometheus.

No line contains a token, a URL with its query string, an answer or a row; no metric contains a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerUnavailable, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.routing import Route

    from discreet.server.service import Service

try:
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        disable_created_metrics,
        generate_latest,
    )
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.multiprocess import MultiProcessCollector
except ImportError:  # pragma: no cover - reported as an error of the package
    raise MissingExtra(
        "prometheus_client is needed to run the service, and is not installed. Run "
        "`pip install 'discreet[serve]'`."
    ) from None

disable_created_metrics()  # type: ignore[no-untyped-call]  # they would reveal the time of a first event

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of prometheus_client: the folder in which several processes add up their counts."""


def log(event: str, **facts: Any) -> None:
    """Write one line of JSON to standard error."""
    write_line(_line(event, **facts))


def write_line(line: str) -> None:
    """Write a line to standard error and flush it; on a full disk the line is lost, and no answer is."""
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _line(event: str, **facts: Any) -> str:
    when = _second_text(int(time.time()))
    return json.dumps({"time": when, "process": os.getpid(), "event": event, **facts}, ensure_ascii=True)


@lru_cache(maxsize=2)
def _second_text(second: int) -> str:
    """Return a second since 1970 as text; kept, because every request has a line."""
    return datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds")


def log_failure(request_id: str, error: BaseException) -> None:
    """Log type and traceback of an exception; its text is left out, since it may quote rows."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in _frames(error)]
    log("failure", request_id=request_id, kind=type(error).__name__, frames=frames)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False))


class JsonFormatter(logging.Formatter):
    """Formatter for the log records of libraries: one JSON line each, without the text of exceptions."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON."""
        if record.exc_info:
            kind = record.exc_info[0]
            return _line("library failure", source=record.name, kind=kind.__name__ if kind else "unknown")
        return _line("library", source=record.name, message=record.getMessage())


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": f"{__name__}.JsonFormatter"}},
    "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "root": {"handlers": ["lines"], "level": "WARNING"},
    "loggers": {"uvicorn": {"level": "WARNING"}, "uvicorn.error": {"level": "WARNING"}},
}
"""Configuration of `logging` for the libraries that a service uses."""


class RouteTemplates:
    """Route templates, by which logs and metrics name the path of a request.

    Parameters
    ----------
    routes : iterable of Route
        All routes of the application.

    Privacy
    -------
    The path itself is never logged: it may contain anything, a token or a person's name.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        patterns: dict[str, Any] = {}
        self._methods: dict[str, set[str]] = {}
        for route in routes:
            patterns[route.path] = route.path_regex
            self._methods.setdefault(route.path, set()).update(route.methods or ())
        self._fixed = frozenset(path for path in patterns if "{" not in path)
        self._templates = [(regex, path) for path, regex in patterns.items() if "{" in path]

    def find(self, path: str) -> str:
        """Return the template of a path; ``"(other)"`` if it has no route."""
        if path in self._fixed:
            return path
        return next((name for regex, name in self._templates if regex.fullmatch(path)), "(other)")

    def methods(self, path: str) -> str:
        """Return all methods that a path takes, as the value of an Allow header."""
        return ", ".join(sorted(self._methods.get(self.find(path), ())))


class Metrics:
    """Prometheus metrics: numbers of requests, answers and refusals, and the budget.

    Parameters
    ----------
    service : Service
        Service whose budgets and stop switches are exported.

    Privacy
    -------
    Numbers of events, never their duration: durations would reveal about rows what slots hide.
    """

    def __init__(self, service: Service) -> None:
        """Register the counters, in the shared folder if several processes add up theirs."""
        self._service = service
        self._registry = CollectorRegistry()
        registry = None if METRICS_FOLDER in os.environ else self._registry
        self._requests = Counter(
            "discreet_requests", "Requests by route and status.", ("route", "status"), registry=registry
        )
        self._refusals = Counter("discreet_refusals", "Refusals by code.", ("code",), registry=registry)
        self._answers = Counter(
            "discreet_answers", "Answers by kind and whether they were paid before.", ("kind", "cached"),
            registry=registry,
        )  # fmt: skip

    def count_request(self, route: str, status: int) -> None:
        """Count a request by its route template and status."""
        self._requests.labels(route, str(status)).inc()

    def count_refusal(self, code: str) -> None:
        """Count a refusal by its error code."""
        self._refusals.labels(code).inc()

    def count_answer(self, kind: str, cached: bool) -> None:
        """Count an answer by its kind and by whether it was paid for before."""
        self._answers.labels(kind, str(cached).lower()).inc()

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        if METRICS_FOLDER in os.environ:
            shared = CollectorRegistry()
            MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
            return bytes(generate_latest(shared)) + bytes(generate_latest(self._budget()))
        return bytes(generate_latest(self._registry)) + bytes(generate_latest(self._budget()))

    def _budget(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(_Budget(self._service))
        return registry


class _Budget:
    """Collector that reads budgets and stop switches when the metrics are requested."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        """Yield gauges of what is spent, what is left, what is stopped, and what answers, by data set.

        A data set whose ledger does not answer has no amounts; those of the others are told all the same.
        """
        datasets = list(self._service.datasets.values())
        totals = {}
        for one in datasets:
            with contextlib.suppress(LedgerUnavailable):
                totals[one.name] = one.dataset.accounting.account(None)
        for key, description in (
            ("spent", "Spent of a data set's budget, by currency."),
            ("left", "Left of a data set's budget, by currency."),
        ):
            family = GaugeMetricFamily(f"discreet_{key}", description, labels=["dataset", "currency"])
            for name, total in totals.items():
                for currency, amount in (total[key] or {}).items():
                    family.add_metric([name, currency], amount)
            yield family
        used = GaugeMetricFamily(
            "discreet_used", "Share of a data set's budget that is used, from 0 to 1.", labels=["dataset"]
        )
        for name, total in totals.items():
            if total["used"] is not None:
                used.add_metric([name], total["used"]["share"])
        yield used
        stopped = GaugeMetricFamily(
            "discreet_stopped", "Whether a curator has stopped a data set.", labels=["dataset"]
        )
        ready = GaugeMetricFamily(
            "discreet_ready", "Whether ledger and engine of a data set answer.", labels=["dataset"]
        )
        for one in datasets:
            stopped.add_metric([one.name], int(self._service.access.stop_record(one.name) is not None))
            ready.add_metric([one.name], int(one.name in totals and one.dataset.is_answering))
        yield stopped
        yield ready
        yield GaugeMetricFamily(
            "discreet_audit_log_intact",
            "Whether the audit log can be written, and was in order when it was last verified.",
            value=int(self._service.audit_log.problem is None),
        )
