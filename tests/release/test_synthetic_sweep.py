"""Random small tables of every kind of column: no errors but the product's own, every cell as declared."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pytest

from discreet import ApproxDP, Column, Database, GaussianDP, Ledger, PureDP, Schema
from discreet.errors import DiscreetError
from discreet.noise import Stream
from discreet.release.synthetic import SyntheticRelease, regenerate
from tests.release.synthetic_tables import plain_rows, plain_schema
from tests.release.test_synthetic import check_table

FIRST = datetime.date(2000, 1, 1)


class Draws:
    """Random choices of declarations and cells, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = Stream.from_seed(seed).generator()
        self.n = self.pick(20, 49, 50, 80, 300, 1000)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def whole(self, low: int, high: int, size: int | None = None) -> Any:
        found = self.random.integers(low, high, size)
        return int(found) if size is None else found

    def column(self, name: str) -> tuple[Column, Any]:
        """Return a declaration and cells, some of which it does not allow for."""
        kinds = (
            self.number,
            self.integer,
            self.grid,
            self.day,
            self.flag,
            self.words,
            self.codes,
            self.constant,
        )
        required = self.pick(True, False)
        column, values = self.pick(*kinds)(name, required)
        if not required:
            gone = self.random.random(self.n) < self.pick(0.0, 0.3, 1.0)
            empty = np.datetime64("NaT") if column.type == "date" else None if column.is_category else np.nan
            values[gone] = empty
        return column, values

    def number(self, name: str, required: bool) -> tuple[Column, Any]:
        upper = 10.0 ** self.whole(-4, 7)
        lower = self.pick(0.0, -upper, upper / 3)
        scale: Any = self.pick(None, "log") if lower > 0 else None
        values = self.random.uniform(lower - upper / 10, upper * 1.1, self.n)
        values[self.random.random(self.n) < self.pick(0.0, 0.6)] = lower
        return Column(name, lower=lower, upper=upper, scale=scale, required=required), values

    def integer(self, name: str, required: bool) -> tuple[Column, Any]:
        upper = 10 ** self.whole(0, 7)
        lower = self.pick(0, -upper)
        cells = self.pick(None, (upper,))
        column = Column(name, type="integer", lower=lower, upper=upper, cells=cells, required=required)
        return column, self.whole(lower, upper + 1, self.n).astype(float)

    def grid(self, name: str, required: bool) -> tuple[Column, Any]:
        steps, grid = self.whole(1, 400), self.pick(0.1, 0.5, 2.5, 1e-3)
        column = Column(name, lower=-3, upper=-3 + steps * grid, grid=grid, required=required)
        return column, -3 + self.whole(0, steps + 1, self.n) * grid

    def day(self, name: str, required: bool) -> tuple[Column, Any]:
        days = self.whole(1, 5000)
        last = FIRST + datetime.timedelta(days=days)
        scale: Any = "log" if days > 1000 else None
        column = Column(name, lower=FIRST, upper=last, scale=scale, required=required)
        return column, np.datetime64(FIRST) + self.whole(0, days + 1, self.n)

    def flag(self, name: str, required: bool) -> tuple[Column, Any]:
        share = self.pick(0.0, 0.1, 0.5)
        return Column(name, values=(False, True), required=required), (
            self.random.random(self.n) < share
        ).astype(object)

    def words(self, name: str, required: bool) -> tuple[Column, Any]:
        levels = self.whole(2, 200)
        names = tuple(f"v{j}" for j in range(levels))
        places = self.whole(0, levels + 1, self.n) * self.whole(0, levels + 1, self.n) // levels
        return Column(name, values=names, required=required), np.array([*names, "more", "most"], object)[
            places
        ]

    def codes(self, name: str, required: bool) -> tuple[Column, Any]:
        levels = self.whole(2, 20)
        column = Column(name, values=tuple(range(-3, levels - 3)), required=required)
        return column, self.whole(-3, levels - 3, self.n).astype(object)

    def constant(self, name: str, required: bool) -> tuple[Column, Any]:
        return Column(name, lower=0, upper=1, required=required), np.full(self.n, 0.5)


