"""Small tables for tests of the main job."""

from __future__ import annotations

from typing import Any

import numpy as np

from discreet import Column, Schema

SCHEMA = Schema(
    dataset="survey-2024",
    columns=[
        Column("age", type="integer", lower=17, upper=90, measure="years", bounds_source="the law"),
        Column("hours", lower=0, upper=100, required=False, measure="hours", bounds_source="a week"),
        Column("sex", values=("f", "m"), bounds_source="the form"),
        Column("city", values=("Basel", "Bern"), role="public", bounds_source="the form"),
    ],
)
"""Without a target, so that nothing is learned."""


def people(n: int = 60) -> dict[str, Any]:
    """Make up a table that fits the schema."""
    i = np.arange(n)
    return {
        "age": (17 + 7 * i % 73).astype(float),
        "hours": np.where(i % 9 == 0, np.nan, 13.0 * i % 100),
        "sex": np.array(["f", "m"])[i % 2],
        "city": np.array(["Basel", "Bern"])[i // 3 % 2],
    }
