"""What is left of a floor after many charges, against somebody who combines everything that was released."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import BudgetExceeded, PromiseError
from discreet.ledger import Caps, Ledger
from discreet.noise_law import BoundedLaw, GaussianLaw, LaplaceLaw
from discreet.privacy import (
    ApproxDP,
    ColumnFloor,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    Promise,
    PureDP,
    Spending,
    promise_from_dict,
)
from discreet.release import BoundedRelease, CoarseRelease, GaussianRelease, InvariantRelease, LaplaceRelease
from discreet.schema import Column, Schema
from tests.draws import Draws

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Of noise, relative to the range."""
WIDTH = {"a": 1.0, "n": 20.0}
COLUMNS = {
    "a": {"lower": 0.0, "upper": 1.0},
    "n": {"type": "integer", "lower": 0, "upper": 20},
    "s": {"values": ("x", "y")},
}
Event = tuple[str, float]
"""What a charge does to a column: a law and its size, "clear" or "nothing"."""


@cache
def release(
    method: str, size: float, a: str, n: str
) -> tuple[tuple[Promise, ...], tuple[tuple[str, Event], ...]]:
    """Return the promises of a release, and what it does to each number."""
    roles = {"a": a, "n": n, "s": "sensitive"}
    schema = Schema(columns=[Column(name, role=role, **COLUMNS[name]) for name, role in roles.items()])  # type: ignore[arg-type]
    scale = {name: size * WIDTH[name] for name in ("a", "n") if roles[name] == "sensitive"}
    if not scale or method == "in-range":
        plan: Any = BoundedRelease(privacy=PureDP(epsilon=2 / size), in_range=True, schema=schema).plan(
            schema, 9
        )
    elif method == "gaussian":
        plan = GaussianRelease(scale=scale, schema=schema).plan(schema, 9)
    elif method == "laplace":
        plan = LaplaceRelease(scale=scale, schema=schema).plan(schema, 9)
    else:
        plan = BoundedRelease(support={k: 2 * v for k, v in scale.items()}, schema=schema).plan(schema, 9)
    events: dict[str, Event] = {"a": ("nothing", 0.0), "n": ("nothing", 0.0)}
    for done in plan.columns:
        if done.column not in events:
            continue
        match done.law:
            case GaussianLaw():
                events[done.column] = ("gaussian", done.law.sd)
            case LaplaceLaw():
                events[done.column] = ("laplace", done.law.scale)
            case BoundedLaw():
                events[done.column] = ("bounded", done.law.upper)
            case _:
                events[done.column] = ("clear", 0.0)
    return tuple(plan.promises), tuple(events.items())


def random_charge(draws: Draws, methods: tuple[str, ...]) -> tuple[tuple[Promise, ...], dict[str, Event]]:
    """Return the promises of something that is charged, and what it does to each number."""
    if draws.random() < 0.1:
        other = draws.choice([PureDP(epsilon=1), ApproxDP(epsilon=1, delta=1e-6), GaussianDP(mu=0.1)])
        promise: Promise = draws.choice([other, NoPromise("published as it is"), ErrorFloor(s=0.3)])
        return (promise,), {"a": ("clear", 0.0), "n": ("clear", 0.0)}
    roles = ("sensitive", "sensitive", "sensitive", "sensitive", "drop", "public")
    promises, events = release(
        draws.choice(methods), draws.choice(SIZES), draws.choice(roles), draws.choice(roles)
    )
    return promises, dict(events)


def combined_error(name: str, events: list[Event], *, whole: bool) -> float:
    """Root-mean-square error of the best guess from all releases of one column together.

    Under the cosine-squared prior on the range, or uniform on the integers. At most one release is not
    Gaussian; those that are have a sufficient average.
    """
    if any(law == "clear" for law, _ in events):
        return 0.0
    width = WIDTH[name]
    x = np.arange(21.0) if whole else width * (np.arange(161) + 0.5) / 161
    prior = np.ones(x.size) if whole else np.cos(math.pi * (x / width - 0.5)) ** 2
    prior /= prior.sum()
    precision = sum(size**-2 for law, size in events if law == "gaussian")
    rest = [event for event in events if event[0] in ("laplace", "bounded")]
    assert len(rest) <= 1
    tables = []
    if precision:
        sd = precision**-0.5
        y = np.linspace(-6 * sd, width + 6 * sd, 161 + 12 * (round(width / sd) if whole else 0))
        tables.append(np.exp(-0.5 * ((y - x[:, None]) / sd) ** 2))
    for law, size in rest:
        reach = 14 * size if law == "laplace" else size
        y = np.linspace(-reach, width + reach, 241)
        noise = y - x[:, None]
        inside = np.abs(noise) < size
        tables.append(
            np.exp(-np.abs(noise) / size)
            if law == "laplace"
            else np.where(inside, np.cos(0.5 * math.pi * noise / size) ** 2, 0.0)
        )
    joint = prior[:, None]
    for table in tables:
        table = table / np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
        joint = (joint[:, :, None] * table[:, None, :]).reshape(x.size, -1)
    mass = np.maximum(joint.sum(axis=0), 1e-300)
    return math.sqrt(float(np.sum(joint * (x[:, None] - (x @ joint) / mass) ** 2)))


