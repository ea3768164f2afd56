"""Bounds of columns from a paid estimate: noisy counts of public cells, charged before they are drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import formatting
from discreet.errors import PromiseError
from discreet.pipeline.query_session import QuerySession
from discreet.pipeline.sources import resolve_source
from discreet.privacy import ApproxDP, PureDP
from discreet.query.aggregates import Marginals
from discreet.query.costs import CostModel
from discreet.query.range_cells import FAILURE, EstimatedRange, RangeCells, estimate_range, noise_limit
from discreet.schema import Schema
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet.pipeline.sources import LedgerPlace
    from discreet.query.calibration import Law
    from discreet.schema.dialect import Dialect

_NOTICED = 20  # a cell with this part of the rows has to be noticed
_CLOSE = 1.05  # factor between an epsilon that is recommended and one that is too small
_LARGEST_EPSILON = 1000.0


@dataclass(frozen=True, kw_only=True)
class BoundsRequest:
    """What is paid for bounds, and under which declaration of the table.

    Attributes
    ----------
    epsilon : float
        Promise of all columns together.
    delta : float or None
        With it the noise is Gaussian; None for Laplace noise and pure differential privacy.
    table : mapping of str to object
        Keys of a schema file about the table: ``missingValues``, and ``privacy`` with dataset, unit,
        neighbors, id column and rows of a unit.
    dialect : Dialect or None
        How the table is written as text; None where it is no text.
    ledger : Ledger, path, URL or None
        Ledger that is charged; None for the file beside the table.
    """

    epsilon: float
    delta: float | None
    table: Mapping[str, Any]
    dialect: Dialect | None = None
    ledger: LedgerPlace = None

    def promise(self, schema: Schema, epsilon: float) -> ApproxDP | PureDP:
        """Return the promise with another epsilon, about the unit and the neighbors of a schema."""
        about: dict[str, Any] = {"unit": schema.unit, "neighbors": schema.neighbors}
        if self.delta is None:
            return PureDP(epsilon=epsilon, **about)
        return ApproxDP(epsilon=epsilon, delta=self.delta, **about)

    @property
    def law(self) -> Law:
        """Distribution of the noise."""
        return "laplace" if self.delta is None else "gaussian"


def estimate_bounds(
    source: Any, fields: Mapping[str, Mapping[str, Any]], request: BoundsRequest
) -> dict[str, dict[str, Any]]:
    """Charge for noisy counts of public cells, and return the bounds that they prove as keys of fields.

    Parameters
    ----------
    source : path, URL, frame or "demo:census"
        Table as :func:`discreet.tables.open_table` reads it, or a bundled one.
    fields : mapping of str to mapping
        For every column of numbers or dates to be estimated, its type and other keys that say how it is read.
    request : BoundsRequest
        Promise, ledger and what is declared about the table.

    Returns
    -------
    dict of str to dict
        Constraints, and where they are from with the receipt; a column without proven bounds is left out.

    Raises
    ------
    PromiseError
        With this promise no cell of a twentieth of the public number of rows would be noticed. Nothing was
        charged.

    Privacy
    -------
    One answer of :class:`~discreet.query.aggregates.Marginals`, one table for each column, charged before it
    is drawn; what is returned follows from the noisy counts alone. Every column has the same noise.

    Reference
    ---------
    docs/explanation/theorems/private-bounds.md.
    """
    cells = {name: RangeCells.from_type(name, str(field["type"])) for name, field in fields.items()}
    schema = replace(_wide_schema(cells, fields, request.table), dialect=request.dialect)
    question = bounds_question(cells)
    n_cells = max(len(one.ends) for one in cells.values())
    _check_epsilon(source, schema, question, request, n_cells)
    with QuerySession(source, schema=schema, ledger=request.ledger) as session:
        database = session.open(charged=True)
        answer = database.ask(question, privacy=request.promise(schema, request.epsilon))
        counts = question.split(np.asarray(answer.value), database.curation)
        n_rows = database.n_rows if schema.row_count == "public" else None
    limit = noise_limit(float(np.ravel(answer.sd)[0]), answer.law, n_cells, len(cells))
    found = {
        name: estimate_range(one, noisy, limit, n_rows)
        for (name, one), noisy in zip(cells.items(), counts, strict=True)
    }
    paid = f"epsilon {formatting.number(request.epsilon)}" + (
        "" if request.delta is None else f", delta {request.delta:g}"
    )
    return {
        name: _declare(cells[name], range_, f"private estimate, {paid}, receipt {answer.receipt.id}")
        for name, range_ in found.items()
        if range_ is not None
    }


def bounds_question(cells: Mapping[str, RangeCells]) -> Marginals:
    """Return the one question whose answer bounds follow from: the counts of all cells of each column."""
    return Marginals([(name,) for name in cells], edges={name: one.starts for name, one in cells.items()})


def _wide_schema(
    cells: Mapping[str, RangeCells], fields: Mapping[str, Mapping[str, Any]], table: Mapping[str, Any]
) -> Schema:
    """Return the schema under which the cells are counted: the widest bounds, and the column of ids."""
    columns: list[dict[str, Any]] = [{**fields[name], **one.column.to_dict()} for name, one in cells.items()]
    id_column = table["privacy"].get("id_column")
    if id_column is not None:
        columns.append({"name": id_column, "privacy": {"role": "id"}})
    return Schema.from_dict({**table, "fields": columns})


def _check_epsilon(
    source: Any, schema: Schema, question: Marginals, request: BoundsRequest, n_cells: int
) -> None:
    """Refuse a promise that is too strong to notice cells with many rows; by public facts alone."""
    if schema.row_count != "public" or schema.neighbors != "replace-one":
        return
    with open_table(resolve_source(source), schema=schema) as table:
        n_rows = table.count()
    model, columns = CostModel(schema, n_rows), len(question.tables)

    def rows_needed(epsilon: float) -> float:
        sd = model.expected_sd(question, privacy=request.promise(schema, epsilon))
        return noise_limit(float(np.ravel(sd)[0]), request.law, n_cells, columns)

    needed = rows_needed(request.epsilon)
    if needed <= n_rows / _NOTICED:
        return
    least = _least_epsilon(lambda epsilon: rows_needed(epsilon) <= n_rows / _NOTICED, request.epsilon)
    must = "larger" if least is None else f"at least {formatting.number(least, digits=2, rounding='up')}"
    raise PromiseError(
        f"--epsilon of private bounds must be {must} for "
        f"{formatting.count_noun(columns, 'column')} and {n_rows:,} rows, was {request.epsilon:g}: values "
        f"would be noticed only where {needed:,.0f} rows have them. Declare more bounds in a codebook, so "
        "that fewer are estimated, or give more."
    )


def _least_epsilon(is_enough: Callable[[float], bool], too_small: float) -> float | None:
    """Return an epsilon that is enough, up to 5 % above the least; None if even a very large one is not."""
    low, high = too_small, 2 * too_small
    while not is_enough(high):
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return None
    while high > _CLOSE * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _declare(cells: RangeCells, found: EstimatedRange, source: str) -> dict[str, Any]:
    """Return the keys of a field that declare estimated bounds, and where they are from."""
    outside = formatting.percent(found.outside, digits=2, rounding="up").replace("\xa0", " ")
    declared = replace(cells.column, lower=found.lower, upper=found.upper).to_dict()["constraints"]
    sure = f"with probability {1 - FAILURE:g} at most {outside} of rows are outside"
    return {
        "constraints": {key: declared[key] for key in ("minimum", "maximum")},
        "privacy": {"bounds_source": f"{source}; {sure}"},
    }
