"""Plans of small releases, made-up populations, and mechanisms that do not do what their plan says."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import numpy as np

from discreet.noise import Stream, standard_normal, uniform_integers
from discreet.privacy import ErrorFloor
from discreet.release import GaussianRelease, ReleasePlan
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray

    Draw = Callable[[ReleasePlan, Mapping[str, AnyArray], Stream], dict[str, AnyArray]]

AGE = Column("age", type="integer", lower=17, upper=90, measure="years")
WEIGHT = Column("weight", lower=30, upper=230, measure="kg")
JOB = Column("job", values=("clerk", "nurse", "smith", "tailor"), closed=True)
SMOKES = Column("smokes", values=(0, 1))
ENTRY = Column(
    "entry", lower=datetime.date(2001, 1, 1), upper=datetime.date(2003, 1, 1), required=False, measure="days"
)
SCHEMA = Schema(columns=[AGE, WEIGHT, JOB, SMOKES])


def gaussian(schema: Schema = SCHEMA, **errors: float) -> ReleasePlan:
    """A Gaussian release with floors."""
    return GaussianRelease(privacy=ErrorFloor(errors or {"age": 9.0}), schema=schema).plan(schema, 1_000)


def people(n: int, seed: int = 1) -> dict[str, AnyArray]:
    """Rows of :data:`SCHEMA` in which the columns go together."""
    z = standard_normal((n, 3), Stream.from_seed(seed))
    age = np.clip(np.rint(45 + 14 * z[:, 0]), 17, 90)
    weight = np.clip(75 + 12 * z[:, 1] + 8 * z[:, 0], 30, 230)
    job = np.clip(np.floor(2 + z[:, 0] + 0.7 * z[:, 2]), 0, 3).astype(np.int64)
    smokes = (z[:, 1] + 0.5 * z[:, 2] > 0.8).astype(np.int64)
    return {"age": age, "weight": weight, "job": job, "smokes": smokes}


def coin_flips(n: int, seed: int) -> AnyArray:
    """Fair coins."""
    return uniform_integers(2, n, Stream.from_seed(seed))


class Twin(ReleasePlan):
    """A plan whose mechanism is another one."""

    def __init__(self, plan: ReleasePlan, draw: Draw) -> None:
        self.plan = plan
        self.schema, self.columns, self.promises = plan.schema, plan.columns, plan.promises
        self._draw = draw

    def draw(self, rows: Mapping[str, AnyArray], stream: Stream) -> dict[str, AnyArray]:
        return self._draw(self.plan, rows, stream)
