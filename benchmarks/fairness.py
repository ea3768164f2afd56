"""How long 64 analysts wait while one more sends the heaviest questions that a service allows.

The others ask counts that nobody asked before, one after the other, as fast as they are answered. In turns they
are alone and beside one hostile analyst, who keeps as many questions open as the service admits: 64 long
expressions each, previews of them, tables of 65,536 cells, or models. Afterwards every answer must be in the
ledger, and no charge without one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import save
from tests.postgres import running_server
from tests.server.concurrent_analysts import ConcurrentAnalysts
from tests.server.processes import served, town_in_postgres
from tests.server.test_concurrency import ANALYSTS, check_books, counts

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1000.0
ALLOWED = 2.0
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
    "sums": (long_sums, ""),
    "previews": (long_sums, "preview"),
    "tables": (wide_tables, ""),
    "models": (models, ""),
}


def told(analysts: ConcurrentAnalysts) -> dict[str, float]:
    """Return throughput and latencies of the others."""
    return {
        "answers": len(analysts.answered()),
        "per_second": round(analysts.per_second(), 1),
        "p50_ms": round(analysts.milliseconds(0.5), 1),
        "p99_ms": round(analysts.milliseconds(0.99), 1),
        "max_ms": round(analysts.milliseconds(1.0), 1),
    }


def asked(
    port: int, path: str, tokens: list[str], endless: list[Any], seconds: float, attack: Any
) -> tuple[Any, Any]:
    """Let the analysts ask for some time, alone or beside the hostile one."""
    others = ConcurrentAnalysts(port, path, tokens[:ANALYSTS], lambda analyst: endless[analyst])
    if attack is None:
        return others.ask_for(seconds), None
    questions, end = attack
    hostile = ConcurrentAnalysts(
        port, f"{path.rpartition('/')[0]}/{end}" if end else path, [tokens[-1]] * OPEN, questions
    )
    beside = threading.Thread(target=hostile.ask_for, args=(seconds,))
    beside.start()
    others.ask_for(seconds)
    beside.join()
    return others, hostile


def compared(
    folder: Path, seconds: float, table: str, ledger: str, workers: int, attacks: list[str]
) -> dict[str, Any]:
    """Measure the others alone, and beside each attack, in turns within one run of the service."""
    changed: dict[str, Any] = {
        "table": table,
        "schema": "town.schema.yaml",
        "ledger": ledger,
        "workers": workers,
        "limit": {"rho": LIMIT},
        "analyst_limit": {"rho": LIMIT},
        "limits": {"per_minute": 10**6, "concurrent": 256, "work_per_hour": 10**6},
    }
    os.environ["DISCREET_STATE"] = str(folder / "state")
    endless = [counts(i) for i in range(ANALYSTS)]
    result: dict[str, Any] = {"alone": []}
    with served(folder, **changed) as service:
        tokens = service.tokens(ANALYSTS + 1)
        path = "/v1/query"
        said = []
        for name in attacks:
            alone, _ = asked(service.port, path, tokens, endless, seconds, None)
            beside, hostile = asked(service.port, path, tokens, endless, seconds, ATTACKS[name])
            said += [*alone.exchanges, *beside.exchanges]
            result["alone"].append(told(alone))
            statuses = sorted(one.status for one in hostile.exchanges)
            result[name] = {
                **told(beside),
                "hostile": {str(status): statuses.count(status) for status in sorted(set(statuses))},
                "p99_ratio": round(beside.milliseconds(0.99) / alone.milliseconds(0.99), 2),
                "allowed": ALLOWED,
            }
            print(name, result["alone"][-1], result[name], flush=True)
    assert sorted({one.status for one in said}) == [200], "some were not answered"
    result["charges"] = check_books(str(folder / ledger) if "://" not in ledger else ledger, said, LIMIT)
    return result


def main(seconds: float, attacks: list[str], stores: list[str]) -> None:
    """Measure both stores."""
    result: dict[str, Any] = {"analysts": ANALYSTS, "seconds": seconds, "open": OPEN}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in stores:
            (place / name).mkdir()
        if "sqlite" in stores:
            result["sqlite"] = compared(place / "sqlite", seconds, "town.csv", "town.ledger", 1, attacks)
        if "postgresql" in stores:
            with running_server() as server, server.database() as url:
                result["postgresql"] = compared(
                    place / "postgresql", seconds, town_in_postgres(url), f"{url}#town", 1, attacks
                )
    save("fairness", result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS))
    parser.add_argument("--stores", nargs="*", default=["sqlite", "postgresql"])
    options = parser.parse_args()
    main(options.seconds, options.attacks, options.stores)
