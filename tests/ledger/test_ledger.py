"""One suite over every place where a ledger can be kept."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from typing import TYPE_CHECKING

import pytest

from discreet.errors import (
    BudgetExceeded,
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    ParameterError,
    PromiseError,
)
from discreet.ledger import Ledger
from discreet.privacy.promises import (
    ZCDP,
    ApproxDP,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    PureDP,
)
from discreet.privacy.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TENTH = PureDP(epsilon=0.1)


@pytest.fixture(params=["file", "memory", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "survey.ledger")
    if request.param == "memory":
        return ":memory:"
    return f"{request.getfixturevalue('postgres_url')}#survey"


@pytest.fixture
def reopen(place: str) -> Callable[[Ledger], Ledger]:
    """Come back to a ledger as another process would; one in memory has no other process."""

    def again(ledger: Ledger) -> Ledger:
        if place == ":memory:":
            return ledger
        ledger.close()
        return Ledger.open(place)

    return again


def test_ten_tenths_fill_a_limit_of_one(place: str, reopen: Callable[[Ledger], Ledger]) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    receipts = [ledger.charge(TENTH, what=f"count {i}") for i in range(10)]
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge(PureDP(epsilon=1e-15))
    assert (refusal.value.left, refusal.value.limit, refusal.value.scope) == (0, 1, "total")
    ledger = reopen(ledger)
    assert ledger.spent().epsilon == 1
    assert ledger.spent().promise() == PureDP(epsilon=1)
    assert ledger.history() == receipts
    for receipt in receipts:
        ledger.check(receipt)
    guarantee = ledger.guarantee()
    assert isinstance(guarantee, PureDP)
    assert guarantee.epsilon == 1
    ledger.close()


def test_a_receipt_says_what_was_charged_and_survives_json(place: str) -> None:
    ledger = Ledger.open(place)
    receipt = ledger.charge(
        [GaussianDP(mu=0.5), ErrorFloor(age=9)],
        owner="ann", what="release of a table", schema="ab12", seeded=True,
    )  # fmt: skip
    assert receipt.promises == (GaussianDP(mu=0.5), ErrorFloor(age=9))
    assert (receipt.owner, receipt.schema, receipt.seeded) == ("ann", "ab12", True)
    assert receipt.recorded
    assert receipt.when.endswith("+00:00")
    assert Receipt.from_dict(json.loads(json.dumps(receipt.to_dict()))) == receipt
    assert ledger.history("ann") == [receipt]
    assert ledger.history("bob") == []
    ledger.close()


def test_total_and_owner_are_charged_both_or_neither(place: str, reopen: Callable[[Ledger], Ledger]) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=0.5), owner_limit=PureDP(epsilon=0.2))
    ledger.set_owner_limit("bob", PureDP(epsilon=10))
    ledger.charge(TENTH, owner="ann")
    ledger.charge(TENTH, owner="ann")
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge(TENTH, owner="ann")
    assert refusal.value.scope == "ann"
    assert ledger.spent().epsilon == 0.2
    ledger.charge(PureDP(epsilon=0.3), owner="bob")
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge(TENTH, owner="bob")
    assert refusal.value.scope == "total"
    ledger = reopen(ledger)
    assert ledger.spent("bob").epsilon == 0.3
    assert ledger.spent("ann").epsilon == 0.2
    assert ledger.spent("eve").charges == 0
    remaining = ledger.remaining("bob")
    assert remaining is not None
    assert remaining["epsilon"] == 9.7
    ledger.check()
    ledger.close()


def test_an_owner_called_total_is_not_the_total(place: str) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    ledger.charge(TENTH, owner="total")
    ledger.charge(TENTH)
    assert ledger.spent("total").epsilon == 0.1
    assert ledger.spent().epsilon == 0.2
    ledger.check()
    ledger.close()


def test_a_repeated_question_is_free_and_has_one_answer(
    place: str, reopen: Callable[[Ledger], Ledger]
) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    first = ledger.charge(TENTH, owner="ann", question="q1", what="count")
    assert first.answer is None
    # charged and never answered: the same charge stands for another try
    assert ledger.charge(TENTH, owner="ann", question="q1", what="count") == first
    assert ledger.store(first, b"41.5") == b"41.5"
    assert ledger.store(first, b"a second draw") == b"41.5"
    ledger = reopen(ledger)
    again = ledger.charge(TENTH, owner="ann", question="q1", what="count")
    assert again == first
    assert again.answer == b"41.5"
    assert "answer" not in again.to_dict()
    # another owner pays their own share, the total pays nothing, and nobody's name is shown
    other = ledger.charge(TENTH, owner="bob", question="q1", what="count")
    assert other.answer == b"41.5"
    assert other.owner == "bob"
    assert ledger.store(other, b"a third draw") == b"41.5"
    assert ledger.charge(TENTH, question="q1").answer == b"41.5"
    assert ledger.spent().epsilon == ledger.spent("ann").epsilon == ledger.spent("bob").epsilon == 0.1
    assert [receipt.owner for receipt in ledger.history()] == ["ann", "bob"]
    with pytest.raises(PromiseError, match="digest"):
        ledger.charge(PureDP(epsilon=0.2), owner="ann", question="q1")
    with pytest.raises(PromiseError, match="digest"):
        ledger.charge(PureDP(epsilon=0.2), owner="eve", question="q1")
    ledger.check(other)
    ledger.close()


def test_a_repeat_needs_the_new_owners_own_budget(place: str) -> None:
    ledger = Ledger.open(place, owner_limit=PureDP(epsilon=0.05))
    ledger.charge(TENTH, question="q1")
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge(TENTH, owner="ann", question="q1")
    assert refusal.value.scope == "ann"
    assert ledger.spent("ann").charges == 0
    ledger.check()
    ledger.close()


def test_an_answer_without_a_question_is_kept_by_its_charge(place: str) -> None:
    ledger = Ledger.open(place)
    one, two = ledger.charge(TENTH), ledger.charge(TENTH)
    assert ledger.store(one, b"1") == b"1"
    assert ledger.store(two, b"2") == b"2"
    assert ledger.store(one, b"3") == b"1"
    ledger.check()
    ledger.close()


def test_a_different_limit_is_refused_and_none_means_the_one_it_has(
    place: str, reopen: Callable[[Ledger], Ledger]
) -> None:
    limit = ApproxDP(epsilon=1, delta=1e-6)
    if place == ":memory:":
        assert Ledger.open(place, limit=limit).identity != Ledger.open(place).identity
        return
    ledger = Ledger.open(place, limit=limit, owner_limit=PureDP(epsilon=1))
    assert Ledger.open(place, limit=limit).identity == ledger.identity
    assert reopen(ledger).guarantee() == limit
    for other in (ApproxDP(epsilon=1.1, delta=1e-6), PureDP(epsilon=1)):
        with pytest.raises(LedgerError, match="limit of Ledger"):
            Ledger.open(place, limit=other)
    with pytest.raises(LedgerError, match=r"rule='mixed', order=22.2, got .* rule='gaussian'"):
        Ledger.open(place, limit=limit, rule="gaussian")
    with pytest.raises(LedgerError, match=r"order=22.2, got .* order=33.0"):
        Ledger.open(place, limit=limit, order=33)
    with pytest.raises(LedgerError, match="owner_limit"):
        Ledger.open(place, owner_limit=PureDP(epsilon=2))


def test_without_a_limit_everything_is_recorded_and_nothing_is_guaranteed(place: str) -> None:
    ledger = Ledger.open(place)
    ledger.charge(PureDP(epsilon=1))
    ledger.charge(ZCDP(rho=3))
    assert isinstance(ledger.guarantee(), NoPromise)
    assert ledger.remaining() is None
    assert ledger.spent().promise() == ZCDP(rho=3.5)
    ledger.charge(NoPromise("the table was published as it is"))
    assert isinstance(ledger.spent().promise(), NoPromise)
    ledger.check()
    ledger.close()


def test_a_limited_ledger_refuses_what_it_cannot_add_up_and_charges_nothing(place: str) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    head = ledger.head
    for promise in (
        NoPromise("in the clear"),
        ErrorFloor(age=9),
        GaussianDP(mu=0.1),
        PureDP(epsilon=0.1, neighbors="add-remove"),
        PureDP(epsilon=0.1, unit="household"),
    ):
        with pytest.raises(PromiseError):
            ledger.charge(promise)
    with pytest.raises(ParameterError, match="owner"):
        ledger.charge(TENTH, owner="")
    with pytest.raises(ParameterError, match="question"):
        ledger.charge(TENTH, question="")
    with pytest.raises(ParameterError, match="what"):
        ledger.charge(TENTH, what="")
    with pytest.raises(ParameterError, match="promises"):
        ledger.charge([])
    assert ledger.head == head
    assert ledger.spent().charges == 0
    ledger.close()


def test_a_ledger_is_an_identity(place: str) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy({"ledger": [ledger]})["ledger"][0] is ledger
    if place == ":memory:":
        with pytest.raises(LedgerError, match="Open the ledger with a path"):
            pickle.dumps(ledger)
    else:
        other = pickle.loads(pickle.dumps(ledger))
        other.charge(TENTH)
        assert ledger.spent().epsilon == 0.1
        other.close()
    assert "correct-horse" not in repr(ledger)
    ledger.close()


def test_a_receipt_of_another_ledger_is_not_found(place: str, tmp_path: Path) -> None:
    ledger = Ledger.open(place)
    receipt = Ledger.open(":memory:").charge(TENTH)
    with pytest.raises(LedgerError, match="must be of this ledger"):
        ledger.check(receipt)
    with pytest.raises(LedgerError):
        ledger.store(receipt, b"1")
    loose = Receipt.from_promises(TENTH, what="a release without a ledger")
    assert not loose.recorded
    with pytest.raises(LedgerError):
        ledger.check(loose)
    mine = ledger.charge(TENTH)
    with pytest.raises(LedgerTampered, match="row 2"):
        ledger.check(Receipt.from_dict(mine.to_dict() | {"what": "something else"}))
    ledger.close()


def test_an_error_in_one_thread_leaves_the_ledger_usable_in_all(place: str) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))

    def refused() -> None:
        with pytest.raises(BudgetExceeded):
            ledger.charge(PureDP(epsilon=2))

    threads = [threading.Thread(target=refused) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.charge(PureDP(epsilon=1))
    ledger.check()
    ledger.close()


def test_closing_gives_a_lasting_ledger_back_and_ends_one_in_memory(place: str) -> None:
    with Ledger.open(place) as ledger:
        ledger.charge(TENTH)
    if place == ":memory:":
        with pytest.raises(LedgerError, match="closed"):
            ledger.charge(TENTH)
    else:
        assert ledger.spent().epsilon == 0.1
        ledger.close()


def test_an_unrecorded_receipt_still_says_what_holds() -> None:
    receipt = Receipt.from_promises([TENTH, ErrorFloor(age=9)], what="a release", seeded=True)
    assert receipt.promises == (TENTH, ErrorFloor(age=9))
    assert Receipt.from_dict(json.loads(json.dumps(receipt.to_dict()))) == receipt
    with pytest.raises(ParameterError, match="keys of Receipt"):
        Receipt.from_dict({"id": "1"})


def test_a_ledger_has_one_secret_that_every_process_finds_and_the_record_does_not_hold(
    place: str, reopen: Callable[[Ledger], Ledger], tmp_path: Path
) -> None:
    ledger = Ledger.open(place)
    ledger.charge(TENTH)
    key = ledger.secret()
    assert len(key) == 32
    assert ledger.secret() == key
    again = reopen(ledger)
    assert again.secret() == key
    again.check()
    assert key.hex() not in json.dumps([receipt.to_dict() for receipt in again.history()])
    with Ledger.open(tmp_path / "other.ledger") as other:
        assert other.secret() != key
    again.close()


def test_processes_that_ask_for_the_secret_at_once_get_the_same(place: str) -> None:
    ledger = Ledger.open(place)
    handles = [ledger if place == ":memory:" else Ledger.open(place) for _ in range(6)]
    found: list[bytes] = []
    start = threading.Barrier(len(handles))

    def ask(handle: Ledger) -> None:
        start.wait()
        found.append(handle.secret())

    threads = [threading.Thread(target=ask, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1
    for handle in handles:
        handle.close()


def test_a_secret_that_cannot_be_written_is_told_and_nothing_is_left_behind(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "survey.ledger")
    (tmp_path / "survey.ledger.version-key").mkdir()
    with pytest.raises(LedgerUnavailable, match=r"survey\.ledger\.version-key"):
        ledger.secret()
    ledger.close()


def test_a_charge_is_refused_if_the_plan_after_it_does_not_fit_and_a_paid_question_is_not(
    place: str, reopen: Callable[[Ledger], Ledger]
) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1), owner_limit=PureDP(epsilon=0.5))
    with pytest.raises(BudgetExceeded, match="Not enough budget") as told:
        ledger.charge(TENTH, plan=[TENTH] * 10)
    assert told.value.asked == pytest.approx(1.1)
    assert (told.value.left, told.value.scope) == (1.0, "total")
    with pytest.raises(BudgetExceeded) as told:
        ledger.charge(TENTH, owner="ann", plan=[TENTH] * 5)
    assert told.value.scope == "ann"
    assert ledger.spent().charges == 0
    # What is planned is neither charged nor kept aside.
    ledger.charge(TENTH, question="q", plan=[TENTH] * 9)
    assert ledger.spent().epsilon == 0.1
    ledger.charge(PureDP(epsilon=0.9))
    assert ledger.charge(TENTH, question="q", plan=[TENTH] * 9).question == "q"
    ledger = reopen(ledger)
    assert ledger.spent().charges == 2
    ledger.check()
    ledger.close()


def test_the_exception_for_a_first_charge_counts_for_its_plan_and_for_no_other() -> None:
    # Before any answer the whole plan may be read exactly; parts chosen after answers may not.
    whole = ApproxDP(epsilon=1.0, delta=1e-6)
    first, later = GaussianDP(mu=0.1), GaussianDP(mu=0.21)
    Ledger.open(":memory:", limit=whole).charge(first, plan=[later])
    ledger = Ledger.open(":memory:", limit=whole)
    ledger.charge(first)
    with pytest.raises(BudgetExceeded):
        ledger.charge(later)


def test_what_a_charge_took_is_what_it_was_said_to_take() -> None:
    # The wrong twin asks the account after the charge what one more would take.
    limit, cost = ApproxDP(epsilon=4, delta=1e-6), [GaussianDP(mu=0.1), GaussianDP(mu=0.1)]
    with Ledger.open(":memory:", limit=limit) as ledger:
        wrong = []
        for _ in range(3):
            (before,) = ledger.accounts(None)
            for promise in cost:
                ledger.charge(promise)
            (after,) = ledger.accounts(None)
            assert after.took(cost) == before.takes(cost)
            wrong.append(after.takes(cost) != before.takes(cost))
        assert any(wrong)


def test_a_first_charge_that_is_read_exactly_takes_all() -> None:
    cost = [PureDP(epsilon=0.5), PureDP(epsilon=0.5)]
    with Ledger.open(":memory:", limit=ApproxDP(epsilon=1, delta=1e-6)) as ledger:
        (before,) = ledger.accounts(None)
        told = before.takes(cost)
        assert told is not None
        assert (told["share"], before.more(cost)) == (1.0, 1)
        ledger.charge(cost[0], plan=cost[1:])
        ledger.charge(cost[1])
        (after,) = ledger.accounts(None)
        assert (after.took(cost), after.more(cost)) == (told, 0)


def test_a_refused_plan_is_counted_whole() -> None:
    with (
        Ledger.open(":memory:", limit=PureDP(epsilon=1)) as ledger,
        pytest.raises(
            BudgetExceeded, match=r"^Not enough budget: this takes 240\.0.% of it and 100\.0.% is left\. "
        ) as refusal,
    ):
        ledger.charge(PureDP(epsilon=1.2), plan=[PureDP(epsilon=1.2)])
    assert refusal.value.asked == pytest.approx(2.4)
