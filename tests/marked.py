"""A table whose cells cannot be mistaken for anything else: long ids, numbers of many digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet import Column, Schema
from discreet.noise import Stream

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray

SCHEMA = Schema(
    dataset="marked",
    id_column="person",
    max_rows_per_unit=1,
    columns=[
        Column("person", role="id"),
        Column("income", lower=0, upper=200_000, measure="EUR"),
        Column("points", type="integer", lower=0, upper=1_000_000),
        Column("sex", values=("f", "m")),
        Column("owner", values=("no", "yes")),
    ],
    target="owner",
)


def marked_people(n: int, seed: int = 1) -> dict[str, AnyArray]:
    """Make up a table that fits the schema."""
    stream = Stream.from_seed(seed)
    income = (stream.words(n) >> np.uint64(11)) * 2.0**-53 * 200_000
    return {
        "person": np.array([f"P{word:016x}" for word in stream.words(n).tolist()]),
        "income": income,
        "points": (stream.words(n) % np.uint64(1_000_001)).astype(np.int64),
        "sex": np.array(["f", "m"])[(stream.words(n) & np.uint64(1)).astype(int)],
        "owner": np.where(income > 100_000, "yes", "no"),
    }


def write_people(folder: Path, people: dict[str, AnyArray]) -> Path:
    """Write a table as CSV, with its schema beside it."""
    lines = [",".join(people), *(",".join(map(str, row)) for row in zip(*people.values(), strict=True))]
    path = folder / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    (folder / "people.schema.yaml").write_text(SCHEMA.to_yaml())
    return path
