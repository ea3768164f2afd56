"""Answers that are refined by another draw, repeated under a key, merged, and sent as JSON."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import special, stats

from discreet.errors import BudgetExceeded, EngineFailed, ParameterError
from discreet.ledger import Ledger
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from discreet.query import Answer, Database, Gram, Histogram, Moments, PosteriorOdds, Sums
from discreet.schema import Column, Schema
from tests.query.people import people, people_schema, under

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from discreet.query import Aggregate

SCHEMA = people_schema()
MU = GaussianDP(mu=0.5)
LESS = GaussianDP(mu=0.25)


def database(rows: int = 100, **more: Any) -> Database:
    return Database(people(rows), schema=SCHEMA, **more)


def ask_sum(db: Database, expression: str, **how: Any) -> Answer:
    """Return the answer to one sum as one number."""
    answer = db.ask(Sums((expression,)), **how)
    value, sd = (float(np.ravel(numbers)[0]) for numbers in (answer.value, answer.sd))
    return dataclasses.replace(answer, value=value, sd=sd)


def fail(_: Sequence[Any]) -> list[int]:
    """Fail in place of an engine's ``aggregate``."""
    raise EngineFailed


def test_a_refined_answer_is_the_average_of_its_draws_by_the_inverse_of_their_variances() -> None:
    with database() as db:
        first = ask_sum(db, "age > 40", privacy=LESS, owner="ann")
        second = ask_sum(db, "40 < age", privacy=MU, owner="ann", refines=first.receipt.id)
        assert second.parts == (first.receipt.id, second.receipt.id)
        assert second.cost == (*first.cost, *second.receipt.promises)
        # The second draw is in the ledger; the same formula by hand, and an unweighted mean as the twin.
        drawn = json.loads(db.ledger.entry(second.receipt.id).answer or b"")["noisy"][0]
        own = drawn / 2**15  # a standard deviation of 2 is 2**16 steps of the lattice
        weights = np.array([1 / 4.0**2, 1 / 2.0**2])
        merged = float(weights @ [float(first.value), own] / weights.sum())
        assert float(second.value) == pytest.approx(merged, rel=1e-12)
        assert float(second.value) != pytest.approx((float(first.value) + own) / 2, rel=1e-6)
        assert float(second.sd) == pytest.approx(1 / math.sqrt(weights.sum()), rel=1e-12)


def test_a_refinement_is_charged_once_and_its_repeat_is_the_same_bits() -> None:
    with database() as db:
        first = ask_sum(db, "age > 40", privacy=MU)
        second = ask_sum(db, "age > 40", privacy=MU, refines=first.receipt.id)
        # Were `refines` not in the digest, the second would be the first again.
        assert db.ledger.spent().charges == 2
        assert second.value != first.value
        again = ask_sum(db, "age > 40", privacy=MU, refines=first.receipt.id)
        assert (again.value, again.parts, again.cached) == (second.value, second.parts, True)
        assert not second.cached
        assert db.ledger.spent().charges == 2
        third = ask_sum(db, "age > 40", privacy=MU, refines=second.receipt.id)
        assert third.parts == (*second.parts, third.receipt.id)
        assert float(third.sd) == pytest.approx(2.0 / math.sqrt(3), rel=1e-12)


def test_a_chain_of_both_laws_is_read_from_the_ledger_by_another_process(tmp_path: Path) -> None:
    promises = [
        PureDP(epsilon=0.5),
        ApproxDP(epsilon=1.0, delta=1e-6),
        PosteriorOdds(epsilon=1, delta=1e-6, queries=10),
        None,
    ]
    ids: list[str] = []
    seen: list[Answer] = []
    for privacy in promises:
        ledger = Ledger.open(tmp_path / "survey.ledger")
        with database(ledger=ledger) as db:
            how: dict[str, Any] = {"variance": 9.0} if privacy is None else {"privacy": privacy}
            refines = ids[-1] if ids else None
            seen.append(db.histogram("job", owner="ann", refines=refines, **how))
            ids.append(seen[-1].receipt.id)
            assert seen[-1].parts == tuple(ids)
            assert seen[-1].law == "laplace"
            assert np.array_equal(db.recall(ids[-1], owner="ann").value, seen[-1].value)
        ledger.close()
    precisions = [np.asarray(answer.sd) ** -2 for answer in seen]
    assert all((later > earlier).all() for earlier, later in itertools.pairwise(precisions))
    assert seen[2].comparison is not None
    assert len(seen[-1].cost) == 4


