"""What a ledger says about a question that was paid for, without charging it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from discreet.ledger import Ledger
from discreet.privacy import PureDP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE, OTHER = "1" * 64, "2" * 64


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    place = ":memory:" if request.param == "memory" else tmp_path / "a.ledger"
    with Ledger.open(place, limit=PureDP(epsilon=1)) as opened:
        yield opened


def test_only_what_an_owner_paid_counts_for_them(ledger: Ledger) -> None:
    assert not ledger.has_paid(ONE)
    ledger.charge(PureDP(epsilon=0.1), owner="ana", question=ONE)
    assert [ledger.has_paid(ONE, owner) for owner in ("ana", "ben", None)] == [True, False, True]
    assert not any(ledger.has_paid(OTHER, owner) for owner in ("ana", "ben", None))
    ledger.charge(PureDP(epsilon=0.1), owner="ben", question=ONE)
    assert ledger.has_paid(ONE, "ben")


def test_what_nobody_in_particular_paid_is_free_to_nobody_in_particular(ledger: Ledger) -> None:
    ledger.charge(PureDP(epsilon=0.1), question=ONE)
    assert [ledger.has_paid(ONE, owner) for owner in (None, "ana")] == [True, False]


def test_it_says_what_a_charge_would_find_and_changes_nothing(ledger: Ledger) -> None:
    ledger.charge(PureDP(epsilon=0.1), owner="ana", question=ONE)
    head = ledger.head
    for owner, question in (("ana", ONE), ("ben", ONE), (None, ONE), ("ana", OTHER)):
        free = ledger.has_paid(question, owner)
        assert ledger.head == head
        before = ledger.head
        ledger.charge(PureDP(epsilon=0.1), owner=owner, question=question)
        assert (ledger.head == before) is free
        head = ledger.head


def test_the_oldest_charges_can_be_read_without_the_rest() -> None:
    with Ledger.open(":memory:") as ledger:
        made = [ledger.charge(PureDP(epsilon=0.1), owner=owner) for owner in "abab"]
        assert ledger.history(first=3) == made[:3]
        assert ledger.history("b", first=1) == made[1:2]
        assert ledger.history(after=made[1].seq or 0, first=1) == made[2:3]
        assert ledger.history(first=9) == made
