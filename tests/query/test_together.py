"""Flows carried out side by side: what is wished for at the same desk is granted at once, each for itself."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import (
    BudgetExceeded,
    DataError,
    EngineFailed,
    ExpressionRefused,
    LedgerUnavailable,
    TableChanged,
)
from discreet.ledger import Ledger
from discreet.privacy import GaussianDP
from discreet.query import Answer, Database, Sums
from discreet.query.together import Wish, alone, together
from tests.query.people import people, people_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.query.together import Flow

ROWS = people(500)
NEARLY_EXACT = GaussianDP(mu=1e5)


class Desk:
    """Doubles what it is given, refuses what is negative, and remembers."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def double(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.asked.append(list(numbers))
        return [ValueError(f"{number}") if number < 0 else 2 * number for number in numbers]


def doubled(desk: Desk, number: int, times: int) -> Flow[Any]:
    for _ in range(times):
        number = yield Wish(desk.double, number)
    return number


def outcomes(flows: Sequence[Flow[Any]]) -> list[Any]:
    found: dict[int, Any] = {}
    together(flows, lambda ended: found.update(ended))
    return [found[i] for i in range(len(flows))]


def test_one_flow_gets_what_it_wishes_for_and_returns() -> None:
    desk = Desk()
    assert alone(doubled(desk, 3, 4)) == 48
    assert desk.asked == [[3], [6], [12], [24]]


def test_a_refusal_is_raised_where_the_flow_stands_and_may_be_handled_there() -> None:
    def careful(desk: Desk) -> Flow[Any]:
        try:
            yield Wish(desk.double, -1)
        except ValueError:
            return (yield Wish(desk.double, 1))
        return 0

    assert alone(careful(Desk())) == 2
    with pytest.raises(ValueError, match="-1"):
        alone(doubled(Desk(), -1, 2))


def test_flows_at_the_same_desk_are_served_at_once() -> None:
    desk = Desk()
    assert outcomes([doubled(desk, i, 2) for i in range(50)]) == [4 * i for i in range(50)]
    assert [len(asked) for asked in desk.asked] == [50, 50]


def test_a_refusal_ends_the_flow_that_it_belongs_to_and_no_other() -> None:
    found = outcomes([doubled(Desk(), number, 2) for number in (1, 2)])
    assert found == [4, 8]
    desk = Desk()
    first, second, third = outcomes([doubled(desk, number, 2) for number in (1, -2, 3)])
    assert (first, third) == (4, 12)
    assert isinstance(second, ValueError)
    assert desk.asked == [[1, -2, 3], [2, 6]]


def test_whoever_has_ended_is_told_before_the_others_are_served_again() -> None:
    events: list[Any] = []

    class Loud(Desk):
        def double(self, numbers: Sequence[int]) -> list[int | Exception]:
            events.append(list(numbers))
            return super().double(numbers)

    desk = Loud()
    together(
        [doubled(desk, 1, 1), doubled(desk, 5, 3), doubled(desk, -1, 2)],
        lambda ended: events.append(dict(ended)),
    )
    assert events[0] == [1, 5, -1]
    assert set(events[1]) == {0, 2}
    assert events[2:] == [[10], [20], {1: 40}]


def test_where_a_desk_fails_everybody_at_it_has_an_error_of_their_own() -> None:
    def broken(numbers: Sequence[int]) -> list[int]:
        raise LedgerUnavailable("the disk is full")

    def asking() -> Flow[Any]:
        return (yield Wish(broken, 1))

    desk = Desk()
    found = outcomes([asking(), doubled(desk, 1, 1), asking()])
    assert found[1] == 2
    assert [str(found[0]), str(found[2])] == ["the disk is full"] * 2
    assert found[0] is not found[2]


def test_a_desk_that_forgets_somebody_is_caught() -> None:
    desk = Desk()
    forgetful: Any = lambda numbers: desk.double(numbers)[1:]  # noqa: E731

    def asking(number: int) -> Flow[Any]:
        return (yield Wish(forgetful, number))

    with pytest.raises(ValueError, match="argument"):
        outcomes([asking(1), asking(2)])