def test_merged_draws_are_distributed_as_they_say() -> None:
    schema = Schema(columns=[Column("x", type="integer", lower=0, upper=4000)])
    with Database({"x": np.zeros(0)}, schema=schema, random_state=11) as sums:
        first = sums.ask(Histogram("x"), privacy=GaussianDP(mu=1))
        second = sums.ask(Histogram("x"), privacy=GaussianDP(mu=0.4), refines=first.receipt.id)
        assert stats.kstest(np.asarray(second.value) / second.sd, stats.norm.cdf).pvalue > 1e-9
        # The unweighted mean, which the weaker draw makes noisier, is seen.
        noisy = np.asarray(second.sd) * 1.25
        assert stats.kstest(np.asarray(second.value) / noisy, stats.norm.cdf).pvalue < 1e-9


def test_owners_who_refine_the_same_answer_share_the_draw_and_the_total_pays_once() -> None:
    with database() as db:
        own: dict[str, Answer] = {}
        for owner in ("ann", "bob"):
            first = ask_sum(db, "age > 40", privacy=MU, owner=owner)
            own[owner] = ask_sum(db, "age > 40", privacy=MU, owner=owner, refines=first.receipt.id)
        assert own["ann"].value == own["bob"].value
        assert own["ann"].parts != own["bob"].parts
        mu = math.hypot(0.5, 0.5)
        assert float(db.ledger.spent().gaussian) == pytest.approx(mu**2 / 2, rel=1e-9)
        assert float(db.ledger.spent("bob").gaussian) == pytest.approx(mu**2 / 2, rel=1e-9)


def test_what_cannot_be_refined_is_refused_and_nothing_is_charged() -> None:
    ledger = Ledger.open(":memory:")
    with database(ledger=ledger) as db:
        anns = ask_sum(db, "age > 40", privacy=MU, owner="ann").receipt.id
        nobodys = ask_sum(db, "age > 41", privacy=MU).receipt.id
        release = ledger.charge(GaussianDP(mu=0.1), owner="ann", what="release").id
        charges = ledger.spent().charges

        def refused(said: str, predicate: str, refines: str, owner: str | None, database: Database) -> str:
            with pytest.raises(ParameterError, match=said) as caught:
                ask_sum(database, predicate, privacy=MU, owner=owner, refines=refines)
            assert ledger.spent().charges == charges
            return str(caught.value)

        refused("same question", "age > 42", anns, "ann", db)
        refused("was answered", "age > 40", release, "ann", db)
        refused("answer with noise", "TRUE", anns, "ann", db)
        # What somebody else paid for is not told from what does not exist, and neither is what nobody did:
        # it would be learned without a charge to this owner.
        others = [
            refused("same owner", predicate, refines, owner, db)
            for predicate, refines, owner in (
                ("age > 40", anns, "bob"),
                ("age > 41", nobodys, "bob"),
                ("age > 40", "no-such-receipt", "bob"),
            )
        ]
        assert len(set(others)) == 1
        with database(101, ledger=ledger) as other:
            refused("rows have changed", "age > 40", anns, "ann", other)
        wider = Schema(columns=[Column("age", type="integer", lower=17, upper=91)])
        with Database({"age": people(100)["age"]}, schema=wider, ledger=ledger) as other:
            refused("schema has changed", "age > 40", anns, "ann", other)


def test_an_answer_that_never_came_cannot_be_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    with database() as db:
        with monkeypatch.context() as broken:
            broken.setattr(db._engine, "aggregate", fail)
            with pytest.raises(EngineFailed):
                ask_sum(db, "age > 40", privacy=MU, owner="ann")
        (receipt,) = db.ledger.history()
        with pytest.raises(ParameterError, match="was answered"):
            ask_sum(db, "age > 40", privacy=MU, owner="ann", refines=receipt.id)
        # The repeat is free, and can be refined.
        assert ask_sum(db, "age > 40", privacy=MU, owner="ann").receipt.id == receipt.id
        assert len(ask_sum(db, "age > 40", privacy=MU, owner="ann", refines=receipt.id).parts) == 2


def test_an_answer_has_at_most_so_many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.query import stored_answers

    monkeypatch.setattr(stored_answers, "_MOST_PARTS", 3)
    with database() as db:
        answer = ask_sum(db, "age > 40", privacy=MU)
        for _ in range(2):
            answer = ask_sum(db, "age > 40", privacy=MU, refines=answer.receipt.id)
        with pytest.raises(ParameterError, match="fewer than 3 draws"):
            ask_sum(db, "age > 40", privacy=MU, refines=answer.receipt.id)
        assert db.ledger.spent().charges == 3


