"""Limits of owners and groups are allocations: they may change, and no charge passes one, nor the limit."""

from __future__ import annotations

import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import pytest

from discreet.errors import BudgetExceeded, LedgerTampered, ParameterError
from discreet.ledger import Ledger, _charges, records
from discreet.privacy.promises import ApproxDP, GaussianDP, PureDP
from tests.ledger.ledger_workers import CHARGE, crowd, until_refused

if TYPE_CHECKING:
    from pathlib import Path

TENTH = PureDP(epsilon=0.1)


@pytest.fixture(params=["file", "memory", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "survey.ledger")
    if request.param == "memory":
        return ":memory:"
    return f"{request.getfixturevalue('postgres_url')}#survey"


def epsilon_left(ledger: Ledger, owner: str | None = None) -> float:
    left = ledger.remaining(owner)
    assert left is not None
    return left["epsilon"]


def test_a_limit_is_raised_and_lowered_and_what_was_spent_stays_spent(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1), owner_limit=PureDP(epsilon=0.1)) as ledger:
        ledger.charge(TENTH, owner="ann")
        with pytest.raises(BudgetExceeded):
            ledger.charge(TENTH, owner="ann")
        ledger.set_owner_limit("ann", PureDP(epsilon=0.5))
        assert epsilon_left(ledger, "ann") == 0.4
        ledger.charge(TENTH, owner="ann")
        ledger.set_owner_limit("ann", PureDP(epsilon=0.15))
        assert ledger.spent("ann").epsilon == 0.2
        assert epsilon_left(ledger, "ann") == 0
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.charge(PureDP(epsilon=1e-6), owner="ann")
        assert refusal.value.scope == "ann"
        ledger.set_owner_limit("ann", None)
        ledger.charge(PureDP(epsilon=0.8), owner="ann")
        assert ledger.spent().epsilon == 1
        ledger.check()


def test_the_limit_wins_over_allocations_that_add_up_to_more(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=0.3)) as ledger:
        for owner in ("ann", "bob"):
            ledger.set_owner_limit(owner, PureDP(epsilon=0.2))
        for owner in ("ann", "ann", "bob"):
            ledger.charge(TENTH, owner=owner)
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.charge(TENTH, owner="bob")
        assert refusal.value.scope == "total"
        ledger.check()


def test_only_a_limit_that_was_fixed_before_the_first_charge_is_guaranteed(place: str) -> None:
    limit = PureDP(epsilon=1, total_variation=2.0**-64)
    with Ledger.open(place, limit=limit) as ledger:
        ledger.set_owner_limit("ann", TENTH)
        ledger.set_owner_limit("ann", PureDP(epsilon=0.2))
        ledger.charge(TENTH, owner="ann")
        assert ledger.guarantee("ann") == PureDP(epsilon=0.2, total_variation=2.0**-64)
        ledger.set_owner_limit("ann", PureDP(epsilon=0.3))
        assert ledger.guarantee("ann") == limit == ledger.guarantee()


def test_earlier_charges_are_counted_at_the_order_of_the_new_limit(place: str) -> None:
    charges = [GaussianDP(mu=0.1), PureDP(epsilon=0.05), GaussianDP(mu=0.05)]
    with Ledger.open(place, limit=ApproxDP(epsilon=4, delta=1e-6)) as ledger:
        ledger.set_owner_limit("ann", ApproxDP(epsilon=1, delta=1e-6))
        ledger.set_owner_limit("bob", ApproxDP(epsilon=2, delta=1e-7))
        for promise in charges:
            for owner in ("ann", "bob"):
                ledger.charge(promise, owner=owner)
        assert ledger.spent("ann") != ledger.spent("bob")
        ledger.set_owner_limit("ann", ApproxDP(epsilon=2, delta=1e-7))
        assert ledger.spent("ann") == ledger.spent("bob")
        assert ledger.remaining("ann") == ledger.remaining("bob")
        ledger.check()


