"""Several questions as one plan: equal shares of one promise, checked together and paid together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet.errors import BudgetExceeded, DiscreetError, ParameterError
from discreet.formatting import count_noun
from discreet.privacy import ApproxDP, PureDP
from discreet.privacy.budget_split import BudgetSplit
from discreet.query.costs import remaining_amounts
from discreet.query.language.query import parse_query
from discreet.query.text_query import is_free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.pipeline.query import QuerySession
    from discreet.pipeline.question_file import WrittenQuestion
    from discreet.privacy import Promise
    from discreet.query.previews import Preview
    from discreet.query.results import QueryResult
    from discreet.schema import Schema

_Asked: TypeAlias = "tuple[Promise | None, float | None]"  # promise or sd of one question


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """One question of a plan, with its share of the promise.

    Attributes
    ----------
    written : WrittenQuestion
        Question as it was written, and its line.
    preview : Preview
        Cost and noise of the question with its share.
    privacy, sd : Promise or float, or None
        Share of the promise, or standard deviation of the noise; the other one is None.
    """

    written: WrittenQuestion
    preview: Preview
    privacy: Promise | None
    sd: float | None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Questions that are paid together, or not at all.

    Attributes
    ----------
    queries : tuple of PlannedQuery
        Questions in the order of their file. One that occurs twice is charged once.
    cost : tuple of Promise
        Promises that would be charged now, without those of questions that were paid for before.
    remaining : mapping or None
        What is left, and what the plan takes of it, as :func:`remaining_amounts` returns it; None without
        a ledger.
    """

    queries: tuple[PlannedQuery, ...]
    cost: tuple[Promise, ...]
    remaining: Mapping[str, Any] | None


def plan_queries(
    session: QuerySession,
    questions: Sequence[WrittenQuestion],
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    each: bool = False,
) -> QueryPlan:
    """Return the cost and the noise of several questions; nothing is charged, no cell is read.

    Parameters
    ----------
    session : QuerySession
        Session of the table that is asked.
    questions : sequence of WrittenQuestion
        Questions to ask together; what follows from public facts gets no share.
    privacy : Promise or None
        Promise that all answers keep together, in equal shares; None where `sd` is given.
    sd : float or None
        Standard deviation of each count or sum, in its unit; None where `privacy` is given.
    each : bool
        Whether every question gets the whole of `privacy` instead of a share.

    Raises
    ------
    ParameterError
        Some questions cannot be asked; the message has a line for each.

    Privacy
    -------
    Shares follow from the questions alone. For an :class:`ApproxDP` promise all answers get noise of one law.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    asked: list[_Asked] = [(privacy, sd)] * len(questions)
    previews = _preview_all(session, questions, asked)
    paying = [*dict.fromkeys(one.question for one in previews if one.cost)]
    if privacy is not None and not each and len(paying) > 1:
        options = []
        for shares in _split_promise(privacy, paying, session.schema):
            asked = [(shares.get(one.question, privacy), None) for one in previews]
            options.append((asked, _preview_all(session, questions, asked)))
        asked, previews = _choose_option(options, session)
    planned = tuple(
        PlannedQuery(question, preview, *one)
        for question, preview, one in zip(questions, previews, asked, strict=True)
    )
    unpaid = {one.question: one.cost for one in previews if not one.is_free}
    cost = tuple(promise for promises in unpaid.values() for promise in promises)
    account = session.account()
    return QueryPlan(planned, cost, None if account is None else remaining_amounts(cost, None, account))


def run_plan(session: QuerySession, plan: QueryPlan) -> list[QueryResult]:
    """Charge and answer the questions of a plan, in their order; refuses them all if they do not fit.

    Parameters
    ----------
    session : QuerySession
        Session that the plan was made for.
    plan : QueryPlan
        Plan that :func:`plan_queries` returned.

    Returns
    -------
    list of QueryResult
        One result for each question of the plan.

    Raises
    ------
    BudgetExceeded
        The ledger's limit does not allow all of them together; nothing was charged.

    Privacy
    -------
    The first charge names the others as its plan, so that it is refused unless all fit what is left. An
    answer is stored before the next question is charged: after a crash, the answered ones are free.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    database = session.open(charged=any(one.preview.cost for one in plan.queries))
    distinct: dict[str, PlannedQuery] = {}
    for one in plan.queries:
        distinct.setdefault(one.preview.question, one)
    unpaid = {
        text: one
        for text, one in distinct.items()
        if not is_free(
            database, parse_query(one.written.text, session.schema), privacy=one.privacy, sd=one.sd
        )
    }
    results: dict[str, QueryResult] = {}
    n_charged = 0
    for text, one in distinct.items():
        later = [promise for other in unpaid if other != text for promise in unpaid[other].preview.cost]
        is_first = text in unpaid and n_charged == 0
        try:
            results[text] = session.query(
                one.written.text, privacy=one.privacy, sd=one.sd, plan=later if is_first else ()
            )
        except BudgetExceeded as problem:
            if n_charged:  # another process has charged the same ledger in between
                problem.advice += (
                    f" {count_noun(n_charged, 'question')} of the file had been charged before: ask them "
                    "again for the same answers, free of charge."
                )
            raise
        n_charged += text in unpaid
    return [results[one.preview.question] for one in plan.queries]