def test_a_refinement_that_does_not_fit_is_refused_like_any_question() -> None:
    with database(ledger=Ledger.open(":memory:", limit=GaussianDP(mu=0.6))) as db:
        first = ask_sum(db, "age > 40", privacy=MU)
        with pytest.raises(BudgetExceeded):
            ask_sum(db, "age > 40", privacy=MU, refines=first.receipt.id)


def test_a_request_gets_its_first_answer_also_after_the_rows_have_changed() -> None:
    ledger = Ledger.open(":memory:")
    question = Gram(("age",))  # has the public number of rows in it
    with database(100, ledger=ledger) as db:
        first = db.ask(question, privacy=MU, owner="ann", request="k1", said="the spread of ages")
        entry = ledger.entry(first.receipt.id)
        assert entry.asked == {
            "question": question.to_dict(),
            "privacy": MU.to_dict(),
            "variance": None,
            "refines": None,
            "said": "the spread of ages",
        }
    with database(101, ledger=ledger) as db:
        again = db.ask(question, privacy=MU, owner="ann", request="k1", said="the spread of ages")
        assert np.array_equal(np.asarray(first.value), np.asarray(again.value))
        assert np.asarray(again.value)[0, 0] == 100
        assert (again.cached, ledger.spent().charges) == (True, 1)
        # Without the key the new rows are asked.
        assert np.asarray(db.ask(question, privacy=MU, owner="ann").value)[0, 0] == 101
        with pytest.raises(ParameterError, match="k1"):
            ask_sum(db, "age > 40", privacy=MU, owner="ann", request="k1")
        assert ledger.spent().charges == 2
    wider = Schema(columns=[Column("age", type="integer", lower=17, upper=91)])
    with (
        Database({"age": people(100)["age"]}, schema=wider, ledger=ledger) as db,
        pytest.raises(ParameterError, match="present schema"),
    ):
        db.ask(question, privacy=MU, owner="ann", request="k1", said="the spread of ages")


def test_a_request_that_was_never_answered_is_not_answered_from_other_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger.open(":memory:")
    with database(100, ledger=ledger) as db:
        monkeypatch.setattr(db._engine, "aggregate", fail)
        with pytest.raises(EngineFailed):
            ask_sum(db, "age > 40", privacy=MU, owner="ann", request="k1")
    with database(101, ledger=ledger) as db:
        with pytest.raises(ParameterError, match="another key"):
            ask_sum(db, "age > 40", privacy=MU, owner="ann", request="k1")
        assert ledger.spent().charges == 1
    with database(100, ledger=ledger) as db:
        assert not ask_sum(db, "age > 40", privacy=MU, owner="ann", request="k1").cached


def coverage(laplace: Sequence[float], gaussian: float, half: float) -> float:
    """The probability that a sum of noises of these variances, which add up to 1, is within ``half``.

    The density is the Fourier transform of a product; the grid is fine enough for six digits.
    """
    n, reach = 2**16, 40.0
    step = 2 * reach / n
    x = (np.arange(n) - n // 2) * step
    frequency = 2 * np.pi * np.fft.fftfreq(n, step)
    transform = np.exp(-gaussian * frequency**2 / 2)
    for share in laplace:
        transform = transform / (1 + share * frequency**2 / 2)
    density = np.fft.fftshift(np.real(np.fft.ifft(transform))) / step
    below = np.cumsum(density) * step - density * step / 2
    return float(np.interp(half, x, below) - np.interp(-half, x, below))


MERGES = [
    (np.array([ratio**-i for i in range(draws)]), share)
    for draws in (2, 3, 8)
    for ratio in (1.0, 2.0, 10.0)
    for share in (0.0, 0.3, 0.9)
]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.907, 0.91, 0.95, 0.99, 0.999])
def test_intervals_of_merged_laplace_noises_hold_at_least_as_often_as_they_say(level: float) -> None:
    with database() as db:
        one = ask_sum(db, "age > 40", privacy=PureDP(epsilon=1))
        two = ask_sum(db, "age > 40", privacy=PureDP(epsilon=1), refines=one.receipt.id)
    half = (float(two.interval(level)[1]) - float(two.value)) / float(two.sd)
    alone = (float(one.interval(level)[1]) - float(one.value)) / float(one.sd)
    assert coverage([1.0], 0.0, alone) == pytest.approx(level, abs=2e-5)
    assert coverage([], 1.0, float(special.ndtri((1 + level) / 2))) == pytest.approx(level, abs=2e-5)
    least = min(
        coverage((shares / shares.sum() * (1 - share)).tolist(), share, half) for shares, share in MERGES
    )
    assert least >= level - (2e-4 if 0.9 < level < 0.91 else 0)
    # At 95 % the Laplace factor itself is enough, and the Gaussian one is not.
    if level == 0.95:
        assert half == pytest.approx(alone, rel=1e-12)
        shares = [0.5, 0.5]
        assert coverage(shares, 0.0, float(special.ndtri(0.975))) < 0.95


