"""Text queries: the aggregates that one needs, their noise, and the result."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np

from discreet.batching import run_one
from discreet.errors import ParameterError
from discreet.privacy import ApproxDP, PureDP
from discreet.privacy.budget_split import BudgetSplit
from discreet.query.aggregates import Histogram, Sums
from discreet.query.calibration import CostModel, budget_share, least_charge
from discreet.query.intervals import ResultInterval, interval_width, mean_intervals, sum_intervals
from discreet.query.language._group_by import write_edge
from discreet.query.results import ExpectedMargin, LawOption, Preview, QueryResult, ResultCell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet._types import Floats
    from discreet.batching import QueryTask
    from discreet.ledger import Account
    from discreet.privacy import Promise
    from discreet.query.aggregates import Aggregate, BoundAggregate
    from discreet.query.answers import Answer, RefinableSums
    from discreet.query.calibration import Law, QueryNoise
    from discreet.query.database import Database
    from discreet.query.language.query import Query
    from discreet.schema import Column, Schema


PAIR = ("counts", "sums")
"""Names of the two aggregates of a mean by groups; each gets half of the promise."""
_SMALLEST_SD = 1e-150  # its square is still a number
_LARGEST_SD = 1e100


@dataclass(frozen=True, slots=True)
class PlannedAggregate:
    """One aggregate of a text query, with its promise or the variance of its noise."""

    aggregate: Aggregate
    privacy: Promise | None
    variance: float | None


def plan_aggregates(
    query: Query,
    sums: Any,
    privacy: Promise | None,
    sd: float | None,
    accounts: Callable[[], Sequence[Account]] = tuple,
) -> list[PlannedAggregate]:
    """Return the aggregates that a query needs: one, and two for a mean by groups.

    Parameters
    ----------
    query : Query
        Parsed query that is planned.
    sums : CostedTable or NoisySums
        Object that knows schema, neighbors and the public number of rows.
    privacy : Promise or None
        Promise of all aggregates together; None where `sd` is given.
    sd : float or None
        Standard deviation of a count or a sum, in its unit; None where `privacy` is given.
    accounts : callable
        Function that returns the budgets that would be charged; only called if they decide something.

    Privacy
    -------
    The two aggregates of a mean by groups get half of the promise each, rounded down. For an
    :class:`ApproxDP` promise both get noise of one law: Gaussian, whose squares of mu add up, or Laplace,
    whose epsilons add up.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    variance = _variance(query, privacy, sd)
    if not (query.verb == "mean" and query.by):
        return [PlannedAggregate(_single_aggregate(query, sums.n_rows), privacy, variance)]
    if not isinstance(privacy, ApproxDP):
        return _plan_pair(query, sums, privacy)
    options = _options(query, CostModel(sums.schema, sums.n_rows), privacy, sd)
    return options[least_charge([option.noises for option in options], accounts())].planned


def _plan_pair(query: Query, sums: Any, privacy: Promise | None) -> list[PlannedAggregate]:
    """Return the counts and sums of a mean by groups, with half of the promise each."""
    halves = dict.fromkeys(PAIR, 1.0)
    shares = BudgetSplit(privacy, halves, unit=sums.schema.unit, neighbors=sums.neighbors)  # type: ignore[arg-type]
    pair = (_grouped(query, query.where), _grouped(query, _displacement(query)))
    return [PlannedAggregate(one, shares[name], None) for name, one in zip(PAIR, pair, strict=True)]


class _Option(NamedTuple):
    """Aggregates of a query, each bound to the table with its noise, by one law."""

    planned: list[PlannedAggregate]
    fits: list[tuple[BoundAggregate, QueryNoise]]

    @property
    def noises(self) -> list[QueryNoise]:
        return [noise for _, noise in self.fits]

    @property
    def first_sd(self) -> float:
        """Standard deviation of the first number; all groups have the same noise."""
        bound, noise = self.fits[0]
        return float(np.ravel(bound.arrange(noise.sd(bound), 0.0))[0])


