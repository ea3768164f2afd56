"""What tests of several rooms share."""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import duckdb
import httpx
import pytest
from hypothesis import settings

from discreet.audit.risk import LIMITS
from tests.keys import KEYS
from tests.lending import LENDER
from tests.postgres import PostgresServer, no_postgres, running_server
from tests.risks import RISKS
from tests.servers import MARK, cannot_start, no_spark, required
from tests.tiers import install as watch_processes
from tests.tiers import is_slower, with_processes, without_processes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

STATE = "DISCREET_STATE"
_folder_numbers = itertools.count()
_MEMORY = Path("/dev/shm")
_ENOUGH = 4 * 2**30  # bytes; a whole run leaves far less


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let HTTP clients trust one certificate authority instead of all: each would read 140 of them anew."""
    end = "-----END CERTIFICATE-----\n"
    first, _, _ = Path(certifi.where()).read_text(encoding="utf-8").partition(end)
    file = tmp_path_factory.mktemp("authority") / "one.pem"
    file.write_text(first + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session", autouse=True)
def _patient_requests() -> None:
    """Let requests of tests wait longer than the five seconds of httpx: a busy machine may need them."""
    patient = vars(httpx.Timeout(600))
    for function in (httpx.get, httpx.Client.__init__, httpx.AsyncClient.__init__):
        vars(inspect.signature(function).parameters["timeout"].default).update(patient)


@pytest.fixture(scope="session", autouse=True)
def _states() -> Iterator[Path]:
    """A folder for lists of known tables: those of whoever runs the tests are kept out of them."""
    with tempfile.TemporaryDirectory(prefix="discreet-state-") as folder:
        yield Path(folder)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Give a fixture that several tests share an empty list of known tables, and keys, of its own."""
    if fixturedef.scope != "function" and fixturedef.argname not in ("_states", "_one_authority"):
        states = request.getfixturevalue("_states")
        os.environ[STATE] = tempfile.mkdtemp(dir=states)
        with KEYS.of(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
            return (yield)
    return (yield)


@pytest.fixture(autouse=True)
def known_tables(_states: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty list of known tables for each test, in the folder that is returned and made at first use."""
    folder = _states / str(next(_folder_numbers))
    monkeypatch.setenv(STATE, str(folder))
    return folder


@pytest.fixture(scope="module", autouse=True)
def _small_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a job evaluate and attack its release in small, except in tests of just that."""
    with pytest.MonkeyPatch.context() as patched:
        if request.path.parent.name not in ("evaluation", "golden"):
            patched.setattr("discreet.evaluation._models.TREES", 10)
        attacks = ("audit", "broken", "evaluation", "golden")
        if request.path.parent.name not in attacks and "risk" not in request.path.stem:
            patched.setattr("discreet.audit._learned_guess.ROUNDS", 5)
            patched.setattr("discreet.pipeline._plan_stages._MOST_PEOPLE", 50)
            for module in ("pipeline._plan_stages", "report.verify.claims", "evaluation.ways"):
                patched.setattr(f"discreet.{module}.measure_risk", RISKS)
        yield


@pytest.fixture(scope="module", autouse=True)
def _any_risk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the small tables with little noise of most tests pass, except where risk or examples are tested."""
    with pytest.MonkeyPatch.context() as patched:
        if (
            not {"risk", "docstrings"} & set(request.path.stem.split("_"))
            and request.path.parent.name != "golden"
        ):
            patched.setattr("discreet.audit.risk.LIMITS", dict.fromkeys(LIMITS, 1.0))
        yield


# The same cases on every machine, and none of them timed: what fails here fails everywhere.
settings.register_profile("discreet", deadline=None, derandomize=True)
settings.load_profile("discreet")


def _write_to_memory() -> None:
    """Put temporary files where a commit does not wait for a disk: tests kill processes, not machines."""
    if "TMPDIR" not in os.environ and _MEMORY.is_dir():
        room = os.statvfs(_MEMORY)
        if room.f_bavail * room.f_frsize >= _ENOUGH:
            os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


def pytest_configure(config: pytest.Config) -> None:
    """Let the keys of tests follow from their names, and see what starts processes."""
    _write_to_memory()
    watch_processes()
    # joblib starts a process to count the cores of the machine, unless it is told to take few.
    os.environ.setdefault("LOKY_MAX_CPU_COUNT", "0")
    patched = pytest.MonkeyPatch()
    patched.setattr(os, "urandom", KEYS)
    patched.setattr(duckdb, "connect", LENDER)
    config.add_cleanup(LENDER.close)
    # A forked process can neither end an instance that it inherits nor share the keys of its parent.
    os.register_at_fork(before=LENDER.close, after_in_child=KEYS.follow_system)
    config.add_cleanup(patched.undo)
    # Frozen objects are not collected at exit, where nanobind would report those of duckdb as leaked.
    config.add_cleanup(gc.unfreeze)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without looking for garbage: ten thousand tests are none, and stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _reproducible(item: pytest.Item, phase: str) -> Iterator[None]:
    """Keep chance out of a test, and processes unless it is marked slow; long checks keep both."""
    LENDER.open = item.get_closest_marker("stats") is None
    if not LENDER.open:
        LENDER.close()
        yield
        return
    processes = contextlib.nullcontext() if is_slower(item) else without_processes()
    with processes, KEYS.of(f"{item.nodeid} {phase}"):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Keep processes out of the fixtures of every fast test, of whatever scope."""
    with _reproducible(item, "setup"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Keep processes out of every fast test."""
    with _reproducible(item, "call"):
        return (yield)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process's own: the one process that a fast test may start."""
    with contextlib.ExitStack() as stack:
        with with_processes():
            server = stack.enter_context(running_server())
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that exists for one test."""
    with postgres_server.database() as url:
        yield url


def _absent() -> dict[str, str]:
    """Which engines cannot be started here, and why."""
    reasons = {"PostgreSQL": no_postgres(), "Spark": no_spark()}
    return {engine: why for engine, why in reasons.items() if why is not None}


def pytest_report_header() -> list[str]:
    """Say at the start which engines will be started, and which cannot be."""
    absent = _absent()
    lines = [f"engines: DuckDB{''.join(f', {e}' for e in ('PostgreSQL', 'Spark') if e not in absent)}"]
    consequence = "tests that need it are skipped" if required() is None else f"an error under {required()}"
    return lines + [f"engines: {engine} is {MARK}: {why} ({consequence})" for engine, why in absent.items()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, in color, what was not tested for want of an engine."""
    skipped: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)
        if MARK in reason:
            told = reason.removeprefix("Skipped: ")
            skipped[told] = skipped.get(told, 0) + 1
    if skipped:
        terminalreporter.section(MARK, sep="!", red=True, bold=True)
        for told, count in sorted(skipped.items()):
            terminalreporter.line(f"{count} tests: {told}", red=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Start a session on this machine; skips with the reason, or fails, where it cannot."""
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    from pyspark.sql import SparkSession

    from discreet.tables.spark import SETTINGS

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own, about newer versions of pandas
        session = (
            SparkSession.builder.master("local[2]")
            # Not the encryption: with it, pyspark sends rows through sockets that it does not close.
            .config(map={k: v for k, v in SETTINGS.items() if not k.startswith("spark.io")})
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
