"""What an operator sees: one line of JSON for each request on standard error, and numbers for Prometheus.

No line has a token, an address with its query, an answer or a row; no number tells a time.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from discreet.errors import MissingExtra

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
except ImportError:  # pragma: no cover - said in the words of the package
    raise MissingExtra(
        "prometheus_client is needed to run the service, and is not installed. Run "
        "`pip install 'discreet[serve]'`."
    ) from None

disable_created_metrics()  # type: ignore[no-untyped-call]  # they would tell when something happened first

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where several processes put their counts together: the name is the package's own."""


def log(event: str, **facts: Any) -> None:
    """Write one line of JSON to standard error."""
    write_line(_line(event, **facts))


def write_line(line: str) -> None:
    """Write a line to standard error, at once."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _line(event: str, **facts: Any) -> str:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"time": now, "process": os.getpid(), "event": event, **facts}, ensure_ascii=True)


def log_failure(request_id: str, error: BaseException) -> None:
    """Write where something went wrong; its text is withheld, since it may quote rows."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in _frames(error)]
    log("failure", request_id=request_id, kind=type(error).__name__, frames=frames)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False))


class JsonFormatter(logging.Formatter):
    """Writes what libraries log as our own lines, without the text of errors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of JSON."""
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
"""How libraries log inside a service."""


class RouteTemplates:
    """How logs and counts name the address of a request: by the template of its route.

    Parameters
    ----------
    routes : iterable of Route
        All that there are.

    Privacy
    -------
    Never the address itself: whoever writes one may have put anything into it, a token or a person's name.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        known: dict[str, Any] = {}
        self._methods: dict[str, set[str]] = {}
        for route in routes:
            known[route.path] = route.path_regex
            self._methods.setdefault(route.path, set()).update(route.methods or ())
        self._fixed = frozenset(path for path in known if "{" not in path)
        self._templates = [(regex, path) for path, regex in known.items() if "{" in path]

    def find(self, path: str) -> str:
        """Return the name of an address; all that have no route share one."""
        if path in self._fixed:
            return path
        return next((name for regex, name in self._templates if regex.fullmatch(path)), "(other)")

    def methods(self, path: str) -> str:
        """Return all methods that an address takes, as an Allow header names them."""
        return ", ".join(sorted(self._methods.get(self.find(path), ())))


class Metrics:
    """Counts of what was asked, answered and refused, and what of the budget is gone.

    Parameters
    ----------
    service : Service
        Whose.

    Privacy
    -------
    How often, never how long: times would tell about rows what slots hide.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry()
        where = None if METRICS_FOLDER in os.environ else self._registry
        self._requests = Counter(
            "discreet_requests", "Requests by route and status.", ("route", "status"), registry=where
        )
        self._refusals = Counter("discreet_refusals", "Refusals by code.", ("code",), registry=where)
        self._answers = Counter(
            "discreet_answers", "Answers by kind and whether they were paid before.", ("kind", "cached"),
            registry=where,
        )  # fmt: skip

    def count_request(self, route: str, status: int) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()

    def count_refusal(self, code: str) -> None:
        """Count a refusal."""
        self._refusals.labels(code).inc()

    def count_answer(self, kind: str, cached: bool) -> None:
        """Count an answer."""
        self._answers.labels(kind, str(cached).lower()).inc()

    def text(self) -> bytes:
        """Return everything in Prometheus' own format."""
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
    """Reads the ledger when somebody looks."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        """Return what is spent and what is left."""
        total = self._service.dataset.accounting.account(None)
        for name, amounts, words in (
            ("spent", total["spent"], "Spent of the whole data set's budget, by currency."),
            ("left", total["left"] or {}, "Left of the whole data set's budget, by currency."),
        ):
            family = GaugeMetricFamily(f"discreet_{name}", words, labels=["currency"])
            for currency, amount in amounts.items():
                family.add_metric([currency], amount)
            yield family
        stopped = self._service.access.stopped() is not None
        yield GaugeMetricFamily("discreet_stopped", "Whether the curator has stopped it.", value=int(stopped))
