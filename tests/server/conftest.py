"""A service on a small made-up table, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn

from discreet.schema import Column, Schema
from discreet.schema.serialization import write_yaml
from discreet.server import monitoring
from discreet.server.app import make_app
from discreet.server.config import Config
from discreet.server.connections import ServiceProtocol
from discreet.server.dataset_config import DatasetConfig
from discreet.server.service import Service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from discreet.ledger.postgres_log import PostgresLog
    from discreet.server.callers import Role
    from discreet.server.dataset_service import DatasetService

ROWS = 2000
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=120, measure="years"),
        Column("income", lower=0, upper=100_000, measure="EUR"),
        Column("sex", values=("f", "m")),
        Column("city", values=("Bern", "Thun", "Köniz"), required=False),
        Column("owner", values=("no", "yes")),
    ],
    target="owner",
    dataset="town",
)


def table() -> dict[str, list[Any]]:
    """Rows without chance: everybody can say what is in them."""
    numbers = range(ROWS)
    return {
        "age": [(37 * i) % 101 for i in numbers],
        "income": [float((7919 * i) % 100_000) for i in numbers],
        "sex": ["f" if i % 3 else "m" for i in numbers],
        "city": [("Bern", "Thun", "Köniz", None)[i % 4] for i in numbers],
        "owner": ["yes" if (37 * i) % 101 > 50 else "no" for i in numbers],
    }


def write_table(folder: Path) -> None:
    """Write the table and its schema into a folder."""
    columns = table()
    lines = [",".join(columns)]
    lines += [
        ",".join("" if cell is None else str(cell) for cell in row)
        for row in zip(*columns.values(), strict=True)
    ]
    (folder / "town.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "town.schema.yaml").write_text(SCHEMA.to_yaml(), encoding="utf-8")


def settings(**changed: Any) -> dict[str, Any]:
    """What the configuration of a service in a test says; keys of its table go to the entry of the table."""
    name = changed.pop("dataset", "town")
    keys = {field.alias or key for key, field in DatasetConfig.model_fields.items()} - {"people"}
    entry = {
        "table": "town.csv",
        "ledger": "town.ledger",
        "limit": {"rho": 10.0},
        "analyst_limit": {"rho": 5.0},
        **{key: changed.pop(key) for key in keys & set(changed)},
    }
    return {
        "datasets": changed.pop("datasets", {name: entry} | changed.pop("others", {})),
        "access": "access.db",
        "audit_log": "audit.jsonl",
        "listen": "127.0.0.1:0",
        "slots": "off",
        "limits": {"per_minute": 100_000},
        "seed": 1,
        "testing": True,
        **changed,
    }


@dataclass
class RunningService:
    """A running service.

    Attributes
    ----------
    url : str
        Where it listens.
    tokens : dict of str to str
        Of "ana" and "ben", who are analysts of the town, and of "cura", who is its curator; "opal", an
        operator, gets one at the first use.
    whole : Service
        Inside.
    folder : Path
        With everything it has on disk.
    lines : list of str
        What it has told its operator, a line of JSON each: tests read them here, and their own output is not
        mixed with them.
    """

    url: str
    tokens: dict[str, str]
    whole: Service
    folder: Path
    lines: list[str]
    clients: list[httpx.Client] = field(default_factory=list)

    @property
    def backend(self) -> DatasetService:
        """The first table, which is the town if nothing else is said, inside."""
        return next(iter(self.whole.datasets.values()))

    def client(self, who: str | None = "ana", **more: Any) -> httpx.Client:
        """Return a client that bears somebody's token."""
        if who == "opal" and who not in self.tokens:
            self.tokens[who] = self.whole.tokens.create("test", who, days=90, dataset="*", role="operator")
        headers = {} if who is None else {"Authorization": f"Bearer {self.tokens[who]}"}
        made = httpx.Client(base_url=self.url, headers=headers, timeout=60, **more)
        self.clients.append(made)
        return made

    def ask(self, question: dict[str, Any], who: str = "ana", **headers: str) -> httpx.Response:
        """Ask one question."""
        sent = {"Authorization": f"Bearer {self.tokens[who]}", **headers}
        name = next(iter(self.whole.datasets))
        return httpx.post(f"{self.url}/v1/datasets/{name}/query", json=question, headers=sent, timeout=60)

    def logged(self, requests: int) -> list[dict[str, Any]]:
        """Return what was logged, once it has a line for so many requests: they follow their responses."""
        limit = time.monotonic() + 120
        while sum('"event": "request"' in line for line in self.lines) < requests:
            assert time.monotonic() < limit, self.lines
            time.sleep(0.005)
        return [json.loads(line) for line in self.lines]