def _options(query: Query, costs: CostModel, privacy: Promise | None, sd: float | None) -> list[_Option]:
    """Return the plan of a query by each law that the request leaves open, first that without a limit."""
    variance = _variance(query, privacy, sd)
    if not (query.verb == "mean" and query.by):
        one = PlannedAggregate(_single_aggregate(query, costs.n_rows), privacy, variance)
        bound, candidates = costs.candidates(one.aggregate, privacy=privacy, variance=variance)
        return [_Option([one], [(bound, noise)]) for noise in candidates]
    wholes = [privacy]
    if isinstance(privacy, ApproxDP):
        wholes.append(PureDP(epsilon=privacy.epsilon, unit=privacy.unit, neighbors=privacy.neighbors))
    plans = [_plan_pair(query, costs, whole) for whole in wholes]
    options = [
        _Option(plan, [costs.calibrate(one.aggregate, privacy=one.privacy) for one in plan]) for plan in plans
    ]
    return sorted(options, key=lambda option: sum(noise.log_sd() for noise in option.noises))


def _variance(query: Query, privacy: Promise | None, sd: float | None) -> float | None:
    """Return the variance of an sd, None for a promise; refuses neither or both, and the sd of a mean."""
    if (privacy is None) == (sd is None):
        raise ParameterError(
            "A query needs exactly one of a promise and a noise, and was given "
            f"{'neither' if sd is None else 'both'}. Give an epsilon, with a delta for Gaussian noise, or "
            "a mu or a rho, or the sd of a count or a sum; asking for the price first is free."
        )
    if sd is None:
        return None
    if query.verb == "mean":
        raise ParameterError(
            "sd must be of a count or a sum, and a mean was asked for, whose noise depends on how many rows "
            "there are. Give an epsilon, a mu or a rho."
        )
    if not (math.isfinite(sd) and _SMALLEST_SD <= sd <= _LARGEST_SD):
        raise ParameterError(
            f"sd of a question must be from {_SMALLEST_SD:g} to {_LARGEST_SD:g}, was {sd!r}. Give it in "
            "the unit of the answer."
        )
    return float(sd) ** 2


def _single_aggregate(query: Query, n_rows: int | None) -> Aggregate:
    """Return the one aggregate of a query that needs no second one."""
    if query.by:
        return _grouped(query, None if query.expression is None and query.where is None else _scalar(query))
    if query.verb == "mean" and not _plain_mean(query, n_rows):
        return Sums((_displacement(query), query.where or "TRUE"))
    return Sums((_scalar(query),))


def _grouped(query: Query, expression: Any) -> Histogram:
    """Return the histogram of a query's groups, counting rows or summing an expression."""
    edges = {axis.column: axis.edges for axis in query.by if axis.edges}
    return Histogram([axis.column for axis in query.by], edges, expression)


def _plain_mean(query: Query, n_rows: int | None) -> bool:
    """Return whether a query is a mean over all rows, whose number is public."""
    return query.verb == "mean" and not query.by and query.where is None and bool(n_rows)


def _scalar(query: Query) -> Any:
    """Return the expression whose sum over all rows answers a count or a sum."""
    if query.expression is None:
        return query.where or "TRUE"
    if query.where is None:
        return query.expression
    if query.expression.is_condition:
        return f"({query.where.canonical}) AND ({query.expression.canonical})"
    return _among(query, query.expression.canonical)


def _among(query: Query, text: str) -> str:
    """Return the text of an expression that is 0 outside the rows of WHERE."""
    return text if query.where is None else f"CASE WHEN {query.where.canonical} THEN {text} ELSE 0 END"


def _middle(query: Query) -> float:
    """Return the middle of the averaged expression's range: about it, one row moves a sum the least."""
    assert query.expression is not None
    return query.expression.lower / 2 + query.expression.upper / 2


