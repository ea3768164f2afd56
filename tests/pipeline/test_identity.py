"""A table is known again by its rows, and other people's table is not taken for it."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import Column, Schema
from discreet.noise import Stream
from discreet.pipeline.table_registry import is_same_table
from discreet.tables import fingerprint as module
from discreet.tables.fingerprint import fingerprint_table

if TYPE_CHECKING:
    from pathlib import Path

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("pay", lower=0, upper=100, required=False),
        Column("born", type="date", lower=date(1930, 1, 1), upper=date(2010, 1, 1)),
        Column("sex", values=("f", "m")),
    ]
)


def people(n: int, seed: int) -> dict[str, Any]:
    """Rows of people, as text where a file would have text."""
    g = Stream.from_seed(seed).generator()
    pay = g.uniform(0, 100, n).round(3)
    pay[g.uniform(size=n) < 0.1] = np.nan
    return {
        "age": g.integers(17, 91, n),
        "pay": pay,
        "born": np.datetime64("1930-01-01") + g.integers(0, 29_000, n),
        "sex": np.where(g.uniform(size=n) < 0.5, "f", "m").astype(object),
    }


def taken(rows: dict[str, Any], order: Any) -> dict[str, Any]:
    """Take some rows."""
    return {name: values[order] for name, values in rows.items()}


def write(rows: dict[str, Any], path: Path) -> Path:
    """Write rows to a CSV or Parquet file."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False, date_format="%Y-%m-%d")
    else:
        frame.assign(born=frame["born"].dt.date).to_parquet(path)
    return path


@pytest.mark.parametrize("n", [3, 40, 3000])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_rows_in_any_form_are_the_same_table(tmp_path: Path, n: int, seed: int) -> None:
    rows = people(n, seed)
    first = fingerprint_table(write(rows, tmp_path / "t.csv"), SCHEMA, KEY)
    assert len(first) == min(n, module.ROWS)
    g = Stream.from_seed(seed).generator()
    sorted_rows = taken(rows, g.permutation(n))
    forms = {
        "sorted": fingerprint_table(write(sorted_rows, tmp_path / "sorted.csv"), SCHEMA, KEY),
        "parquet": fingerprint_table(write(sorted_rows, tmp_path / "t.parquet"), SCHEMA, KEY),
        "memory": fingerprint_table(rows, SCHEMA, KEY),
    }
    names = {"age": "years", "pay": "income", "born": "birthday", "sex": "gender"}
    renamed = Schema(
        columns=[
            Column("gender", values=("m", "f", "x")),
            Column("birthday", type="date", lower=date(1900, 1, 1), upper=date(2020, 1, 1)),
            Column("years", lower=0, upper=120),
            Column("income", lower=-10, upper=1000, required=False),
        ]
    )
    forms["renamed"] = fingerprint_table({names[name]: rows[name] for name in reversed(rows)}, renamed, KEY)
    for form, found in forms.items():
        assert found == first, form
    longer = {name: np.concatenate([rows[name], people(5, 99)[name]]) for name in rows}
    assert is_same_table(first, fingerprint_table(longer, SCHEMA, KEY))
    assert is_same_table(first, fingerprint_table(taken(rows, slice(max(1, n // 20), None)), SCHEMA, KEY))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [60, 1000])
def test_other_people_are_another_table(n: int, seed: int) -> None:
    assert not is_same_table(
        fingerprint_table(people(n, seed), SCHEMA, KEY), fingerprint_table(people(n, seed + 100), SCHEMA, KEY)
    )
    # Few columns: nearly every row of one table occurs in the other.
    few = Schema(
        columns=[Column("age", type="integer", lower=17, upper=90), Column("sex", values=("f", "m"))]
    )
    assert not is_same_table(
        fingerprint_table(people(n, seed), few, KEY), fingerprint_table(people(n, seed + 100), few, KEY)
    )


def test_without_counts_other_people_would_be_taken_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Schema(
        columns=[Column("age", type="integer", lower=17, upper=90), Column("sex", values=("f", "m"))]
    )
    unique = np.unique

    def uncounted(values: Any, **how: Any) -> Any:
        found = unique(values, **how)
        return (found[0], np.zeros_like(found[1])) if how.get("return_counts") else found

    monkeypatch.setattr(np, "unique", uncounted)
    assert is_same_table(
        fingerprint_table(people(1000, 1), few, KEY), fingerprint_table(people(1000, 2), few, KEY)
    )


def test_another_key_gives_digests_that_have_nothing_in_common() -> None:
    rows = people(500, 1)
    assert not set(fingerprint_table(rows, SCHEMA, KEY)) & set(fingerprint_table(rows, SCHEMA, OTHER_KEY))


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that occurs in many batches is counted over all of them."""
    rows = people(300, 3)
    many = taken(rows, Stream.from_seed(1).generator().integers(0, 300, 150_000))
    whole = fingerprint_table(many, SCHEMA, KEY)
    assert fingerprint_table(taken(many, np.argsort(many["age"], kind="stable")), SCHEMA, KEY) == whole


def test_codes_are_the_same_as_numbers_and_as_a_list() -> None:
    rows = {"code": np.arange(200) % 7, "x": np.linspace(0, 1, 200)}
    x = Column("x", lower=0, upper=1)
    listed = fingerprint_table(rows, Schema(columns=[Column("code", values=tuple(range(7))), x]), KEY)
    assert listed == fingerprint_table(rows, Schema(columns=[Column("code", lower=0, upper=9), x]), KEY)


def test_a_table_that_cannot_be_read_has_no_fingerprint(tmp_path: Path) -> None:
    assert fingerprint_table(tmp_path / "nowhere.csv", SCHEMA, KEY) == ()
    assert not is_same_table((), ())
