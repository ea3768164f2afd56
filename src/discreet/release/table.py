"""Releases that add noise row by row: the plan, and the split of a promise over numbers and lists."""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from discreet.arguments import promise_hint
from discreet.errors import ParameterError, PromiseError
from discreet.noise.whitening import same_bits
from discreet.noise_law import Additive, Clear
from discreet.privacy import ApproxDP, ColumnFloor, ErrorFloor, PureDP
from discreet.release.base import ReleaseMethod, parameter_names
from discreet.release.mechanism import (
    LevelList,
    NumberMechanism,
    Response,
    level_lists,
    response_promise,
    uniform_prior,
)
from discreet.release.publication import ColumnSummary, ReleasePlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.noise_law import Law
    from discreet.privacy import Promise
    from discreet.release.publication import Encoded
    from discreet.schema import Column, Schema

    Calibration = tuple["NumberMechanism | None", tuple[Response, ...]]

INDEPENDENT = (
    "under the prior and in the noise the column is independent of everything else that is published; "
    "correlated columns, clear labels and public columns lower the floor"
)
LABEL_CLEAR = "the target is published as it is, and nothing here covers it"
KNOWS_MORE = (
    "a value guessed by somebody who knows more than what was declared about it, such as how it is "
    "distributed or how it goes with other columns: the floors are for those who do not"
)
AVERAGES_OUT = (
    "repeated releases of the same table: their noise averages out, so each further one lowers every floor "
    "and adds to every epsilon; the ledger adds them up"
)
ROWS_KNOWN = "how many rows each unit has is public"

Label = Literal["randomized", "clear"]


def check_exactly_one(where: str, **given: object) -> None:
    """Raise unless exactly one of the parameters that set the noise is given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        *first, last = given
        raise ParameterError(
            f"{where} needs exactly one of {', '.join(first)} and {last}, was given "
            f"{' and '.join(names) or 'none'}. The rest follows from it."
        )


def floor_promise(
    schema: Schema, proven: Mapping[str, ColumnFloor], assumes: tuple[str, ...]
) -> list[ErrorFloor]:
    """Return the promise of the proven floors, with the columns that are not published; none if none hold."""
    if not proven:
        return []
    unpublished = tuple(c.name for c in schema.columns if not c.is_released)
    return [ErrorFloor(proven, unit=schema.unit, assumes=assumes, unpublished=unpublished)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablePlan(ReleasePlan):
    """Plan of a row-by-row release: a mechanism for numbers, randomized response for lists.

    Attributes
    ----------
    schema, columns, promises
        As for :class:`~discreet.release.publication.ReleasePlan`.
    numbers : NumberMechanism or None
        Mechanism for the numeric columns; None where no number is protected.
    responses : tuple of Response
        Randomized response of each protected list and missing flag.
    clamp : bool
        Whether noised numbers are moved back into their declared range.
    """

    schema: Schema
    numbers: NumberMechanism | None
    responses: tuple[Response, ...]
    clamp: bool
    columns: tuple[ColumnSummary, ...]
    promises: tuple[Promise, ...]

    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Return rows with every protected column noised, and the public columns as they are."""
        out = {c.name: rows[c.name] for c in self.schema.released if c.name in rows}
        if self.numbers is not None:
            columns = self.numbers.columns
            matrix = np.column_stack([rows[c.name] for c in columns])
            for j, c in enumerate(columns):
                # A missing number is noised at a public value, and its flag is randomized separately.
                if not c.required:
                    np.nan_to_num(matrix[:, j], copy=False, nan=c.fill)
            noised = self.numbers.release(matrix, stream)
            for j, c in enumerate(columns):
                out[c.name] = self._post_process(c, noised[:, j])
        for response in self.responses:
            codes = response.draw(rows[response.name], stream)
            if response.level_list.missing_flag:
                codes = np.where(codes == 1, np.nan, out[response.name])
            out[response.name] = codes
        return out

    def repeat_chance(self) -> float:
        """Return a bound on the chance that two rows agree in all numbers; 1 if clamped or rounded."""
        plain = (
            self.numbers is not None and not self.clamp and all(c.grid is None for c in self.numbers.columns)
        )
        return self.numbers.repeat_chance() if self.numbers is not None and plain else 1.0

    def noised_columns(self) -> tuple[str, ...]:
        """Return the names of the numeric columns."""
        return () if self.numbers is None else tuple(c.name for c in self.numbers.columns)

    def _post_process(self, column: Column, noised: Floats) -> Floats:
        """Return noised numbers clamped and rounded as declared."""
        if self.clamp:
            noised = column.clip(noised)
        return noised if column.grid is None else round_to_grid(column, noised)

    def misfits(self, columns: Encoded) -> dict[str, str]:
        """Return the columns with cells that this plan cannot have drawn, each with the reason."""
        misfits = ReleasePlan.misfits(
            self, columns
        )  # a dataclass with slots is a second class, which super() does not know
        if self.numbers is None:
            return misfits
        matrix = np.column_stack([columns[c.name] for c in self.numbers.columns])
        with np.errstate(over="ignore"):  # the file may hold any number
            fits = self.numbers.is_possible(matrix) | np.isnan(matrix)
        for j, c in enumerate(self.numbers.columns):
            values = matrix[:, j]
            ends = np.array(c.range if self.clamp else self.numbers.output_range(c), float)
            if c.grid is not None:
                # Rounding can lead from inside the ends to the next step outside.
                ends = np.where(np.isinf(ends), ends, round_to_grid(c, ends))
                fits[:, j] = same_bits(round_to_grid(c, values), values)
            elif self.clamp:
                fits[:, j] |= same_bits(values, ends[:1]) | same_bits(values, ends[1:])
            if self.clamp or c.grid is not None:
                fits[:, j] &= (values >= ends[0]) & (values <= ends[1])
                fits[:, j] |= np.isnan(values)
            if not fits[:, j].all() and c.name not in misfits:
                misfits[c.name] = "values that the noise cannot have led to (off its lattice or its support)"
        return misfits


