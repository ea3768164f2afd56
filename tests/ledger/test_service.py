"""What a service read_set of a ledger: what was asked, keys of requests, whose it is, and its history."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import (
    BudgetExceeded,
    KeyReused,
    LedgerError,
    LedgerTampered,
    ParameterError,
)
from discreet.ledger import Entry, Ledger, _account
from discreet.ledger.records import request_mark
from discreet.privacy.promises import ApproxDP, GaussianDP, PureDP
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TENTH = PureDP(epsilon=0.1)
COUNT = {"question": {"kind": "sum", "where": "age < 30"}, "privacy": {"kind": "pure-dp", "epsilon": 0.1}}


@pytest.fixture(params=["file", "memory", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "survey.ledger")
    if request.param == "memory":
        return ":memory:"
    return f"{request.getfixturevalue('postgres_url')}#survey"


@pytest.fixture
def reopen(place: str) -> Callable[[Ledger], Ledger]:
    def again(ledger: Ledger) -> Ledger:
        if place == ":memory:":
            return ledger
        ledger.close()
        return Ledger.open(place)

    return again


def test_what_was_asked_is_in_the_record_and_not_on_the_receipt(
    place: str, reopen: Callable[[Ledger], Ledger]
) -> None:
    ledger = Ledger.open(place)
    told = ledger.charge(TENTH, owner="ann", question="q", asked=COUNT)
    silent = ledger.charge(TENTH, owner="bob")
    ledger.store(told, b"41.5")
    ledger = reopen(ledger)
    assert "asked" not in told.to_dict()
    assert ledger.entries() == [Entry(told, COUNT, b"41.5"), Entry(silent, None, None)]
    assert ledger.entry(told.id) == Entry(told, COUNT, b"41.5")
    with ledger._store.read() as transaction:
        bodies = [row.body for row in transaction.record()]
    assert "asked" in bodies[1]
    assert "asked" not in bodies[2]
    assert "request" not in bodies[2]
    ledger.check()
    ledger.close()


@pytest.mark.parametrize("wrong", [{"x": math.nan}, {"x": object()}, {"x": {1, 2}}, ["x"], "x"])
def test_what_is_not_json_cannot_be_asked(wrong: Any) -> None:
    with Ledger.open(":memory:") as ledger:
        with pytest.raises(ParameterError, match=r"asked of Ledger\.charge"):
            ledger.charge(TENTH, asked=wrong)
        assert ledger.spent().charges == 0


def test_a_request_sent_again_is_charged_once_and_has_the_first_answer(
    place: str, reopen: Callable[[Ledger], Ledger]
) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    first = ledger.charge(TENTH, owner="ann", question="v1 q", asked=COUNT, request="k")
    # charged and never answered: the same charge stands for another try
    assert ledger.charge(TENTH, owner="ann", question="v1 q", asked=COUNT, request="k").answer is None
    ledger.store(first, b"41.5")
    ledger = reopen(ledger)
    again = ledger.charge(TENTH, owner="ann", question="v1 q", asked=COUNT, request="k")
    assert (again, again.answer) == (first, b"41.5")
    # the data changed, and with them the digest, and not what was asked
    later = ledger.charge(TENTH, owner="ann", question="v2 q", asked=COUNT, request="k")
    assert (later, later.answer) == (first, b"41.5")
    assert ledger.spent().charges == ledger.spent("ann").charges == 1
    # without the key it is a new question
    assert ledger.charge(TENTH, owner="ann", question="v2 q", asked=COUNT).answer is None
    assert ledger.spent().charges == 2
    ledger.check(first)
    ledger.close()


def test_a_key_belongs_to_its_owner_and_to_one_question(place: str) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    ledger.charge(TENTH, owner="ann", what="count", question="q1", asked=COUNT, request="k")
    head = ledger.head
    other: dict[str, Any] = {"question": {"kind": "sum", "where": "age < 31"}}
    for promise, question, asked in (
        (TENTH, "q2", other),
        (TENTH, "q2", None),
        (TENTH, None, None),
        (PureDP(epsilon=0.2), "q1", COUNT),
        (PureDP(epsilon=0.2), "q2", COUNT),
    ):
        with pytest.raises(KeyReused, match=r"'k' was used before, for row 2 \('count'\)"):
            ledger.charge(promise, owner="ann", question=question, asked=asked, request="k")
    assert ledger.head == head
    # the same key of somebody else, or of nobody, is another key
    ledger.charge(TENTH, owner="bob", question="q2", asked=other, request="k")
    ledger.charge(TENTH, question="q3", asked=other, request="k")
    assert ledger.spent().charges == 3
    ledger.check()
    ledger.close()


def test_a_key_without_digest_and_without_what_was_asked_goes_by_the_words() -> None:
    with Ledger.open(":memory:") as ledger:
        first = ledger.charge(TENTH, what="a release", request="k")
        assert ledger.charge(TENTH, what="a release", request="k") == first
        with pytest.raises(KeyReused):
            ledger.charge(TENTH, what="another release", request="k")


def test_the_key_of_a_free_repeat_is_kept_too(place: str, reopen: Callable[[Ledger], Ledger]) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    said: dict[str, Any] = COUNT | {"said": "how many are under 30?"}
    first = ledger.charge(TENTH, owner="ann", question="v1 q", asked=COUNT)
    ledger.store(first, b"41.5")
    assert ledger.charge(TENTH, owner="ann", question="v1 q", asked=said, request="k") == first
    rows = ledger.head[0]
    ledger = reopen(ledger)
    # the key is bound: to what was said with it, also after the data changed
    again = ledger.charge(TENTH, owner="ann", question="v2 q", asked=said, request="k")
    assert (again, again.answer) == (first, b"41.5")
    with pytest.raises(KeyReused):
        ledger.charge(TENTH, owner="ann", question="v2 q", asked=COUNT, request="k")
    with pytest.raises(KeyReused):
        ledger.charge(TENTH, owner="ann", question="another", request="k")
    assert ledger.head[0] == rows
    assert ledger.spent().charges == 1
    assert [entry.receipt for entry in ledger.entries()] == [first]
    ledger.check()
    ledger.close()


def test_of_a_free_repeat_no_more_is_kept_than_its_key_and_a_digest(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        first = ledger.charge(TENTH, owner="ann", question="q", asked=COUNT)
        for i in range(3):
            said: dict[str, Any] = COUNT | {"said": f"{i}" * 10_000}
            assert ledger.charge(TENTH, owner="ann", question="q", asked=said, request=f"k{i}") == first
        with ledger._store.read() as transaction:
            bodies = [row.body for row in transaction.record()][2:]
        assert len(bodies) == 3
        assert max(map(len, bodies)) < 250
        # Nor can what is kept be taken for what was asked with another key.
        with pytest.raises(KeyReused):
            ledger.charge(TENTH, owner="ann", question="q2", asked=said, request="k0")
        assert ledger.charge(TENTH, owner="ann", question="q2", asked=said, request="k2") == first
        ledger.check()


def test_a_key_whose_row_has_all_that_was_asked_is_known_by_it(place: str) -> None:
    """Rows of earlier versions."""
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        first = ledger.charge(TENTH, owner="ann", question="q")

        def remember(transaction: Any) -> None:
            body = {"type": "request", "owner": "ann", "request": "k", "row": first.seq, "asked": COUNT}
            row = transaction.append(first.when, canonical(body))
            transaction.put_mark(request_mark("ann", "k"), row.seq)

        ledger._store.write(remember)
        ledger.check()
        assert ledger.charge(TENTH, owner="ann", question="q2", asked=COUNT, request="k") == first
        with pytest.raises(KeyReused):
            ledger.charge(TENTH, owner="ann", question="q2", asked=COUNT | {"said": "x"}, request="k")


@pytest.mark.parametrize("epsilon", [0.45, 0.55, 5.0])
def test_a_plan_tells_nobody_whether_somebody_else_has_asked(place: str, epsilon: float) -> None:
    # 0.45 fits what the total has left beside the plan alone, and not beside the question too.
    with Ledger.open(place, limit=PureDP(epsilon=1), owner_limit=PureDP(epsilon=100)) as ledger:
        ledger.charge(PureDP(epsilon=0.5), owner="bob", question="asked")
        told = []
        for question in ("asked", "never asked"):
            with pytest.raises(BudgetExceeded) as refused:
                ledger.charge(
                    PureDP(epsilon=0.5), owner="ann", question=question, plan=[PureDP(epsilon=epsilon)]
                )
            told.append((str(refused.value), refused.value.asked, refused.value.left, refused.value.scope))
        assert told[0] == told[1]
        assert ledger.spent("ann").charges == 0
        # What she paid for herself stays free, whatever she plans.
        mine = ledger.charge(PureDP(epsilon=0.5), owner="ann", question="asked")
        plan = [PureDP(epsilon=epsilon)]
        assert ledger.charge(PureDP(epsilon=0.5), owner="ann", question="asked", plan=plan) == mine
        assert ledger.spent().charges == 1
        ledger.check()


def test_a_refused_request_leaves_its_key_free(place: str) -> None:
    ledger = Ledger.open(place, limit=PureDP(epsilon=1))
    with pytest.raises(BudgetExceeded):
        ledger.charge(PureDP(epsilon=2), owner="ann", question="q", request="k")
    ledger.charge(TENTH, owner="ann", question="q", request="k")
    assert ledger.spent().charges == 1
    ledger.check()
    ledger.close()


def test_names_that_a_database_cannot_keep_are_refused_before_it_sees_them(place: str) -> None:
    ledger = Ledger.open(place)
    for name in ("what", "owner", "question", "schema", "request"):
        for wrong in ("a\0b", "\ud800", ""):
            words: dict[str, Any] = {name: wrong}
            with pytest.raises(ParameterError, match=f"{name} of a charge"):
                ledger.charge(TENTH, **words)
    assert ledger.charge(TENTH, owner="Ænn 💚", asked={"said": "\0 \ud800"}).owner == "Ænn 💚"
    assert ledger.entries("Ænn 💚")[0].asked == {"said": "\0 \ud800"}
    ledger.check()
    ledger.close()


def test_entries_are_chosen_by_owner_and_place_and_the_newest_come_last(place: str) -> None:
    ledger = Ledger.open(place)
    made = [ledger.charge(TENTH, owner=owner, what=f"{i}") for i, owner in enumerate("abab")]
    ledger.store(made[1], b"1")
    # somebody who is only mentioned is not the owner
    ledger.charge(TENTH, owner="c", asked={"owner": "a", "type": "charge"})

    def what(**chosen: Any) -> list[str]:
        return [entry.receipt.what for entry in ledger.entries(**chosen)]

    assert what() == ["0", "1", "2", "3", "charge"]
    assert what(owner="a") == ["0", "2"]
    assert what(owner="a", after=made[0].seq) == ["2"]
    assert what(owner="b", last=1) == ["3"]
    assert what(last=3) == ["2", "3", "charge"]
    assert what(first=2) == ["0", "1"]
    assert what(owner="b", after=made[0].seq, first=1) == ["1"]
    assert what(last=3, after=made[2].seq) == ["3", "charge"]
    assert what(owner="nobody") == []
    assert ledger.entries("b", last=2)[0].answer == b"1"
    assert ledger.history("a") == [made[0], made[2]]
    ledger.close()


def test_an_entry_that_is_not_here_is_said_not_to_be(place: str) -> None:
    ledger = Ledger.open(place)
    receipt = ledger.charge(TENTH)
    ledger.store(receipt, b"1")
    start = ledger.identity[:12]
    assert ledger.entry(f"{start}-2").receipt == receipt
    for wrong in (
        f"{start}-1", f"{start}-3", f"{start}-4", f"{start}-02", f"{start}--2", f"{start}-²", f"{start}-",
        "unrecorded-2", "2", "", f"{start}-{10**30}",
    ):  # fmt: skip
        with pytest.raises(LedgerError, match=r"receipt_id of Ledger\.entry"):
            ledger.entry(wrong)
    ledger.close()


def test_every_owner_is_listed_with_what_they_spent(place: str, reopen: Callable[[Ledger], Ledger]) -> None:
    ledger = Ledger.open(place, limit=ApproxDP(epsilon=1, delta=1e-6), owner_limit=PureDP(epsilon=0.5))
    assert ledger.owners() == {}
    ledger.set_owner_limit("eve", PureDP(epsilon=0.1))
    ledger.charge(TENTH, owner="ann")
    ledger.charge(TENTH, owner="owner:total")
    ledger.charge(GaussianDP(mu=0.1))
    ledger = reopen(ledger)
    found = ledger.owners()
    assert list(found) == ["ann", "eve", "owner:total"]
    assert {name: books.epsilon for name, books in found.items()} == {
        "ann": 0.1, "eve": 0, "owner:total": 0.1,
    }  # fmt: skip
    assert all(books == ledger.spent(name) for name, books in found.items())
    ledger.close()


def test_a_ledger_is_about_one_data_set(place: str, reopen: Callable[[Ledger], Ledger]) -> None:
    ledger = Ledger.open(place)
    ledger.charge(TENTH)
    ledger.bind("survey 2026")
    head = ledger.head
    ledger = reopen(ledger)
    ledger.bind("survey 2026")
    assert ledger.head == head
    with pytest.raises(LedgerError, match=r"'survey 2026', got 'payroll'"):
        ledger.bind("payroll")
    with pytest.raises(ParameterError, match="dataset"):
        ledger.bind("")
    assert ledger.head == head
    ledger.check()
    ledger.close()


def test_a_head_kept_elsewhere_shows_that_the_ledger_went_back(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
        early = ledger.head
        ledger.close()
        old = path.read_bytes()
        ledger.charge(TENTH)
        late = ledger.head
        ledger.confirm(*early)
        ledger.confirm(*late)
        for wrong in ((late[0], early[1]), (late[0] + 1, late[1]), (0, late[1])):
            with pytest.raises(LedgerTampered, match=f"row {wrong[0]} "):
                ledger.confirm(*wrong)
    path.write_bytes(old)
    with Ledger.open(path) as ledger:
        ledger.check()  # consistent with itself ...
        ledger.confirm(*early)
        with pytest.raises(LedgerTampered, match="an older state was put back"):  # ... and not with us
            ledger.confirm(*late)


def test_totals_that_are_kept_in_memory_are_only_a_reading_of_those_in_the_database(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_account, "_CACHE_SIZE", 3)
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        for i in range(10):
            ledger.charge(TENTH, owner=f"{i % 4}")
            if place != ":memory:" and i == 5:  # another process charges in between
                with Ledger.open(place) as other:
                    other.charge(PureDP(epsilon=0.05))
                    assert ledger.spent().epsilon == other.spent().epsilon == 0.65
            if place != ":memory:" and i == 8:
                with pytest.raises(BudgetExceeded) as told:
                    ledger.charge(TENTH)
                assert told.value.left == 0.05
                break
        ledger.check()


def test_a_charge_in_postgresql_is_flushed_whatever_the_role_has_set(postgres_url: str) -> None:
    import psycopg

    from discreet.ledger.postgres import PostgresSchema

    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
        try:
            with psycopg.connect(postgres_url) as twin:
                assert twin.execute("SHOW synchronous_commit").fetchone() == ("off",)
            with Ledger.open(f"{postgres_url}#flushed") as ledger:
                store = ledger._store
                assert isinstance(store, PostgresSchema)
                with store._transaction() as connection:
                    assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        finally:
            owner.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")
