"""Published tables as frames, and as a line of text."""

from __future__ import annotations

import dataclasses
from datetime import date

import numpy as np
import pytest

from discreet import Column, ErrorFloor, GaussianRelease, PureDP, Schema
from discreet.errors import ParameterError
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


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_release_of_a_frame_is_a_frame_of_the_same_library(library: str) -> None:
    frames = pytest.importorskip(library)
    columns = [Column("age", type="integer", lower=0, upper=99), Column("job", values=("a", "b"))]
    method = GaussianRelease(privacy=ErrorFloor(age=9), schema=Schema(columns=columns), random_state=1)
    rows = {"age": [20, 40, 60, 80] * 10, "job": ["a", "b"] * 20}
    released = method.release(frames.DataFrame(rows))
    assert isinstance(released.frame, frames.DataFrame)
    assert list(released.frame.columns) == ["age", "job"]
    assert set(released.frame["job"]) <= {"a", "b", "other"}
    with pytest.raises(ParameterError, match="to_pandas"):
        method.release(rows).frame  # noqa: B018
