"""Published tables as frames, and as a line of text."""

from __future__ import annotations

import dataclasses
from datetime import date

import numpy as np

from discreet import Column, PureDP, Schema
from discreet.release import Release
from discreet.release.synthetic import SyntheticTable
from discreet.release.synthetic.columns import DrawnColumns, NarrowColumn


def test_a_release_becomes_a_frame_of_declared_types_and_has_a_short_text() -> None:
    schema = Schema(
        columns=[
            Column("n", type="integer", lower=0, upper=9),
            Column("day", lower=date(2024, 1, 1), upper=date(2024, 12, 31)),
            Column("kind", values=("a", "b"), closed=True),
        ]
    )
    made = Release(
        columns={"n": np.array([1.0, 9.0]), "day": np.array([0.0, 31.0]), "kind": np.array([1, 0])},
        schema=schema,
        promises=(PureDP(1.0),),
        receipt=None,  # type: ignore[arg-type]
        summary=(),
        commitment="",
    )
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    drawn = DrawnColumns({name: NarrowColumn(values) for name, values in made.columns.items()})
    typed = SyntheticTable(**fields | {"columns": drawn})
    frame = typed.to_pandas()
    assert frame["n"].tolist() == [1, 9]
    assert frame["day"].dt.strftime("%Y-%m-%d").tolist() == ["2024-01-01", "2024-02-01"]
    assert frame["kind"].tolist() == ["b", "a"]
    assert typed.to_polars().rows() == [(1, date(2024, 1, 1), "b"), (9, date(2024, 2, 1), "a")]
    # Noised numbers stay numbers: rounding them would change their law.
    assert made.to_pandas()["n"].dtype == np.float64
    assert repr(made) == "<Release: 2 rows, 3 columns; epsilon = 1 (replace-one, person)>"
