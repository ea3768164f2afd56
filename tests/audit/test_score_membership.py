"""Membership in an invariant release is decided by scores, not by their rounding errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.audit import _reidentification
from discreet.noise import Stream, standard_normal
from discreet.release import InvariantRelease
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from discreet._types import AnyArray, Floats
    from discreet.release.invariant.plan import InvariantPlan

SCHEMA = Schema(
    columns=[
        Column("x", lower=-9, upper=9),
        Column("y", lower=-9, upper=9),
        Column("ill", type="category", values=("no", "yes"), closed=True, role="target"),
    ],
    dataset="scores",
)


def test_rounding_errors_of_scores_do_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever errors a processor makes, the figure is the same.

    Some outsiders have the record of one member, so that a threshold among the errors would separate them.
    """
    x, y, noise = standard_normal((3, 200), Stream.from_seed(1))
    for values in (x, y, noise):
        values[100:116] = values[0]
    rows = {"x": x, "y": y, "ill": (x + y + noise > 0).astype(np.int32)}
    plan = InvariantRelease(learner="svm", variance=0.25, schema=SCHEMA).plan(SCHEMA, 200)
    trained = _reidentification.published_scores
    found = set()
    for first in (1e-10, 1e-16):
        errors = np.where(np.arange(100)[:, None] == 0, first, 1e-13)

        def with_errors(
            plan: InvariantPlan,
            people: Mapping[str, AnyArray],
            published: Mapping[str, AnyArray],
            errors: AnyArray = errors,
        ) -> tuple[Floats, Floats]:
            scores = trained(plan, people, published)
            assert scores is not None
            return scores[0], scores[1] * (1 + errors)

        monkeypatch.setattr(_reidentification, "published_scores", with_errors)
        result = _reidentification.score_membership(plan, rows, Stream.from_seed(3))
        assert result is not None
        found.add(result.success)
    assert found == {1 - 8 / 100}  # eight of the outsiders with a member's record are judged, all wrongly
