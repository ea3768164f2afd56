"""Ranges, promises and tables at the ends of what can be declared: a release, or a sentence of ours."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from discreet.errors import DiscreetError, ParameterError, SchemaError
from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, PureDP
from discreet.release import (
    METHODS,
    BoundedRelease,
    CoarseRelease,
    GaussianRelease,
    InputPerturbation,
    InvariantRelease,
    LaplaceRelease,
    MaskedRelease,
    SyntheticRelease,
)
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

RANGES = [
    (0.0, 1e-310), (0.0, 5e-324), (0.0, 1e-100), (1e-100, 2e-100), (1e-99, 1.0), (0.0, 1e300),
    (-1e308, 1e308), (-1e100, 1e100), (1e99, 1e100), (1.0, math.nextafter(1.0, 2.0)), (1e15, 1e15 + 0.125),
]  # fmt: skip
EPSILONS = [1e-300, 1.0, 1e300]


def methods(width: float) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Every method with every way to say how much, from the least to the most."""
    for e in EPSILONS:
        yield BoundedRelease, {"privacy": PureDP(epsilon=e), "in_range": True}
        for kind in (LaplaceRelease, CoarseRelease, InputPerturbation, MaskedRelease):
            yield kind, {"privacy": PureDP(epsilon=e)}
        for promise in (ApproxDP(epsilon=e, delta=1e-6), GaussianDP(mu=e), ZCDP(rho=e)):
            yield GaussianRelease, {"privacy": promise}
            yield SyntheticRelease, {"privacy": promise, "anyway": True}
    for f in (1e-300, 0.2, 1e300):
        if 0 < f * width < math.inf:
            for method in (GaussianRelease, LaplaceRelease, BoundedRelease):
                yield method, {"privacy": ErrorFloor(x=f * width)}
    for f in (5e-324, 1.0, 1e300):
        yield GaussianRelease, {"scale": f}
        yield GaussianRelease, {"regularization": f}
        yield LaplaceRelease, {"scale": f}
        yield BoundedRelease, {"support": f}
        yield InvariantRelease, {"learner": "svm", "variance": f, "scales": "range"}
        yield MaskedRelease, {"privacy": PureDP(epsilon=1.0), "regularization": f}


def table(lower: float, upper: float) -> tuple[Schema, dict[str, Any]]:
    schema = Schema(
        columns=[Column("x", lower=lower, upper=upper), Column("y", values=(0, 1), role="target")]
    )
    return schema, {"x": np.array([lower, upper, lower]), "y": np.array([0, 1, 1])}


def outcome(kind: Any, how: dict[str, Any], schema: Schema, rows: dict[str, Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A learner's own words about a solution that is not exact.
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            release = kind(schema=schema, random_state=1, **how).release(rows)
            assert len(release.data) == len(next(iter(release.columns.values())))
            assert all(np.isfinite(v).all() for v in release.columns.values() if v.dtype.kind == "f")
            release.noise_law()
        except DiscreetError as error:
            return str(error)
    return "released"


@pytest.mark.slow
@pytest.mark.parametrize(("lower", "upper"), RANGES)
def test_extreme_ranges_are_released_or_refused_in_our_words(lower: float, upper: float) -> None:
    try:
        schema, rows = table(lower, upper)
    except SchemaError as error:
        assert "Column 'x'" in str(error)  # noqa: PT017 - a range may be refused or not
        assert upper - lower < 1e-100 or upper > 1e100
        return
    said = [outcome(kind, how, schema, rows) for kind, how in methods(upper - lower)]
    assert "released" in said
    assert all(word == "released" or word.endswith(".") for word in said)


def test_every_method_is_among_them() -> None:
    assert {kind for kind, _ in methods(1.0)} == set(METHODS.values())


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 1])
def test_tables_without_rows_or_with_one_are_released_or_refused_in_our_words(n: int) -> None:
    schema, rows = table(0.0, 1.0)
    few = {name: values[:n] for name, values in rows.items()}
    for kind, how in methods(1.0):
        assert outcome(kind, how, schema, few).endswith((".", "released"))


def test_the_data_of_a_table_of_lists_are_its_codes() -> None:
    schema = Schema(columns=[Column("job", values=("clerk", "nurse")), Column("code", values=(7, 8, 9))])
    rows = {"job": np.array(["clerk", "nurse", "x"], object), "code": np.array([7, 9, 8])}
    for kind in (LaplaceRelease, CoarseRelease, InputPerturbation):
        release = kind(schema=schema, privacy=PureDP(epsilon=60.0), random_state=1).release(
            rows, shuffle=False
        )
        assert release.data.tolist() == [[0, 0], [1, 2], [2, 1]]
        assert release.decoded("code").tolist() == [7, 9, 8]


def test_the_data_of_a_coarse_table_are_the_codes_of_its_levels() -> None:
    schema, rows = table(0.0, 1.0)
    release = CoarseRelease(schema=schema, privacy=PureDP(epsilon=9.0), random_state=1).release(rows)
    assert np.array_equal(release.data[:, 0], release.columns["x"])
    assert release.data.dtype.kind == "i"


def test_noise_out_of_proportion_is_refused_by_name() -> None:
    schema, rows = table(0.0, 1.0)
    for kind in (GaussianRelease, LaplaceRelease):
        for scale, word in ((1e-13, "Ask for more noise"), (1e16, "Ask for less noise")):
            with pytest.raises(ParameterError, match=f"of column 'x' must be between .* {word}"):
                kind(schema=schema, scale=scale).release(rows)