# Questions.


class Counted(Ledger):
    """Remembers how many pieces of work each transaction was given."""

    def do(self, works: Any) -> Any:
        self.__dict__.setdefault("groups", []).append(len(works))
        return super().do(works)


def test_questions_together_are_what_they_are_alone_in_two_transactions_and_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Counted.open(":memory:")
    with Database(ROWS, schema=people_schema(), ledger=ledger) as db:
        widths: list[int] = []
        aggregate = db._engine.aggregate

        def noted(expressions: Any) -> Any:
            widths.append(len(expressions))
            return aggregate(expressions)

        monkeypatch.setattr(db._engine, "aggregate", noted)
        leasts = range(20, 60)
        found: list[Answer] = outcomes(
            [db.asking(Sums(f"age > {least}"), privacy=NEARLY_EXACT, owner=f"a{least}") for least in leasts]
        )
        for least, answer in zip(leasts, found, strict=True):
            assert answer.value == pytest.approx([int((ROWS["age"] > least).sum())], abs=1e-3)
            assert answer.receipt.owner == f"a{least}"
        assert ledger.__dict__["groups"] == [40, 40]
        assert widths == [40]
        again = db.ask(Sums("age > 30"), privacy=NEARLY_EXACT, owner="a30")
        assert again.cached
        assert again.value == found[10].value
        ledger.check()


def test_a_budget_for_some_of_those_who_ask_together_answers_these_and_refuses_the_others() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1))
    with Database(ROWS, schema=people_schema(), ledger=ledger) as db:
        asks = [db.asking(Sums(f"age > {20 + i}"), privacy=GaussianDP(mu=0.5)) for i in range(7)]
        found = outcomes(asks)
    # Four of mu = 1/2 come to one of mu = 1.
    assert [isinstance(one, BudgetExceeded) for one in found] == [False] * 4 + [True] * 3
    assert ledger.spent().charges == 4
    ledger.check()


def test_the_same_question_twice_in_one_batch_is_charged_once_and_answered_alike() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1))
    with Database(ROWS, schema=people_schema(), ledger=ledger) as db:
        asks = [db.asking(Sums("age > 40"), privacy=GaussianDP(mu=0.5), owner=owner) for owner in "aab"]
        first, second, other = outcomes(asks)
    assert first.value == second.value == other.value
    assert first.receipt == second.receipt != other.receipt
    assert ledger.spent().charges == 1
    assert ledger.spent("a").charges == ledger.spent("b").charges == 1
    ledger.check()


def test_a_pass_that_fails_for_one_is_made_again_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    with Database(ROWS, schema=people_schema()) as db:
        aggregate = db._engine.aggregate

        def fussy(expressions: Any) -> Any:
            if any("'77.0'" in tree.sql() for tree in expressions):
                raise EngineFailed
            return aggregate(expressions)

        monkeypatch.setattr(db._engine, "aggregate", fussy)
        found = outcomes([db.asking(Sums(f"age > {least}"), privacy=NEARLY_EXACT) for least in (30, 77, 50)])
        assert isinstance(found[1], EngineFailed)
        for least, answer in ((30, found[0]), (50, found[2])):
            assert answer.value == pytest.approx([int((ROWS["age"] > least).sum())], abs=1e-3)
        assert db.ledger.spent().charges == 3


@pytest.mark.parametrize(
    "error",
    [
        TableChanged(),
        EngineFailed(),
        ExpressionRefused("a join", "Ask about one table."),
        DataError("age must be a number", column="age", line=3),
        BudgetExceeded("too much", asked=2.0, left=1.0, limit=1.0, currency="rho", scope="total"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_that_several_are_told_says_the_same_to_each(error: Exception, copied: Any) -> None:
    other = copied(error)
    assert other is not error
    assert (type(other), str(other), other.__dict__) == (type(error), str(error), error.__dict__)