def test_members_of_a_group_share_one_allocation(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        ledger.set_group_limit("office", PureDP(epsilon=0.3))
        for owner in ("ann", "bob"):
            ledger.set_group(owner, "office")
        ledger.set_owner_limit("ann", PureDP(epsilon=0.2))
        for owner in ("ann", "bob", "ann"):
            ledger.charge(TENTH, owner=owner)
        assert ledger.groups() == {"office": ["ann", "bob"]}
        assert ledger.group_of("ann") == "office"
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.charge(TENTH, owner="bob")
        assert refusal.value.scope == "group office"
        # What a member can still spend is the least of all budgets that a charge is taken from.
        assert epsilon_left(ledger, "bob") == 0
        ledger.charge(TENTH, owner="eve")
        ledger.set_group_limit("office", PureDP(epsilon=0.4))
        assert epsilon_left(ledger, "bob") == pytest.approx(0.1)
        ledger.charge(TENTH, owner="bob")
        assert ledger.group_account("office").spent.epsilon == 0.4
        ledger.set_group("bob", None)
        ledger.charge(TENTH, owner="bob")
        assert ledger.group_account("office").spent.epsilon == 0.4
        assert ledger.groups() == {"office": ["ann"]}
        ledger.check()


def test_of_two_unused_budgets_the_smaller_is_the_nearer_one(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1), owner_limit=PureDP(epsilon=0.5)) as ledger:
        ledger.set_group("ann", "office")
        ledger.set_group_limit("office", PureDP(epsilon=0.2))
        assert epsilon_left(ledger, "ann") == 0.2
        ledger.set_group_limit("office", PureDP(epsilon=0.9))
        assert epsilon_left(ledger, "ann") == 0.5
        # Of the larger one a larger share is used, and more of it is left.
        ledger.charge(TENTH, owner="bob")
        ledger.set_owner_limit("ann", PureDP(epsilon=0.1))
        ledger.set_group("bob", "office")
        ledger.charge(TENTH, owner="bob")
        assert epsilon_left(ledger, "ann") == 0.1


def test_a_question_that_another_member_paid_for_is_paid_by_the_group_again(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        for owner in ("ann", "bob"):
            ledger.set_group(owner, "office")
        ledger.set_group_limit("office", PureDP(epsilon=0.15))
        ledger.charge(TENTH, owner="ann", question="q")
        with pytest.raises(BudgetExceeded):
            ledger.charge(TENTH, owner="bob", question="q")
        assert ledger.charge(TENTH, owner="ann", question="q").seq == 5
        ledger.set_group_limit("office", PureDP(epsilon=0.2))
        ledger.charge(TENTH, owner="bob", question="q")
        assert ledger.spent().epsilon == 0.1
        assert ledger.group_account("office").spent.epsilon == 0.2
        ledger.check()


def test_groups_count_in_every_data_set_that_shares_a_ledger(place: str, tmp_path: Path) -> None:
    place = str(tmp_path / "people.ledger") if place == ":memory:" else place
    with (
        Ledger.open(place, limit=PureDP(epsilon=1), dataset="visits") as visits,
        Ledger.open(place, dataset="bills", dataset_limit=PureDP(epsilon=0.5)) as bills,
    ):
        visits.set_group("ann", "office")
        visits.set_group_limit("office", PureDP(epsilon=0.2))
        visits.charge(TENTH, owner="ann")
        bills.charge(TENTH, owner="ann")
        for ledger in (visits, bills):
            with pytest.raises(BudgetExceeded) as refusal:
                ledger.charge(TENTH, owner="ann")
            assert refusal.value.scope == "group office"
        assert set(bills.charged_accounts("ann")) == {"total", "dataset:bills", "group:office", "owner:ann"}
        visits.check()


def test_groups_are_in_a_backup_and_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path, limit=PureDP(epsilon=1)) as ledger:
        ledger.set_group("ann", "office")
        ledger.set_group_limit("office", TENTH)
        ledger.charge(TENTH, owner="ann")
        ledger.backup(tmp_path / "copy.ledger")
    for name in ("survey.ledger", "copy.ledger"):
        with Ledger.open(tmp_path / name) as ledger:
            ledger.check()
            with pytest.raises(BudgetExceeded):
                ledger.charge(TENTH, owner="ann")


