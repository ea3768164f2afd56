"""Audit of a synthetic release before it is charged: all its questions are asked about made-up rows.

Three things are tested. By its exact law, the noise of every question must hide the row that moves the exact
answer most. What was drawn must have that law. And the rows must follow from the noisy answers alone, so that
nothing else of the table is in them.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from discreet.audit._base import AuditResult
from discreet.audit._bounds import check_failure_probability, usual_epsilon
from discreet.audit._density import Density, LawPair, density, shift_law
from discreet.errors import DataError, ParameterError
from discreet.formatting import count_noun
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.privacy import GaussianDP, PureDP
from discreet.query import Dependence, Marginals
from discreet.query.curation import Curation
from discreet.query.dummy import rows_from_schema
from discreet.query.engines import kernel_engine_for
from discreet.release.synthetic import regenerate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.privacy import Promise
    from discreet.query import Aggregate, Answer, NoisySums
    from discreet.query.aggregates import BoundAggregate
    from discreet.query.engines import Engine
    from discreet.release.synthetic import SyntheticRelease, SyntheticTable
    from discreet.schema import Column, Schema

MOST_REHEARSED = 100_000
"""Largest number of made-up rows."""
_ROWS_OF_PRIVATE_NUMBER = 10_000
_KNOWLEDGE = "every other row, and all noisy answers"
_NOUNS = {"marginals": "tables of counts", "dependence": "scores of dependence"}
_NORMAL = Density(
    logpdf=lambda x: -x * x / 2 - math.log(2 * math.pi) / 2, lower=-12.0, upper=12.0, tail=1e-32
)


def attack_questions(
    method: SyntheticRelease,
    n_rows: int | None,
    *,
    failure_probability: float = 1e-6,
    stream: Stream | None = None,
) -> tuple[AuditResult, ...]:
    """Rehearse a synthetic release on made-up rows, and try to break its promise.

    Parameters
    ----------
    method : SyntheticRelease
        Method with its parameters; neither it nor its ledger is changed.
    n_rows : int or None
        Number of rows where it is public, of which at most 100,000 are made up; None where it is not.
    failure_probability : float
        Largest probability that a true promise is called broken.
    stream : Stream, optional
        Source of the made-up rows; a fresh one by default.

    Returns
    -------
    tuple of AuditResult
        "density" for each kind of question and for all of them together: the exact law of the noise on two
        neighbors, one of which has a row in an otherwise empty cell. "noise": whether the drawn noise is as
        large as stated. "follow": whether questions and rows follow from the noisy answers alone.

    Privacy
    -------
    Depends on no real row. The rehearsal is charged to a ledger of its own.

    Notes
    -----
    A row that differs from another in every column moves the entries by ``d_i`` in units of their standard
    deviations. Gaussian noise then shows exactly what one normal number shows that moves by
    ``sqrt(sum d_i**2)``, and Laplace noise has the largest privacy loss ``sqrt(2) sum abs(d_i)``. Rounding to
    a lattice can only take away from it.

    Reference
    ---------
    docs/explanation/theorems/marginals.md; Balle and Wang (2018), theorem 5.

    Examples
    --------
    >>> from discreet import ApproxDP, Column, Schema
    >>> from discreet.audit import attack_questions
    >>> from discreet.release.synthetic import SyntheticRelease
    >>> schema = Schema(columns=[Column(name, values=(0, 1, 2)) for name in "abc"])
    >>> method = SyntheticRelease(ApproxDP(epsilon=1, delta=1e-6), schema=schema)
    >>> sorted({(result.attack, result.verdict) for result in attack_questions(method, 2000)})
    [('density', 'holds'), ('follow', 'holds'), ('noise', 'holds')]
    """
    check_failure_probability(failure_probability, "attack_questions")
    schema = method.schema
    assert schema is not None
    size = min(_ROWS_OF_PRIVATE_NUMBER if n_rows is None else n_rows, MOST_REHEARSED)
    rows = _make_rows(schema, size, stream_or_fresh(stream))
    rehearsed = copy.copy(method)
    rehearsed.ledger, rehearsed.anyway, rehearsed.random_state = None, True, None
    (claim,) = rehearsed.plan(schema, size).promises
    with rehearsed.open_rows(rows, stream=Stream(), rows_salt="rehearsal") as sums:
        watched = WatchedSums(sums)
        try:
            made = rehearsed.release_database(watched, public=rows)
        except DataError as problem:
            reason = f"The rehearsal on made-up rows ended early: {problem}"
            return (AuditResult(attack="none", claim=claim, verdict="not tested", reason=reason),)
    exact = kernel_engine_for(rows)
    exact.register(rows, Curation.from_schema(schema))
    try:
        noise = _check_noise(watched.asked, exact, claim, failure_probability)
    finally:
        exact.close()
    return (*_compare_laws(watched.asked, claim, schema), noise, _follow(rehearsed, made, claim))


@dataclass(frozen=True, eq=False)
class AskedQuestion:
    """A question with the share of the promise that pays for it, and its noisy answer."""

    question: Aggregate
    promise: Promise
    answer: Answer


class WatchedSums:
    """Noisy sums that keep every question with its answer, however it was paid.

    Parameters
    ----------
    sums : NoisySums
        Table that answers the questions.
    """

    def __init__(self, sums: NoisySums) -> None:
        self._sums = sums
        self.schema, self.n_rows, self.neighbors = sums.schema, sums.n_rows, sums.neighbors
        self.cost, self.expected_sd = sums.cost, sums.expected_sd
        self.asked: list[AskedQuestion] = []

    def ask(self, question: Aggregate, *, privacy: Promise | None = None, **how: Any) -> Answer:
        """Return the answer, and keep it unless it is an earlier one again."""
        answer = self._sums.ask(question, privacy=privacy, **how)
        assert privacy is not None
        known = [one.answer.value for one in self.asked if one.question == question]
        # An answer that was paid for before costs nothing again, and its noise is counted once.
        if not any(np.array_equal(answer.value, value) for value in known):
            self.asked.append(AskedQuestion(question, privacy, answer))
        return answer


def _make_rows(schema: Schema, n: int, stream: Stream) -> dict[str, AnyArray]:
    """Return made-up rows as a table holds them; in one half of them all columns rise together."""
    encoded = rows_from_schema(schema, n, stream)
    rows = {}
    for column in schema.released:
        values = encoded[column.name]
        # Columns that rise together in one half depend on each other, so that later rounds have something to
        # ask.
        values[: n // 2] = np.sort(values[: n // 2])
        rows[column.name] = decode_column(column, values)
    if schema.id_column is not None:
        rows[schema.id_column] = np.arange(n)
    return rows


def decode_column(column: Column, values: AnyArray) -> AnyArray:
    """Return encoded cells as a table holds them."""
    if column.is_category:
        levels = np.empty(len(column.levels), object)
        levels[:] = column.levels
        return np.asarray(levels[values])
    return np.asarray(column.moments(values)) if column.is_calendar else values


def _compare_laws(questions: Sequence[AskedQuestion], claim: Promise, schema: Schema) -> list[AuditResult]:
    """Return the exact audit of the worst question of each kind, and of all questions together."""
    losses = [question_loss(one.question, one.answer, schema) for one in questions]
    results = []
    for kind, noun in _NOUNS.items():
        found = [
            (loss / _size(one.promise), loss, one.promise)
            for one, loss in zip(questions, losses, strict=True)
            if one.question.kind == kind
        ]
        results += [_compare_law(*max(found, key=lambda item: item[0])[1:], noun)] if found else []
    if isinstance(claim, PureDP):
        # Epsilons of pure promises add up; mus of Gaussian ones add in squares.
        total = math.fsum(losses)
    else:
        total = math.sqrt(math.fsum(loss * loss for loss in losses))
    return [*results, _compare_law(total, claim, f"{count_noun(len(questions), 'question')} together")]


def question_loss(question: Aggregate, answer: Answer, schema: Schema) -> float:
    """Return how far neighbors are apart in an answer: as mu for Gaussian noise, as epsilon for Laplace.

    Parameters
    ----------
    question : Marginals or Dependence
        Question that was asked.
    answer : Answer
        Its answer, of which the law and the standard deviations are used.
    schema : Schema
        Declared columns, unit and neighbors.

    Notes
    -----
    The exact integers are counted by an engine, on the neighbors that :func:`_choose_corners` chooses.
    """
    curation = Curation.from_schema(schema)
    bound = question.bind(curation, schema.neighbors)
    first, second, crowd = _choose_corners(question, bound, schema)
    counts = [_count_row(row, bound, curation) for row in (first, second)]
    moved = schema.max_rows_per_unit or 1
    # The counts of a table are sums over its rows: neighbors differ in the rows of one unit alone.
    before = crowd * counts[1] + (moved * counts[0] if schema.neighbors == "replace-one" else 0)
    after = (crowd + moved) * counts[1]
    ends = [np.array(bound.finish(one.tolist(), 0), np.float64) for one in (before, after)]
    sd = np.ravel(answer.sd)
    with np.errstate(divide="ignore", invalid="ignore"):
        # An entry without noise that differs is infinitely far; one that does not differ tells nothing.
        apart = np.nan_to_num(np.abs(ends[1] - ends[0]) * bound.unit / sd, nan=0.0, posinf=np.inf)
    if answer.law == "laplace":
        return math.sqrt(2.0) * math.fsum(apart.tolist())
    return math.sqrt(math.fsum(np.square(apart).tolist()))


def _count_row(row: Mapping[str, AnyArray], bound: BoundAggregate, curation: Curation) -> AnyArray:
    """Return the integers that an engine counts on a table of one row."""
    engine = kernel_engine_for(row)
    try:
        engine.register(row, curation)
        (integers,) = bound.wanted.run_tasks(engine, [bound.wanted])
    finally:
        engine.close()
    return np.array(integers, np.int64)


def _choose_corners(
    question: Aggregate, bound: BoundAggregate, schema: Schema
) -> tuple[dict[str, AnyArray], dict[str, AnyArray], int]:
    """Return two rows that differ in every column, and how often the second is in the table besides.

    For scores, the first row is in cells of which the reference has many rows and the table no other: without
    it the table is off by one more. The second is in cells of which the table has at least as many rows as
    the reference: with one more of it the table is off by one more too.
    """
    assert isinstance(question, Marginals | Dependence)
    tables = question.tables if isinstance(question, Marginals) else question.pairs
    sizes = {
        name: size
        for table, shape in zip(tables, bound.canonical["shapes"], strict=True)
        for name, size in zip(table, shape, strict=True)
    }
    # Any order will do for counts: the two rows only have to fall into different cells.
    expected = {name: np.arange(size, 0.0, -1.0) for name, size in sizes.items()}
    crowd = 0
    if isinstance(question, Dependence):
        expected = _reference_margins(question, sizes)
        crowd = int(max(values.max() for values in expected.values()))
    rows: tuple[dict[str, AnyArray], dict[str, AnyArray]] = ({}, {})
    for column in schema.released:
        values = expected.get(column.name, np.ones(1))
        most = int(np.argmax(values))
        others = np.where(np.arange(len(values)) == most, np.inf, values)
        least = int(np.argmin(others)) if len(values) > 1 else most
        for row, cell in zip(rows, (most, least), strict=True):
            row[column.name] = _cell_value(column, question, cell)
    if schema.id_column is not None:
        for row in rows:
            row[schema.id_column] = np.zeros(1, np.int64)
    return (*rows, crowd)


def _reference_margins(question: Dependence, sizes: Mapping[str, int]) -> dict[str, Floats]:
    """Return how many rows the reference has in each cell of each column."""
    reference = question.reference
    if reference["kind"] == "given":
        return {
            name: np.array(reference["margins"][name], np.float64).reshape(size, -1).sum(axis=1)
            for name, size in sizes.items()
        }
    margins: dict[str, Floats] = {}
    for (first, second), values in zip(question.pairs, reference["values"], strict=True):
        table = np.array(values, np.float64).reshape(sizes[first], sizes[second])
        margins.setdefault(first, table.sum(axis=1))
        margins.setdefault(second, table.sum(axis=0))
    return margins


def _cell_value(column: Column, question: Marginals | Dependence, cell: int) -> AnyArray:
    """Return a value in a cell of a question, as a table holds it."""
    if column.is_category:
        groups = question.groups.get(column.name)
        code = cell if groups is None else list(groups).index(cell)
        return decode_column(column, np.array([code]))
    starts = [column.range[0], *question.edges.get(column.name, ())]
    if column.name not in question.edges and column.type == "integer":
        # A whole number with few values has a cell for each of them.
        starts = [column.range[0] + i for i in range(round(column.width) + 1)]
    return decode_column(column, np.array([starts[cell] if cell < len(starts) else np.nan]))


def _size(claim: Promise) -> float:
    """Return the mu or the pure epsilon of a promise."""
    assert isinstance(claim, GaussianDP | PureDP)
    return claim.epsilon if isinstance(claim, PureDP) else claim.mu


def _compare_law(loss: float, claim: Promise, noun: str) -> AuditResult:
    """Return the verdict on a promise from the exact distance of neighbors."""
    if isinstance(claim, GaussianDP) and loss < 8:
        pair = LawPair(p=_NORMAL, q=shift_law(_NORMAL, loss), claim=claim, name=f"noise on {noun}")
        # Normal laws are nearer or farther at all points of the curve at once.
        found = density(pair, epsilons=(0.0, usual_epsilon(claim)))
        return replace(found, knowledge=_KNOWLEDGE)
    allowed = _size(claim)
    # Standard deviations are rounded to doubles, and up to a thousand of them are added up.
    broken = loss > allowed * (1 + 1e-12)
    return AuditResult(
        attack="density",
        claim=claim,
        verdict="broken" if broken else "holds",
        reason=f"The exact law of the noise on {noun} {'exceeds' if broken else 'keeps'} the promise.",
        quantity="largest privacy loss" if isinstance(claim, PureDP) else "distance of neighbors as mu",
        measured=loss,
        allowed=allowed,
        knowledge=_KNOWLEDGE,
        details={"error": 1e-12 * allowed},
    )


def _check_noise(
    questions: Sequence[AskedQuestion], engine: Engine, claim: Promise, failure_probability: float
) -> AuditResult:
    """Return whether the noise that was drawn is as large as stated, for the question with the least of it.

    Notes
    -----
    With ``z_i`` the noise in stated standard deviations and ``v`` its true variance in stated ones,
    ``sum z_i**2 / v`` has a chi-squared law for Gaussian noise, and ``sqrt(2) sum abs(z_i) / sqrt(v)`` a
    gamma law for Laplace noise. What is measured is a lower bound on ``1 / sqrt(v)``.
    """
    share, found, entries = failure_probability / len(questions), 0.0, 0
    assert engine.curation is not None
    for one in questions:
        bound = one.question.bind(engine.curation, engine.curation.schema.neighbors)
        exact = np.array(bound.exact(engine), np.float64) * bound.unit
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.nan_to_num((np.ravel(one.answer.value) - exact) / np.ravel(one.answer.sd), nan=0.0)
        entries += z.size
        if one.answer.law == "laplace":
            least, drawn = special.gammaincinv(z.size, share), math.sqrt(2.0) * float(np.abs(z).sum())
        else:
            least, drawn = math.sqrt(2 * special.gammaincinv(z.size / 2, share)), float(np.linalg.norm(z))
        found = max(found, float(least) / drawn if drawn > 0 else math.inf)
    broken = found > 1
    return AuditResult(
        attack="noise",
        claim=claim,
        verdict="broken" if broken else "holds",
        reason="The answers have less noise than the promise needs."
        if broken
        else "The answers to the made-up questions have the noise that is stated for them.",
        quantity="stated noise divided by drawn noise, at least",
        measured=found,
        allowed=1.0,
        failure_probability=failure_probability,
        n=entries,
        knowledge=_KNOWLEDGE,
    )


def _follow(method: SyntheticRelease, made: SyntheticTable, claim: Promise) -> AuditResult:
    """Return whether questions and rows can be made again from the noisy answers, without rows or key."""
    differing, reason = len(made.columns), ""
    try:
        again = regenerate(method, method.tables_, made.columns)
    except ParameterError as problem:
        reason = f"The release cannot be made again from its noisy answers: {problem}"
    else:
        differing = sum(
            not _equal(values, again.columns.get(name, np.empty(0))) for name, values in made.columns.items()
        )
        if differing:
            reason = "Rows made again from the noisy answers are others, so they follow from something else."
    return AuditResult(
        attack="follow",
        claim=claim,
        verdict="broken" if reason else "holds",
        reason=reason or "Questions and rows follow from the noisy answers alone, bit for bit.",
        quantity="columns that are not the same again",
        measured=float(differing),
        allowed=0.0,
        n=len(made.columns),
        knowledge=_KNOWLEDGE,
    )


def _equal(first: AnyArray, second: AnyArray) -> bool:
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