def _displacement(query: Query) -> str:
    """Return the text of the averaged expression, less the middle of its range, 0 outside WHERE."""
    assert query.expression is not None
    middle = _middle(query)
    text = query.expression.canonical
    if query.expression.is_condition:
        text = f"CASE WHEN {text} THEN 1 ELSE 0 END"
    return _among(query, f"({text}) - ({middle!r})" if middle else text)


class CombinedValues(NamedTuple):
    """Numbers of a result, their standard deviations and intervals, and the sd of a count of rows.

    The standard deviations are NaN for a mean over a noisy count; `count_sd` is None for a sum and for a
    mean over a public number of rows.
    """

    values: Floats
    sds: Floats
    lower: Floats
    upper: Floats
    count_sd: float | None


def combine_values(
    query: Query, values: list[Floats], sds: list[Floats], n_rows: int | None, law: Law
) -> CombinedValues:
    """Return the numbers of a result from the noisy values of its aggregates.

    Parameters
    ----------
    query : Query
        Parsed query that the aggregates belong to.
    values, sds : list of array
        Noisy values of each aggregate, and their standard deviations.
    n_rows : int or None
        Number of rows where it is public; None where it is not.
    law : {"gaussian", "laplace"}
        Distribution of the noise; "laplace" if any part has it.
    """
    bounds, width = possible_values(query, n_rows), interval_width(law)
    if query.verb != "mean" or _plain_mean(query, n_rows):
        divisor = n_rows or 1 if query.verb == "mean" else 1
        value, sd = values[0] / divisor, sds[0] / divisor
        count_sd = float(np.ravel(sd)[0]) if query.verb == "count" else None
        shown = np.clip(value, *bounds) if query.verb == "mean" else value
        return CombinedValues(shown, sd, *sum_intervals(value, sd, width, bounds), count_sd)
    if query.by:
        (counts, sums), (count_sds, sum_sds) = values, sds
    else:
        sums, counts, sum_sds, count_sds = values[0][:1], values[0][1:], sds[0][:1], sds[0][1:]
    means, lower, upper = mean_intervals(sums, sum_sds, counts, count_sds, width, bounds)
    return CombinedValues(means, np.full_like(means, np.nan), lower, upper, float(np.ravel(count_sds)[0]))


def possible_values(query: Query, n_rows: int | None) -> ResultInterval:
    """Return the least and the largest number that a query can have, by what is declared and public.

    Parameters
    ----------
    query : Query
        Parsed query whose number is bounded.
    n_rows : int or None
        Number of rows where it is public; None where it is not.

    Privacy
    -------
    Follows from the schema and the public number of rows.
    """
    if query.verb == "count":
        return ResultInterval(0.0, math.inf if n_rows is None else float(n_rows))
    assert query.expression is not None
    lower, upper = query.expression.lower, query.expression.upper
    if query.verb == "mean":
        return ResultInterval(lower, upper)
    if query.where is not None or query.by or query.expression.known is not None or n_rows is None:
        # A row outside the group, and one whose value is unknown, adds nothing.
        lower, upper = min(lower, 0.0), max(upper, 0.0)
    most = math.inf if n_rows is None else n_rows
    return ResultInterval(lower * most if lower else 0.0, upper * most if upper else 0.0)


def run_query(
    db: RefinableSums,
    query: Query,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    owner: str | None = None,
    refines: Sequence[str] = (),
    request: str | None = None,
    plan: Sequence[Promise] = (),
) -> QueryResult:
    """Charge and answer a parsed query.

    Parameters
    ----------
    db : RefinableSums
        Database that answers the aggregates, at hand or behind a service.
    query : Query
        Parsed query to answer.
    privacy : PureDP, ApproxDP, ZCDP or GaussianDP
        Promise that the whole result keeps; None where `sd` is given instead.
    sd : float
        Standard deviation of the noise on a count or a sum, in its unit; None where `privacy` is given.
    owner : str, optional
        Name that is charged beside the total; None charges the total alone.
    refines : sequence of str
        Receipt ids of an earlier result of the same query, as in `QueryResult.receipts`: a new draw is
        charged, and merged with it.
    request : str, optional
        Key of this request: sent again under the same key, it is never charged twice.
    plan : sequence of Promise
        Promises that will be asked for after this query: refused unless all of them fit too.

    Returns
    -------
    QueryResult
        Result without the fields that only a ledger knows.

    Raises
    ------
    BudgetExceeded
        The ledger's limit does not allow it; nothing was charged.

    Privacy
    -------
    A mean by groups is two aggregates, each with half of the promise; the first is refused unless both fit
    what is left.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """
    return run_one(
        query_task(
            db, query, privacy=privacy, sd=sd, owner=owner, refines=refines, request=request, plan=plan
        )
    )


