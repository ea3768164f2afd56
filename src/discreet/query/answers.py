"""Noisy sums: the protocol that learners use, and the answer that they get."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy

from discreet.errors import ParameterError
from discreet.privacy import Promise, Receipt
from discreet.privacy.promises import promise_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from discreet._types import Floats
    from discreet.query.aggregates.base import Aggregate
    from discreet.query.calibration import Law
    from discreet.schema import Schema
    from discreet.schema.schema import Neighbors


_MOST_SHOWN = 20  # numbers that a notebook shows


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """Noisy answer to an aggregate.

    Attributes
    ----------
    value : float or array
        Noisy numbers, not rounded: counts may be negative.
    sd : float or array
        Standard deviation of the noise, in the shape and unit of the value. Public.
    law : {"gaussian", "laplace"}
        Distribution of the noise; for a merge, "laplace" if any part has it.
    cost : tuple of Promise
        Promises that the answer keeps and that were charged; for a merge, those of all its parts.
    cached : bool
        Whether it had been paid for before, and is the same answer again.
    receipt : Receipt
        Receipt of the charge; for a merge, that of the last part.
    labels : tuple or None
        Levels along each axis; None where the axes are no declared lists.
    comparison : dict or None
        Under a :class:`PosteriorOdds` promise, the variance that each theorem of the paper asks for.
    parts : tuple of str
        Receipt ids of all draws in it: one, unless it was refined.
    about : str or None
        Digest of what was summed: the rows, their schema and neighbors, and the aggregate. Answers with the
        same digest may be merged; those with None, of several databases, may not.

    Notes
    -----
    Besides the noise, counts are exact, and so are sums of whole numbers whose range (with 0 in it where
    cells may be missing) has at most ``2**30`` steps. A sum over ``n`` rows of other numbers is off by at
    most ``n * 2**-30`` of that range, and every sum of coordinates of :class:`Gram` and other vectors by
    ``n * (2**-17 + 2**-31)``: docs/reference/expressions.md, "Comparisons and sums".

    Privacy
    -------
    Everything in it may be published, for the cost that it names; the standard deviation and the cost are the
    same for every table. That an answer is cached shows that the same was asked before.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     answer = db.count("ill = 1", privacy=GaussianDP(1))
    >>> abs(answer.value - 500) < 5 * answer.sd
    True
    """

    value: float | Floats
    sd: float | Floats
    law: Law
    cost: tuple[Promise, ...]
    cached: bool
    receipt: Receipt
    labels: tuple[tuple[Any, ...], ...] | None = None
    comparison: Mapping[str, float] | None = None
    parts: tuple[str, ...] = ()
    about: str | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            object.__setattr__(self, "parts", (self.receipt.id,))

    def _repr_html_(self) -> str:
        """Return the noisy numbers with their standard deviations, for a notebook."""
        from itertools import islice, product  # only a notebook draws

        from discreet import html_tables as html
        from discreet.formatting import name, number_with_margin

        values, sds = np.atleast_1d(self.value), np.broadcast_to(self.sd, np.shape(self.value)).reshape(-1)
        labels = self.labels or [range(1, n + 1) for n in np.shape(self.value)]
        keys = islice(product(*labels), _MOST_SHOWN)
        body = [
            [
                *(html.write_heading(name(str(part)), "row") for part in key),
                html.write_cell(
                    f"{number_with_margin(value, sd)} ± {number_with_margin(sd, sd)}", align="right"
                ),
            ]
            for key, value, sd in zip(keys, values.reshape(-1), sds, strict=False)
        ]
        more = values.size - _MOST_SHOWN
        notes = [f"… {more:,} more numbers in value."] if more > 0 else []
        paid = (
            "nothing; it was paid for before" if self.cached else ", ".join(map(str, self.cost)) or "nothing"
        )
        return html.write_html(f"Answer, {self.law} noise", (), body, [*notes, f"Cost: {paid}."])

    @classmethod
    def merge(cls, *answers: Answer) -> Answer:
        """Return the mean of answers to the same aggregate, each weighted by the inverse of its variance.

        Parameters
        ----------
        *answers : Answer
            Answers with draws of their own, oldest first. Two owners who paid for one aggregate have the
            same draw.

        Returns
        -------
        Answer
            Average with the least variance that an unbiased one can have.

        Privacy
        -------
        Post-processing: it costs what its parts have cost.

        Reference
        ---------
        docs/explanation/theorems/composition.md.
        """
        if not answers:
            raise ParameterError("answers of Answer.merged must be at least one, and are none.")
        _check_alike(answers)
        values = np.array([np.asarray(answer.value) for answer in answers])
        sds = np.array([np.asarray(answer.sd) for answer in answers])
        best = sds.min(axis=0)
        # Relative to the best, so that no square underflows; an exact part gets all the weight.
        weights = np.divide(best, sds, out=(sds == best).astype(np.float64), where=sds > 0) ** 2
        total = weights.sum(axis=0)
        known = np.where(weights > 0, values, 0.0)
        value = (weights * known).sum(axis=0) / total
        last = answers[-1]
        return dataclasses.replace(
            last,
            value=unwrap_scalar(
                np.where(best > 0, value, np.take_along_axis(values, _first(sds), axis=0)[0])
            ),
            sd=unwrap_scalar(best / np.sqrt(total)),
            law="laplace" if any(answer.law == "laplace" for answer in answers) else "gaussian",
            cost=tuple(promise for answer in answers for promise in answer.cost),
            cached=all(answer.cached for answer in answers),
            parts=tuple(part for answer in answers for part in answer.parts),
        )

    def interval(self, level: float = 0.95) -> tuple[float | Floats, float | Floats]:
        """Return the ends between which the exact sum lies with probability ``level``, each entry for itself.

        Only noise is accounted for: what a sample says about a population is another matter. Of merged
        Laplace noises the law is between the two; the ends are then those of the wider, which hold with
        probability ``level`` or more (between the levels 0.90 and 0.91, 0.0002 less).
        """
        half = self._half_width(level)
        return self.value - half * self.sd, self.value + half * self.sd

    def _half_width(self, level: float) -> float:
        """Return half the width of an interval, in standard deviations."""
        if not 0 < level < 1:
            raise ParameterError(f"level of Answer.interval must be between 0 and 1, was {level!r}.")
        gaussian = float(scipy.special.ndtri((1 + level) / 2))
        if self.law == "gaussian":
            return gaussian
        laplace = -float(np.log1p(-level)) / 2**0.5
        return laplace if len(self.parts) == 1 else max(gaussian, laplace)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": "answer",
            "value": _to_json(self.value),
            "sd": _to_json(self.sd),
            "law": self.law,
            "cost": [promise.to_dict() for promise in self.cost],
            "cached": self.cached,
            "receipt": self.receipt.to_dict(),
            "labels": None if self.labels is None else [[_plain(v) for v in axis] for axis in self.labels],
            "comparison": None if self.comparison is None else dict(self.comparison),
            "parts": list(self.parts),
            "about": self.about,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the answer that :meth:`to_dict` wrote, with the same numbers, bit for bit."""
        names = {item.name for item in dataclasses.fields(cls)}
        if set(values) != names | {"kind"} or values["kind"] != "answer":
            raise ParameterError(
                f"keys of Answer must be kind, {', '.join(sorted(names))}, with the kind 'answer', got "
                f"{', '.join(sorted(map(str, values)))}. Write them with to_dict()."
            )
        fields = {name: values[name] for name in names}
        fields["value"], fields["sd"] = _read(values["value"]), _read(values["sd"])
        fields["cost"] = tuple(promise_from_dict(promise) for promise in values["cost"])
        fields["receipt"] = Receipt.from_dict(values["receipt"])
        fields["parts"] = tuple(values["parts"])
        if values["labels"] is not None:
            fields["labels"] = tuple(tuple(_unplain(v) for v in axis) for axis in values["labels"])
        return cls(**fields)


