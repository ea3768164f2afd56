"""People whose rows trained a masked classifier against others: a promise kept, and twins that give away."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, Column, MaskedRelease, NoPromise, PureDP, Schema
from discreet.audit import MemberComparison, attack_members, attack_published, max_roc_area
from discreet.audit._members import roc_area
from discreet.audit._shadow_tables import MaskedShadow
from discreet.audit.targets import UnitRows
from discreet.noise import Stream
from discreet.query.dummy import rows_from_schema

if TYPE_CHECKING:
    from discreet.release import Release

NAMES = ["shadow models", "margin", "influence", "nearest point"]


def wide(n_columns: int, classes: int = 2) -> Schema:
    numbers = [Column(f"x{i}", lower=0, upper=1) for i in range(n_columns)]
    return Schema(columns=[*numbers, Column("y", values=tuple(range(classes)), role="target", closed=True)])


def people(schema: Schema, n: int) -> dict[str, Any]:
    """Encoded rows that nobody has."""
    return rows_from_schema(schema, n, Stream.from_seed(1))


class Exact(MaskedRelease):
    """A twin that says what it promises and adds no noise."""

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> Any:
        promised = super().scaled_plan(schema, n_rows, factor).promises
        said, self.privacy = self.privacy, NoPromise("a twin")
        try:
            plan = super().scaled_plan(schema, n_rows, factor)
        finally:
            self.privacy = said
        plan.promises = promised
        return plan


class Copies(MaskedRelease):
    """A twin whose points are the rows."""

    def release(self, X: Any, y: Any = None, *, shuffle: bool | None = None) -> Release:
        made = super().release(X)
        assert self.schema is not None
        columns = {c.name: np.asarray(X[c.name], np.float64) for c in self.schema.features}
        rows = self.plan(self.schema, len(X["y"])).encoding.rows(columns)
        names = [name for name in made.columns if name != "y"]
        return dataclasses.replace(made, columns={**made.columns, **dict(zip(names, rows.T, strict=True))})


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("learner", "privacy"),
    [
        ("logistic", PureDP(epsilon=1)),
        ("logistic", ApproxDP(epsilon=1, delta=1e-6)),
        ("svm", PureDP(epsilon=1)),
    ],
)
def test_a_promise_is_kept_on_made_up_people(classes: int, learner: Any, privacy: Any) -> None:
    method = MaskedRelease(privacy=privacy, schema=wide(4, classes), learner=learner, regularization=0.05)
    results = attack_published(method, 400)
    assert [result.attack for result in results] == NAMES
    for result in results:
        assert not result.exceeds_bound
        assert 0.5 < result.bound < 0.8
        assert (result.n, result.rows, result.on, result.members) == (133, 400, "made-up", None)
        assert MemberComparison.from_dict(result.to_dict()) == result
    assert attack_published(method, 400) == results
    assert method.model_ is None


def test_a_classifier_without_its_noise_gives_its_people_away() -> None:
    schema = wide(60)
    for kind, caught in ((Exact, True), (MaskedRelease, False)):
        method = kind(privacy=PureDP(epsilon=0.1), schema=schema, regularization=0.1)
        found = attack_members(method, people(schema, 240), on="rows", stream=Stream.from_seed(2))
        assert [result.exceeds_bound for result in found if result.attack == "margin"] == [caught]


def test_points_that_are_rows_give_their_people_away() -> None:
    schema = wide(4)
    for kind, caught in ((Copies, True), (MaskedRelease, False)):
        method = kind(privacy=PureDP(epsilon=1), schema=schema, regularization=0.05)
        found = attack_members(method, people(schema, 400), on="rows", stream=Stream.from_seed(2))
        assert [result.exceeds_bound for result in found if result.attack == "nearest point"] == [caught]


def test_the_influence_of_a_person_is_told_from_that_of_others() -> None:
    schema = wide(60)
    rows, order = people(schema, 1500), np.arange(1500)
    method = MaskedRelease(privacy=NoPromise("no one is in it"), schema=schema, regularization=0.1)
    shadow = MaskedShadow.from_members(
        method, rows, UnitRows.from_ids(None, 1500), order[:500], order[500:], 500, 1
    )
    area, lower, _ = roc_area(*(group[:, 1] for group in shadow.features()))
    # In 60 directions the shift by one of 500 people is a third of a standard deviation.
    assert lower > 0.5
    assert area > 0.55
    # The same people, some of whom are in the table and none of whom moved it.
    still = dataclasses.replace(shadow, weights=shadow._train_reference())
    assert {len(set(group[:, 1])) for group in still.features()} == {1}


def test_the_rows_of_a_person_tell_more_together_than_one_by_one() -> None:
    schema = Schema(
        columns=[*wide(60).columns, Column("person", type="id")], id_column="person", max_rows_per_unit=4
    )
    rows, promise = people(wide(60), 3000), NoPromise("no one is in it")
    method = MaskedRelease(privacy=promise, schema=schema, mechanism="output", regularization=0.1)
    areas = []
    for each in (4, 1):
        units, n = UnitRows.from_ids(np.arange(3000) // each, 3000), 1000 // each
        members, others = np.arange(n), np.arange(n, 3 * n)
        shadow = MaskedShadow.from_members(method, rows, units, members, others, n, 1)
        areas.append([roc_area(*groups)[0] for groups in zip(*(g.T for g in shadow.features()), strict=True)])
    # With four rows the scores of members and others are twice as many standard deviations apart.
    together, apart = areas
    assert together[0] > apart[0]
    assert together[1] > apart[1] + 0.03


def test_noisy_counts_and_no_promise_have_their_own_bounds() -> None:
    schema = wide(3)
    counts = MaskedRelease(privacy=PureDP(epsilon=1), schema=schema, labels="noisy_counts")
    assert {result.bound for result in attack_published(counts, 200)} == {max_roc_area(PureDP(epsilon=1))}
    nothing = MaskedRelease(privacy=NoPromise("made up"), schema=schema, regularization=0.1)
    assert {result.bound for result in attack_published(nothing, 200)} == {1.0}


@pytest.mark.parametrize(
    "rest", [{"labels": "true"}, {"sensitive": 1}, {"initial": (np.zeros((1, 3)), np.array([1]))}]
)
def test_where_people_are_published_as_they_are_none_is_attacked(rest: dict[str, Any]) -> None:
    method = MaskedRelease(privacy=PureDP(epsilon=1), schema=wide(3), regularization=0.1, **rest)
    assert attack_published(method, 200) == ()


def test_too_few_people_are_not_attacked() -> None:
    schema = wide(3)
    method = MaskedRelease(privacy=PureDP(epsilon=1), schema=schema)
    assert attack_members(method, people(schema, 199), on="rows") == ()
