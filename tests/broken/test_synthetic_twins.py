"""Synthetic releases with a flaw: each is caught by its rehearsal on made-up rows, before it is charged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, Column, GaussianDP, PureDP, Schema
from discreet.audit import attack_questions
from discreet.noise import Stream
from discreet.query import Dependence, Marginals
from discreet.query.calibration import QueryNoise
from discreet.query.dummy import rows_from_schema
from discreet.release.synthetic import SyntheticRelease
from discreet.release.synthetic import method as synthetic_method
from discreet.release.synthetic.questions import Questions
from discreet.release.synthetic.rows import draw_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.audit import AuditResult
    from discreet.query import Aggregate, Answer
    from discreet.query.calibration import NoiseSource
    from discreet.release.synthetic.columns import DrawnColumns

# Numbers that are cut by noisy counts, and lists.
SCHEMA = Schema(
    columns=[
        *(Column(f"x{i}", lower=0, upper=1) for i in range(4)),
        *(Column(f"c{i}", values=tuple(range(5)), closed=True) for i in range(3)),
    ]
)
PROMISE = ApproxDP(epsilon=1, delta=1e-6)

pytestmark = pytest.mark.slow


def rehearse(method: SyntheticRelease, n: int = 2000) -> dict[str, AuditResult]:
    """The results of a rehearsal by attack; of several the one that is broken."""
    results = attack_questions(method, n, failure_probability=1e-10, stream=Stream.from_seed(1))
    ranked = sorted(results, key=lambda result: result.verdict == "broken")
    return {result.attack: result for result in ranked}


def broken(method: SyntheticRelease, n: int = 2000) -> set[str]:
    """The attacks that break a release."""
    return {name for name, result in rehearse(method, n).items() if result.verdict == "broken"}


def test_the_true_release_passes() -> None:
    assert broken(SyntheticRelease(PROMISE, schema=SCHEMA)) == set()


@pytest.mark.parametrize("promise", [PROMISE, PureDP(epsilon=5)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_no_noise_or_half_of_it(monkeypatch: pytest.MonkeyPatch, promise: Any, kept: float) -> None:
    add_noise = QueryNoise.add_noise

    def add_less(self: QueryNoise, integers: Sequence[int], draws: NoiseSource) -> list[int]:
        if not kept:
            return [integer << self.groups[i][1] for integer, i in zip(integers, self.group, strict=True)]
        return add_noise(replace(self, groups=tuple((kept * s, b) for s, b in self.groups)), integers, draws)

    monkeypatch.setattr(QueryNoise, "add_noise", add_less)
    assert "noise" in broken(SyntheticRelease(promise, schema=SCHEMA))


@pytest.mark.parametrize(("kind", "charged"), [(Marginals, 0.5), (Dependence, None)])
def test_one_moved_cell_of_two_or_one_score_of_all_is_charged(
    monkeypatch: pytest.MonkeyPatch, kind: type[Marginals | Dependence], charged: float | None
) -> None:
    bind = kind.bind

    def bind_cheaper(self: Any, curation: Any, neighbors: Any) -> Any:
        bound = bind(self, curation, neighbors)
        return replace(bound, squared=4 if charged is None else round(charged * bound.squared))

    monkeypatch.setattr(kind, "bind", bind_cheaper)
    found = rehearse(SyntheticRelease(PROMISE, schema=SCHEMA))["density"]
    assert found.verdict == "broken"


@pytest.mark.parametrize("name", ["fine", "scores", "tables"])
def test_cuts_selection_or_sampling_by_exact_answers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The noisy answer is published, and the exact one is used."""
    ask = Questions._ask

    def ask_exactly(self: Questions, asked: str, parts: Any, weights: Any) -> list[tuple[Aggregate, Answer]]:
        ((question, answer),) = ask(self, asked, parts, weights)
        if asked != name or not hasattr(self._sums, "asked"):
            return [(question, answer)]
        database: Any = self._sums
        database = database._sums
        bound = question.bind(database.curation, database.neighbors)
        exact = np.array(bound.exact(database._engine), np.float64) * bound.unit
        return [(question, replace(answer, value=exact))]

    monkeypatch.setattr(Questions, "_ask", ask_exactly)
    assert broken(SyntheticRelease(PROMISE, schema=SCHEMA)) == {"follow"}


def test_a_reference_of_exact_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_scores = Questions.ask_scores
    encoded = rows_from_schema(SCHEMA, 2000, Stream.from_seed(1))

    def ask_against_rows(
        self: Questions, name: str, pairs: Any, cells: Any, reference: Any
    ) -> tuple[Any, float]:
        if reference["kind"] == "given" and hasattr(self._sums, "asked"):
            exact = {
                c.name: np.bincount(np.asarray(encoded[c.name]), minlength=cells[c.name].size)
                for c in SCHEMA.columns
                if c.is_category
            }
            reference = {**reference, "margins": {**reference["margins"], **exact}}
        return ask_scores(self, name, pairs, cells, reference)

    monkeypatch.setattr(Questions, "ask_scores", ask_against_rows)
    assert broken(SyntheticRelease(PROMISE, schema=SCHEMA)) == {"follow"}


def test_a_table_that_is_asked_for_twice_and_paid_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Questions._ask

    def ask_twice(self: Questions, name: str, parts: Any, weights: Any) -> list[tuple[Aggregate, Answer]]:
        share = self._schedule.privacy(name)
        if name == "one" and isinstance(share, GaussianDP):
            # Under a promise that differs a little the answer is not the stored one.
            self._sums.ask(parts[0][0], privacy=replace(share, mu=share.mu * (1 - 1e-9)))
        return ask(self, name, parts, weights)

    monkeypatch.setattr(Questions, "_ask", ask_twice)
    found = rehearse(SyntheticRelease(PROMISE, schema=SCHEMA))["density"]
    assert found.verdict == "broken"
    assert "together" in found.reason


class ChosenSeed(SyntheticRelease):
    """A release whose rows are drawn by a seed that somebody chose."""

    def generate(self, n: int | None = None, where: Any = None, seed: int = 0) -> DrawnColumns:
        return super().generate(n, where, seed=7)


class NoiseKey(SyntheticRelease):
    """A release whose rows are drawn with the key of the noise."""

    def generate(self, n: int | None = None, where: Any = None, seed: int = 0) -> DrawnColumns:
        return draw_rows(self._synthesis, round(self._synthesis.n), {}, Stream.from_seed(5))


@pytest.mark.parametrize("twin", [ChosenSeed, NoiseKey])
def test_rows_that_follow_from_something_else_than_the_answers(twin: type[SyntheticRelease]) -> None:
    assert broken(twin(PROMISE, schema=SCHEMA)) == {"follow"}


def test_a_seed_that_is_drawn_anew_and_follows_from_no_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_method, "sampling_seed", lambda *_: Stream().words(1).item())
    assert broken(SyntheticRelease(PROMISE, schema=SCHEMA)) == {"follow"}