PEOPLE: dict[str, Role] = {"ana": "analyst", "ben": "analyst", "cura": "curator"}


def make_tokens(whole: Service) -> dict[str, str]:
    """Make the tokens of everybody, for the first data set."""
    first = next(iter(whole.datasets.values()))
    return {name: first.create_token("test", name, role) for name, role in PEOPLE.items()}


@contextlib.contextmanager
def overheard() -> Iterator[list[str]]:
    """Collect the lines that services of this process log, which no output then has."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(monitoring, "write_line", lines.append)
        yield lines


@contextlib.contextmanager
def _short_ticks() -> Iterator[None]:
    """Let a server look every few milliseconds whether it is to end: uvicorn looks ten times a second."""

    def tick(_: float) -> Awaitable[None]:
        return asyncio.sleep(0.005)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(uvicorn.server, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": tick}))
        yield


@contextlib.contextmanager
def running(folder: Path, tokens: dict[str, str] | None = None, **changed: Any) -> Iterator[RunningService]:
    """Run a service on a folder in a thread, over a real socket; a second run finds what the first left."""
    if not (folder / "town.csv").exists():
        write_table(folder)
    with overheard() as lines, _short_ticks():
        backend = Service(Config.from_dict(settings(**changed), folder))
        if tokens is None:
            tokens = make_tokens(backend)
        config = uvicorn.Config(
            make_app(backend), host="127.0.0.1", port=backend.config.port, log_config=None, access_log=False,
            lifespan="on", http=ServiceProtocol, proxy_headers=False,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        limit = time.monotonic() + 120
        while not server.started:
            assert thread.is_alive(), "the server ended before it began"
            assert time.monotonic() < limit, "the server does not start"
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        service = RunningService(f"http://127.0.0.1:{port}", tokens, backend, folder, lines)
        try:
            yield service
        finally:
            for client in service.clients:
                client.close()
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), "the server does not end"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningService]]:
    """Start services in one folder, with changed settings; all end with the test."""
    with contextlib.ExitStack() as stack:

        def starting(tokens: dict[str, str] | None = None, **changed: Any) -> RunningService:
            return stack.enter_context(running(tmp_path, tokens, **changed))

        yield starting


@pytest.fixture
def service(start: Callable[..., RunningService]) -> RunningService:
    """A service with the usual settings, for one test."""
    return start()


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that the tests of a module share: for what leaves it as it was, or does not mind."""
    with running(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that a service signed itself, and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a service")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "cert.pem", folder / "key.pem"


def lines_of(path: Path | PostgresLog) -> list[dict[str, Any]]:
    assert isinstance(path, Path)
    return [json.loads(line) for line in path.read_text().splitlines()]


def signed_in(service: RunningService, who: str) -> httpx.Client:
    """Return a browser of somebody."""
    client = service.client(None)
    client.headers["Origin"] = service.url
    assert client.post("/login", data={"token": service.tokens[who]}).status_code == 303
    return client


def configured(folder: Path, **changed: Any) -> Path:
    """Write a configuration, and its table if there is none."""
    if not (folder / "town.csv").exists():
        write_table(folder)
    path = folder / "config.yaml"
    path.write_text(write_yaml({k: v for k, v in settings(**changed).items() if v is not None}))
    return path


class Disk:
    """What the trail writes to: full, as long as it is said to be."""

    def __init__(self) -> None:
        self.full = False
        self._real = os.write

    def write(self, handle: int, line: bytes) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._real(handle, line)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(os, "write", made.write)
    yield made
    made.full = False
