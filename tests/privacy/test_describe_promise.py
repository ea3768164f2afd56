"""One line for each kind of promise, as tables show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, NoPromise, PureDP
from discreet.privacy.promises import describe_promise

if TYPE_CHECKING:
    from discreet.privacy import Promise


@pytest.mark.parametrize(
    ("promise", "text"),
    [
        (PureDP(epsilon=0.1), "ε = 0.1"),
        (ApproxDP(epsilon=1.0001, delta=1e-6), "ε = 1.01, δ = 10⁻⁶"),
        (GaussianDP(mu=0.5), "μ = 0.5"),
        (ZCDP(rho=0.25), "ρ = 0.25"),
        (ErrorFloor(age=9), "floors for 1 column"),
        (ErrorFloor(age=9, weight=3), "floors for 2 columns"),
        (NoPromise(reason="\u202ebecause"), "nothing: \\u202ebecause"),
    ],
)
def test_each_promise_has_its_line(promise: Promise, text: str) -> None:
    assert describe_promise(promise.to_dict()) == text
