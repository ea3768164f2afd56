"""What a service holds out: load, kills, attacks on its connections, and ten thousand questions.

``load``     64 analysts on four data sets, one of which runs out of budget: charges are answers
``kills``    a service that is killed under its analysts, started again, and asked again
``attacks``  how long `/health` and the stop switch take beside clients that send nothing, little or too much
``memory``   growth of the process over 10,000 questions; history and attack with so many entries

Each part is run by its name and saved when it has ended: ``python benchmarks/service.py load attacks``.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from fairness import DATASETS, SHARE, asked, told, towns
from measure import RESULTS, save
from tests.postgres import running_server
from tests.server.concurrent_analysts import ConcurrentAnalysts
from tests.server.conftest import SCHEMA
from tests.server.processes import Served, served
from tests.server.test_concurrency import PRICE, check_books, counts, kill_under_questions, outcomes
from tests.server.test_connections import ATTACKS, attack

if TYPE_CHECKING:
    from collections.abc import Iterator

AFFORDABLE = 500  # questions of the data set that runs out of budget
QUESTIONS = 10_000
_MANY = {"per_minute": 10**6, "concurrent": 256, "work_per_hour": 10**6}


def load(seconds: float) -> dict[str, Any]:
    """Let 64 analysts ask on four data sets, with ledgers and rows in files and in PostgreSQL."""
    result: dict[str, Any] = {
        "analysts": SHARE * len(DATASETS),
        "datasets": len(DATASETS),
        "seconds": seconds,
    }
    for store in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            folder, url = Path(name), None
            if store == "postgresql":
                url = stack.enter_context(stack.enter_context(running_server()).database())
            entries = towns(folder, url)
            limit = (AFFORDABLE + 0.5) * PRICE
            entries["town"] |= {"limit": {"rho": limit}, "analyst_limit": {"rho": limit}}
            for dataset in DATASETS:
                schema = replace(SCHEMA, dataset=dataset).to_yaml()
                (folder / f"{dataset}.schema.yaml").write_text(schema, encoding="utf-8")
            others = {key: value for key, value in entries.items() if key != "town"}
            with served(folder, **entries["town"], others=others, limits=_MANY) as service:
                crowds = [
                    ConcurrentAnalysts(
                        service.port,
                        f"/v1/datasets/{dataset}/query",
                        service.tokens(SHARE, dataset, first=SHARE * i),
                        counts,
                    )
                    for i, dataset in enumerate(DATASETS)
                ]
                asked(crowds, seconds)
            found = result[store] = {**told(crowds), "datasets": {}}
            for i, (dataset, crowd) in enumerate(zip(DATASETS, crowds, strict=True)):
                address = entries[dataset]["ledger"]
                said = [replace(one, analyst=one.analyst + SHARE * i) for one in crowd.exchanges]
                charges = check_books(
                    address if url else str(folder / address), said, entries[dataset]["limit"]["rho"]
                )
                answers = len(crowd.answered())
                assert charges == answers, "a charge without an answer, or the reverse"
                assert outcomes(crowd) == {"answered", *(["budget-exceeded"] if dataset == "town" else [])}
                found["datasets"][dataset] = {"answers": answers, "charges": charges}
            assert found["datasets"]["town"]["charges"] == AFFORDABLE
    return result


def kills(number: int = 100) -> dict[str, Any]:
    """Kill a service under questions, with all that it keeps in files and in PostgreSQL."""
    with tempfile.TemporaryDirectory() as name:
        in_files = kill_under_questions(Path(name), number)
    with tempfile.TemporaryDirectory() as name, running_server() as server, server.database() as url:
        return {"sqlite": in_files, "postgresql": kill_under_questions(Path(name), number, url)}


def _exchange(port: int, path: str, body: str | None = None, token: str = "") -> float:
    """Send one request over a new connection, and return the seconds until it was answered."""
    started = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} if token else {}
    connection.request("GET" if body is None else "POST", path, body, headers)
    status = connection.getresponse().status
    connection.close()
    assert status == http.HTTPStatus.OK
    return time.perf_counter() - started


def attacks(times: int = 20) -> dict[str, Any]:
    """Measure a new connection to `/health`, and the stop switch over another, beside each attack."""
    result: dict[str, Any] = {"requests": times}
    for name, count, sent, flood in [("none", 0, b"", False), *ATTACKS]:
        with tempfile.TemporaryDirectory() as folder, served(Path(folder), new_ledger=True) as service:
            url = f"http://127.0.0.1:{service.port}"
            curator = service.curator()
            taken: dict[str, list[float]] = {"health": [], "stop": []}
            with attack(url, count, sent, flood=flood) if count else contextlib.nullcontext():
                for number in range(times):
                    taken["health"].append(_exchange(service.port, "/health"))
                    taken["stop"].append(
                        _exchange(
                            service.port,
                            "/v1/datasets/town/curator/stop",
                            json.dumps({"stopped": number % 2 == 0}),
                            curator,
                        )
                    )
        result[name] = {"connections": count} | {
            f"{key}_{kind}_ms": round(1000 * value, 1)
            for key, values in taken.items()
            for kind, value in (("median", sorted(values)[times // 2]), ("max", max(values)))
        }
        print(name, result[name], flush=True)
    return result


def _resident(service: Served) -> float:
    """Return the resident memory of the service in MB."""
    assert service._process is not None
    lines = Path(f"/proc/{service._process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _used(service: Served) -> float:
    """Return the processor time of the service in seconds."""
    assert service._process is not None
    facts = Path(f"/proc/{service._process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")


def _timed(service: Served, client: httpx.Client, path: str) -> dict[str, Any]:
    """Request a page or an endpoint, and return status, size, time, and processor time of the service."""
    started, used = time.perf_counter(), _used(service)
    answer = client.get(path)
    return {
        "status": answer.status_code,
        "kilobytes": round(len(answer.content) / 1000, 1),
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(_used(service) - used, 2),
    }


def _look(service: Served, token: str, who: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Request what shows many entries, by programs and in a browser; the attack first, then its result."""
    url = f"http://127.0.0.1:{service.port}"
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=600) as client:
        paths = ["history", "history?last=100"]
        if who == "curator":
            path = "/v1/datasets/town/curator/attack"
            yield f"{path} for the first time", _timed(service, client, path)
            paths = [f"curator/{name}" for name in ("attack", "overview", "spending", "check")]
        for path in paths:
            yield f"/v1/datasets/town/{path}", _timed(service, client, f"/v1/datasets/town/{path}")
    with httpx.Client(base_url=url, headers={"Origin": url}, timeout=600) as browser:
        assert browser.post("/login", data={"token": token}).status_code == 303
        page = f"/datasets/town/{'history' if who == 'analyst' else 'curator'}"
        yield page, _timed(service, browser, page)