def release_one(seed: int) -> str:
    """Make, check and repeat one table, and draw some of its rows again; return what came of it."""
    draws = Draws(seed)
    made = [draws.column(f"c{i}") for i in range(draws.whole(1, 7))]
    columns = [column for column, _ in made]
    columns.append(Column("note", role="drop"))
    rows = {column.name: values for column, values in made} | {"note": np.full(draws.n, "text", object)}
    more: dict[str, Any] = draws.pick({}, {}, {"neighbors": "add-remove", "row_count": "private"})
    schema = Schema(columns=columns, target=draws.pick(None, columns[0].name), **more)
    common: dict[str, Any] = {"neighbors": schema.neighbors}
    promise = draws.pick(
        GaussianDP(mu=0.01, **common), GaussianDP(mu=0.5, **common), GaussianDP(mu=30, **common),
        PureDP(epsilon=5, **common), ApproxDP(epsilon=1, delta=1e-6, **common),
    )  # fmt: skip
    method = SyntheticRelease(
        promise, schema=schema, anyway=draws.pick(True, False), n_records=draws.pick(None, 1, 400),
        random_state=seed,
    )  # fmt: skip
    try:
        table = method.release(rows)
    except DiscreetError as problem:
        return type(problem).__name__
    check_table(table, method.n_records or (len(table.columns["c0"]) if more else draws.n))
    again = regenerate(method, json.loads(json.dumps(method.tables_, allow_nan=False)))
    assert all(again.columns[c].tobytes() == table.columns[c].tobytes() for c in table.columns)
    json.dumps([method.model_, method.plan_.to_dict()], allow_nan=False)
    column = draws.pick(*columns[:-1])
    try:
        some = method.generate(
            20, where={column.name: column.levels[0] if column.is_category else column.lower}
        )
    except DiscreetError as problem:
        return f"where: {type(problem).__name__}"
    assert len(some[column.name]) == 20
    return "made"


@pytest.mark.slow
def test_random_tables_do_not_break_it() -> None:
    found = [release_one(seed) for seed in range(20)]
    assert found.count("made") >= 5


@pytest.mark.slow
def test_two_hundred_random_tables_do_not_break_it() -> None:
    found = [release_one(seed) for seed in range(100, 300)]
    assert set(found) <= {"made", "DataError", "ParameterError", "where: ParameterError"}
    assert found.count("made") >= 80


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.1, 10.0])
def test_a_column_of_ten_thousand_levels_and_sixty_columns_do_not_break_it(mu: float) -> None:
    levels = tuple(f"v{i}" for i in range(10_000))
    rows = {**plain_rows(3000, 60), "v": np.array(levels, object)[np.arange(3000) ** 2 % 10_000]}
    columns = [*plain_schema(60).columns, Column("v", values=levels, required=False)]
    method = SyntheticRelease(
        GaussianDP(mu=mu), schema=Schema(columns=columns, target="c59"), anyway=True, random_state=1
    )
    check_table(method.release(rows), 3000)


def test_answers_before_an_interruption_are_kept_and_free(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=2))
    schema, rows = plain_schema(5), plain_rows(2000, 5)

    def release() -> SyntheticRelease:
        method = SyntheticRelease(GaussianDP(mu=2), schema=schema, ledger=ledger)
        method.release(rows)
        return method

    asked: list[Any] = []
    ask = Database.ask

    def interrupted(self: Database, question: Any, **more: Any) -> Any:
        asked.append(question)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return ask(self, question, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            release()
    paid = [entry.receipt.id for entry in ledger.entries()]
    assert len(paid) == 3
    method = release()
    assert [receipt.id for receipt in method.receipts_[:3]] == paid
    assert len(ledger.entries()) == len(method.plan_.shares) == 5
