"""A small made-up table of people for the tests of what a release is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet import Column, Schema
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet._types import AnyArray

PEOPLE = Schema(
    columns=[
        Column("age", type="integer", lower=17, upper=90, measure="years"),
        Column("pay", lower=0, upper=100, required=False),
        Column("sex", values=("f", "m"), closed=True),
        Column("owner", values=("no", "yes"), role="target"),
    ]
)


def people(n: int = 600, seed: int = 1) -> dict[str, AnyArray]:
    """Owners are older and better paid, with exceptions; one pay in ten is missing."""
    g = Stream.from_seed(seed).generator()
    age = g.integers(17, 91, n).astype(np.float64)
    pay = g.uniform(0, 100, n)
    owner = (age - 53 + 0.7 * (pay - 50) + g.normal(0, 10, n) > 0).astype(np.int32)
    pay[g.uniform(size=n) < 0.1] = np.nan
    return {"age": age, "pay": pay, "sex": g.integers(0, 2, n).astype(np.int32), "owner": owner}
