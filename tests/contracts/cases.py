"""One working example for each registered method: whoever adds a method adds a row here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.privacy import ApproxDP, PureDP
from discreet.release import (
    BoundedRelease,
    CoarseRelease,
    GaussianRelease,
    InputPerturbation,
    InvariantRelease,
    LaplaceRelease,
    MaskedRelease,
    ReleaseMethod,
    SyntheticRelease,
)
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = Schema(
    dataset="contract",
    columns=[
        Column("age", type="integer", lower=0, upper=120, measure="years"),
        Column("income", lower=0, upper=2e5, measure="EUR", required=False),
        Column("job", values=("clerk", "nurse", "pilot"), required=False),
        Column("region", values=("north", "south"), role="public", closed=True),
        Column("owner", values=(0, 1)),
    ],
    target="owner",
)
"""Every kind of column that a release meets."""

ROWS: Mapping[str, Any] = {
    "age": np.array([34, 61, 5, 118] * 25),
    "income": np.array([41_000.0, np.nan, 0.0, 180_000.0] * 25),
    "job": np.array(["nurse", None, "astronaut", "clerk"] * 25, dtype=object),
    "region": np.array(["north", "south"] * 50),
    "owner": np.array([0, 1, 1, 0] * 25),
}
OUTSIDE: Mapping[str, Any] = {
    **ROWS,
    "age": np.array([34, 61, -7, 900] * 25),
    "income": np.array([41_000.0, np.nan, -1e9, np.inf] * 25),
}
INSIDE: Mapping[str, Any] = {
    **ROWS,
    "age": np.array([34, 61, 0, 120] * 25),
    "income": np.array([41_000.0, np.nan, 0.0, 2e5] * 25),
}
"""What ``OUTSIDE`` is after clipping."""

RELEASES: dict[str, Callable[..., ReleaseMethod]] = {
    "bounded": lambda **rest: BoundedRelease(
        privacy=PureDP(epsilon=4), in_range=True, **{"schema": SCHEMA, **rest}
    ),
    "coarse": lambda **rest: CoarseRelease(privacy=PureDP(epsilon=4), **{"schema": SCHEMA, **rest}),
    "gaussian": lambda **rest: GaussianRelease(
        privacy=ApproxDP(epsilon=4, delta=1e-6), **{"schema": SCHEMA, **rest}
    ),
    "input-perturbation": lambda **rest: InputPerturbation(
        privacy=PureDP(epsilon=4), **{"schema": SCHEMA, **rest}
    ),
    "laplace": lambda **rest: LaplaceRelease(privacy=PureDP(epsilon=4), **{"schema": SCHEMA, **rest}),
    "masked": lambda **rest: MaskedRelease(
        privacy=PureDP(epsilon=4), regularization=0.1, **{"schema": SCHEMA, **rest}
    ),
    "synthetic": lambda **rest: SyntheticRelease(
        privacy=ApproxDP(epsilon=20, delta=1e-6), **{"schema": SCHEMA, **rest}
    ),
    "invariant": lambda **rest: InvariantRelease(
        learner="svm", variance=0.25, scales="range", **{"schema": SCHEMA, **rest}
    ),
}

WITHOUT_PROMISE = {"invariant"}
"""Methods that promise nothing, say why, and work on whole tables with a model."""

OF_NOBODY = {"masked", "synthetic"}
"""Methods whose published rows are nobody's, and as many as were asked for."""

BY_QUESTIONS = {"synthetic"}
"""Methods that ask several questions, each charged before its noise is drawn."""

INSIDE_THE_RANGE = {"bounded"}
"""Methods whose numbers cannot spread wider with more noise: their law tells."""

IN_LEVELS = {"coarse"}
"""Methods that publish numbers as levels of a list."""

NUMBER = Schema(columns=[Column("x", lower=-1, upper=3)])
"""One number, for audits of its cells."""

ON_ONE_NUMBER: dict[str, Callable[[int], ReleaseMethod]] = {
    "bounded": lambda seed: BoundedRelease(
        privacy=PureDP(epsilon=16), in_range=True, schema=NUMBER, random_state=seed
    ),
    "coarse": lambda seed: CoarseRelease(privacy=PureDP(epsilon=2), schema=NUMBER, random_state=seed),
    "gaussian": lambda seed: GaussianRelease(
        privacy=ApproxDP(epsilon=1, delta=1e-3), schema=NUMBER, random_state=seed
    ),
    "input-perturbation": lambda seed: InputPerturbation(
        privacy=PureDP(epsilon=1), schema=NUMBER, random_state=seed
    ),
    "laplace": lambda seed: LaplaceRelease(privacy=PureDP(epsilon=1), schema=NUMBER, random_state=seed),
}