def round_to_grid(column: Column, values: Floats) -> Floats:
    """Return values rounded to the public step of a column, counted from its lower bound."""
    assert column.grid is not None
    lower = column.range[0]
    return np.asarray(lower + np.rint((values - lower) / column.grid) * column.grid)


class TableRelease(ReleaseMethod):
    """Release that adds noise to each row independently.

    Subclasses turn floors, epsilons or their own parameters into a :class:`NumberMechanism`; everything
    that is not a number, and the split of what is promised, is handled here.

    Parameters
    ----------
    privacy : Promise, optional
        Promise of the release. An :class:`ErrorFloor` names columns; the other sensitive columns get the
        same share of what can be proven for them. An epsilon covers all sensitive columns and the
        target jointly: declared shares (``protect``) first, the rest in equal parts.
    label : {"randomized", "clear"}
        Whether the target is randomized, or published as it is and covered by no promise.
    clamp : bool
        Whether noised numbers are moved back into their declared range: post-processing, and part of the law.
    schema, bounds, ledger, random_state
        As for :class:`~discreet.release.base.ReleaseMethod`.
    """

    accepts: ClassVar[tuple[type[Promise], ...]]

    def __init__(
        self,
        *,
        privacy: Promise | None,
        label: Label,
        clamp: bool,
        schema: Schema | None,
        bounds: tuple[Any, Any] | None,
        ledger: Ledger | None,
        random_state: int | None,
    ) -> None:
        """Check label, clamp and the kind of promise, and store them."""
        super().__init__(schema=schema, bounds=bounds, ledger=ledger, random_state=random_state)
        if label not in ("randomized", "clear"):
            raise ParameterError(
                f"label of {type(self).__name__} must be 'randomized' or 'clear', was {label!r}."
            )
        if not isinstance(clamp, bool):
            raise ParameterError(f"clamp of {type(self).__name__} must be True or False, was {clamp!r}.")
        if privacy is not None and not isinstance(privacy, self.accepts):
            names = ", ".join(kind.__name__ for kind in self.accepts)
            raise PromiseError(
                f"privacy of {type(self).__name__} must be one of {names}, was {type(privacy).__name__}. "
                f"{promise_hint(privacy, self.accepts) or self.refusal}"
            )
        self.privacy = privacy
        self.label = label
        self.clamp = clamp
        self._last: tuple[int, tuple[Any, ...], Calibration] | None = None
        self._laws: Mapping[str, Law] = {}

    def with_stated_laws(self, laws: Mapping[str, Law]) -> Self:
        """Return the method with the sizes of noise that published laws state, where they match its own."""
        result = copy.copy(self)
        result._laws = {} if self.privacy is None else laws
        return result

    refusal: ClassVar[str] = ""
    """Reason why other promises are not accepted, for the error."""

    def not_protected(self, schema: Schema) -> tuple[str, ...]:
        """Return what a release by this method does not protect, as clauses without a full stop."""
        clear = self.label == "clear" and schema.target is not None
        return (
            *super().not_protected(schema),
            *((f"the target {schema.target!r}, which is published as it is",) if clear else ()),
            KNOWS_MORE,
            AVERAGES_OUT,
        )

    @abstractmethod
    def numbers_for_errors(
        self, columns: tuple[Column, ...], errors: Mapping[str, float], rows: int
    ) -> NumberMechanism:
        """Return the mechanism with floors ``errors[name]``, for a unit with up to ``rows`` rows."""

    @abstractmethod
    def numbers_for_epsilon(
        self, columns: tuple[Column, ...], epsilons: Mapping[str, float], n_rows: int, rows: int
    ) -> NumberMechanism:
        """Return the mechanism that spends ``epsilons[name]`` on each column of a unit."""

    @abstractmethod
    def numbers_as_given(self, columns: tuple[Column, ...], schema: Schema, n_rows: int) -> NumberMechanism:
        """Return the mechanism for a promise without an epsilon, or for the parameters in place of one."""

    def per_column(
        self, parameter: str, given: float | Sequence[float] | Mapping[str, float], columns: Sequence[Column]
    ) -> Floats:
        """Return a positive number for each column.

        Parameters
        ----------
        parameter : str
            Name of the parameter, for errors.
        given : float, sequence or mapping
            One number for all columns, one for each, or numbers by column name; finite and above 0.
        columns : sequence of Column
            Columns in the order of the result.
        """
        where, names = f"{parameter} of {type(self).__name__}", [c.name for c in columns]
        if isinstance(given, Mapping):
            if set(given) != set(names):
                raise ParameterError(
                    f"{where} must name exactly the columns {', '.join(names)}, named "
                    f"{', '.join(sorted(given)) or 'none'}."
                )
            given = [given[name] for name in names]
        try:
            values = np.broadcast_to(np.asarray(given, float), len(names))
        except ValueError:
            raise ParameterError(
                f"{where} must be one number or {len(names)}, one for each of {', '.join(names)}."
            ) from None
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ParameterError(f"{where} must be finite numbers above 0.")
        return values

    def plan(self, schema: Schema, n_rows: int) -> TablePlan:
        """Return the noise of each column and its promises, from the schema and the number of rows."""
        return self.scaled_plan(schema, n_rows, 1.0)

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> TablePlan:
        """Return the plan with ``factor`` times the noise; the log odds of lists are divided by it."""
        where = type(self).__name__
        protected = tuple(
            c
            for c in schema.released
            if c.role == "sensitive" or (c.role == "target" and self.label == "randomized")
        )
        if not protected:
            raise ParameterError(
                f"schema of {where} must have a sensitive column, and all of its columns are public. "
                "There is nothing to protect."
            )
        rows = schema.max_rows_per_unit or 1
        columns, lists = tuple(c for c in protected if c.is_number), level_lists(protected)
        numbers, responses = self._cached_calibration(columns, lists, schema, n_rows)
        numbers = numbers.with_laws(self._laws) if numbers and self._laws else numbers
        if factor != 1.0:
            numbers = numbers.scaled(factor) if numbers else None
            responses = tuple(response.scaled(factor) for response in responses)
        clear = self.label == "clear" and schema.target is not None
        assumes = (LABEL_CLEAR,) * clear + (ROWS_KNOWN,) * (schema.id_column is not None)
        common: dict[str, Any] = {"unit": schema.unit, "assumes": assumes}
        promises = numbers.promises(n_rows, rows, common) if numbers else []
        if responses:
            promises.append(response_promise(responses, rows, common))
        summaries = tuple(self._summarize_column(c, numbers, responses, rows) for c in schema.released)
        proven = {s.column: s.floor for s in summaries if s.floor is not None}
        promises += floor_promise(schema, proven, (*assumes, INDEPENDENT))
        return TablePlan(
            schema=schema,
            numbers=numbers,
            responses=responses,
            clamp=self.clamp,
            columns=summaries,
            promises=tuple(promises),
        )

    def _cached_calibration(
        self, columns: tuple[Column, ...], lists: tuple[LevelList, ...], schema: Schema, n_rows: int
    ) -> Calibration:
        """Return the calibration, cached because a job plans the same table several times."""
        # Compared by identity: parameters may be arrays, and equal ones that are not the same only cost time.
        requested = (schema, *(getattr(self, name) for name in parameter_names(type(self))))
        last = self._last
        if (
            last is None
            or last[0] != n_rows
            or any(a is not b for a, b in zip(requested, last[1], strict=True))
        ):
            self._last = last = (n_rows, requested, self._calibrate(columns, lists, schema, n_rows))
        return last[2]

    def _calibrate(
        self, columns: tuple[Column, ...], lists: tuple[LevelList, ...], schema: Schema, n_rows: int
    ) -> tuple[NumberMechanism | None, tuple[Response, ...]]:
        """Return mechanism and responses for the kind of promise, or for given noise."""
        rows = schema.max_rows_per_unit or 1
        if isinstance(self.privacy, ErrorFloor):
            return self._calibrate_errors(self.privacy, columns, lists, rows)
        if isinstance(self.privacy, ApproxDP | PureDP):
            return self._split_epsilon(self.privacy.epsilon, columns, lists, n_rows, rows)
        if self.privacy is not None and lists:
            raise PromiseError(
                f"privacy of {type(self).__name__} must have an epsilon or be an ErrorFloor, was "
                f"{self.privacy}: {lists[0].column.name!r} is randomized by levels, which promises no "
                "other way."
            )
        if not columns:
            raise ParameterError(
                f"{type(self).__name__} needs privacy= with an ErrorFloor or an epsilon: the table has no "
                "numbers."
            )
        numbers = self.numbers_as_given(columns, schema, n_rows)
        shares = [
            floor.error / uniform_prior(c).largest if (floor := numbers.floor(c, rows)) else 0.0
            for c in columns
        ]
        return numbers, self._responses_for_share(min(shares), lists, rows)

    def _responses_for_share(
        self, share: float, lists: Sequence[LevelList], rows: int
    ) -> tuple[Response, ...]:
        """Return responses whose floors are the given share of the largest ones."""
        if lists and not share > 0:
            raise ParameterError(
                f"The noise of {type(self).__name__} proves nothing about some number, so nothing says how "
                f"to randomize {lists[0].column.name!r}. Ask for more noise, or give privacy=."
            )
        # Below 1 by a little: at 1 a list would be published independently of the truth.
        share = min(share, 1 - 2.0**-30)
        return tuple(Response.for_error(item, share * item.largest_error, rows) for item in lists)

    def _calibrate_errors(
        self,
        privacy: ErrorFloor,
        columns: tuple[Column, ...],
        lists: tuple[LevelList, ...],
        rows: int,
    ) -> tuple[NumberMechanism | None, tuple[Response, ...]]:
        """Return the noise that reaches an error floor.

        Columns that the floor does not name get the same share of their largest error as the most protected
        named one.
        """
        requested = {name: floor.error for name, floor in privacy.entries}
        largest = {c.name: uniform_prior(c).largest for c in columns}
        largest |= {item.column.name: item.largest_error for item in lists if not item.missing_flag}
        if unknown := sorted(set(requested) - set(largest)):
            raise ParameterError(
                f"ErrorFloor names {unknown[0]!r}, which is not a protected column of the schema. "
                f"It has {', '.join(largest)}."
            )
        for item in lists:
            if item.column.name in requested and item.column.is_category and not item.prior.largest:
                raise PromiseError(
                    f"ErrorFloor names {item.column.name!r}, which lists one value: a guess needs no file to "
                    "be right. Leave it out of the ErrorFloor, or declare every value that it may have."
                )
        share = max(error / largest[name] for name, error in requested.items())
        if share >= 1:
            # Refused below, with the name of the column that asked for it and not of another one.
            share = 0.5
        errors = {name: requested.get(name, share * most) for name, most in largest.items()}
        numbers = self.numbers_for_errors(columns, errors, rows) if columns else None
        responses = tuple(
            Response.for_error(
                item, share * item.largest_error if item.missing_flag else errors[item.column.name], rows
            )
            for item in lists
        )
        return numbers, responses

    def _split_epsilon(
        self,
        epsilon: float,
        columns: tuple[Column, ...],
        lists: tuple[LevelList, ...],
        n_rows: int,
        rows: int,
    ) -> tuple[NumberMechanism | None, tuple[Response, ...]]:
        """Return the noise that spends epsilon: declared shares first, the rest in equal parts."""
        items = [item.column for item in lists] + list(columns)
        given = [c.protect.share if c.protect and c.protect.share else None for c in items]
        rest = 1 - sum(share for share in given if share is not None)
        n_free = given.count(None)
        if rest < 0 or (rest == 0 and n_free):
            raise ParameterError(
                "The protect shares of the schema must leave epsilon for every sensitive column, and sum to "
                f"{1 - rest:g}. Lower them, or give every column one so that they sum to 1."
            )
        # The last binary digits are left unused, so that the sum of rounded parts stays below epsilon.
        parts = [epsilon * (rest / n_free if share is None else share) * (1 - 2.0**-40) for share in given]
        responses = tuple(
            Response.for_epsilon(item, part, rows) for item, part in zip(lists, parts, strict=False)
        )
        if not columns:
            return None, responses
        epsilons = {c.name: part for c, part in zip(columns, parts[len(lists) :], strict=True)}
        return self.numbers_for_epsilon(columns, epsilons, n_rows, rows), responses

    def _summarize_column(
        self,
        column: Column,
        numbers: NumberMechanism | None,
        responses: Sequence[Response],
        rows: int,
    ) -> ColumnSummary:
        """Return law, epsilon, floor and prior of one released column."""
        flags = {r.name: r for r in responses if r.level_list.missing_flag}
        for r in responses:
            if r.name == column.name and not r.level_list.missing_flag:
                return ColumnSummary(
                    column=column.name,
                    law=r.law,
                    epsilon=r.epsilon * rows,
                    floor=r.floor(rows),
                    prior=r.level_list.prior,
                )
        if numbers is None or not numbers.has_column(column):
            return ColumnSummary(column=column.name, law=Clear())
        law, epsilon = numbers.law(column), numbers.epsilon(column)
        if isinstance(law, Additive):
            law = dataclasses.replace(law, clamped=self.clamp, grid=column.grid)
        if column.name in flags:
            flag = flags[column.name]
            law = dataclasses.replace(law, missing_keep=flag.keep)
            epsilon = None if epsilon is None else epsilon + flag.epsilon
        floor = numbers.floor(column, rows)
        return ColumnSummary(
            column=column.name,
            law=law,
            epsilon=None if epsilon is None else epsilon * rows,
            floor=floor,
            prior=uniform_prior(column),
        )
