"""People who have several rows of a table are attacked by all of them together."""

import math
from typing import Any

import numpy as np
import pytest

from discreet import Column, Schema
from discreet.audit import _unit_risk, attack_members, attack_records, measure_risk
from discreet.audit._made_up_people import LAWS
from discreet.audit._row_risk import RowScores
from discreet.audit._shadow_tables import ShadowTable
from discreet.audit._table_risk import TableScores
from discreet.audit._unit_risk import UnitScores
from discreet.audit.targets import UnitRows
from discreet.noise import Stream
from discreet.privacy import ApproxDP
from discreet.release import GaussianRelease, SyntheticRelease

COLUMNS = [
    *(Column(f"x{j}", lower=0, upper=1) for j in range(2)),
    *(Column(f"c{j}", values=("a", "b", "c", "d"), closed=True) for j in range(2)),
]


def a_schema(rows_each: int = 1) -> Schema:
    """Return a schema of two numbers and two lists; of people with an id, if they have several rows."""
    if rows_each == 1:
        return Schema(columns=COLUMNS)
    ids = Column("who", type="integer", role="id")
    return Schema(columns=[*COLUMNS, ids], id_column="who", max_rows_per_unit=rows_each)


@pytest.mark.parametrize(("place", "different", "copies"), [(0, 1, 1), (0, 4, 1), (1, 1, 5)])
def test_linkage_and_membership_agree_with_brute_force(place: int, different: int, copies: int) -> None:
    """Every row of a table is compared with all rows of every person, and stated from few draws alone."""
    schema, law = a_schema(), LAWS[place]
    plan = GaussianRelease(scale=0.15, schema=schema).plan(schema, 600)
    single = RowScores.draw(plan, schema, law, 600, Stream.from_seed(1), 600)
    units, known = UnitScores.from_scores(single, different, copies), single.by_information
    each = different * copies
    tables = [
        TableScores.draw(plan, schema, law, 600, Stream.from_seed(100 + seed), rows_each=each)
        for seed in range(6)
    ]
    for stated, brute, alone in (
        (units.link(known), [one.link(known) for one in tables], single.link(known)),
        (units.recognize(known), [one.recognize(known) for one in tables], single.recognize(known)),
    ):
        found = np.concatenate(brute)
        # Six standard errors: a false alarm once in 10^9.
        error = 6 * math.hypot(found.std() / math.sqrt(len(found)), stated.std() / math.sqrt(len(stated)))
        assert abs(stated.mean() - found.mean()) < error + 0.005
        if each == 1:
            assert stated.mean() == pytest.approx(alone.mean(), abs=1e-3)
    if copies > 1:
        # The wrong twin, which attacks one row alone.
        linked = np.concatenate([one.link(known) for one in tables])
        assert single.link(known).mean() < linked.mean() - 6 * linked.std() / math.sqrt(len(linked))


@pytest.mark.parametrize("different", [1, 3])
def test_every_drawn_row_is_compared_with_every_row_of_its_person(different: int) -> None:
    schema = a_schema()
    plan = GaussianRelease(scale=0.25, schema=schema).plan(schema, 600)
    scores = RowScores.draw(plan, schema, LAWS[0], 600, Stream.from_seed(1), 100)
    people = len(scores.place) // different
    found = UnitScores.from_scores(scores, different, 1).given_cell
    for column, shown, truth, given in zip(
        scores.columns, scores.published, scores.truth, found, strict=True
    ):
        for i in range(different):
            for person in (0, people - 1):
                rows = np.arange(person * different, (person + 1) * different)
                expected = column.log_likelihood(shown[rows].ravel(), truth[rows[i]])
                assert np.allclose(given[i, person], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("different", "copies"), [(1, 4), (4, 1)])