@pytest.mark.parametrize("name", ["", 3, "a\0b"])
def test_a_group_has_a_name_that_a_database_can_keep(name: str) -> None:
    ledger = Ledger.open(":memory:")
    with pytest.raises(ParameterError, match="group"):
        ledger.set_group("ann", name)
    with pytest.raises(ParameterError, match="group"):
        ledger.set_group_limit(name, None)


# Crowds.


def test_threads_pass_no_allocation_while_a_curator_changes_them(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=0.6), timeout=300) as ledger:
        ledger.set_group_limit("office", PureDP(epsilon=0.1))
        for owner in ("ann", "bob"):
            ledger.set_group(owner, "office")
        ledger.set_owner_limit("ann", PureDP(epsilon=0.05))
        turns = itertools.count()
        limits = itertools.cycle([0.1, 0.2, 0.3, 0.15])

        def charge() -> None:
            turn = next(turns)
            if turn % 7 == 0:
                ledger.set_group_limit("office", PureDP(epsilon=next(limits)))
            ledger.charge(CHARGE, owner=("ann", "bob")[turn % 2])

        crowd(charge, 6)
        ledger.set_group_limit("office", PureDP(epsilon=0.3))
        ledger.set_owner_limit("bob", PureDP(epsilon=0.3))
        # ann has 5 charges of 0.01 at most, and whoever is refused goes home: bob fills the group.
        while True:
            try:
                ledger.charge(CHARGE, owner="bob")
            except BudgetExceeded:
                break
        assert ledger.group_account("office").spent.charges == 30
        assert ledger.spent("ann").charges <= 5
        ledger.check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_two_processes_share_the_allocation_of_their_group(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = str(tmp_path / "crowd.ledger")
    if kind == "postgres":
        place = f"{request.getfixturevalue('postgres_url')}#crowd"
    with Ledger.open(place, limit=PureDP(epsilon=1), timeout=300) as ledger:
        ledger.set_group_limit("office", PureDP(epsilon=0.4))
        for owner in ("p0", "p1"):
            ledger.set_group(owner, "office")
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=spawn) as pool:
            each = list(pool.map(until_refused, [place] * 2, ["p0", "p1"]))
        assert sum(each) == 40 == ledger.spent().charges
        ledger.check()


def test_a_ledger_that_forgets_the_group_passes_its_limit_and_is_found_out(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_group(
        owner: str | None, *, known: bool, dataset: str | None = None, group: object = None
    ) -> list[str]:
        return records.charge_scopes(owner, known=known, dataset=dataset)

    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        ledger.set_group_limit("office", TENTH)
        ledger.set_group("ann", "office")
        monkeypatch.setattr(_charges, "charge_scopes", without_group)
        ledger.charge(TENTH, owner="ann")
        ledger.charge(TENTH, owner="ann")  # the honest ledger refuses this one
        with pytest.raises(LedgerTampered, match="group:office"):
            ledger.check()


def test_several_owners_get_a_limit_together_or_not_at_all() -> None:
    ledger = Ledger.open(":memory:", owner_limit=TENTH)
    ledger.set_owner_limit(["ann", "bob"], PureDP(epsilon=0.3))
    left = [(ledger.remaining(owner) or {})["epsilon"] for owner in ("ann", "bob", "eve")]
    assert left == pytest.approx([0.3, 0.3, 0.1])
    rows = ledger.head
    with pytest.raises(ParameterError, match="owner"):
        ledger.set_owner_limit(["ann", "bob", ""], TENTH)
    assert ledger.head == rows
