"""The live attack rebuilds what weak noise leaves open, and raises alarms where noise or charge is wrong."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.audit import stored_answers
from discreet.audit._linear_reconstruction import _RowScan, _scan_aggregate
from discreet.audit.reconstruction import Reconstruction, Reconstructor, reconstruct
from discreet.audit.stored_answers import (
    NOT_BY_ROWS,
    OTHER_ROWS,
    OTHER_SCHEMA,
    UNANSWERED,
    UNREADABLE,
    WITHOUT_QUESTION,
    AnswerReader,
)
from discreet.errors import ParameterError, SelfAttackFailed
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.privacy import ApproxDP, GaussianDP, PureDP
from discreet.query import Database, Histogram, Sums
from discreet.query.aggregates import ClusterSums, Gram, Moments, SignSketches, aggregate_from_dict
from discreet.query.calibration import QueryNoise, SeededNoise
from discreet.schema import Column, Schema
from tests.audit.answered import PEOPLE, asked, bits_schema, bits_table, counts, crossings
from tests.query.people import people, people_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Ints
    from discreet.query.aggregates import BoundAggregate

WEAK = GaussianDP(mu=10.0)
SANE = GaussianDP(mu=0.1)


def attacked(db: Database, **more: Any) -> Reconstruction:
    with db:
        return reconstruct(db, stream=Stream.from_seed(7), **more)


# What is rebuilt.


def test_counts_with_weak_noise_give_nearly_every_bit_away() -> None:
    found = attacked(asked(WEAK, crossings()), columns=["ill"])
    (ill,) = found.columns
    assert found.people == PEOPLE
    assert ill.guess.without > 0.4
    assert ill.guess.error < 0.01
    assert ill.alike > 0.4  # what others answer tells nothing about a bit that goes with nothing
    assert found.alarms == ()


@pytest.mark.parametrize("privacy", [SANE, PureDP(epsilon=0.05)], ids=["gaussian", "laplace"])
def test_the_same_questions_under_a_sane_budget_tell_next_to_nothing(privacy: Any) -> None:
    found = attacked(asked(privacy, crossings()), columns=["ill"])
    (ill,) = found.columns
    assert abs(ill.guess.error - ill.guess.without) < 0.08
    assert ill.guess.floor is not None
    assert ill.guess.floor > 0.3
    assert found.alarms == ()
    found.check()


def test_a_number_is_rebuilt_from_weak_noise_and_not_from_much() -> None:
    errors = []
    for mu in (40.0, 0.05):
        (wage,) = attacked(asked(GaussianDP(mu=mu), crossings("wage")), columns=["wage"]).columns
        assert wage.guess.measure == "EUR"
        assert wage.guess.floor is not None
        assert "EUR" in wage.sentence()
        assert "± 28,730 by what answers tell" in dataclasses.replace(wage, alike=28_730.0).sentence()
        errors.append(wage.guess.error / wage.guess.without)
        assert 0 < wage.moved <= mu * len(crossings()) ** 0.5
    assert errors[0] < 0.15
    assert 0.95 < errors[1] < 1.05


def test_what_alike_people_have_in_common_is_told_apart_from_their_own_cells() -> None:
    n = 2000
    rows = {"sex": np.arange(n) % 2, "smokes": np.arange(n) % 2}
    schema = Schema(columns=[Column("sex", values=(0, 1), role="public"), Column("smokes", values=(0, 1))])
    db = Database(rows, schema=schema, random_state=3)
    db.histogram(["sex", "smokes"], privacy=SANE)
    (smokes,) = attacked(db).columns
    assert smokes.guess.error == 0.0
    assert smokes.alike == 0.0
    assert smokes.guess.floor is not None
    assert smokes.guess.floor > 0.45
    assert "people who are alike have much in common" in smokes.sentence()


def test_all_kinds_of_questions_and_cells_are_attacked() -> None:
    questions = [
        Histogram(("age", "job")),
        Moments(("income", "age")),
        Gram(("income", "job")),
        ClusterSums(("income", "age"), ((0.1, 0.2), (0.8, 0.7))),
        Sums(("income", "age > 40")),
    ]
    for neighbors in ("replace-one", "add-remove"):
        ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=8, delta=1e-6, neighbors=neighbors))
        db = Database(people(400), schema=people_schema(neighbors), ledger=ledger, random_state=2)
        for question in questions:
            db.ask(question, privacy=GaussianDP(mu=0.3, neighbors=neighbors))
            db.ask(question, privacy=PureDP(epsilon=0.3, neighbors=neighbors))
        found = attacked(db, people=150)
        assert (found.used, found.unused, found.alarms) == (10, {}, ())
        named = {column.guess.column: column for column in found.columns}
        assert set(named) == {"income", "height", "age", "job", "owner"}
        assert named["height"].answers == 0
        assert named["height"].moved == 0.0
        for column in named.values():
            assert column.guess.floor is not None
            assert column.floor_at_limit is not None
            assert column.floor_at_limit <= column.guess.floor
        json.dumps(found.to_dict())
        assert found.sentences[-1] == "No answer depends on height, owner."


# What raises an alarm.


def twin_with_noise(change: Callable[[Ints], Ints], monkeypatch: pytest.MonkeyPatch) -> None:
    draw = SeededNoise.gaussian
    monkeypatch.setattr(SeededNoise, "gaussian", lambda self, s, n=1: change(draw(self, s, n)))


@pytest.mark.parametrize("asks", [1, 75])
def test_half_of_the_noise_raises_an_alarm(monkeypatch: pytest.MonkeyPatch, asks: int) -> None:
    with monkeypatch.context() as broken:
        twin_with_noise(lambda noise: noise // 2, broken)
        db = asked(SANE, [counts(i, 150 // asks) for i in range(asks)])
    found = attacked(db)
    assert any("smaller than declared" in alarm for alarm in found.alarms)
    assert found.sentences[0].startswith("Alarm: ")
    with pytest.raises(SelfAttackFailed, match="smaller than declared") as caught:
        found.check()
    assert caught.value.broken == found.alarms


def test_no_noise_at_all_in_one_answer_among_many_raises_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    db = asked(SANE, [counts(i, 1) for i in range(30)])
    with monkeypatch.context() as broken:
        twin_with_noise(np.zeros_like, broken)
        answer = db.ask(counts(90, 4), privacy=SANE)
    found = attacked(db)
    assert found.alarms == (f"The noise in row {answer.receipt.seq} of the ledger is smaller than declared.",)


def test_twice_the_noise_raises_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        twin_with_noise(lambda noise: 2 * noise, broken)
        db = asked(SANE, [counts(i, 1) for i in range(110)])
    assert "The noise of all answers together is larger than declared." in attacked(db).alarms


@pytest.mark.parametrize("privacy", [SANE, PureDP(epsilon=0.1)], ids=["gaussian", "laplace"])
def test_a_ledger_that_charges_too_little_raises_an_alarm(
    monkeypatch: pytest.MonkeyPatch, privacy: Any
) -> None:
    fit = Database._calibrate

    def cheap(self: Database, *asked: Any, **more: Any) -> tuple[BoundAggregate, QueryNoise]:
        bound, noise = fit(self, *asked, **more)
        assert noise.promise is not None
        name = "mu" if isinstance(privacy, GaussianDP) else "epsilon"
        less = {name: 0.5 * getattr(noise.promise, name)}
        return bound, dataclasses.replace(noise, promise=dataclasses.replace(noise.promise, **less))

    for wrong in (False, True):
        with monkeypatch.context() as broken:
            if wrong:
                broken.setattr(Database, "_calibrate", cheap)
            db = asked(privacy, [counts(0, 1)])
        found = attacked(db)
        assert [alarm for alarm in found.alarms if "was charged" in alarm] == list(found.alarms)
        assert bool(found.alarms) == wrong


def test_a_sensitivity_that_is_too_small_raises_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = Sums.bind

    def careless(self: Sums, *where: Any) -> BoundAggregate:
        bound = bind(self, *where)
        return dataclasses.replace(bound, squared=bound.squared // 4)

    monkeypatch.setattr(Sums, "bind", careless)
    (alarm,) = attacked(asked(SANE, [Sums(("ill = 'yes'", "ill = 'no'"))])).alarms
    assert alarm.startswith("Another ill of one person would move the answer in row 2 of the ledger by 0.2,")
    assert alarm.endswith("where 0.1 was charged.")


@pytest.mark.slow
def test_true_noise_raises_none() -> None:
    for seed in range(12):
        privacy = PureDP(epsilon=0.3) if seed % 2 else SANE
        db = asked(privacy, [counts(0, 1 + seed), *crossings()[:5]], seed=seed, n=40)
        assert attacked(db).alarms == ()


# What is not used, and is said so.


def test_what_the_attack_does_not_use_is_counted() -> None:
    ledger = Ledger.open(":memory:")
    ledger.charge(PureDP(epsilon=0.1), what="release of a table")
    with Database(bits_table(), schema=bits_schema(), ledger=ledger) as other:
        other.count("ill = 'no'", privacy=SANE)
        ledger.charge(
            SANE,
            what="sums",
            question="digest",
            schema=other.schema.digest,
            asked={"question": Sums(("ill = 'no'",)).to_dict(), "privacy": SANE.to_dict(), "variance": None},
        )
    wider = Schema(columns=[*bits_schema().columns, Column("sex", values=(0, 1))])
    with Database({**bits_table(), "sex": np.arange(PEOPLE) % 2}, schema=wider, ledger=ledger) as other:
        other.count("sex = 1", privacy=SANE)
    later = bits_table()
    later["ill"] = np.full(PEOPLE, "yes")
    db = Database(later, schema=bits_schema(), ledger=ledger)
    db.ask(Sums("ill = 'yes'"), privacy=SANE, owner="ada")
    db.ask(Sums("ill = 'yes'"), privacy=SANE, owner="bob")  # the same draw again
    found = attacked(db)
    assert found.used == 1
    assert found.unused == {WITHOUT_QUESTION: 1, UNANSWERED: 1, OTHER_SCHEMA: 1, OTHER_ROWS: 1}
    assert all(reason in found.sentences[-1] for reason in found.unused)


def test_answers_about_rows_of_which_one_has_changed_are_not_taken_for_answers_about_these() -> None:
    ledger = Ledger.open(":memory:")
    with asked(SANE, crossings()[:3], ledger=ledger):
        pass
    later = bits_table()
    later["ill"][17] = "no" if later["ill"][17] == "yes" else "yes"
    found = attacked(Database(later, schema=bits_schema(), ledger=ledger))
    assert (found.used, found.unused, found.alarms) == (0, {OTHER_ROWS: 3}, ())


def test_every_draw_of_an_answer_that_was_refined_is_used() -> None:
    db = asked(SANE, [])
    first = db.ask(Sums("ill = 'yes'"), privacy=SANE)
    second = db.ask(Sums("ill = 'yes'"), privacy=SANE, refines=first.receipt.id)
    db.ask(Sums("ill = 'yes'"), privacy=SANE, refines=second.receipt.id)
    found = attacked(db)
    assert (found.used, found.unused, found.alarms) == (3, {}, ())
    assert found.columns[0].moved == pytest.approx(0.1 * 3**0.5)


def test_signs_of_ids_and_answers_of_other_versions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(
        columns=[Column("id", type="integer", role="id"), Column("ill", values=("no", "yes"))],
        id_column="id",
        max_rows_per_unit=1,
    )
    db = Database({"id": np.arange(PEOPLE), "ill": bits_table()["ill"]}, schema=schema, keep_ids=True)
    db.ask(SignSketches(("ill",), 3, "study"), privacy=SANE)
    db.ask(Sums("ill = 'no'"), privacy=SANE)

    def newer(values: Any) -> Any:
        if values["kind"] == "sums":
            raise ParameterError("kind of a question must be one that is known, and is not.")
        return aggregate_from_dict(values)

    monkeypatch.setattr("discreet.audit.stored_answers.aggregate_from_dict", newer)
    found = attacked(db)
    assert (found.used, found.unused) == (0, {NOT_BY_ROWS: 1, UNREADABLE: 1})
    assert "nothing can be reconstructed" in found.sentences[0]


def test_nothing_is_charged_and_no_row_is_told() -> None:
    db = asked(SANE, [counts(0, 1)])
    before = db.ledger.head
    with db:
        found = reconstruct(db, columns=["ill"], people=10)
    assert db.ledger.head == before
    assert found.people == 10
    assert [column.guess.column for column in found.columns] == ["ill"]


def test_analysts_ask_on_while_the_attack_runs() -> None:
    with asked(SANE, crossings()[:4]) as db, ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(db.ask, counts(i, 2), privacy=SANE) for i in range(24)]
        attacks = [threads.submit(reconstruct, db, people=50) for _ in range(2)]
        seen = [attack.result() for attack in attacks]
        assert all(one.result().sd is not None for one in asking)
        last = reconstruct(db, people=50)
    assert all(4 <= found.used <= 28 and found.alarms == () for found in seen)
    assert (last.used, last.alarms) == (28, ())


def test_the_queue_of_a_pass_decides_on_its_connection_and_not_its_thread() -> None:
    """A connection of DuckDB makes one pass at a time, and the attack asks from a thread like any other."""
    used: list[int] = []
    with asked(SANE, []) as db:
        engine: Any = db._engine

        def see(_arrays: Any) -> None:
            used.append(engine._readers.index(engine._reader))

        scan = _scan_aggregate(_RowScan((engine.curation.identifiers()[0],), lambda _: None, see))
        for passes in (db._passes, db._background_passes, db._passes):
            passes.submit([scan])
    assert used == [0, 1, 0]


def test_rows_in_postgresql_are_attacked_where_they_are(postgres_url: str) -> None:
    import psycopg

    columns = bits_table()
    kinds = {name: "text" if name == "ill" else "double precision" for name in columns}
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"CREATE TABLE bits ({', '.join(f'{n} {k}' for n, k in kinds.items())})")
        with connection.cursor().copy("COPY bits FROM STDIN") as copying:
            for row in zip(*columns.values(), strict=True):
                copying.write_row(row)
    schema = bits_schema()
    with Database(f"{postgres_url}?table=bits", schema=schema, random_state=1) as db:
        for question in crossings():
            db.ask(question, privacy=WEAK)
        found = reconstruct(db, columns=["ill"])
    assert (found.used, found.alarms) == (len(crossings()), ())
    assert found.columns[0].guess.error < 0.01


def test_wrong_arguments_are_refused() -> None:
    with asked(SANE, [counts(0, 1)]) as db:
        for people_ in (0, True, 1.5):
            with pytest.raises(ParameterError, match="people of reconstruct"):
                reconstruct(db, people=people_)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match="released columns"):
            reconstruct(db, columns=["sick"])
    with (
        Database(
            {"ill": np.array([], dtype=object)}, schema=Schema(columns=[Column("ill", values=("no", "yes"))])
        ) as db,
        pytest.raises(ParameterError, match="at least one row"),
    ):
        reconstruct(db)


# Piece by piece.


def test_an_attack_continued_after_every_answer_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = bits_schema()
    questions = [f"ill = 'yes' AND wage > {least}" for least in (0, 20, 2000, 4000)]
    with Database(bits_table(), schema=schema, random_state=3) as db:
        attack = Reconstructor(db, stream=Stream.from_seed(7))
        read: list[int] = []

        def note_row() -> bool:
            read.append(attack.row)
            return True

        for question in [*questions, questions[0]]:  # the last is free, and no new answer
            db.ask(Sums(question), privacy=WEAK)
            attack.update(note_row)
        continued = attack.result()
        monkeypatch.setattr(stored_answers, "_PIECE", 3)  # in pieces, all at once
        whole = reconstruct(db, stream=Stream.from_seed(7))
    assert read == sorted(set(read))
    assert len(read) == len(questions)
    assert continued.used == whole.used == len(questions)
    assert [c.answers for c in continued.columns] == [c.answers for c in whole.columns]
    for one, other in zip(continued.columns, whole.columns, strict=True):
        assert one.guess.error == pytest.approx(other.guess.error, rel=1e-9)
        assert one.moved == pytest.approx(other.moved, rel=1e-12)


def test_an_answer_that_comes_after_its_charge_was_read_is_used_then() -> None:
    with Database(bits_table(), schema=bits_schema(), random_state=3) as db:
        reader = AnswerReader(db, db.ledger)
        answer = db.ask(Sums("ill = 'yes'"), privacy=WEAK)
        stored = db.ledger.entry(answer.receipt.id)
        unanswered = dataclasses.replace(stored, answer=None)
        with pytest.MonkeyPatch.context() as patched:
            rows = {0: [unanswered]}  # by the row after which they are asked for
            patched.setattr(type(db.ledger), "entries", lambda _, after, first: rows.get(after, [])[:first])
            assert list(reader.read()) == []
            assert reader.unused == {UNANSWERED: 1}
        ((found,),) = reader.read()
        assert found.row == answer.receipt.seq
        assert reader.unused == {}
