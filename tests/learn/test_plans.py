"""A learner of several passes asks for room for all of them before it is charged for the first."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import BudgetExceeded
from discreet.learn import PrivateKMeans
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP, GaussianDP, Promise, PureDP
from discreet.query import Database
from tests.learn.noisy_sums import townsfolk, townsfolk_schema

if TYPE_CHECKING:
    from discreet.query import Aggregate, Answer

SCHEMA = townsfolk_schema()


def clusters(privacy: Any) -> PrivateKMeans:
    return PrivateKMeans(n_clusters=3, privacy=privacy)


class PassByPass(Database):
    """The wrong twin: says nothing to the ledger about the passes that are still to come."""

    def ask(self, question: Aggregate, **rest: Any) -> Answer:
        rest.pop("plan")
        return super().ask(question, **rest)


@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        (GaussianDP(mu=0.5), GaussianDP(mu=1.0)),
        (GaussianDP(mu=0.5), ApproxDP(epsilon=4.0, delta=1e-6)),
        (PureDP(epsilon=1.0), PureDP(epsilon=3.0)),
    ],
    ids=str,
)
def test_a_fit_that_does_not_fit_is_refused_before_its_first_pass_and_told_what_would(
    limit: Promise, asked: Promise
) -> None:
    ledger = Ledger.open(":memory:", limit=limit)
    ledger.charge(GaussianDP(mu=0.3) if isinstance(limit, GaussianDP) else PureDP(epsilon=0.25))
    with Database(townsfolk(500), schema=SCHEMA, ledger=ledger) as sums:
        # The words of a refused query, and a promise of the kind that was asked for.
        with pytest.raises(
            BudgetExceeded,
            match=r"^Not enough budget: this takes [\d,.]+.% of it and [\d.]+.% is left\. "
            r"Nothing was charged\. .* would still fit\.$",
        ) as raised:
            clusters(asked).fit_database(sums, owner="ann")
        assert ledger.spent().charges == 1
        assert ledger.spent("ann").charges == 0
        remaining = ledger.remaining()
        assert remaining is not None
        assert raised.value.left == remaining[raised.value.currency]
        assert raised.value.asked > raised.value.left
        found = re.fullmatch(
            r"(\w+)\((mu|epsilon)=([\d.e-]+)(, .*)?\) would still fit\.", raised.value.advice
        )
        assert found is not None
        assert found[1] == type(asked).__name__
        value = float(found[3])
        numbers: list[dict[str, Any]] = [{found[2]: value * f} for f in (1, 1.002)]
        smaller, larger = (dataclasses.replace(asked, **changed) for changed in numbers)
        # The promise named fits, and hardly more would.
        with pytest.raises(BudgetExceeded):
            clusters(larger).fit_database(sums)
        model = clusters(smaller).fit_database(sums)
        assert ledger.spent().charges == 1 + len(model.answers_)
    short = Ledger.open(":memory:", limit=limit)
    with PassByPass(townsfolk(500), schema=SCHEMA, ledger=short) as twin:
        with pytest.raises(BudgetExceeded):
            clusters(asked).fit_database(twin)
        assert short.spent().charges > 0


def test_where_nothing_is_left_nothing_is_said_to_fit() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=0.5))
    ledger.charge(GaussianDP(mu=0.5))
    with (
        Database(townsfolk(100), schema=SCHEMA, ledger=ledger) as sums,
        pytest.raises(BudgetExceeded, match="begin a new ledger"),
    ):
        clusters(GaussianDP(mu=0.1)).fit_database(sums)


class Crowded(Database):
    """Somebody else spends all that is left after the second pass."""

    def ask(self, question: Aggregate, **rest: Any) -> Answer:
        answer = super().ask(question, **rest)
        asked: list[Answer] = self.__dict__.setdefault("asked", [])
        asked.append(answer)
        if len(asked) == 2:
            left = self.ledger.remaining()
            assert left is not None
            self.ledger.charge(GaussianDP(mu=0.999 * (2 * left["rho"]) ** 0.5), owner="bob")
        return answer


def test_a_fit_that_others_starve_says_which_passes_are_paid_and_gets_them_free_again() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1.0))
    with Crowded(townsfolk(500), schema=SCHEMA, ledger=ledger) as sums:
        with pytest.raises(BudgetExceeded, match="paid for and kept") as raised:
            clusters(GaussianDP(mu=0.9)).fit_database(sums, owner="ann")
        paid = ledger.spent("ann").charges
        assert paid == 2
        assert "(region, pass 1)" in str(raised.value)
        assert "Nothing was charged" not in str(raised.value)
        assert raised.value.scale == 0
        with pytest.raises(BudgetExceeded, match="paid for and kept"):
            clusters(GaussianDP(mu=0.9)).fit_database(sums, owner="ann")
        assert ledger.spent("ann").charges == paid
        assert [answer.cached for answer in sums.__dict__["asked"]] == [False, False, True, True]


def test_a_fit_that_was_paid_for_is_free_though_nothing_is_left() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1.0))
    with Database(townsfolk(500), schema=SCHEMA, ledger=ledger) as sums:
        model = clusters(GaussianDP(mu=1.0)).fit_database(sums)
        before = ledger.spent()
        again = clusters(GaussianDP(mu=1.0)).fit_database(sums)
        assert (model.cluster_centers_ == again.cluster_centers_).all()
        assert ledger.spent() == before
