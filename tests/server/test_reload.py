"""Data sets are added and retired while the service runs; whatever is wrong leaves it as it was."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from discreet.ledger import Ledger
from discreet.server import app
from discreet.server.config import Config
from discreet.server.query_service import QueryService
from discreet.server.service import Service
from tests.server.conftest import ROWS, configured, lines_of, running, write_table
from tests.server.processes import served
from tests.server.test_many_tables import village

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.conftest import RunningService

COUNT = {"kind": "count", "where": "age > 40", "privacy": {"kind": "gaussian-dp", "mu": 0.1}}


@pytest.fixture
def town(tmp_path: Path) -> Iterator[RunningService]:
    write_table(tmp_path)
    with running(tmp_path) as service:
        service.whole.config_file = configured(tmp_path)
        yield service


def ask(service: RunningService, dataset: str, who: str = "opal") -> httpx.Response:
    return service.client(who).post(f"/v1/datasets/{dataset}/query", json=COUNT)


def test_a_data_set_is_added_and_retired_and_its_ledger_stays(town: RunningService) -> None:
    operator = town.client("opal")
    assert operator.post("/v1/reload").json() == {"added": [], "retired": [], "done": True}
    assert ask(town, "village").status_code == 404
    configured(town.folder, others={"village": village(town.folder)})
    assert operator.post("/v1/reload").json() == {"added": ["village"], "retired": [], "done": True}
    assert ask(town, "village").status_code == 200
    assert ask(town, "town").status_code == 200
    town.whole.tokens.grant("test", "ana", "village", "analyst")
    configured(town.folder)
    assert operator.post("/v1/reload").json() == {"added": [], "retired": ["village"], "done": True}
    for who in ("ana", "opal"):
        assert ask(town, "village", who).status_code == 404
    assert ask(town, "town").status_code == 200
    for thread in town.whole._retiring:
        thread.join()
    with Ledger.open(town.folder / "village.ledger") as ledger:
        assert ledger.spent().charges == 1
        ledger.check()
        assert ledger.log_anchors()
    lines = [(line["event"], line["who"]) for line in lines_of(town.whole.audit_log.path) if "who" in line]
    assert ("retire", "opal") in lines
    configured(town.folder, others={"village": village(town.folder)})
    assert operator.post("/v1/reload").json() == {"added": ["village"], "retired": [], "done": True}
    assert ask(town, "village").json()["cached"]


def test_whatever_is_wrong_is_said_and_changes_nothing(town: RunningService) -> None:
    operator, folder = town.client("opal"), town.folder
    before = dict(town.whole.datasets)
    entry = village(folder)
    broken: list[tuple[dict[str, Any], str]] = [
        ({"others": {"village": entry | {"table": "none.csv"}}}, "none.csv"),
        ({"others": {"village": entry | {"limit": {"rho": -1.0}}}}, "datasets.village.limit"),
        ({"others": {"village": entry | {"ledger": "town.ledger"}}}, "ledger"),
        ({"others": {"village": entry}, "session_hours": 3.0}, "session_hours"),
        ({"limit": {"rho": 20.0}}, "limit"),
        ({"version": "second"}, "datasets.town"),
    ]
    for changed, said in broken:
        configured(folder, **changed)
        answer = operator.post("/v1/reload")
        assert answer.status_code == 422, answer.text
        assert said in answer.json()["error"]["message"], answer.text
        assert town.whole.datasets == before
    (folder / "village.csv").write_text("nothing,like,it\n1,2,3\n")
    configured(folder, others={"village": entry})
    assert operator.post("/v1/reload").status_code == 422
    (folder / "config.yaml").write_text(": no YAML [")
    assert operator.post("/v1/reload").status_code == 422
    (folder / "config.yaml").unlink()
    assert operator.post("/v1/reload").status_code == 422
    assert town.whole.datasets == before
    assert ask(town, "town").status_code == 200


def test_only_an_operator_changes_the_data_sets(town: RunningService) -> None:
    for who, status in (("ana", 403), ("cura", 403), (None, 401)):
        assert town.client(who).post("/v1/reload").status_code == status


def test_what_runs_is_answered_before_the_table_is_closed(
    town: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(town.folder, others={"village": village(town.folder)})
    assert town.client("opal").post("/v1/reload").status_code == 200
    inside, go_on = threading.Event(), threading.Event()
    answer = QueryService._answer_query

    def slow(self: QueryService, *given: Any) -> Any:
        inside.set()
        assert go_on.wait(60)
        return (yield from answer(self, *given))

    monkeypatch.setattr(QueryService, "_answer_query", slow)
    leaving = town.whole.datasets["village"]
    answered: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answered.append(ask(town, "village")))
    asking.start()
    assert inside.wait(60)
    configured(town.folder)
    retired = threading.Thread(target=lambda: town.client("opal").post("/v1/reload"))
    retired.start()
    while not town.whole._retiring:
        time.sleep(0.005)
    assert town.whole._retiring[0].is_alive()
    assert leaving._running == 1
    go_on.set()
    asking.join(60)
    retired.join(60)
    assert answered[0].status_code == 200
    town.whole._retiring[0].join(60)
    with Ledger.open(town.folder / "village.ledger") as ledger:
        assert ledger.spent().charges == 1


def test_a_data_set_that_processes_shared_is_read_anew_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path)
    entry = village(tmp_path)
    shared = tmp_path / "shared"
    shared.mkdir()
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: told.append(given))
    monkeypatch.setenv(app.PARENT, "1")
    config = configured(tmp_path, others={"village": entry}, workers=2)
    with closing(Service(Config.load(config), shared=shared)) as service:
        service.config_file = config
        n_rows = service.datasets["village"].dataset.database.n_rows
        assert n_rows is not None
        configured(tmp_path, workers=2)
        assert app.reload(service, "opal") == {"added": [], "retired": ["village"], "done": False}
        assert told == [(1, signal.SIGHUP)]
    lines = (tmp_path / "village.csv").read_text().splitlines(keepends=True)
    (tmp_path / "village.csv").write_text("".join(lines[:-5]))
    (tmp_path / "town.csv").write_text((tmp_path / "town.csv").read_text().partition("\n")[0] + "\n")
    config = configured(tmp_path, others={"village": entry}, workers=2)
    with closing(Service(Config.load(config), shared=shared)) as service:
        assert service.datasets["village"].dataset.database.n_rows == n_rows - 5
        assert service.datasets["town"].dataset.database.n_rows == ROWS


@pytest.mark.slow
def test_several_processes_are_replaced_by_ones_that_know_the_new_data_set(tmp_path: Path) -> None:
    write_table(tmp_path)
    entry = village(tmp_path)
    with served(tmp_path, workers=2) as service:
        (operator,) = service._create([("opal", "operator")], "*")
        headers = {"Authorization": f"Bearer {operator}"}
        url = f"http://127.0.0.1:{service.port}/v1"
        said = yaml.safe_load(service.config.read_text())
        said["datasets"]["village"] = entry
        service.config.write_text(yaml.safe_dump(said))
        answer = httpx.post(f"{url}/reload", headers=headers, timeout=120)
        assert answer.json() == {"added": ["village"], "retired": [], "done": False}
        asked = f"{url}/datasets/village/query"
        found, end = 0, time.monotonic() + 300
        while found < 8:  # in a row, so that both processes are new
            assert time.monotonic() < end, "the new data set does not appear"
            try:
                response = httpx.post(asked, json=COUNT, headers=headers, timeout=60)
            except httpx.TransportError:
                found = 0
                continue
            found = found + 1 if response.status_code == 200 else 0
            time.sleep(0.01 if found else 0.1)
