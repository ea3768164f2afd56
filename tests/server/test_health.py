"""Health checks ask a service as its configuration says: where it listens, and over TLS if it does."""

from __future__ import annotations

import contextlib
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.errors import (
    ParameterError,
    ServiceUnavailable,
)
from discreet.schema.serialization import write_yaml
from discreet.server.config import Config
from discreet.server.health import INTERVAL, Readiness, probe
from tests.cli.run import discreet
from tests.server.conftest import running, settings
from tests.server.markup import Visitor
from tests.server.scripted import Heard, Say, served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.conftest import RunningService

READY = Say.json({"status": "ready"})


def config(folder: Path, port: int, host: str = "127.0.0.1", **changed: Any) -> Config:
    return Config.from_dict(settings(listen=f"{host}:{port}", **changed), folder)


@contextlib.contextmanager
def service(said: Say = READY, *, tls: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[Heard]]]:
    heard: list[Heard] = []

    def respond(request: Heard) -> Say:
        heard.append(request)
        return said

    with served(respond, tls=tls) as url:
        yield int(url.rpartition(":")[2]), heard


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> tuple[ssl.SSLContext, dict[str, str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context, {"certificate": str(certificate[0]), "key": str(certificate[1])}


def test_a_service_that_is_ready_is_asked_once_where_it_listens(tmp_path: Path) -> None:
    with service() as (port, heard):
        probe(config(tmp_path, port))
        probe(config(tmp_path, port, host="0.0.0.0", behind_proxy=True))
    assert [(one.method, one.path) for one in heard] == [("GET", "/ready")] * 2
    assert "authorization" not in heard[0].headers


def test_over_tls_it_is_asked_over_tls(tmp_path: Path, tls: tuple[ssl.SSLContext, dict[str, str]]) -> None:
    context, files = tls
    with service(tls=context) as (port, heard):
        probe(config(tmp_path, port, host="0.0.0.0", tls=files))
        assert len(heard) == 1
        # Without it, as a check that knows only http: nobody is found to answer.
        with pytest.raises(ServiceUnavailable, match="does not"):
            probe(config(tmp_path, port))


def test_a_service_that_is_not_ready_or_not_there_is_told_as_such(tmp_path: Path) -> None:
    with (
        service(Say.error(503, "ledger-unavailable")) as (port, _),
        pytest.raises(ServiceUnavailable, match="status 503"),
    ):
        probe(config(tmp_path, port))
    with pytest.raises(ServiceUnavailable, match="must answer at"):
        probe(config(tmp_path, port))
    with pytest.raises(ParameterError, match="must name a port"):
        probe(config(tmp_path, 0))


def test_the_command_says_it_by_its_exit_code(tmp_path: Path) -> None:
    with service() as (port, _):
        (tmp_path / "config.yaml").write_text(write_yaml(settings(listen=f"127.0.0.1:{port}")))
        told = discreet("serve", "config.yaml", "--ready", cwd=tmp_path)
        assert (told.code, told.err) == (0, "")
        assert "ready" in told.out
    told = discreet("serve", "config.yaml", "--ready", cwd=tmp_path)
    assert told.code == 1
    assert "Start it, or see its log." in told.err
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml"}


def with_a_still_clock(service: RunningService) -> Readiness:
    """Return the readiness of a service, whose clock ticks only where a test does."""
    dataset = service.backend.dataset
    dataset._readiness.close()
    dataset._readiness = Readiness(dataset._count_rows, interval=1e6)
    return dataset._readiness


def settled(readiness: Readiness) -> None:
    """Wait for the check under way, which nobody sees before the next tick."""
    assert readiness._running is not None
    assert readiness._running.ended.wait(120)


def test_a_service_whose_engine_is_gone_is_not_ready(service: RunningService) -> None:
    readiness = with_a_still_clock(service)
    assert httpx.get(f"{service.url}/ready").status_code == 200
    service.backend.dataset.database.close()
    readiness.tick()
    settled(readiness)
    readiness.tick()
    response = httpx.get(f"{service.url}/ready")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine-failed")
    assert "charge" not in response.text
    for page in ("/", "/datasets/town"):
        assert (
            "does not answer at the moment. Questions are neither"
            in Visitor(service, "ana").client.get(page).text
        )
    assert httpx.get(f"{service.url}/health").status_code == 200


def test_readiness_waits_for_no_query_and_changes_at_ticks_alone(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    readiness = with_a_still_clock(service)
    engine = type(service.backend.dataset.database._engine)
    aggregate, working, go = engine.aggregate, threading.Event(), threading.Event()

    def blocked(self: Any, expressions: Any) -> list[int]:
        working.set()
        assert go.wait(300)
        return aggregate(self, expressions)

    def ready() -> int:
        return httpx.get(f"{service.url}/ready", timeout=120).status_code

    monkeypatch.setattr(engine, "aggregate", blocked)
    count = {"kind": "count", "where": "age > 40", "privacy": {"kind": "pure-dp", "epsilon": 0.1}}
    asked = threading.Thread(target=service.ask, args=[count])
    asked.start()
    try:
        assert working.wait(120)
        readiness.tick()  # a check begins, and waits for the engine
        assert ready() == 200
        readiness.tick()
        assert ready() == 503
        for page in ("/", "/datasets/town"):
            shown = Visitor(service, "ana").client.get(page).text
            assert "answers slowly at the moment. Questions are charged as usual" in shown
            assert "neither answered" not in shown
    finally:
        go.set()
        asked.join()
    settled(readiness)
    assert ready() == 503  # when the engine was done is not seen
    readiness.tick()
    assert ready() == 200


@pytest.mark.parametrize(
    ("slots", "interval"), [("off", INTERVAL), (0.01, INTERVAL), ({"sums": 1.0, "gram": 20.0}, 20.0)]
)
def test_readiness_changes_no_more_often_than_slots_end(tmp_path: Path, slots: Any, interval: float) -> None:
    with running(tmp_path, slots=slots) as service:
        assert service.backend.dataset._readiness._interval == interval


def test_an_engine_is_looked_at_by_the_clock_and_once_at_a_time() -> None:
    looks: list[int] = []
    found = Readiness(lambda: looks.append(1), interval=1e6)
    for _ in range(50):
        assert found.is_answering
    assert not looks
    go = threading.Event()

    def wait() -> None:
        looks.append(2)
        go.wait(300)

    slow = Readiness(wait, interval=1e6)
    for _ in range(3):
        slow.tick()
        slow.tick()
        assert slow.is_slow
        assert not slow.is_answering
    go.set()
    settled(slow)
    slow.tick()
    assert slow.is_answering
    assert not slow.is_slow
    settled(slow)
    assert looks.count(2) == 2
    for readiness in (found, slow):
        readiness.close()


def test_the_clock_of_readiness_ticks_until_it_is_closed() -> None:
    looks = threading.Semaphore(0)
    found = Readiness(looks.release, interval=0.01)
    for _ in range(3):
        assert looks.acquire(timeout=120)
    found.close()
    found._clock.join(120)
    assert not found._clock.is_alive()


def test_a_service_whose_trail_cannot_be_written_is_not_ready_and_its_operator_sees_why(
    service: RunningService,
) -> None:
    path = service.backend.audit_log.path
    assert isinstance(path, Path)
    assert service.client(None).get("/ready").status_code == 200
    moved = path.rename(path.with_suffix(".moved"))
    path.mkdir()
    assert service.client(None).get("/ready").status_code == 503
    assert (
        service.ask(
            {"kind": "count", "where": None, "privacy": {"kind": "pure-dp", "epsilon": 0.1}}
        ).status_code
        == 503
    )
    (*_, reason) = [line for line in service.logged(3) if line["event"] == "unavailable"]
    assert reason["kind"] == "LedgerUnavailable"
    assert str(path) in reason["reason"]
    path.rmdir()
    moved.rename(path)
    assert service.client(None).get("/ready").status_code == 200
