"""Random charges at two services that share everything, while limits, groups, tokens and data sets change.

An evaluator of its own adds up the record of the ledger, row by row, and compares it with limits, answers and
audit log; it uses nothing of the ledger but the text of its rows.
"""

from __future__ import annotations

import json
import random  # noqa: TID251 - what is asked in which order, and no noise
import threading
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.schema.serialization import write_yaml
from tests.server.conftest import SCHEMA, RunningService, running, settings, write_table

if TYPE_CHECKING:
    from pathlib import Path

ANALYSTS = ("a0", "a1", "a2", "a3")
LEDGERS = {"residents": 0.5, "west": 0.3}
TOWN_LIMIT = 0.3
RHO = (0.002, 0.004, 0.008, 0.016)
_SLACK = Fraction(1, 10**9)  # costs are rounded up


class Books:
    """What a ledger admits by the text of its record, added up as the rows come."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.caps: dict[tuple[str, str | None], Fraction | None] = {}
        self.spent: dict[tuple[str, str | None], Fraction] = defaultdict(Fraction)
        self.groups: dict[str, str | None] = {}
        self.charges: dict[int, dict[str, Any]] = {}
        self._paid: set[str] = set()
        self._by: dict[tuple[str, str], list[Fraction]] = defaultdict(list)
        for number, row in enumerate(rows, 1):
            self._read(number, row)

    def _read(self, number: int, row: dict[str, Any]) -> None:
        """Read one row: a limit, a change of a group, or a charge that must fit."""
        kind = row["type"]
        if kind == "open":
            self.caps["total", None] = _cap(row["caps"])
        elif kind == "data set":
            self.caps["dataset", row["dataset"]] = _cap(row["caps"])
        elif kind == "owner limit":
            self.caps["owner", row["owner"]] = _cap(row["caps"])
        elif kind == "group limit":
            self.caps["group", row["group"]] = _cap(row["caps"])
        elif kind == "group":
            self.groups[row["owner"]] = row["group"]
        elif "promises" in row:
            self._charge(number, row)

    def _charge(self, number: int, row: dict[str, Any]) -> None:
        """Count a charge against what it concerns: its owner alone, if it was paid before."""
        self.charges[number] = row
        cost = sum((_rho(promise) for promise in row["promises"]), Fraction())
        assert cost > 0
        scopes: list[tuple[str, str | None]] = [("owner", row["owner"])]
        if (group := self.groups.get(row["owner"])) is not None:
            scopes.append(("group", group))
        if row["question"] not in self._paid:
            scopes += [("total", None), ("dataset", row.get("dataset"))]
        self._paid.add(row["question"])
        for scope in scopes:
            self.spent[scope] += cost
            cap = self.caps.get(scope)
            assert cap is None or self.spent[scope] <= cap * (1 + _SLACK), (number, scope)


def _cap(caps: dict[str, Any] | None) -> Fraction | None:
    return None if caps is None else Fraction(caps["amounts"]["rho"])


def _rho(promise: dict[str, Any]) -> Fraction:
    assert promise["kind"] in ("gaussian-dp", "zcdp")
    return Fraction(promise["rho"]) if "rho" in promise else Fraction(promise["mu"]) ** 2 / 2


def configuration(folder: Path, url: str, *, village: bool = True) -> dict[str, Any]:
    """Return what the configuration of each service says; without the village once it is retired."""
    folder.mkdir(exist_ok=True)
    write_table(folder)
    (folder / "plain.schema.yaml").write_text(replace(SCHEMA, dataset=None).to_yaml())
    table = {"table": "town.csv", "schema": "plain.schema.yaml", "version": "2026", "new_ledger": True}
    people = table | {"people": "residents"}
    datasets = {
        "town": people | {"limit": {"rho": TOWN_LIMIT}},
        "village": people,
        "west": table | {"ledger": f"{url}#west", "limit": {"rho": LEDGERS["west"]}},
    }
    if not village:
        del datasets["village"]
    return {
        "people": {"residents": {"ledger": f"{url}#residents", "limit": {"rho": LEDGERS["residents"]}}},
        "datasets": datasets,
        "access": f"{url}#access",
        "audit_log": f"{url}#log",
        "jobs": "jobs.db",
    }


class Office:
    """Two services on one store, and what is done at them in an order that only threads decide."""

    def __init__(self, services: list[RunningService], url: str) -> None:
        self.services, self.url = services, url
        self.answers: list[tuple[str, str, dict[str, Any]]] = []
        self.refusals: list[str] = []
        self.failed: list[BaseException] = []
        self.reloads: list[int] = []
        access = services[0].whole.tokens
        self.tokens = {name: access.create("test", name, days=9, dataset="*") for name in ANALYSTS}
        self.curator = access.create("test", "carl", days=9, dataset="*", role="curator")
        self.operator = access.create("test", "olga", days=9, dataset="*", role="operator")

    def request(self, number: int, method: str, path: str, token: str, body: Any = None) -> httpx.Response:
        return httpx.request(
            method, self.services[number].url + path, json=body, timeout=600,
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip

    def run(self, seed: int, asking: int) -> None:
        """Have everybody act at once, and wait for all."""
        acts = [partial(self.ask, random.Random(seed * 100 + number), asking) for number in range(5)]
        acts.append(partial(self.change_limits, random.Random(seed), asking))
        acts.append(partial(self.change_datasets, asking // 8))
        threads = [threading.Thread(target=self._guard, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for problem in self.failed:
            raise problem

    def _guard(self, act: Any) -> None:
        try:
            act()
        except BaseException as problem:
            self.failed.append(problem)

    def ask(self, chance: random.Random, most: int) -> None:
        """Ask questions of which many were asked before, by somebody, at one of the services."""
        for _ in range(most):
            who, dataset = chance.choice(ANALYSTS), chance.choice(("town", "village", "west"))
            where, rho = f"age > {chance.randrange(12)}", chance.choice(RHO)
            question = {"kind": "count", "where": where, "privacy": {"kind": "zcdp", "rho": rho}}
            path = f"/v1/datasets/{dataset}/query"
            answer = self.request(chance.randrange(2), "POST", path, self.tokens[who], question)
            if answer.status_code == 200:
                self.answers.append((dataset, who, answer.json()))
            else:
                code = answer.json()["error"]["code"]
                assert code in ("budget-exceeded", "unauthorized", "not-found"), answer.text
                assert code != "not-found" or dataset == "village"
                self.refusals.append(code)

    def change_limits(self, chance: random.Random, most: int) -> None:
        """Raise and lower limits, move people between groups, and replace tokens."""
        for number in range(most):
            kind = chance.choice(("analyst", "group"))
            name = chance.choice(ANALYSTS if kind == "analyst" else ("g0", "g1"))
            limit = {"kind": "zcdp", "rho": chance.choice((0.01, 0.05, 0.2, 0.9))}
            order: dict[str, Any] = {"action": "limit", "kind": kind, "name": name, "limit": limit}
            if chance.random() < 0.3:
                order["limit"] = None
            if chance.random() < 0.4:
                group = chance.choice(("g0", "g1", None))
                order = {"action": "group", "name": chance.choice(ANALYSTS), "group": group}
            dataset = chance.choice(("town", "west"))
            path = f"/v1/datasets/{dataset}/curator/allocations"
            done = self.request(chance.randrange(2), "POST", path, self.curator, order)
            assert done.status_code == 200, done.text
            if number % 10 == 5:
                who = chance.choice(ANALYSTS)
                self.tokens[who] = self.services[0].whole.tokens.rotate("test", who)

    def change_datasets(self, most: int) -> None:
        """Retire the village at the first service and bring it back, between configurations with errors."""
        first = self.services[0]
        path = first.folder / "config.yaml"
        first.whole.config_file = path

        def reload(**changed: Any) -> int:
            path.write_text(write_yaml({k: v for k, v in settings(**changed).items() if v is not None}))
            status = self.request(0, "POST", "/v1/reload", self.operator).status_code
            self.reloads.append(status)
            return status

        for _ in range(most):
            for village in (False, True):
                wrong = configuration(first.folder, self.url, village=village)
                wrong["datasets"]["west"] |= {"limit": {"rho": 9.0}}
                known = set(first.whole.datasets)
                assert reload(**wrong) == 422
                assert set(first.whole.datasets) == known
                assert reload(**configuration(first.folder, self.url, village=village)) == 200


def record(url: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a ledger in PostgreSQL as they stand."""
    import psycopg

    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT body FROM discreet_{name}.record ORDER BY seq".encode())
        return [json.loads(body) for (body,) in rows]


