"""A ledger under a fixed clock: its rows, the head of its chain, what it says and what it exports."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from discreet import Database, Ledger
from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, PureDP
from discreet.query import Sums
from tests.golden._entry_points import command
from tests.golden.digests import error_of, of_bytes, of_json, rounded
from tests.golden.frozen import frozen
from tests.golden.query_cases import SCHEMA, people

LIMIT = ZCDP(rho=2.0)
CHARGES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (GaussianDP(mu=0.5), {"owner": "ana", "what": "noisy sums"}),
    (ZCDP(rho=0.125), {"owner": "ben", "what": "noisy histogram", "question": "q1"}),
    ([GaussianDP(mu=0.25), ErrorFloor(age=9.0)], {"what": "gaussian release", "seeded": True}),
    (PureDP(epsilon=0.5), {"owner": "ana", "plan": [PureDP(epsilon=0.5)], "asked": {"kind": "sums"}}),
    (ZCDP(rho=0.01), {"owner": "ana", "request": "r-1"}),
)


def write_ledger(path: Path) -> Ledger:
    """Write a ledger with several charges, kept answers and a limit of one owner; return it open."""
    ledger = Ledger.open(path, limit=LIMIT, owner_limit=ZCDP(rho=1.0))
    ledger.bind("golden-people")
    ledger.set_owner_limit("ben", ZCDP(rho=0.5))
    for promises, details in CHARGES:
        receipt = ledger.charge(promises, **details)
        ledger.store(receipt, b"an answer to " + receipt.what.encode())
    with Database(people(50), schema=SCHEMA, ledger=ledger, random_state=3) as database:
        database.ask(Sums("(40 < age)"), privacy=GaussianDP(mu=0.1), owner="ana")
        database.ask(Sums("(40 < age)"), privacy=GaussianDP(mu=0.1), owner="ana")
    return ledger


def ledger_cases() -> dict[str, Any]:
    """Return the state of a ledger that is written under a fixed clock, and how it refuses."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, frozen("ledger"):
        path = Path(folder) / "golden.ledger"
        with write_ledger(path) as ledger:
            found["head"] = list(ledger.head)
            found["spent"] = of_json(ledger.spent().to_dict())
            found["spent by ana"] = of_json(ledger.spent("ana").to_dict())
            found["remaining"] = rounded(ledger.remaining())
            found["remaining of ben"] = rounded(ledger.remaining("ben"))
            found["guarantee"] = of_json(rounded(ledger.guarantee().to_dict()))
            found["owners"] = sorted(ledger.owners())
            found["has paid"] = [ledger.has_paid("q1", "ben"), ledger.has_paid("q1", "ana")]
            for number, receipt in enumerate(ledger.history(), 1):
                found[f"receipt {number}"] = of_json(receipt.to_dict())
            found["refused: limit"] = error_of(lambda: ledger.charge(ZCDP(rho=1.9)))
            found["refused: owner's limit"] = error_of(lambda: ledger.charge(ZCDP(rho=0.6), owner="ben"))
            found["refused: unlimited"] = error_of(lambda: ledger.charge(ErrorFloor(age=1.0), what=""))
            found["refused: approximate"] = error_of(
                lambda: ledger.charge(ApproxDP(epsilon=1, delta=1e-6), owner="ana")
            )
            found["refused: other data set"] = error_of(lambda: ledger.bind("another"), hide=folder)
            found["head after refusals"] = list(ledger.head)
            ledger.check()
        found["refused: other limit"] = error_of(lambda: Ledger.open(path, limit=ZCDP(rho=3.0)), hide=folder)
        for name in ("export", "show", "check"):
            done = command("ledger", name, str(path), cwd=Path(folder))
            text = done.out.replace(str(path), "LEDGER").replace(folder, "FOLDER")
            found[f"command {name}"] = [done.code, of_bytes(text.encode())]
        back = command("ledger", "backup", str(path), "--out", "copy", cwd=Path(folder))
        found["command backup"] = back.code
        with Ledger.open(Path(folder) / "copy", limit=LIMIT) as copy:
            found["head of the copy"] = list(copy.head)
    return found