def _preview_all(
    session: QuerySession, questions: Sequence[WrittenQuestion], asked: Sequence[_Asked]
) -> list[Preview]:
    """Return the previews of questions; refuses all that cannot be asked, in one message."""
    previews: list[Preview] = []
    problems: dict[int, DiscreetError] = {}
    charges = session.read_charges()
    for question, (privacy, sd) in zip(questions, asked, strict=True):
        try:
            previews.append(session.preview_unopened(question.text, privacy, sd, charges))
        except DiscreetError as problem:
            problems[question.line] = problem
    if len(problems) == len(questions) and len({*map(str, problems.values())}) == 1:
        raise next(iter(problems.values()))  # about the promise, and not about a question
    if problems:
        listed = (f"\n- line {line}: {problem}" for line, problem in problems.items())
        raise ParameterError(
            f"{len(problems)} of {count_noun(len(questions), 'question')} cannot be asked, so none was asked "
            f"and nothing was charged:{''.join(listed)}"
        )
    return previews


def _split_promise(privacy: Promise, questions: Sequence[str], schema: Schema) -> list[dict[str, Promise]]:
    """Return the equal shares of a promise, by each law of noise that it leaves open."""
    wholes: list[Any] = [privacy]
    if isinstance(privacy, ApproxDP):
        wholes.append(PureDP(epsilon=privacy.epsilon, unit=privacy.unit, neighbors=privacy.neighbors))
    weights = dict.fromkeys(questions, 1.0)
    splits = [BudgetSplit(whole, weights, unit=schema.unit, neighbors=schema.neighbors) for whole in wholes]
    return [{question: split[question] for question in questions} for split in splits]


def _choose_option(
    options: list[tuple[list[_Asked], list[Preview]]], session: QuerySession
) -> tuple[list[_Asked], list[Preview]]:
    """Return the shares that take less of the budget; without a limit, those with less noise.

    The share is of the whole budget and never of what is left, so that the choice is repeated alike.
    """
    account = session.account()

    def rate(option: tuple[list[_Asked], list[Preview]]) -> tuple[float, float]:
        _, previews = option
        # A margin that depends on what is not public is unknown by every law.
        noise = math.fsum(math.log(one.margin) for one in previews if one.cost and one.margin)
        cost = {one.question: one.cost for one in previews}
        charged = [promise for promises in cost.values() for promise in promises]
        return (0.0 if account is None else account.share_of(charged)), noise

    rated = [rate(option) for option in options]
    # Beyond the whole budget only a first plan may be admitted, which is read exactly and takes everything.
    beyond = all(1.0 < share < math.inf for share, _ in rated)
    return options[min(range(len(options)), key=lambda i: rated[i][1:] if beyond else rated[i])]