@pytest.mark.parametrize(
    ("changed", "scope"),
    [
        ({"type": "owner limit", "owner": "ana"}, "owner"),
        ({"type": "group limit", "group": "g"}, "group"),
        ({"type": "data set", "dataset": "town"}, "dataset"),
        ({"type": "open"}, "total"),
    ],
)
def test_the_evaluator_notices_a_limit_that_is_passed(changed: dict[str, Any], scope: str) -> None:
    promises = [{"kind": "gaussian-dp", "mu": 0.5}]
    charge = {"type": "charge", "owner": "ana", "dataset": "town", "question": "q", "promises": promises}
    rows = [{"type": "group", "owner": "ana", "group": "g"}, {"caps": {"amounts": {"rho": "0.1"}}} | changed]
    with pytest.raises(AssertionError, match=scope):
        Books([*rows, charge])
    assert Books([rows[0], charge]).charges.keys() == {2}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_at_two_services_no_limit_is_passed_and_every_answer_was_paid_for(
    tmp_path: Path, postgres_url: str, seed: int
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    said = [configuration(folder, postgres_url) for folder in (first, second)]
    with running(first, **said[0]) as one, running(second, one.tokens, **said[1]) as other:
        office = Office([one, other], postgres_url)
        office.run(seed, 40)
        books = {name: Books(record(postgres_url, name)) for name in LEDGERS}
        charged = {name: set(book.charges) for name, book in books.items()}
        named: dict[str, set[int]] = {name: set() for name in LEDGERS}
        for dataset, who, answer in office.answers:
            name = "west" if dataset == "west" else "residents"
            for receipt in answer["receipts"]:
                seq = int(receipt.rpartition("-")[2])
                row = books[name].charges[seq]
                assert (row["owner"], row.get("dataset", dataset)) == (who, dataset)
                named[name].add(seq)
        # What was charged was answered, apart from answers withheld because the token was replaced meanwhile.
        unanswered = sum(len(charged[name] - named[name]) for name in LEDGERS)
        assert unanswered <= office.refusals.count("unauthorized")
        for book in books.values():
            asked = [(row["owner"], row["question"]) for row in book.charges.values()]
            assert len(asked) == len(set(asked))
        logged: dict[str, set[int]] = {name: set() for name in LEDGERS}
        for dataset in ("town", "village", "west"):
            for line in other.whole.audit_log.last("answer", dataset, 10**6):
                logged["west" if dataset == "west" else "residents"] |= {row[1] for row in line["rows"]}
        assert all(named[name] <= logged[name] <= charged[name] for name in LEDGERS)
        for name, scope in (("residents", ("dataset", "town")), ("west", ("total", None))):
            ledger = other.whole.datasets[scope[1] or name].dataset.ledger
            ledger.check()
            assert float(ledger.spent().gaussian) == pytest.approx(float(books[name].spent[scope]))
        assert "budget-exceeded" in office.refusals
        assert set(office.reloads) == {200, 422}
        assert one.whole.audit_log.check().lines > 0
