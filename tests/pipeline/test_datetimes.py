"""A table with times of day, from file to a release that is verified and loaded again."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from discreet import ApproxDP, Column, PureDP, Schema, load_release
from discreet.noise import Stream
from discreet.pipeline import publish
from discreet.pipeline.options import RunOptions
from discreet.report.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

FIRST, LAST = datetime.datetime(2024, 1, 1, 6), datetime.datetime(2024, 12, 31, 6)
SCHEMA = Schema(
    columns=[
        Column("came", lower=FIRST, upper=LAST, step="hour"),
        Column("opened", lower=FIRST, upper=LAST, role="public"),
        Column("age", lower=0, upper=100, role="target"),
    ]
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "privacy"),
    [("synthetic", ApproxDP(2.0, 1e-6)), ("gaussian", ApproxDP(8.0, 1e-6)), ("coarse", PureDP(4.0))],
)
def test_datetimes_leave_as_datetimes_and_are_verified(tmp_path: Path, method: str, privacy: Any) -> None:
    draws = Stream.from_seed(1).generator()
    came = np.datetime64(FIRST) + draws.integers(0, 525_600, 2000) * np.timedelta64(1, "m")
    rows = {"came": came, "opened": came, "age": draws.uniform(0, 100, 2000)}
    run = RunOptions(attack_records=1000, accept_risk="a test")
    out = tmp_path / "out"
    publish(rows, out=out, schema=SCHEMA, method=method, privacy=privacy, ledger=False, run=run)
    public = out / "public"
    result = verify(public)
    assert result.ok, result
    with duckdb.connect() as connection:
        described = connection.execute(f"DESCRIBE FROM '{public}/data.parquet'").fetchall()
    types = {name: kind for name, kind, *_ in described}
    assert types["opened"] == "TIMESTAMP"
    assert types["came"] == {"synthetic": "TIMESTAMP", "gaussian": "DOUBLE", "coarse": "VARCHAR"}[method]
    lines = (public / "readable.csv").read_text().splitlines()[1:]
    if method != "coarse":
        seen = [datetime.datetime.fromisoformat(line.split(",")[0]) for line in lines]
        assert all(FIRST <= moment <= LAST and moment.minute == 0 for moment in seen)
    release = load_release(public)
    # The mean of what was read, in hours since the lower bound.
    true = float(SCHEMA.column("came").count_steps(came).mean())
    if method != "coarse":
        (cell,) = release.mean("came").cells
        assert cell.value is not None
        assert abs(cell.value - true) < 4 * (cell.upper - cell.lower)