class NoisySums(Protocol):
    """Table that answers aggregates with noisy sums: a database, at hand or behind a service.

    Attributes
    ----------
    schema : Schema
        Declared columns, unit and neighbors of the table.
    n_rows : int or None
        Number of rows where it is public; None where it is not.
    neighbors : {"replace-one", "add-remove"}
        Which pairs of tables the promises make hard to tell apart.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     sums: NoisySums = db  # a RemoteDatabase is one too
    ...     sums.count("ill = 1", privacy=GaussianDP(1)).sd
    1.0
    """

    @property
    def schema(self) -> Schema:
        """Declared columns, unit and neighbors of the table."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows where it is public; None where it is not."""

    @property
    def neighbors(self) -> Neighbors:
        """Which pairs of tables the promises make hard to tell apart."""

    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
    ) -> Answer:
        """Charge and answer an aggregate; refused if the promises of `plan`, asked next, would not fit."""

    def cost(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> tuple[Promise, ...]:
        """Return what an aggregate would be charged. Free."""

    def expected_sd(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> float | Floats:
        """Return the standard deviation of the noise, in the answer's unit. Free."""


class RefinableSums(NoisySums, Protocol):
    """Noisy sums that store their answers, so that an answer can be refined and a request repeated.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     sums: RefinableSums = db  # a RemoteDatabase is one too
    ...     sums.count("ill = 1", privacy=GaussianDP(1)).sd
    1.0
    """

    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
        refines: str | None = None,
        request: str | None = None,
        said: str | None = None,
    ) -> Answer:
        """Charge and answer an aggregate; with ``refines``, merge it with the answer of that receipt."""


def unwrap_scalar(values: Floats) -> float | Floats:
    """Return an array without axes as a number, and any other as it is."""
    return float(values) if values.ndim == 0 else values


def _first(sds: Floats) -> Any:
    """Return the index of the least noisy answer for every entry, with an axis for the answers."""
    return np.expand_dims(sds.argmin(axis=0), 0)


def _check_alike(answers: Sequence[Answer]) -> None:
    """Refuse to merge answers to different aggregates, about different rows, or with a draw in common."""
    first = answers[0]
    for answer in answers[1:]:
        same_shape = np.shape(answer.value) == np.shape(first.value)
        if answer.about is None or answer.about != first.about or not same_shape:
            raise ParameterError(
                "answers of Answer.merged must be to the same question about the same rows, and differ in "
                "the aggregate, the rows, the schema or the neighbors, or are of several databases. Merge "
                "what repeats of one question to one table were answered with."
            )
    draws = Counter(part for answer in answers for part in answer.parts)
    kept = Counter(answer.receipt.question for answer in answers if answer.receipt.question is not None)
    if max((*draws.values(), *kept.values())) > 1:
        raise ParameterError(
            "answers of Answer.merged must be of draws of their own, and one draw is in two of them. Give "
            "each once: the same answer again tells nothing new."
        )


def _to_json(values: float | Floats) -> Any:
    """Return numbers as JSON values, with null for NaN."""
    array = np.asarray(values)
    if np.isnan(array).any():
        unknown = np.isnan(array)
        array = array.astype(object)
        array[unknown] = None
    return array.tolist()


def _read(values: Any) -> float | Floats:
    return unwrap_scalar(np.array(values, np.float64))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [None if np.isinf(v) else v for v in value]
    return value


def _unplain(value: Any) -> Any:
    if isinstance(value, list):
        low, high = value
        return (-np.inf if low is None else low, np.inf if high is None else high)
    return value