class TextQueryOptions(TypedDict, total=False):
    """Keyword arguments of :func:`run_query`."""

    privacy: Promise | None
    sd: float | None
    owner: str | None
    refines: Sequence[str]
    request: str | None
    plan: Sequence[Promise]


def query_task(
    db: RefinableSums, query: Query, **options: Unpack[TextQueryOptions]
) -> QueryTask[QueryResult]:
    """Return the task of a query, whose steps are run in one batch with those of other callers.

    Parameters
    ----------
    db, query, **options
        As for :func:`run_query`. A `db` without tasks of its own, such as the client of a service, answers
        one aggregate after the other.

    Privacy
    -------
    As for :func:`run_query`.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """
    owner, refines, request = options.get("owner"), options.get("refines", ()), options.get("request")
    planned = _plan_refinable(db, query, options.get("privacy"), options.get("sd"), refines, owner)
    if refines and len(planned) > 1:
        # All of them before the first is charged; a client leaves that to its service.
        check: Any = getattr(db, "check_refines", None)
        for one, receipt in zip(planned, refines, strict=True) if check is not None else ():
            check(one.aggregate, receipt, owner=owner)
    answers: list[Answer] = []
    text, make_task = str(query), getattr(db, "ask_task", None)
    for i, one in enumerate(planned):
        suffix = "" if len(planned) == 1 else f"/{PAIR[i]}"
        how: dict[str, Any] = {
            "privacy": one.privacy,
            "variance": one.variance,
            "owner": owner,
            "plan": [
                *(later.privacy for later in planned[i + 1 :] if later.privacy is not None),
                *options.get("plan", ()),
            ],
            "refines": refines[i] if refines else None,
            "request": None if request is None else request + suffix,
            "said": text,
        }
        if make_task is None:
            answers.append(db.ask(one.aggregate, **how))
        else:
            answers.append((yield from make_task(one.aggregate, **how)))
    law: Law = "laplace" if any(answer.law == "laplace" for answer in answers) else "gaussian"
    combined = combine_values(
        query,
        [np.asarray(answer.value) for answer in answers],
        [np.asarray(answer.sd) for answer in answers],
        db.n_rows,
        law,
    )
    paid = [answer for answer in answers if answer.cost]
    return QueryResult(
        question=text,
        measure=query.measure,
        group_by=tuple(axis.column for axis in query.by),
        cells=_cells(query, answers[0].labels, combined),
        law=law,
        cost=tuple(promise for answer in paid for promise in answer.receipt.promises),
        bounds=possible_values(query, db.n_rows),
        unreadable_below=_unreadable_below(query, combined.count_sd, law),
        cached=bool(paid) and all(answer.cached for answer in paid),
        receipts=tuple(answer.receipt.id for answer in paid),
        charges=tuple(answer.receipt for answer in paid),
        charged=tuple(promise for answer in paid if not answer.cached for promise in answer.receipt.promises),
        parts=tuple(answer.parts for answer in paid),
        first_day=query.first_day,
    )


