from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.errors import (
    DiscreetError,
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    OtherLedger,
    ParameterError,
)
from discreet.ledger import Ledger
from discreet.privacy import ZCDP
from discreet.query import Database
from discreet.server.access import AccessStore
from discreet.server.audit_log import ServiceLog
from discreet.server.config import Config
from discreet.server.preflight import check
from discreet.server.service import Service
from tests.server.conftest import ROWS, running, settings, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.conftest import RunningService

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}
COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the log lines of a process, all of which are JSON.

    DuckDB's binding may print what it calls leaks when a process ends, after the last line of ours.
    """
    ours = path.read_text().partition("nanobind: leaked")[0]
    return [json.loads(line) for line in ours.splitlines()]


# What an operator looks at.


def test_health_and_readiness_are_open_and_say_different_things(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = service.client(None)
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").json() == {"status": "ready"}

    def gone() -> Any:
        raise LedgerError("gone")

    monkeypatch.setattr(service.whole, "ready", gone)
    assert client.get("/ready").status_code == 503
    assert client.get("/health").status_code == 200


def test_metrics_count_and_tell_no_time(service: RunningService) -> None:
    service.ask(COUNT)
    service.ask(COUNT)
    service.ask({**COUNT, "where": "nope > 1"})
    text = service.client("opal").get("/metrics").text
    assert 'discreet_requests_total{route="/v1/datasets/{dataset}/query",status="200"} 2.0' in text
    assert 'discreet_answers_total{cached="false",kind="count"} 1.0' in text
    assert 'discreet_answers_total{cached="true",kind="count"} 1.0' in text
    assert 'discreet_refusals_total{code="refused"} 1.0' in text
    assert 'discreet_spent{currency="rho",dataset="town"} 0.005' in text
    assert 'discreet_left{currency="rho",dataset="town"} 9.995' in text
    assert 'discreet_used{dataset="town"} 0.0005' in text
    assert 'discreet_stopped{dataset="town"} 0.0' in text
    for word in ("_created", "seconds", "bucket", "duration"):
        assert word not in text


def test_logs_are_lines_of_json_without_questions_or_answers(service: RunningService) -> None:
    answer = service.ask(COUNT).json()
    service.client().get("/v1/somewhere/else?x=y")
    requests = [line for line in service.logged(2) if line["event"] == "request"]
    told = "\n".join(service.lines)
    assert [(line["route"], line["status"]) for line in requests] == [
        ("/v1/datasets/{dataset}/query", 200),
        ("(other)", 404),
    ]
    assert requests[0]["who"] == "ana"
    for secret in ("age", "somewhere", "x=y", str(answer["value"])):
        assert secret not in told


def test_pages_are_named_by_their_route_and_never_by_their_address(service: RunningService) -> None:
    visitor = service.client(None)
    visitor.post("/login", data={"token": service.tokens["cura"]})
    for path in (
        "/",
        "/datasets/town/answers/maria-1",
        "/datasets/town/answers/maria-1,maria-2?again",
        "/datasets/town/curator/analysts/Maria%20Muster",
        "/static/maria.css",
        "/static/maria/more.css",
        "/maria",
        "/datasets/town/history",
    ):
        visitor.get(path)
    told = [line["route"] for line in service.logged(9) if line["event"] == "request"]
    assert told == [
        "/login",
        "/",
        "/datasets/{dataset}/answers/{receipts}",
        "/datasets/{dataset}/answers/{receipts}",
        "/datasets/{dataset}/curator/analysts/{name:path}",
        "/static/{name}",
        "(other)",
        "(other)",
        "/datasets/{dataset}/history",
    ]
    counted = service.client("opal").get("/metrics").text
    assert 'route="/datasets/{dataset}/answers/{receipts}"' in counted
    assert 'discreet_requests_total{route="(other)",status="404"} 2.0' in counted
    assert "maria" not in ("".join(service.lines) + counted).lower()


# The trail.


def test_the_trail_holds_every_answer_with_its_row_of_the_ledger(service: RunningService) -> None:
    first = service.ask(COUNT).json()
    service.ask(COUNT)
    service.ask({"kind": "mean", "expression": "age", "by": ["sex"], "privacy": PRIVACY})
    path = service.folder / "audit.jsonl"
    answers = [line for line in lines_of(path) if line["event"] == "answer"]
    assert [line["cached"] for line in answers] == [False, True, False]
    assert [len(line["rows"]) for line in answers] == [1, 1, 1]
    entry = service.backend.dataset.ledger.entry(first["receipts"][0])
    identity, seq, digest = answers[0]["rows"][0]
    assert (identity, seq, digest) == (
        service.backend.dataset.ledger.identity,
        entry.receipt.seq,
        entry.receipt.hash,
    )
    assert str(first["value"]) not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert service.backend.audit_log.check().lines == len(lines_of(path))


def test_a_changed_trail_is_refused_at_the_start_and_found_by_a_check(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.ask(COUNT)
        path = tmp_path / "audit.jsonl"
        path.write_text(path.read_text().replace('"who":"ana"', '"who":"bob"'))
        assert service.client("cura").get("/v1/datasets/town/curator/check").status_code == 503
    with pytest.raises(LedgerTampered, match="must follow from the line before"):
        Service(Config.from_dict(settings(), tmp_path))


def test_half_a_line_that_a_power_failure_left_in_the_trail_does_not_keep_it_from_starting(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.jsonl"
    with running(tmp_path) as service:
        service.ask(COUNT)
        tokens = service.tokens
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"event":"answer","ro')
    with running(tmp_path, tokens) as service:
        assert path.read_bytes().startswith(whole)
        assert service.client("cura").get("/v1/datasets/town/curator/check").json()["intact"]


@pytest.mark.slow
def test_processes_share_one_trail_without_breaking_its_chain(tmp_path: Path) -> None:
    write_table(tmp_path)
    code = (
        "import sys; from pathlib import Path; from discreet.server.audit_log import ServiceLog\n"
        "trail = ServiceLog(Path(sys.argv[1]))\n"
        "for i in range(200): trail.write('test', n=i, who=sys.argv[2])"
    )
    path = tmp_path / "audit.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)]) for n in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    from discreet.server.audit_log import ServiceLog

    assert ServiceLog(path).check().lines == 600


# Files that are not what they were.


def test_a_ledger_that_went_back_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.ask(COUNT)
        tokens = service.tokens
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in tmp_path.glob("town.ledger*"):
        shutil.copy(path, kept)
    with running(tmp_path, tokens) as service:
        service.ask({**COUNT, "where": "age > 50"})
    for path in tmp_path.glob("town.ledger*"):
        path.unlink()
    for path in kept.iterdir():
        shutil.copy(path, tmp_path)
    with pytest.raises(LedgerTampered, match="earlier state") as caught:
        Service(Config.from_dict(settings(), tmp_path))
    assert "Restore the newest backup" in str(caught.value)


def test_a_fresh_ledger_beside_an_old_trail_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.ask(COUNT)
    for path in tmp_path.glob("town.ledger*"):
        path.unlink()
    with pytest.raises(LedgerTampered, match="another one"):
        Service(Config.from_dict(settings(), tmp_path))


def test_a_ledger_of_another_data_set_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path)
    Service(Config.from_dict(settings(), tmp_path)).close()
    schema = (tmp_path / "town.schema.yaml").read_text()
    (tmp_path / "town.schema.yaml").write_text(schema.replace("dataset: town", "dataset: village"))
    with pytest.raises(ParameterError, match=r"datasets\.\w+ of the configuration"):
        Service(Config.from_dict(settings(), tmp_path))
    with pytest.raises(LedgerError, match="town"):
        Service(Config.from_dict(settings(dataset="village"), tmp_path))


def test_a_table_that_another_ledger_knows_is_refused_unless_that_is_meant(tmp_path: Path) -> None:
    write_table(tmp_path)
    Service(Config.from_dict(settings(), tmp_path)).close()
    changed = settings(ledger="second.ledger", audit_log="second.jsonl")
    place = tmp_path / "second.yaml"
    place.write_text(json.dumps(changed))
    with pytest.raises(OtherLedger, match=r"town\.ledger.*new_ledger: true"):
        check(place)
    assert not (tmp_path / "second.ledger").exists()
    with pytest.raises(OtherLedger):
        Service(Config.from_dict(changed, tmp_path))
    # The ledger that the start left behind is no permission.
    with pytest.raises(OtherLedger):
        check(place)
    backend = Service(
        Config.from_dict(
            settings(ledger="second.ledger", audit_log="second.jsonl", new_ledger=True), tmp_path
        )
    )
    assert len(backend.datasets["town"].dataset.ledger.others()) == 1
    backend.close()
    check(place)
    Service(Config.from_dict(changed, tmp_path)).close()


def test_another_limit_than_the_one_that_was_fixed_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path)
    Service(Config.from_dict(settings(), tmp_path)).close()
    with pytest.raises(LedgerError, match="limit"):
        Service(Config.from_dict(settings(limit={"rho": 11.0}), tmp_path))


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path)
    header = (tmp_path / "town.csv").read_text().splitlines()[0]
    (tmp_path / "town.csv").write_text(header + "\n")
    with pytest.raises(DiscreetError, match="at least one row"):
        Service(Config.from_dict(settings(), tmp_path))


@pytest.mark.parametrize(
    ("wrong", "closed"),
    [
        ("another data set", ["ledger", "access"]),
        ("no rows", ["database", "ledger", "access"]),
        ("trail", ["database", "ledger", "access"]),
    ],
)
def test_a_service_that_cannot_start_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, closed: list[str]
) -> None:
    write_table(tmp_path)
    if wrong == "another data set":
        with Ledger.open(tmp_path / "town.ledger", limit=ZCDP(rho=10.0), owner_limit=ZCDP(rho=5.0)) as other:
            other.bind("village")
    elif wrong == "no rows":
        table = tmp_path / "town.csv"
        table.write_text(table.read_text().splitlines()[0] + "\n")
    else:

        def full(*_: Any, **__: Any) -> None:
            raise LedgerUnavailable("audit_log must be a file that can be written, and is not.")

        monkeypatch.setattr(ServiceLog, "write", full)
    seen: list[str] = []
    for name, kind in (("database", Database), ("ledger", Ledger), ("access", AccessStore)):

        def noted(self: Any, name: str = name, close: Any = kind.close) -> None:
            seen.append(name)
            close(self)

        monkeypatch.setattr(kind, "close", noted)
    with pytest.raises(DiscreetError):
        Service(Config.from_dict(settings(), tmp_path))
    assert seen == closed


# Beginning, ending, beginning again.


@contextlib.contextmanager
def process(folder: Path, *, wait: bool = True, **changed: Any) -> Iterator[tuple[Any, str]]:
    """Run `discreet serve` for itself; yields it and its address."""
    from discreet.schema.serialization import write_yaml

    if not (folder / "town.csv").exists():
        write_table(folder)
    content = {key: value for key, value in settings(**changed).items() if value is not None}
    (folder / "config.yaml").write_text(write_yaml(content))
    command = [sys.executable, "-c", "from discreet.cli import main; main()", "serve", "config.yaml"]
    with (folder / "log.jsonl").open("a") as log:
        running = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert running.stdout is not None
        first = running.stdout.readline()
        address = first.split()[-1] if first else ""
        limit = time.monotonic() + 60
        while wait:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{address}/ready", timeout=5).status_code == 200:
                    break
            assert running.poll() is None, (folder / "log.jsonl").read_text()
            assert time.monotonic() < limit, (folder / "log.jsonl").read_text()
            time.sleep(0.05)
        yield running, address
    finally:
        if running.poll() is None:
            running.terminate()  # a process that is killed leaves its helpers behind
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(60)
        running.kill()
        running.wait()
        if running.stdout is not None:
            running.stdout.close()


def token_for(folder: Path, name: str = "ana") -> dict[str, str]:
    book = AccessStore(folder / "access.db")
    try:
        token = book.create(name, days=1, grants={"*": "operator"})
    finally:
        book.close()
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.slow
def test_a_signal_ends_it_after_what_runs_is_finished(tmp_path: Path) -> None:
    with process(tmp_path, slots=1.0) as (running, address):
        headers, got = token_for(tmp_path), []

        def ask() -> None:
            got.append(
                httpx.post(f"{address}/v1/datasets/town/query", json=COUNT, headers=headers, timeout=30)
            )

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.4)
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        thread.join(30)
        assert got[0].status_code == 200
        answer = got[0].json()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health")
    assert lines_of(tmp_path / "log.jsonl")[-1]["event"] == "stop"
    with process(tmp_path, slots=1.0) as (_, address):
        again = httpx.post(
            f"{address}/v1/datasets/town/query", json=COUNT, headers=headers, timeout=30
        ).json()
    assert again["cached"]
    assert again["cells"] == answer["cells"]


@pytest.mark.slow
def test_a_process_that_is_killed_in_the_middle_loses_no_charge_and_pays_none_twice(tmp_path: Path) -> None:
    with process(tmp_path, slots=5.0) as (running, address):
        headers = token_for(tmp_path)

        def ask() -> None:
            with contextlib.suppress(httpx.HTTPError):
                httpx.post(f"{address}/v1/datasets/town/query", json=COUNT, headers=headers, timeout=30)

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(1.0)  # charged, and the slot has not ended
        running.kill()
        running.wait()
        thread.join(30)
    with process(tmp_path) as (_, address):
        before = httpx.get(f"{address}/v1/datasets/town/budget", headers=headers).json()["own"]
        answer = httpx.post(f"{address}/v1/datasets/town/query", json=COUNT, headers=headers, timeout=30)
        after = httpx.get(f"{address}/v1/datasets/town/budget", headers=headers).json()["own"]
        check = httpx.get(f"{address}/v1/datasets/town/curator/check", headers=headers, timeout=30)
    assert before["spent"]["charges"] == 1
    assert answer.status_code == 200
    assert after == before
    assert check.json()["intact"]


@pytest.mark.slow
def test_several_processes_share_ledger_tokens_switch_and_counts(tmp_path: Path) -> None:
    with process(tmp_path, workers=2) as (_, address):
        headers = token_for(tmp_path)
        seen: set[int] = set()
        values = set()
        limit = time.monotonic() + 60
        while len(seen) < 2 and time.monotonic() < limit:
            # A new connection each time: the system gives it to one of the processes.
            told = httpx.post(f"{address}/v1/datasets/town/query", json=COUNT, headers=headers, timeout=30)
            assert told.status_code == 200, told.text
            values.add(told.json()["value"])
            lines = lines_of(tmp_path / "log.jsonl")
            seen = {line["process"] for line in lines if line["event"] == "request"}
        assert len(seen) == 2
        assert len(values) == 1
        budget = httpx.get(f"{address}/v1/datasets/town/budget", headers=headers).json()
        assert budget["total"]["spent"]["charges"] == 1
        text = httpx.get(f"{address}/metrics", headers=headers).text
        asked = len(
            [
                line
                for line in lines_of(tmp_path / "log.jsonl")
                if line.get("route") == "/v1/datasets/{dataset}/query"
            ]
        )
        assert (
            f'discreet_requests_total{{route="/v1/datasets/{{dataset}}/query",status="200"}} {asked}.0'
            in text
        )
        stop = httpx.post(f"{address}/v1/datasets/town/curator/stop", json={"stopped": True}, headers=headers)
        assert stop.status_code == 200
        for _ in range(6):
            assert (
                httpx.post(f"{address}/v1/datasets/town/query", json=COUNT, headers=headers).status_code
                == 423
            )


@pytest.mark.slow
def test_helpers_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    with process(tmp_path, workers=2) as (running, address):
        for event in ("start", "stop"):
            found, limit = 0, time.monotonic() + 60
            while found < 2 and time.monotonic() < limit:
                found = sum(line["event"] == event for line in lines_of(tmp_path / "log.jsonl"))
                time.sleep(0.1)
            assert found == 2, event
            running.kill()
            running.wait()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health", timeout=5)


@pytest.mark.slow
def test_tls_ends_here_where_a_certificate_is_given(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    tls = {name: str(place) for name, place in zip(("certificate", "key"), certificate, strict=True)}
    with process(tmp_path, wait=False, tls=tls) as (_, address):
        assert address.startswith("https://")
        limit = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.HTTPError):
                response = httpx.get(f"{address}/health", verify=False, timeout=5)
                break
            assert time.monotonic() < limit
            time.sleep(0.05)
    assert response.status_code == 200
    assert "max-age" in response.headers["strict-transport-security"]


@pytest.mark.slow
def test_an_address_that_is_taken_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with process(tmp_path) as (_, address):
        other = tmp_path / "other"
        other.mkdir()
        with process(other, wait=False, new_ledger=True, listen=address.removeprefix("http://")) as (
            second,
            _,
        ):
            assert second.wait(60) == 1
        assert (
            "listen of the configuration must be an address that is free" in (other / "log.jsonl").read_text()
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 1])
def test_the_first_lines_say_where_it_is_how_to_begin_and_that_a_seed_is_public(
    tmp_path: Path, seed: int | None
) -> None:
    with process(tmp_path, seed=seed) as (running, address):
        running.send_signal(signal.SIGTERM)
        rest = running.stdout.read()
    assert address.startswith("http://127.0.0.1:")
    assert "discreet token create NAME --role curator --config config.yaml" in rest
    assert ("WARNING" in rest) == (seed is not None)


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from discreet.cli import main; main()", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=dict(os.environ), check=False)


@pytest.mark.slow
def test_a_configuration_can_be_checked_without_making_anything(tmp_path: Path) -> None:
    from discreet.schema.serialization import write_yaml

    write_table(tmp_path)
    (tmp_path / "config.yaml").write_text(write_yaml(settings()))
    before = sorted(path.name for path in tmp_path.iterdir())
    done = run("serve", "config.yaml", "--check", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "valid" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    (tmp_path / "config.yaml").write_text(write_yaml(settings(table="nowhere.csv", acces=1)))
    done = run("serve", "config.yaml", "--check", cwd=tmp_path)
    assert done.returncode == 1
    assert "Did you mean access?" in done.stderr


@pytest.mark.slow
def test_the_package_can_be_imported_without_the_servers_packages() -> None:
    code = (
        "import sys\n"
        "for name in ('fastapi', 'starlette', 'uvicorn', 'httpx', 'prometheus_client'):\n"
        "    sys.modules[name] = None\n"
        "import discreet.server, discreet.client.database, discreet.server.config, discreet.server.access\n"
        "try:\n"
        "    import discreet.server.app\n"
        "except ImportError as problem:\n"
        "    print(type(problem).__name__, problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "MissingExtra" in done.stdout
    assert "discreet[serve]" in done.stdout


def test_the_same_service_runs_on_postgresql_for_data_and_ledger(
    start: Callable[..., RunningService], tmp_path: Path, postgres_url: str
) -> None:
    import psycopg

    write_table(tmp_path)
    rows = [line.split(",") for line in (tmp_path / "town.csv").read_text().splitlines()[1:]]
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE town (age int, income float8, sex text, city text, owner text)")
        with connection.cursor() as cursor:
            copy = "COPY town FROM STDIN"
            with cursor.copy(copy) as copying:
                for age, income, sex, city, owner in rows:
                    copying.write_row((int(age), float(income), sex, city or None, owner))
    mark = "&" if "?" in postgres_url else "?"
    service = start(
        table=f"{postgres_url}{mark}table=town", schema="town.schema.yaml", ledger=f"{postgres_url}#town"
    )
    assert service.client().get("/v1/datasets/town/schema").json()["n_rows"] == ROWS
    first = service.ask(COUNT)
    assert first.status_code == 200, first.text
    assert service.ask(COUNT).json()["cells"] == first.json()["cells"]
    assert service.client("cura").get("/v1/datasets/town/curator/check").json()["intact"]