def memory(questions: int = QUESTIONS) -> dict[str, Any]:
    """Ask ten thousand questions, then look at history and attack."""
    result: dict[str, Any] = {"questions": questions, "resident_mb": {}}
    with (
        tempfile.TemporaryDirectory() as name,
        served(
            Path(name), limits=_MANY, limit={"rho": 1000.0}, analyst_limit={"rho": 1000.0}, new_ledger=True
        ) as service,
    ):
        endless = [counts(i) for i in range(16)]
        tokens = service.tokens(1) * len(endless)  # one analyst, in many places, so that one history is long
        crowd = ConcurrentAnalysts(
            service.port, "/v1/datasets/town/query", tokens, lambda place: endless[place]
        )
        marks = [questions // 20, questions // 4, questions // 2, questions]
        while len(crowd.answered()) < questions:
            crowd.ask_for(2)
            while marks and len(crowd.answered()) >= marks[0]:
                result["resident_mb"][str(marks.pop(0))] = round(_resident(service), 1)
        first, *_, last = result["resident_mb"].values()
        result["growth_mb"] = round(last - first, 1)
        result["answers"] = len(crowd.answered())
        result["requests"] = {
            f"{who} {path}": found
            for who, token in (("analyst", tokens[0]), ("curator", service.curator()))
            for path, found in _look(service, token, who)
        }
        result["resident_after_attack_mb"] = round(_resident(service), 1)
    return result


PARTS = {"load": lambda: load(60.0), "kills": kills, "attacks": attacks, "memory": memory}


def main(parts: list[str] | None = None) -> None:
    """Run parts, and save each beside the others."""
    path = RESULTS / "service.json"
    with tempfile.TemporaryDirectory() as state:
        os.environ["DISCREET_STATE"] = state
        for name in parts or list(PARTS):
            before = os.getloadavg()[0]
            found = PARTS[name]()
            found["load_average"] = [round(before, 1), round(os.getloadavg()[0], 1)]
            saved = json.loads(path.read_text()) if path.exists() else {}
            save("service", saved | {name: found})
            print(name, found, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    main(parser.parse_args().parts)