QUESTIONS: list[Aggregate] = [
    Sums(("height", "age")),
    Histogram(("job", "owner")),
    Histogram("age", {"age": [30.5, 60.0]}),
    Histogram("income", {"income": [0.1]}),
    Gram(("height", "age")),
    Moments(("height", "job")),
]


@pytest.mark.parametrize("row_count", ["public", "private"])
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.kind)
def test_an_answer_comes_back_from_json_bit_for_bit(question: Aggregate, row_count: Any) -> None:
    with Database(people(20), schema=people_schema(row_count=row_count)) as sums:
        first = sums.ask(question, privacy=PosteriorOdds(epsilon=1, delta=1e-6, queries=10))
        answer = sums.ask(question, privacy=MU, refines=first.receipt.id)
    for made in (first, answer):
        text = json.dumps(made.to_dict(), allow_nan=False)
        back = Answer.from_dict(json.loads(text))
        assert np.asarray(back.value).tobytes() == np.asarray(made.value).tobytes()
        assert np.asarray(back.sd).tobytes() == np.asarray(made.sd).tobytes()
        for name in ("law", "cost", "cached", "receipt", "labels", "parts", "comparison"):
            assert getattr(back, name) == getattr(made, name)


def test_a_number_comes_back_as_a_number_and_unknown_keys_are_refused() -> None:
    with database() as db:
        answer = ask_sum(db, "age > 40", privacy=ZCDP(rho=0.1))
    values = answer.to_dict()
    back = Answer.from_dict(values)
    assert (type(back.value), back.value, back.sd) == (float, answer.value, answer.sd)
    for wrong in (
        {**values, "exact": 1},
        {k: v for k, v in values.items() if k != "sd"},
        {**values, "kind": 1},
    ):
        with pytest.raises(ParameterError, match="keys of Answer"):
            Answer.from_dict(wrong)


def test_merging_wants_different_draws_of_one_question() -> None:
    with database() as db:
        count = ask_sum(db, "age > 40", privacy=MU, owner="ann")
        same = ask_sum(db, "age > 40", privacy=MU, owner="bob")
        table = db.histogram("job", privacy=MU)
        other = ask_sum(db, "age > 40", privacy=LESS)
        # Of the same kind and shape, and still about something else: cells, rows or neighbors.
        others = [
            ask_sum(db, "age > 41", privacy=LESS),
            ask_sum(db, "income", privacy=LESS),
            db.ask(Sums(("age > 40", "TRUE")), privacy=LESS),
        ]
    added = people_schema("add-remove")
    with (
        Database(people(90), schema=SCHEMA, ledger=db.ledger) as fewer,
        Database(people(100), schema=added) as uncounted,
    ):
        others.append(ask_sum(fewer, "age > 40", privacy=LESS))
        others.append(ask_sum(uncounted, "age > 40", privacy=under(LESS, "add-remove")))
    for wrong in ((count, count), (count, same)):
        with pytest.raises(ParameterError, match="one draw is in two"):
            Answer.merge(*wrong)
    for another in (table, *others):
        with pytest.raises(ParameterError, match="same question about the same rows"):
            Answer.merge(count, another)
    assert Answer.from_dict(count.to_dict()).about == count.about
    with pytest.raises(ParameterError, match="at least one"):
        Answer.merge()
    merged = Answer.merge(count, other)
    assert float(merged.sd) == pytest.approx((2.0**-2 + 4.0**-2) ** -0.5, rel=1e-12)
    assert Answer.merge(count).value == count.value


def test_what_is_exact_stays_exact_in_a_merge() -> None:
    for row_count, corner in (("public", 100.0), ("private", math.nan)):
        schema = people_schema(row_count=row_count)
        with Database(people(100), schema=schema) as sums:
            first = sums.ask(Gram(("age",)), privacy=MU)
            second = sums.ask(Gram(("age",)), privacy=MU, refines=first.receipt.id)
        assert np.array_equal(np.asarray(second.value)[0, 0], corner, equal_nan=True)
        assert np.asarray(second.sd)[0, 0] == 0
        assert (np.asarray(second.sd)[1] < np.asarray(first.sd)[1]).all()