def is_free(
    db: Database,
    query: Query,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    owner: str | None = None,
    refines: Sequence[str] = (),
) -> bool:
    """Return whether :func:`run_query` would charge nothing. Free.

    Parameters
    ----------
    db, query, privacy, sd, owner, refines
        As for :func:`run_query`.

    Privacy
    -------
    Follows from the schema and from what this owner has paid; for a mean by groups, for both aggregates.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    planned = _plan_refinable(db, query, privacy, sd, refines, owner)
    receipts: Sequence[str | None] = refines or [None] * len(planned)
    return all(
        db.is_free(one.aggregate, privacy=one.privacy, variance=one.variance, owner=owner, refines=receipt)
        for one, receipt in zip(planned, receipts, strict=True)
    )


def _plan_refinable(
    db: RefinableSums,
    query: Query,
    privacy: Promise | None,
    sd: float | None,
    refines: Sequence[str],
    owner: str | None,
) -> list[PlannedAggregate]:
    """Return the planned aggregates; refuses another number of receipts to refine."""
    # Of the budgets behind a service its client knows nothing.
    accounts: Any = getattr(db, "accounts", lambda _: ())
    planned = plan_aggregates(query, db, privacy, sd, partial(accounts, owner))
    if len(refines) not in (0, len(planned)):
        raise ParameterError(
            "refines must name one receipt for each noisy question behind an answer, here "
            f"{len(planned)}, and named {len(refines)}. Give all receipts of the earlier answer, in their "
            "order."
        )
    return planned


def preview_query(
    schema: Schema,
    n_rows: int | None,
    query: Query,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    earlier: Callable[[Aggregate], Answer | None] | None = None,
    accounts: Sequence[Account] = (),
) -> Preview:
    """Return what a query would cost, and how noisy its result would be. Free.

    Parameters
    ----------
    schema : Schema
        Declared columns, unit and neighbors of the table.
    n_rows : int or None
        Number of rows where it is public; None where it is not, or not known yet.
    query : Query
        Parsed query to preview.
    privacy, sd
        As for :func:`run_query`.
    earlier : callable, optional
        Function that returns an answer to an aggregate that was paid for before, or None. The margins of
        means by groups then follow from the number of rows that each group was counted to have.
    accounts : sequence of Account
        Budgets that would be charged: the total's, and the owner's where there is one.

    Returns
    -------
    Preview
        Preview with the margin of every number. That of a mean is for a mean at the middle of its range,
        over all rows or, by groups, over an equal part of them; a mean over fewer rows is noisier.

    Privacy
    -------
    Follows from the schema, the public number of rows and answers that were paid for.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    options = _options(query, CostModel(schema, n_rows), privacy, sd)
    chosen = options[least_charge([option.noises for option in options], accounts)]
    fits, law = chosen.fits, chosen.noises[0].law
    sds = [np.ravel(bound.arrange(noise.sd(bound), 0.0)) for bound, noise in fits]  # alike in all groups
    rows: float | None = None
    one = margin = count_sd = None
    expected: tuple[ExpectedMargin, ...] = ()
    if query.verb != "mean" or _plain_mean(query, n_rows):
        rows = n_rows if query.verb == "mean" else None
        one = float(sds[0][0]) / (rows or 1)
        margin = one * interval_width(law)
        count_sd = one if query.verb == "count" else None
    else:
        sum_sd, count_sd = (sds[1][0], sds[0][0]) if query.by else sds[0]
        margins = partial(_expected_margins, query, float(sum_sd), float(count_sd), law)
        if n_rows is not None:
            rows = n_rows / (len(sds[0]) if query.by else 1)
            margin = margins([rows])[0]
        counted = earlier(chosen.planned[0].aggregate) if earlier is not None and query.by else None
        if counted is not None:
            sizes = np.maximum(np.ravel(counted.value), 0.0).tolist()
            keyed = zip(_keys(query, counted.labels), sizes, margins(sizes), strict=True)
            expected = tuple(ExpectedMargin(key=key, n_rows=size, margin=half) for key, size, half in keyed)
    return Preview(
        question=str(query),
        sql=query.sql,
        is_free=all(noise.promise is None for _, noise in fits),
        measure=query.measure,
        group_by=tuple(axis.column for axis in query.by),
        cells=(),
        law=law,
        cost=tuple(noise.promise for _, noise in fits if noise.promise is not None),
        bounds=possible_values(query, n_rows),
        unreadable_below=_unreadable_below(query, count_sd, law),
        sd=one,
        margin=margin,
        n_rows=rows,
        expected=expected,
        laws=_law_options([chosen, *(option for option in options if option is not chosen)], one, accounts),
    )


