"""Several data sets about the same people in one ledger: one charge counts against both limits, or none."""

from __future__ import annotations

import threading
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from discreet.errors import BudgetExceeded, KeyReused, LedgerError, LedgerTampered
from discreet.ledger import Ledger, _charges
from discreet.ledger.records import TOTAL, charge_scopes
from discreet.privacy import ZCDP, PureDP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PEOPLE = ZCDP(rho=1.0)
COST = ZCDP(rho=2**-7)


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "people.ledger")
    return f"{request.getfixturevalue('postgres_url')}#people"


def opened(place: str, name: str, own: float | None = None) -> Ledger:
    limit = None if own is None else ZCDP(rho=own)
    return Ledger.open(place, limit=PEOPLE, dataset=name, dataset_limit=limit)


def spend_all(open_one: Callable[[str], Ledger], threads: int = 6, charges: int = 40) -> Fraction:
    """Charge two data sets from several threads until each is refused; return what was paid for in all."""
    paid: list[ZCDP] = []

    def work(k: int) -> None:
        with open_one(("visits", "claims")[k % 2]) as ledger:
            for _ in range(charges):
                try:
                    ledger.charge(COST, owner=f"a{k}")
                except BudgetExceeded:
                    return
                paid.append(COST)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum((Fraction(one.rho) for one in paid), Fraction(0))


def test_no_interleaving_of_two_data_sets_passes_the_limit_that_they_share(place: str) -> None:
    with opened(place, "visits"), opened(place, "claims"):
        pass
    paid = spend_all(lambda name: opened(place, name))
    assert paid == Fraction(PEOPLE.rho)
    with Ledger.open(place) as whole:
        whole.check()
        assert whole.spent().charges == round(float(paid) / COST.rho)


def test_twins_that_charge_each_data_set_alone_pass_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A ledger for each.
    paid = spend_all(lambda name: Ledger.open(tmp_path / name, limit=PEOPLE))
    assert paid > Fraction(PEOPLE.rho)
    # One ledger, and charges that leave out the total.

    def forgetful(owner: str | None, *, known: bool, dataset: str | None = None) -> list[str]:
        return [scope for scope in charge_scopes(owner, known=known, dataset=dataset) if scope != TOTAL]

    monkeypatch.setattr(_charges, "charge_scopes", forgetful)
    place = str(tmp_path / "one.ledger")
    assert spend_all(lambda name: opened(place, name, own=1.0)) > Fraction(PEOPLE.rho)
    with Ledger.open(place) as whole, pytest.raises(LedgerTampered, match="it must charge"):
        whole.check()


def test_a_charge_counts_against_both_limits_or_neither(place: str) -> None:
    with opened(place, "visits", own=0.6) as visits, opened(place, "claims") as claims:
        visits.charge(ZCDP(rho=0.5), owner="ana")
        # The data set's own limit refuses, and the people pay nothing.
        with pytest.raises(BudgetExceeded, match="Not enough budget:"):
            visits.charge(ZCDP(rho=0.2), owner="ana")
        shared = claims.shared_account()
        assert shared is not None
        assert shared.left is not None
        assert shared.left["rho"] == 0.5
        claims.charge(ZCDP(rho=0.45), owner="ana")
        # The people's limit refuses, and the data set pays nothing.
        with pytest.raises(BudgetExceeded, match="Not enough budget:"):
            visits.charge(ZCDP(rho=0.09), owner="ben")
        assert visits.spent().charges == 1
        assert visits.spent("ben").charges == 0
        # What is left is that of the limit which is nearer: of the people, for both.
        assert visits.remaining() == claims.remaining()
        assert visits.remaining()["rho"] == pytest.approx(0.05)  # type: ignore[index]
        guarantee = visits.guarantee()
        assert isinstance(guarantee, ZCDP)
        assert guarantee.rho == PEOPLE.rho
        visits.check()


def test_questions_keys_and_receipts_of_one_are_not_those_of_another(place: str) -> None:
    with opened(place, "visits") as visits, opened(place, "claims") as claims:
        first = visits.charge(COST, owner="ana", question="q", request="k", asked={"q": 1})
        visits.store(first, b"visits")
        # A digest that does not name the data set is refused, and no answer is of two.
        with pytest.raises(LedgerError, match="fixes the data set too"):
            claims.charge(COST, owner="ana", question="q")
        second = claims.charge(COST, owner="ana", question="r", request="k", asked={"q": 2})
        assert second.answer is None
        claims.store(second, b"claims")
        assert visits.charge(COST, owner="ana", question="q").answer == b"visits"
        assert claims.charge(COST, owner="ana", question="r").answer == b"claims"
        with pytest.raises(KeyReused):
            visits.charge(COST, owner="ana", question="p", request="k", asked={"q": 3})
        for ledger, own, other in ((visits, first, second), (claims, second, first)):
            assert [one.id for one in ledger.history()] == [own.id]
            assert [one.receipt.id for one in ledger.entries("ana", last=9)] == [own.id]
            assert ledger.entry(own.id).answer == (b"visits" if ledger is visits else b"claims")
            with pytest.raises(LedgerError, match="must name a charge of this ledger"):
                ledger.entry(other.id)
        assert visits.spent().charges == claims.spent().charges == 1
        visits.check()
    with Ledger.open(place) as whole:
        assert len(whole.history()) == 2


def test_the_limit_of_a_data_set_is_fixed_when_it_is_opened(place: str) -> None:
    opened(place, "visits", own=0.5).close()
    with pytest.raises(LedgerError, match=r"dataset_limit of Ledger.open must be the one fixed"):
        opened(place, "visits", own=0.6)
    opened(place, "visits").close()
    with opened(place, "visits", own=0.5) as again:
        assert again.remaining()["rho"] == 0.5  # type: ignore[index]
        # The price of a question that another owner paid for is the owner's alone, here too.
        again.charge(COST, owner="ana", question="q")
        again.charge(COST, owner="ben", question="q")
        assert again.spent().charges == 1
        again.check()
    with pytest.raises(LedgerError, match=r"limit of Ledger.open"):
        Ledger.open(place, limit=PureDP(epsilon=1), dataset="visits")
