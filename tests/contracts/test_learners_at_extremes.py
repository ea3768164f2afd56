"""Promises as strong and as weak as 64-bit numbers can say: a model that is one, or a sentence of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from discreet.errors import DiscreetError
from discreet.learn import METHODS, Learner
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, Promise, PureDP
from tests.contracts.learner_cases import LARGER, LEARNERS, X, labels
from tests.contracts.test_learners import outcome

FRAME = pd.DataFrame(X, columns=["age", "height", "day"])
PRIVATE = sorted(name for name in METHODS if "privacy" in LARGER[name])
PLAIN = ("bounds", "classes", "target_bounds", "n_clusters", "random_state")
EXTREMES: list[Promise] = [
    PureDP(epsilon=5e-324),
    PureDP(epsilon=1e-300),
    PureDP(epsilon=1e300),
    ApproxDP(epsilon=1e-300, delta=1e-6),
    ApproxDP(epsilon=1e300, delta=1e-6),
    GaussianDP(mu=1e-300),
    GaussianDP(mu=1e150),
    ZCDP(rho=5e-324),
    ZCDP(rho=1e300),
]
INTERNAL = ("laplace_", "mu_for_sd", "sd_for_mu", "gaussian_", "parameter epsilon of PureDP", "was 0.0")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:bounds of .* look like:discreet.errors.PromiseWarning")
@pytest.mark.parametrize("privacy", EXTREMES, ids=str)
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "larger"])
@pytest.mark.parametrize("name", PRIVATE)
def test_an_extreme_promise_gives_a_finite_model_or_is_refused_in_plain_words(
    name: str, plain: bool, privacy: Promise
) -> None:
    given = {key: value for key, value in LARGER[name].items() if key in PLAIN or not plain}
    learner = LEARNERS[name](**{**given, "privacy": privacy})
    refusal = refusal_of(learner)
    if refusal is not None:
        # About what was asked for, and not about what was made of it on the way.
        assert not any(word in refusal for word in INTERNAL)
        return
    said = np.asarray(outcome(learner, FRAME))
    assert said.dtype.kind != "f" or np.isfinite(said).all()
    assert [key for key, value in vars(learner).items() if not finite(key, value)] == []


def refusal_of(learner: Learner) -> str | None:
    """Fit a learner; return why it refused, in which case whatever is not ours is a mistake."""
    try:
        learner.fit(FRAME, labels(learner.name))
    except DiscreetError as refused:
        return str(refused)
    return None


def finite(key: str, value: Any) -> bool:
    """Say whether a fitted attribute holds no infinity where it does not mean something.

    An infinite radius means that rows are not clipped, an infinite error that a center was not moved.
    """
    if not key.endswith("_") or key in ("radii_", "errors_") or not isinstance(value, np.ndarray | float):
        return True
    numbers = np.asarray(value)
    return numbers.dtype.kind != "f" or bool(np.isfinite(numbers).all())
