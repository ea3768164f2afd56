"""Previews of text queries: what an answer would cost, and how noisy it would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.formatting import NumberFormat, format_share, number, printable
from discreet.privacy import promise_from_dict
from discreet.query.costs import cost_fields, is_pure
from discreet.query.result_cells import (
    read_common_fields,
    read_known,
    read_number,
    read_text_or_none,
    read_texts,
)
from discreet.query.results import QueryResult

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from discreet.privacy import Promise
    from discreet.query.calibration import Law


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedMargin:
    """Half the width of the interval that a mean over some rows is expected to have.

    Attributes
    ----------
    key : tuple of str
        Values of the group, one for each column of ``group_by``.
    n_rows : float
        Number of rows of the group in an earlier count, which was paid for; at least 0.
    margin : float
        Half the width of the interval at :data:`LEVEL`, if the mean is at the middle of its range.
    """

    key: tuple[str, ...]
    n_rows: float
    margin: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"key": list(self.key), "n_rows": self.n_rows, "margin": self.margin}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ExpectedMargin:
        """Return what :meth:`to_dict` wrote."""
        n_rows, margin = (read_known(values[name]) for name in ("n_rows", "margin"))
        return cls(key=read_texts(values["key"]), n_rows=n_rows, margin=margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class LawOption:
    """Cost and noise of a query by one law of noise.

    Attributes
    ----------
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    sd : float or None
        Standard deviation of each number; None if it depends on what is not public.
    cost : tuple of Promise
        Promises that would be charged.
    share : float or None
        Part of the whole budget that they take, of the nearer one if there are two; None without a limit.
    """

    law: Law
    sd: float | None
    cost: tuple[Promise, ...]
    share: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        cost = [promise.to_dict() for promise in self.cost]
        return {"law": self.law, "sd": self.sd, "cost": cost, "share": self.share}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the option that :meth:`to_dict` wrote."""
        if values["law"] not in ("gaussian", "laplace"):
            raise ValueError
        return cls(
            law=values["law"],
            sd=read_number(values["sd"], least=0.0),
            cost=tuple(promise_from_dict(promise) for promise in values["cost"]),
            share=read_number(values["share"], least=0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview(QueryResult):
    """Cost and noise of a text query in advance: no cells and no receipts.

    Attributes
    ----------
    sql : str or None
        Query as a SELECT, which is read as the same query; None where a service does not send it.
    is_free : bool
        Whether nothing would be charged: the result follows from what is public, or was paid for before.
    n_rows : float or None
        Number of rows for which margins are given that depend on it, as those of a mean: all rows, or for
        groups an equal part of them. They are wider over fewer. None for counts and sums, and where the
        number is not public.
    expected : tuple of ExpectedMargin
        For means by groups that the owner has counted before: the margin of each. Empty otherwise.
    laws : tuple of LawOption
        Cost and noise by each law that the request leaves open and the limit admits, first the one that is
        taken: for an ``ApproxDP`` promise and for an sd both, otherwise one.

    Privacy
    -------
    Follows from the schema, the public number of rows and what the owner has paid.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     print(db.preview("count where age > 50", privacy=GaussianDP(1)))
    count where 50 < age
      would be ± 2.0 rows at 95 %
    Would cost: μ = 1 (epsilon 4.887 at delta 1e-06).
    """

    sql: str | None
    is_free: bool = False
    n_rows: float | None = None
    expected: tuple[ExpectedMargin, ...] = ()
    laws: tuple[LawOption, ...] = ()

    @property
    def sd(self) -> float | None:
        """Standard deviation of the noise of a single statistic; None if it is not known in advance."""
        return self.columns[0].sd if len(self.columns) == 1 else None

    @property
    def margin(self) -> float | None:
        """Half the width of each interval of a single statistic; None if it is not known in advance."""
        return self.columns[0].margin if len(self.columns) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as the command line prints them."""
        # The zero-argument form does not work in a class with slots.
        return {**QueryResult.to_dict(self), **self._noise_fields()}

    def _noise_fields(self) -> dict[str, Any]:
        """Return the fields of a message that say how noisy the result would be."""
        return {
            "sd": self.sd,
            "margin": self.margin,
            "n_rows": self.n_rows,
            "expected": [one.to_dict() for one in self.expected],
            "laws": [option.to_dict() for option in self.laws],
        }

    @property
    def law_words(self) -> str | None:
        """Which law of noise is taken, and why rather than the other; None where there is no choice."""
        if len(self.laws) < 2:
            return None
        chosen, other = self.laws[:2]
        law, instead = chosen.law.capitalize(), other.law.capitalize()
        if chosen.share is not None and other.share is not None and chosen.share < other.share:
            shares = f"{format_share(chosen.share)}, not {format_share(other.share)}"
            return f"Noise: {law}, which takes less of the budget here than {instead} ({shares})."
        if chosen.sd is not None and other.sd is not None and chosen.sd < other.sd:
            sds = f"sd {number(chosen.sd)}, not {number(other.sd)}"
            return f"Noise: {law}, smaller here than {instead} ({sds})."
        # Of a mean over a noisy count no sd is known; the law is still the one with less noise.
        return f"Noise: {law}, smaller here than {instead}."

    @property
    def margin_words(self) -> str:
        """How noisy the result would be, and over how many rows that is."""
        several = len(self.columns) > 1
        margins = []
        for column in self.columns:
            margin = column.margin if column.rank_margin is None else column.rank_margin
            if margin is None:
                continue
            unit = f" {printable(column.measure)}" if column.measure else ""
            rank = " rows in rank" if column.rank_margin is not None else unit
            written = NumberFormat.from_margins([margin])(margin, "up")
            margins.append(f"{f'{column.name} ' if several else ''}± {written}{rank}")
        if not margins:
            of_ratio = any(column.name.startswith("ratio(") for column in self.columns)
            depends_on = "its second sum" if of_ratio else "the number of rows"
            return f"the noise depends on {depends_on}, which is not public"
        text = f"would be {', '.join(margins)}"
        if self.n_rows is None:
            return f"{text}{' in each group' if self.group_by else ''} at 95 %"
        if self.group_by:
            size = f"{self.n_rows:,.0f} rows (rows split evenly)"
            return f"{text} at 95 % in a group of {size}; wider in smaller groups"
        least = " over all rows; wider over fewer rows" if " where " in self.question else ""
        return f"{text} at 95 %{least}"

    def __str__(self) -> str:
        lines = (printable(self.question), f"  {self.margin_words}", f"Would cost: {self.cost_words}.")
        return "\n".join((*lines, *filter(None, (self.law_words,))))

    def __repr__(self) -> str:
        return f"Preview({self.question!r}: {self.margin_words})"

    def _repr_html_(self) -> str:
        from discreet.html_tables import draw_facts  # only a notebook draws

        law = (self.law_words or "").removeprefix("Noise: ")
        facts = {"as SQL": self.sql, "numbers": self.margin_words, "noise": law}
        facts |= {"would cost": "nothing" if self.is_free else self.cost_words}
        drawn = None
        if self.used is not None and self.takes is not None and not self.is_free:
            drawn = (self.used["share"] or 0.0, self.takes["share"] or 0.0)
        return draw_facts(self.question, [(name, text) for name, text in facts.items() if text], drawn)

    def to_wire(self) -> dict[str, Any]:
        """Return the preview as the HTTP interface has it."""
        return {
            "kind": "price",
            "question": self.question,
            "sql": self.sql,
            "learner": None,
            "columns": [column.to_dict() for column in self.columns],
            "by": list(self.group_by),
            "sums": self.sums,
            "simultaneous": self.simultaneous,
            **self._noise_fields(),
            "unreadable_below": self.unreadable_below,
            **cost_fields(self.cost, self.remaining),
            "more": self.more,
            "free": self.is_free or not self.cost,
        }

    @staticmethod
    def _read_fields(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a message; it does not name the law, which follows from the cost."""
        n_rows = read_number(values["n_rows"], least=0.0)
        free = values.get("free", False)
        if values["kind"] != "price" or not isinstance(free, bool):
            raise ValueError
        common = read_common_fields(values)
        return {
            **common,
            "group_by": read_texts(values.get("by", ())),
            "cells": (),
            "law": "laplace" if common["cost"] and is_pure(common["cost"]) else "gaussian",
            "sql": read_text_or_none(values.get("sql")),
            "is_free": free,
            "n_rows": n_rows,
            "expected": tuple(ExpectedMargin.from_dict(one) for one in values["expected"]),
            "laws": tuple(LawOption.from_dict(option) for option in values.get("laws", ())),
        }