def test_scores_that_are_left_out_are_no_part_of_a_chance(
    different: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = a_schema()
    plan = GaussianRelease(scale=0.15, schema=schema).plan(schema, 600)
    single = RowScores.draw(plan, schema, LAWS[1], 600, Stream.from_seed(2), 200)
    units, known = UnitScores.from_scores(single, different, copies), single.by_information
    stated = units.link(known)
    monkeypatch.setattr(_unit_risk, "_NEGLIGIBLE", -math.inf)
    np.testing.assert_allclose(stated, units.link(known), rtol=1e-12)
    # The wrong twin, which leaves out scores that some strangers do not reach.
    monkeypatch.setattr(_unit_risk, "_NEGLIGIBLE", -0.5)
    assert units.link(known).mean() < stated.mean() - 1e-3


def test_more_rows_of_a_person_are_found_more_easily() -> None:
    risks = []
    for rows_each in (1, 3, 20):
        method: Any = GaussianRelease(scale=0.5, schema=a_schema(rows_each))
        risks.append(measure_risk(method, method.plan(method.schema, 1_000), 1_000, people=100))
    names: tuple[Any, ...] = ("linkage", "membership")
    for name in names:
        gains = [one.gain for risk in risks for one in risk.attacks if one == risk.worst(name)]
        assert gains[0] < gains[1] < gains[2]
    linkage = risks[1].worst("linkage")
    assert linkage is not None
    assert "columns of all 3 rows of a person" in linkage.sentence
    assert linkage.baseline == 3 / 1_000
    assert any("8 that differ are attacked together" in text for text in risks[2].not_covered)


def real_people(people: int, rows_each: int) -> tuple[dict[str, Any], Any]:
    """Return people whose rows are all the same, and their ids in another order than the rows."""
    _, rows = LAWS[1].draw_units(a_schema(), people, rows_each, Stream.from_seed(3))
    order = Stream.from_seed(4).generator().permutation(people * rows_each)
    return {k: v[order] for k, v in rows.items()}, (np.arange(people * rows_each) // rows_each)[order]


def test_real_people_are_attacked_by_all_their_rows() -> None:
    schema = a_schema(4)
    plan = GaussianRelease(scale=0.4, schema=schema).plan(schema, 800)
    rows, ids = real_people(200, 4)
    published = plan.noise(rows, Stream.from_seed(5))
    alone, together = (
        {
            one.attack: one
            for one in attack_records(plan, rows, published, ids=given, stream=Stream.from_seed(6))
        }
        for given in (None, ids)
    )
    assert together["linkage"].chance == pytest.approx(4 / 800)
    assert together["linkage"].n == 200
    assert "columns of every row" in together["linkage"].sentence
    assert together["linkage"].success > 2 * alone["linkage"].success


def test_rows_of_a_person_stay_together() -> None:
    units = UnitRows.from_ids(np.array([7, 3, 7, 9, 3, 7]), 6)
    assert [units.take(np.array([k])).places.tolist() for k in range(3)] == [[1, 4], [0, 2, 5], [3]]
    some = units.take(np.array([2, 0]))
    assert (some.places.tolist(), some.owners.tolist(), some.sizes.tolist()) == ([3, 1, 4], [0, 1, 1], [1, 2])
    assert some.combine(np.array([1.0, 2.0, 5.0]), np.add).tolist() == [1.0, 7.0]
    assert len(UnitRows.from_ids(None, 4)) == 4


def test_synthetic_tables_are_made_of_whole_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """No person is in both halves, all rows of a person have one id, and likelihoods are added up."""
    made: list[ShadowTable] = []
    make = ShadowTable.from_members
    halves = []

    def watch(method: Any, rows: Any, units: UnitRows, members: Any, others: Any, n: int, seed: int) -> Any:
        halves.append((set(members.tolist()), set(others.tolist())))
        made.append(make(method, rows, units, members, others, n, seed))
        return made[-1]

    monkeypatch.setattr(ShadowTable, "from_members", watch)
    rows, ids = real_people(300, 3)
    method = SyntheticRelease(ApproxDP(epsilon=1.0, delta=1e-6), schema=a_schema(3))
    found = attack_members(method, rows, on="rows", ids=ids, stream=Stream.from_seed(1))
    assert all(not members & others for members, others in halves)
    assert {len(members) for members, _ in halves} == {100, 150}
    assert made[1].n_rows == 450
    assert all((units.sizes == 3).all() for units in made[1].units)
    assert found[0].n == len(made[1].features()[0]) == 50