def _law_options(
    options: list[_Option], sd: float | None, accounts: Sequence[Account]
) -> tuple[LawOption, ...]:
    """Return what each law would cost and how noisy it would be; one that a limit refuses is left out.

    Parameters
    ----------
    options : list of _Option
        Plans of the query by the laws that are left open, first the chosen one.
    sd : float or None
        Standard deviation of the numbers by the chosen law; None if it is not known.
    accounts : sequence of Account
        Budgets that would be charged.
    """
    limited = any(account.caps is not None for account in accounts)
    shares = [budget_share(option.noises, accounts) for option in options]
    return tuple(
        LawOption(
            law=option.noises[0].law,
            sd=sd and sd * (option.first_sd / options[0].first_sd),
            cost=tuple(noise.promise for noise in option.noises if noise.promise is not None),
            share=share if limited else None,
        )
        for option, share in zip(options, shares, strict=True)
        if math.isfinite(share)
    )


def _expected_margins(
    query: Query, sum_sd: float, count_sd: float, law: Law, counts: Sequence[float]
) -> list[float]:
    """Return half the width of the interval of means at the middle of their range, over so many rows each."""
    sizes = np.asarray(counts, np.float64)
    zeros = np.zeros_like(sizes)
    _, lower, upper = mean_intervals(
        zeros, zeros + sum_sd, sizes, zeros + count_sd, interval_width(law), possible_values(query, None)
    )
    margins: list[float] = (upper / 2 - lower / 2).tolist()
    return margins


def _unreadable_below(query: Query, count_sd: float | None, law: Law) -> int | None:
    """Return the number of rows below which a group cannot be distinguished from an empty one.

    Two margins: that of the group's count, and that of the empty group it is compared with. None without
    groups, for sums, and if counts are exact.
    """
    if not query.by or not count_sd:
        return None
    return math.ceil(2 * (count_sd * interval_width(law)))


def _cells(
    query: Query, labels: tuple[tuple[Any, ...], ...] | None, combined: CombinedValues
) -> tuple[ResultCell, ...]:
    """Return the cells of a result: one, or one for each combination of group values."""
    numbers = zip(*(np.ravel(array).tolist() for array in combined[:4]), strict=True)
    return tuple(
        ResultCell(key=key, value=_known(value), sd=_known(sd), lower=lower, upper=upper)
        for key, (value, sd, lower, upper) in zip(_keys(query, labels), numbers, strict=True)
    )


def _keys(query: Query, labels: tuple[tuple[Any, ...], ...] | None) -> list[tuple[str, ...]]:
    """Return the keys of the cells, in their order: one without values if there are no groups."""
    if not query.by:
        return [()]
    assert labels is not None
    columns = [query.schema.column(axis.column) for axis in query.by]
    named = ([_label(value, of) for value in axis] for axis, of in zip(labels, columns, strict=True))
    return list(itertools.product(*named))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _label(value: Any, column: Column) -> str:
    """Return a value of a column, or the two ends of a cell, as text."""
    if value is None:
        return "(missing)"
    if isinstance(value, tuple):
        low, high = (write_edge(end, column).strip("'") for end in value)
        is_date = column.type == "date"
        if math.isinf(value[1]):
            return f"from {low}" if is_date else f"{low} or more"
        before = f"{'before' if is_date else 'below'} {high}"
        return before if math.isinf(value[0]) else f"{low} to {before}"
    return write_edge(float(value), column).strip("'") if column.type == "date" else str(value)
