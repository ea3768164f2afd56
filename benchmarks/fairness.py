"""How long 64 analysts wait while one more sends the heaviest questions that a service allows.

The others ask counts that nobody asked before, sixteen of them on each of four data sets, one after the other
and as fast as they are answered. In slices of a few seconds they are alone and beside one hostile analyst in
turn, so that other work on the machine delays both alike. The hostile one keeps 16 requests open: 64 long
expressions each, previews of them, tables of 60,000 cells, or models. Afterwards every answer must be in its
ledger, charged once, and within the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import save
from tests.postgres import running_server
from tests.server.concurrent_analysts import ConcurrentAnalysts
from tests.server.conftest import SCHEMA, write_table
from tests.server.processes import served, town_in_postgres
from tests.server.test_concurrency import ANALYSTS, check_books, counts

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1000.0
STORES = ("sqlite", "postgresql")
ALLOWED = 2.0
DATASETS = ("town", "north", "south", "west")
SHARE = ANALYSTS // len(DATASETS)
OPEN = 16  # questions that the hostile analyst keeps open
PRICE = {"kind": "zcdp", "rho": 1e-4}
_NUMBERS = itertools.count()


def long_sums(_analyst: int) -> Iterator[dict[str, Any]]:
    """Make up questions of 64 expressions, as long as the language allows."""
    for number in _NUMBERS:
        branch = "CASE WHEN age > {0} AND income < {1} THEN income * age / 1000000000 ELSE 0 END"
        texts = [
            " + ".join(branch.format(i % 100, 64 * number + text + 100 * i) for i in range(12))
            for text in range(64)
        ]
        yield {"kind": "statistical", "question": {"kind": "sums", "expressions": texts}, "privacy": PRICE}


def wide_tables(_analyst: int) -> Iterator[dict[str, Any]]:
    """Make up tables of as many cells as an answer may have."""
    for number in _NUMBERS:
        edges = {
            "age": [i + number / 10**6 for i in range(1, 119)],
            "income": [190 * i + number for i in range(1, 500)],
        }
        yield {"kind": "histogram", "columns": ["age", "income"], "edges": edges, "privacy": PRICE}


def models(_analyst: int) -> Iterator[dict[str, Any]]:
    """Make up models of many passes."""
    for number in _NUMBERS:
        yield {
            "kind": "kmeans",
            "privacy": {"kind": "zcdp", "rho": 1e-3 + number * 1e-9},
            "parameters": {"n_clusters": 2 + number % 8, "max_iter": 50},
        }


ATTACKS = {
    "sums": (long_sums, "query"),
    "previews": (long_sums, "preview"),
    "tables": (wide_tables, "query"),
    "models": (models, "query"),
}


def told(crowds: list[ConcurrentAnalysts]) -> dict[str, float]:
    """Return throughput and latencies of the others, on all data sets together."""
    taken = sorted(one.seconds for crowd in crowds for one in crowd.answered())
    return {
        "answers": len(taken),
        "per_second": round(sum(crowd.per_second() for crowd in crowds), 1),
        "p50_ms": round(1000 * taken[len(taken) // 2], 1),
        "p90_ms": round(1000 * taken[int(0.9 * len(taken))], 1),
        "p99_ms": round(1000 * taken[int(0.99 * len(taken))], 1),
        "max_ms": round(1000 * taken[-1], 1),
    }


def asked(crowds: list[ConcurrentAnalysts], seconds: float) -> float:
    """Let several crowds ask at the same time; return the 99th percentile of their times in milliseconds."""
    before = [len(crowd.exchanges) for crowd in crowds]
    threads = [threading.Thread(target=crowd.ask_for, args=(seconds,)) for crowd in crowds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = sorted(
        one.seconds for crowd, first in zip(crowds, before, strict=True) for one in crowd.exchanges[first:]
    )
    return 1000 * taken[int(0.99 * len(taken))]


def attacked(port: int, token: str, attack: str, seconds: float) -> list[int]:
    """Send the requests of the hostile analyst for some time; return the statuses of their answers."""
    questions, end = ATTACKS[attack]
    hostile = ConcurrentAnalysts(port, f"/v1/datasets/town/{end}", [token] * OPEN, questions)
    return sorted(one.status for one in hostile.ask_for(seconds).exchanges)


def towns(folder: Path, url: str | None) -> dict[str, dict[str, Any]]:
    """Return the entries of four data sets; with the address of a database, rows and ledgers are in it."""
    (folder / "town.csv").exists() or write_table(folder)
    table = "town.csv" if url is None else town_in_postgres(url)
    return {
        name: {
            "table": table,
            "schema": f"{name}.schema.yaml",
            "ledger": f"{name}.ledger" if url is None else f"{url}#{name}",
            "limit": {"rho": LIMIT},
            "analyst_limit": {"rho": LIMIT},
            "new_ledger": True,
        }
        for name in DATASETS
    }


def compare(
    folder: Path, slices: list[float], url: str | None, attacks: list[str], result: dict[str, Any]
) -> Iterator[None]:
    """Measure the others alone and beside each attack, in slices that take turns.

    Yields after each attack, for saving, and once more when all answers were found in the ledgers: a result
    without "charges" was not checked.
    """
    entries = towns(folder, url)
    for name in DATASETS:
        (folder / f"{name}.schema.yaml").write_text(replace(SCHEMA, dataset=name).to_yaml(), encoding="utf-8")
    limits = {"per_minute": 10**6, "concurrent": 256, "work_per_hour": 10**6}
    os.environ["DISCREET_STATE"] = str(folder / "state")
    result["alone"] = []
    with served(
        folder, **entries["town"], others={k: v for k, v in entries.items() if k != "town"}, limits=limits
    ) as service:
        tokens = {name: service.tokens(SHARE, name, first=SHARE * i) for i, name in enumerate(DATASETS)}
        (eve,) = service.tokens(1, "town", first=ANALYSTS)
        endless = {name: [counts(i) for i in range(SHARE)] for name in DATASETS}
        said: dict[str, list[Any]] = {name: [] for name in DATASETS}

        def crowds() -> list[ConcurrentAnalysts]:
            return [
                ConcurrentAnalysts(
                    service.port,
                    f"/v1/datasets/{name}/query",
                    tokens[name],
                    lambda analyst, name=name: endless[name][analyst],
                )
                for name in DATASETS
            ]

        for attack in attacks:
            alone, beside, statuses, ratios = crowds(), crowds(), [], []
            with ProcessPoolExecutor(1) as apart:  # its client must not slow down those of the others
                for seconds in slices:
                    usual = asked(alone, seconds)
                    hostile = apart.submit(attacked, service.port, eve, attack, seconds)
                    ratios.append(round(asked(beside, seconds) / usual, 2))
                    statuses += hostile.result()
            for i, name in enumerate(DATASETS):
                spoken = [*alone[i].exchanges, *beside[i].exchanges]
                said[name] += [replace(one, analyst=one.analyst + SHARE * i) for one in spoken]
            result["alone"].append(told(alone))
            result[attack] = {
                **told(beside),
                "hostile": {str(status): statuses.count(status) for status in sorted(set(statuses))},
                # One slice in which another program took the machine does not change their median.
                "p99_ratios": ratios,
                "p99_ratio_median": sorted(ratios)[len(ratios) // 2],
                "p99_ratio": round(told(beside)["p99_ms"] / told(alone)["p99_ms"], 2),
                "allowed": ALLOWED,
            }
            print(attack, result["alone"][-1], result[attack], flush=True)
            yield
    assert {one.status for spoken in said.values() for one in spoken} == {200}, "some were not answered"
    result["charges"] = {
        name: check_books(
            str(folder / entry["ledger"]) if url is None else entry["ledger"], said[name], LIMIT
        )
        for name, entry in entries.items()
    }
    yield


def main(
    seconds: float = 60.0,
    attacks: list[str] | None = None,
    stores: tuple[str, ...] = STORES,
    slice_seconds: float = 12.0,
) -> None:
    """Measure both stores, and save after each attack: a run that is stopped keeps what it measured."""
    result: dict[str, Any] = {
        "analysts": SHARE * len(DATASETS), "datasets": len(DATASETS), "seconds": seconds, "open": OPEN,
        "slice_seconds": slice_seconds, "load": os.getloadavg()[0],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for name in stores:
            place = Path(folder) / name
            place.mkdir()
            url = None
            if name == "postgresql":
                url = stack.enter_context(stack.enter_context(running_server()).database())
            result[name] = {}
            slices = [slice_seconds] * max(1, round(seconds / slice_seconds))
            for _ in compare(place, slices, url, attacks or list(ATTACKS), result[name]):
                save("fairness", result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--slice", type=float, default=12.0)
    parser.add_argument("--attacks", nargs="*", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--stores", nargs="*", choices=STORES, default=STORES)
    options = parser.parse_args()
    main(options.seconds, options.attacks, tuple(options.stores), options.slice)
