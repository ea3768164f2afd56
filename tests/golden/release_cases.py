"""Tables that every release method publishes under fixed seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import (
    ApproxDP,
    BoundedRelease,
    CoarseRelease,
    Column,
    ErrorFloor,
    GaussianDP,
    GaussianRelease,
    InputPerturbation,
    InvariantRelease,
    LaplaceRelease,
    MaskedRelease,
    PureDP,
    Schema,
)
from discreet.release import METHODS, method_from_dict
from tests.golden.digests import of_array, of_json, rounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.release import ReleaseMethod

SCHEMA = Schema(
    dataset="golden",
    columns=[
        Column("age", type="integer", lower=0, upper=120, measure="years"),
        Column("income", lower=0, upper=2e5, measure="EUR", required=False),
        Column("job", values=("clerk", "nurse", "pilot"), required=False),
        Column("region", values=("north", "south"), role="public", closed=True),
        Column("owner", values=(0, 1)),
    ],
    target="owner",
)
NUMBERS = Schema(columns=[Column("x", lower=-1, upper=3), Column("y", lower=0, upper=10)])


def rows(n: int = 100) -> dict[str, Any]:
    """Return rows without chance, with missing and unlisted cells."""
    i = np.arange(n)
    return {
        "age": i * 37 % 101,
        "income": np.where(i % 4 == 1, np.nan, i * 7919 % 200_000.0),
        "job": np.array(["nurse", None, "astronaut", "clerk"], dtype=object)[i % 4],
        "region": np.array(["north", "south"], dtype=object)[i % 2],
        "owner": (i * 37 % 101 > 50).astype(int),
    }


def numbers(n: int = 80) -> dict[str, Any]:
    """Return rows of two numbers."""
    i = np.arange(n)
    return {"x": 1 + 2 * np.sin(i), "y": 5 + 5 * np.cos(3.0 * i)}


MIXED: dict[str, Callable[[], ReleaseMethod]] = {
    "bounded": lambda: BoundedRelease(
        privacy=PureDP(epsilon=4), in_range=True, schema=SCHEMA, random_state=5
    ),
    "bounded additive": lambda: BoundedRelease(
        support={"age": 200.0, "income": 3e5}, schema=SCHEMA, random_state=5
    ),
    "coarse": lambda: CoarseRelease(privacy=PureDP(epsilon=4), schema=SCHEMA, random_state=5),
    "gaussian": lambda: GaussianRelease(
        privacy=ApproxDP(epsilon=4, delta=1e-6), schema=SCHEMA, random_state=5
    ),
    "gaussian floor": lambda: GaussianRelease(privacy=ErrorFloor(age=9.0), schema=SCHEMA, random_state=5),
    "input-perturbation": lambda: InputPerturbation(privacy=PureDP(epsilon=4), schema=SCHEMA, random_state=5),
    "laplace": lambda: LaplaceRelease(privacy=PureDP(epsilon=4), schema=SCHEMA, random_state=5),
    "laplace floor": lambda: LaplaceRelease(privacy=ErrorFloor(age=9.0), schema=SCHEMA, random_state=5),
}
"""Methods whose bits under a seed do not depend on the processor."""

LINEAR: dict[str, Callable[[], ReleaseMethod]] = {
    "invariant": lambda: InvariantRelease(
        learner="svm", variance=0.25, scales="range", schema=SCHEMA, random_state=5
    ),
    "masked": lambda: MaskedRelease(
        privacy=PureDP(epsilon=4), regularization=0.1, schema=SCHEMA, random_state=5
    ),
}
"""Methods that publish results of linear algebra, which are compared on a grid."""

ON_NUMBERS: dict[str, Callable[[], ReleaseMethod]] = {
    "bounded": lambda: BoundedRelease(
        privacy=PureDP(epsilon=16), in_range=True, schema=NUMBERS, random_state=3
    ),
    "bounded additive": lambda: BoundedRelease(support={"x": 5.0, "y": 20.0}, schema=NUMBERS, random_state=3),
    "gaussian": lambda: GaussianRelease(
        privacy=ApproxDP(epsilon=1, delta=1e-3), schema=NUMBERS, random_state=3
    ),
    "gaussian mu": lambda: GaussianRelease(privacy=GaussianDP(mu=2.0), schema=NUMBERS, random_state=3),
    "gaussian scale": lambda: GaussianRelease(scale=2.0, schema=NUMBERS, random_state=3),
    "input-perturbation": lambda: InputPerturbation(
        privacy=PureDP(epsilon=1), schema=NUMBERS, random_state=3
    ),
    "laplace": lambda: LaplaceRelease(privacy=PureDP(epsilon=1), schema=NUMBERS, random_state=3),
}


def release_cases() -> dict[str, Any]:
    """Return digests of what every method publishes under a seed, and of its plan."""
    found: dict[str, Any] = {"registered methods": sorted(METHODS)}
    for name, make in (MIXED | LINEAR).items():
        method = make()
        release = method.release(rows())
        found[f"{name} target"] = of_array(release.target)
        found[f"{name} promises"] = of_json(rounded([p.to_dict() for p in release.promises], 8))
        if name == "invariant":  # its noise is drawn in a null space, whose basis depends on the processor
            found[f"{name} shape"] = list(np.shape(release.data))
        else:
            found[f"{name} data"] = _data(release, 1e-6 if name in LINEAR else None)
        found[f"{name} parameters"] = of_json(rounded(method.parameters(), 9))
        written = {"name": method.name, "parameters": method.parameters()}
        again = method_from_dict(written, schema=SCHEMA)
        found[f"{name} written down"] = again.parameters() == method.parameters()
        found[f"{name} classes"] = [type(method).__name__, type(release).__name__, method.name]
    for name, make in ON_NUMBERS.items():
        found[f"numbers {name}"] = _data(make().release(numbers()), None)
    return found


def _data(release: Any, step: float | None) -> str:
    """Return the digest of the published cells."""
    data = release.data
    if isinstance(data, dict):
        return of_json({column: of_array(cells, step=step) for column, cells in data.items()})
    return of_array(data, step=step)