def sequence(draws: Draws) -> list[tuple[tuple[Promise, ...], dict[str, Event]]]:
    """Return a few charges, at most one of them with noise that is not Gaussian."""
    charges = [random_charge(draws, ("gaussian",)) for _ in range(draws.whole(1, 5))]
    if draws.random() < 0.5:
        charges.insert(draws.whole(0, len(charges)), random_charge(draws, ("laplace", "bounded", "in-range")))
    return charges


def test_what_a_limit_guarantees_is_beaten_by_nobody() -> None:
    draws = Draws("floor limits")
    refused = kept = 0
    for _ in range(150):
        promises, _ = release("gaussian", draws.choice(SIZES[1:3]), "sensitive", "sensitive")
        floors = next(p for p in promises if isinstance(p, ErrorFloor)).columns
        limit = ErrorFloor({name: floors[name] for name in draws.choice([("a",), ("n",), ("a", "n")])})
        caps, books = Caps.from_limit(limit), Spending()
        admitted: dict[str, list[Event]] = {"a": [], "n": []}
        for asked, events in sequence(draws):
            try:
                books = caps.admit(books, Spending.from_promises(asked), scope="total")
            except (PromiseError, BudgetExceeded):
                refused += 1
                continue
            kept += 1
            for name, event in events.items():
                admitted[name].append(event)
        guarantee = caps.guarantee(books)
        assert isinstance(guarantee, ErrorFloor)
        assert set(guarantee.columns) == set(limit.columns)
        for name, floor in guarantee.columns.items():
            assert all(law != "clear" for law, _ in admitted[name])
            assert floor.error <= combined_error(name, admitted[name], whole=name == "n") * (1 + 2e-3)
    assert min(refused, kept) > 100


@pytest.mark.slow
def test_what_floors_are_left_without_a_limit_is_beaten_by_nobody() -> None:
    draws = Draws("floors without a limit")
    claimed = fooled = 0
    for _ in range(150):
        charges = sequence(draws)
        books = sum((Spending.from_promises(promises) for promises, _ in charges), Spending())
        for name, floor in books.floors().items():
            claimed += 1
            assert floor <= combined_error(name, [events[name] for _, events in charges], whole=False) * 1.002
        # The twin lets a floor stand that some charge says nothing about.
        twin = Spending(charges=1)
        for promises, _ in charges:
            twin = twin._merge(Spending.from_promises(promises))
        fooled += sum(
            floor > combined_error(name, [events[name] for _, events in charges], whole=False) * 1.002
            for name, floor in twin.floors().items()
        )
    assert claimed > 30
    assert fooled > 30


@pytest.mark.parametrize(
    "what",
    [
        (PureDP(epsilon=1),),
        (GaussianDP(mu=0.1),),
        (NoPromise("published as it is"),),
        (ErrorFloor(other=1),),
        (PureDP(epsilon=1), ErrorFloor(other=ColumnFloor(error=1, fisher_information=0.1))),
    ],
)
def test_a_charge_that_says_nothing_about_a_limited_column_is_refused(
    what: tuple[Promise, ...], tmp_path: Path
) -> None:
    limit = ErrorFloor(age=ColumnFloor(error=5, fisher_information=0.03))
    ledger = Ledger.open(tmp_path / "ledger.db", limit=limit)
    with pytest.raises(PromiseError, match="must include an ErrorFloor for 'age'"):
        ledger.charge(list(what))
    assert ledger.spent().charges == 0
    assert ledger.guarantee() == limit


