"""Sentences print costs rounded up and floors rounded down, so that what they say holds."""

from __future__ import annotations

import itertools
import re
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import TYPE_CHECKING

import pytest

from discreet import formatting
from discreet.audit import Guess
from discreet.audit.reconstruction import ReconstructedColumn
from discreet.privacy import (
    ZCDP,
    ApproxDP,
    ColumnFloor,
    ErrorFloor,
    GaussianDP,
    PosteriorOdds,
    Promise,
    PureDP,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.privacy.promises import Statistic

COSTS = [step / 10 for step in range(1, 190)] + [
    1e-9,
    0.1234565,
    1 / 3,
    7.9999951,
    0.30000000000000004,
    25.25,
]
DELTAS = [1e-6, 1.2345651e-7, 1 / 3, 2.0**-114, 0.99999951]
FLOORS = [9.0, 8.9999999, 1 / 3, 12163.96, 1.2345678e-7, 98765432.1]
SHARES = [0.36766, 0.6543, 0.65, 1 / 3, 0.00049, 0.99951]
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def _numbers(pattern: str, text: str) -> list[Decimal]:
    """Return every number that follows the pattern, as it is printed."""
    text = re.sub(r"\s×\s10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda power: f"e{power[1].translate(_RAISED)}", text)
    found = re.findall(pattern + r" (exp\()?(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)", text)
    assert found, (pattern, text)
    return [_exp(Decimal(shown)) if power else Decimal(shown.replace(",", "")) for power, shown in found]


def _exp(exponent: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 40
        return exponent.exp()


def _exact(value: float) -> Decimal:
    return Decimal(repr(value))


def _differential_privacy(promise: Callable[[float, float], Promise], factor: str) -> None:
    for epsilon, delta in zip(COSTS, itertools.cycle(DELTAS), strict=False):
        made = promise(epsilon, delta)
        said = made.sentence()
        assert min(_numbers(factor, said)) >= _exp(_exact(epsilon)), said
        assert min(_numbers(r"(?:epsilon|log-odds)(?: =)?", f"{said} {made}")) >= _exact(epsilon)
        if not isinstance(made, PureDP):
            deltas = _numbers(r"(?:delta|delta =|adds at most|probability at most)", f"{said} {made}")
            assert len(deltas) == 3
            assert min(deltas) >= _exact(delta)


def test_factors_epsilons_and_deltas_are_printed_rounded_up() -> None:
    _differential_privacy(lambda epsilon, _: PureDP(epsilon=epsilon), "by at most")
    _differential_privacy(lambda epsilon, delta: ApproxDP(epsilon=epsilon, delta=delta), "by at most")
    _differential_privacy(
        lambda epsilon, delta: PosteriorOdds(epsilon=epsilon, delta=delta, queries=1), "a factor of"
    )
    for cost in COSTS:
        rho, mu = ZCDP(rho=cost), GaussianDP(mu=cost)
        for printed in _numbers(r"(?:rho|rho =|at most)", f"{rho.sentence()} {rho}"):
            assert printed >= _exact(cost)
        for printed in _numbers(r"(?:mu|mu =|a shift of)", f"{mu.sentence()} {mu}"):
            assert printed >= _exact(cost)


def test_what_six_digits_hold_is_printed_as_it_is() -> None:
    promise = ApproxDP(epsilon=0.5, delta=1e-6)
    assert str(promise) == "epsilon = 0.5, delta = 1e-06 (replace-one, person)"
    assert "(epsilon 0.5, delta 1e-06)" in promise.sentence()


def test_floors_are_printed_rounded_down() -> None:
    for error in FLOORS:
        floor = ErrorFloor(age=ColumnFloor(error=error, measure="years"))
        for printed in _numbers(r"(?:error below|age)", f"{floor.sentence()} {floor}"):
            assert printed <= _exact(error)
        (below,) = _numbers("go below ±", _reconstructed(error, "root-mean-square error"))
        assert below <= _exact(error)
    for share in SHARES:
        said = _reconstructed(share, "probability of a wrong guess")
        (most,) = _numbers("No method can pass", said)
        assert most / 100 >= 1 - _exact(share)


def _reconstructed(floor: float, statistic: Statistic) -> str:
    guess = Guess(
        attack="linear", column="age", statistic=statistic, measure=None, error=floor, lower=floor,
        upper=floor, failure_probability=1e-6, without=floor, floor=floor, verdict="shown", on="rows",
        knowledge="", n=10, seconds=0.0,
    )  # fmt: skip
    return ReconstructedColumn(guess=guess, alike=floor, floor_at_limit=None, moved=0.1, answers=1).sentence()


def test_rounding_to_nearest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = dict.fromkeys(("down", "up", "nearest"), ROUND_HALF_EVEN)
    monkeypatch.setattr(formatting, "_MODES", modes)
    for check in (
        test_factors_epsilons_and_deltas_are_printed_rounded_up,
        test_floors_are_printed_rounded_down,
    ):
        with pytest.raises(AssertionError):
            check()