def test_releases_that_give_a_limited_column_away_are_refused(tmp_path: Path) -> None:
    rows = {"n": np.arange(21.0), "a": np.linspace(0, 1, 21)}

    def table(role: str) -> Schema:
        return Schema(columns=[Column("n", role=role, **COLUMNS["n"]), Column("a", **COLUMNS["a"])])  # type: ignore[arg-type]

    plan = GaussianRelease(privacy=ErrorFloor(n=3), schema=table("sensitive")).plan(table("sensitive"), 21)
    floors = next(p for p in plan.promises if isinstance(p, ErrorFloor))
    ledger = Ledger.open(tmp_path / "ledger.db", limit=ErrorFloor(n=floors["n"]))
    common: dict[str, Any] = {"ledger": ledger, "random_state": 1}
    absent, uncounted = "must include an ErrorFloor for 'n'", "fisher_information of the floor for 'n'"
    hostile: list[tuple[Any, str]] = [
        (GaussianRelease(scale={"n": 0.05, "a": 1}, schema=table("sensitive"), **common), absent),
        (GaussianRelease(scale={"a": 1}, schema=table("public"), **common), absent),
        (InvariantRelease(learner="gram", schema=table("sensitive"), **common), absent),
        (LaplaceRelease(scale={"n": 9, "a": 1}, schema=table("sensitive"), **common), uncounted),
        (BoundedRelease(support={"n": 9, "a": 1}, schema=table("sensitive"), **common), uncounted),
        (
            BoundedRelease(privacy=PureDP(epsilon=1), in_range=True, schema=table("sensitive"), **common),
            uncounted,
        ),
        (CoarseRelease(privacy=PureDP(epsilon=1), schema=table("sensitive"), **common), uncounted),
    ]
    for method, message in hostile:
        with pytest.raises(PromiseError, match=message):
            method.release(rows)
    assert ledger.spent().charges == 0
    # What is left out tells nothing, and what fits is counted.
    GaussianRelease(scale={"a": 1}, schema=table("drop"), **common).release(rows)
    GaussianRelease(privacy=ErrorFloor(n=3), schema=table("sensitive"), **common).release(rows)
    with pytest.raises(BudgetExceeded, match="Fisher information of n"):
        GaussianRelease(privacy=ErrorFloor(n=3), schema=table("sensitive"), **common).release(rows)
    assert ledger.guarantee() == ErrorFloor(n=floors["n"])
    ledger.check()


def test_a_public_column_loses_its_floor_for_good(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    rows = {"n": np.arange(21.0), "a": np.linspace(0, 1, 21)}
    for role in ("sensitive", "public", "sensitive"):
        schema = Schema(columns=[Column("n", lower=0, upper=20, role=role), Column("a", lower=0, upper=1)])
        scale = {"n": 5.0, "a": 0.3} if role == "sensitive" else {"a": 0.3}
        GaussianRelease(scale=scale, schema=schema, ledger=ledger, random_state=1).release(rows)
        assert ("n" in ledger.spent().floors()) == (ledger.spent().charges == 1)
        assert "a" in ledger.spent().floors()


def test_a_limit_from_laplace_noise_is_guaranteed_as_gaussian_noise_keeps_it() -> None:
    schema = Schema(columns=[Column("a", lower=0, upper=1)])

    def stated(method: Any) -> ErrorFloor:
        return next(
            p for p in method(scale=0.05, schema=schema).plan(schema, 9).promises if isinstance(p, ErrorFloor)
        )

    limit = stated(LaplaceRelease)
    caps = Caps.from_limit(limit)
    books = caps.admit(Spending(), Spending.from_promises(stated(GaussianRelease)), scope="total")
    guarantee = caps.guarantee(books)
    assert isinstance(guarantee, ErrorFloor)
    true = combined_error("a", [("gaussian", 0.05)], whole=False)
    assert guarantee["a"].error <= true < limit["a"].error  # the limit as it was asked for is not kept
    assert guarantee["a"].prior == "cosine squared"


def test_an_integer_under_a_continuous_limit_is_refused() -> None:
    promises, _ = release("gaussian", 0.1, "sensitive", "sensitive")
    floors = next(p for p in promises if isinstance(p, ErrorFloor)).columns
    caps = Caps.from_limit(ErrorFloor(x=floors["a"]))
    with pytest.raises(PromiseError, match="van_trees of the floor for 'x'"):
        caps.admit(Spending(), Spending.from_promises(ErrorFloor(x=floors["n"])), scope="total")


def test_unpublished_columns_are_written_and_read() -> None:
    promise = ErrorFloor(age=9, unpublished=("zip", "name"))
    assert promise_from_dict(promise.to_dict()) == promise
    assert "unpublished" not in ErrorFloor(age=9).to_dict()
    assert "name, zip: not published." in promise.sentence()
    books = Spending.from_promises(promise)
    assert Spending.from_dict(books.to_dict()) == books
    with pytest.raises(ValueError, match="columns without a floor"):
        ErrorFloor(age=9, unpublished=("age",))
    with pytest.raises(ValueError, match="unpublished of ErrorFloor must be a tuple"):
        ErrorFloor(unpublished=9)  # type: ignore[arg-type]
