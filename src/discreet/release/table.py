"""Row by row: what noised tables of every kind share. A method adds what it does to the numbers."""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from scipy import linalg

from discreet.errors import ParameterError, PromiseError
from discreet.noise._linear import product, symmetric_eigen
from discreet.noise.whitening import same_bits
from discreet.noise_law import Additive, Clear
from discreet.privacy import ApproxDP, ColumnFloor, ErrorFloor, PureDP, floors
from discreet.privacy.priors import IntegerPrior, UniformPrior
from discreet.release._randomized_response import Listed, Response, listed_in, response_promise
from discreet.release.base import ReleaseMethod, parameter_names
from discreet.release.publication import ColumnSummary, ReleasePlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Bools, Floats
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.noise_law import Law
    from discreet.privacy import Promise
    from discreet.privacy.floors import Noise
    from discreet.release.publication import Encoded
    from discreet.schema import Column, Schema

    Calibrated = tuple["NumberMechanism | None", tuple[Response, ...]]

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


AS_GOOD = 1.2e-7
"""How far, relatively, a stated size of noise may be from the calibrated one: a step of 24 bits."""


def as_good(stated: float, own: float) -> bool:
    """Say whether a stated size of noise is the calibrated one, up to what processors compute differently."""
    return abs(stated - own) <= AS_GOOD * abs(own)


def prior_of(column: Column) -> UniformPrior | IntegerPrior:
    """Return the uniform prior on what was declared; whole numbers stay whole."""
    lower, upper = column.range
    if column.type == "number":
        return UniformPrior(lower, upper)
    return IntegerPrior(int(lower), int(upper))


def exactly_one(where: str, **given: object) -> None:
    """Refuse a method that is told how much noise to use in several ways, or in none."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        *first, last = given
        raise ParameterError(
            f"{where} needs exactly one of {', '.join(first)} and {last}, was given "
            f"{' and '.join(names) or 'none'}. The rest follows from it."
        )


def additive_floor(
    column: Column,
    noise: Noise,
    *,
    lattice_step: float,
    total_variation: float = 0.0,
    releases: int = 1,
) -> ColumnFloor | None:
    """Return the exact Bayes error under the uniform prior and the bounds beside it; None where it is 0."""
    prior = prior_of(column)
    error = floors.bayes_floor(
        noise,
        prior,
        releases=releases,
        total_variation=total_variation,
        lattice_step=lattice_step,
    )
    return floors.column_floor(error, prior, measure=column.measure, noise=noise, releases=releases)


def floor_promise(
    schema: Schema, proven: Mapping[str, ColumnFloor], assumes: tuple[str, ...]
) -> list[ErrorFloor]:
    """State the floors of a release that publishes each row by itself, and what it does not publish."""
    if not proven:
        return []
    unpublished = tuple(c.name for c in schema.columns if not c.leaves)
    return [ErrorFloor(proven, unit=schema.unit, assumes=assumes, unpublished=unpublished)]


def root_of(positive: Floats, power: float) -> Floats:
    """Return a power of a positive definite matrix, or of a diagonal one given as a vector."""
    if positive.ndim == 1:
        return np.asarray(positive**power)
    values, vectors = symmetric_eigen(positive)
    return product(vectors * values**power, vectors.T)


def checked_weights(given: Any, columns: Sequence[Column], where: str) -> Floats:
    """Return weights ``Pi`` on the columns, a positive vector or a positive definite matrix."""
    weights, p = np.asarray(given, float), len(columns)
    if weights.shape not in ((p,), (p, p)) or not np.isfinite(weights).all():
        raise ParameterError(
            f"weights of {where} must be {p} finite numbers or a {p} by {p} matrix, for "
            f"{', '.join(c.name for c in columns)}; had shape {weights.shape}."
        )
    if weights.ndim == 2 and np.abs(weights - weights.T).max() > 1e-12 * np.abs(weights).max():
        raise ParameterError(f"weights of {where} must be a symmetric matrix.")
    least = float(weights.min() if weights.ndim == 1 else linalg.eigvalsh(weights)[0])
    if not least > 0:
        raise ParameterError(
            f"weights of {where} must be positive definite, and their smallest eigenvalue is {least:.6g}. "
            "Give every direction a weight above 0."
        )
    return weights


class NumberMechanism(ABC):
    """What a method does to the numbers of a row.

    Attributes
    ----------
    columns : tuple of Column
        The numbers, in the order of the matrices below.
    """

    columns: tuple[Column, ...]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {c.name: j for j, c in enumerate(self.columns)}

    def has(self, column: Column) -> bool:
        """Say whether it is one of the columns."""
        return column.name in self._places

    def place(self, column: Column) -> int:
        """Return which of the columns it is."""
        return self._places[column.name]

    @abstractmethod
    def law(self, column: Column) -> Law:
        """Return the public law of one column, in its own unit."""

    @abstractmethod
    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Say what holds for a unit with up to ``rows`` rows of a table of ``n_rows``."""

    @abstractmethod
    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return the least error of any guess at one column; None where none is proven."""

    @abstractmethod
    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Return the noised numbers of some rows, none of them missing."""

    @abstractmethod
    def scaled(self, factor: float) -> NumberMechanism:
        """Return the mechanism with ``factor`` times as much noise."""

    @abstractmethod
    def possible(self, matrix: Floats) -> Bools:
        """Say which published cells this mechanism can have drawn, whatever was true."""

    def repeat_chance(self) -> float:
        """Bound the chance that the numbers of two rows come out the same, whatever was true; 1 at most."""
        return 1.0

    def reach(self, column: Column) -> tuple[float, float]:
        """Return the least and the largest number that can be published."""
        return -math.inf, math.inf

    def with_laws(self, laws: Mapping[str, Law]) -> NumberMechanism:
        """Return the mechanism with the sizes that published laws state, where they are as good as its own.

        A size that was calibrated on another processor may differ in its last digit. Whoever checks or
        replays what was drawn needs the one that it was drawn with.
        """
        return self

    def epsilon(self, column: Column) -> float | None:
        """Return the pure epsilon of one cell; None where the columns have none of their own."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablePlan(ReleasePlan):
    """Numbers by one mechanism, lists by randomized response, public columns as they are."""

    schema: Schema
    numbers: NumberMechanism | None
    responses: tuple[Response, ...]
    clamp: bool
    columns: tuple[ColumnSummary, ...]
    promises: tuple[Promise, ...]

    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Noise every protected column; the others leave as they are."""
        out = {c.name: rows[c.name] for c in self.schema.released if c.name in rows}
        if self.numbers is not None:
            columns = self.numbers.columns
            matrix = np.column_stack([rows[c.name] for c in columns])
            for j, c in enumerate(columns):
                if not c.required:
                    np.nan_to_num(matrix[:, j], copy=False, nan=c.fill)
            noised = self.numbers.release(matrix, stream)
            for j, c in enumerate(columns):
                out[c.name] = self._finished(c, noised[:, j])
        for response in self.responses:
            codes = response.draw(rows[response.name], stream)
            if response.listed.missing_flag:
                codes = np.where(codes == 1, np.nan, out[response.name])
            out[response.name] = codes
        return out

    def repeat_chance(self) -> float:
        """Bound the chance that two rows get the same noised numbers; post-processing may bring it about."""
        plain = (
            self.numbers is not None and not self.clamp and all(c.grid is None for c in self.numbers.columns)
        )
        return self.numbers.repeat_chance() if self.numbers is not None and plain else 1.0

    def noised(self) -> tuple[str, ...]:
        """Name the columns of numbers."""
        return () if self.numbers is None else tuple(c.name for c in self.numbers.columns)

    def _finished(self, column: Column, noised: Floats) -> Floats:
        """Clamp and round as was declared: post-processing."""
        if self.clamp:
            noised = column.clip(noised)
        return noised if column.grid is None else on_grid(column, noised)

    def misfits(self, columns: Encoded) -> dict[str, str]:
        """Name the columns with published cells that this plan cannot have drawn, and say why."""
        found = ReleasePlan.misfits(
            self, columns
        )  # a class with slots is made twice, and super() knows the first
        if self.numbers is None:
            return found
        matrix = np.column_stack([columns[c.name] for c in self.numbers.columns])
        with np.errstate(over="ignore"):  # whoever wrote the file may have written anything
            fits = self.numbers.possible(matrix) | np.isnan(matrix)
        for j, c in enumerate(self.numbers.columns):
            values = matrix[:, j]
            ends = np.array(c.range if self.clamp else self.numbers.reach(c), float)
            if c.grid is not None:
                # Rounding can lead from inside the ends to the next step outside.
                ends = np.where(np.isinf(ends), ends, on_grid(c, ends))
                fits[:, j] = same_bits(on_grid(c, values), values)
            elif self.clamp:
                fits[:, j] |= same_bits(values, ends[:1]) | same_bits(values, ends[1:])
            if self.clamp or c.grid is not None:
                fits[:, j] &= (values >= ends[0]) & (values <= ends[1])
                fits[:, j] |= np.isnan(values)
            if not fits[:, j].all() and c.name not in found:
                found[c.name] = "values that the noise cannot have led to (off its lattice or its support)"
        return found


def on_grid(column: Column, values: Floats) -> Floats:
    """Round to the public step of a column, counted from its lower bound."""
    assert column.grid is not None
    lower = column.range[0]
    return np.asarray(lower + np.rint((values - lower) / column.grid) * column.grid)


class TableRelease(ReleaseMethod):
    """A release that noises each row by itself.

    Subclasses turn floors, epsilons or their own parameters into a :class:`NumberMechanism`; everything
    that is not a number, and the split of what is promised, is handled here.

    Parameters
    ----------
    privacy : Promise, optional
        What is promised. An :class:`ErrorFloor` names columns; the other sensitive columns get the
        same share of what can be proven for them. An epsilon covers all sensitive columns and the
        target jointly: declared shares (``protect``) first, the rest in equal parts.
    label : {"randomized", "clear"}
        Whether the target is randomized, or published as it is and covered by no promise.
    clamp : bool
        Move noised numbers back into their declared range: post-processing, and part of the law.
    schema, bounds, ledger, random_state
        See :class:`~discreet.release.base.ReleaseMethod`.
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
                f"{self.refusal}"
            )
        self.privacy = privacy
        self.label = label
        self.clamp = clamp
        self._last: tuple[int, tuple[Any, ...], Calibrated] | None = None
        self._laws: Mapping[str, Law] = {}

    def as_stated(self, laws: Mapping[str, Law]) -> Self:
        """Return the method with the sizes of noise that published laws state, where they are as good."""
        made = copy.copy(self)
        made._laws = {} if self.privacy is None else laws
        return made

    refusal: ClassVar[str] = ""
    """Why other promises are not accepted."""

    def not_protected(self, schema: Schema) -> tuple[str, ...]:
        """Say what a release by this method leaves open, in sentences without a full stop."""
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
        """Reach the floor ``errors[name]`` for each column, for a unit with up to ``rows`` rows."""

    @abstractmethod
    def numbers_for_epsilon(
        self, columns: tuple[Column, ...], epsilons: Mapping[str, float], n_rows: int, rows: int
    ) -> NumberMechanism:
        """Spend ``epsilons[name]`` on each column of a unit."""

    @abstractmethod
    def numbers_as_given(self, columns: tuple[Column, ...], schema: Schema, n_rows: int) -> NumberMechanism:
        """Use a promise without an epsilon, or the parameters that stand in place of one."""

    def per_column(
        self, parameter: str, given: float | Sequence[float] | Mapping[str, float], columns: Sequence[Column]
    ) -> Floats:
        """Return a positive number for each column, from one number, several, or a mapping of names."""
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
        """Choose the noise of each column and say what it promises."""
        return self.scaled_plan(schema, n_rows, 1.0)

    def scaled_plan(self, schema: Schema, n_rows: int, factor: float) -> TablePlan:
        """Plan with ``factor`` times the noise: what if? The log odds of lists are divided by it."""
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
        columns, listed = tuple(c for c in protected if c.is_number), listed_in(protected)
        numbers, responses = self._calibrated(columns, listed, schema, n_rows)
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
        summaries = tuple(self._summary(c, numbers, responses, rows) for c in schema.released)
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

    def _calibrated(
        self, columns: tuple[Column, ...], listed: tuple[Listed, ...], schema: Schema, n_rows: int
    ) -> Calibrated:
        """Remember the last calibration: a job plans the same table several times."""
        asked = (schema, *(getattr(self, name) for name in parameter_names(type(self))))
        last = self._last
        if last is None or last[0] != n_rows or any(a is not b for a, b in zip(asked, last[1], strict=True)):
            self._last = last = (n_rows, asked, self._calibrate(columns, listed, schema, n_rows))
        return last[2]

    def _calibrate(
        self, columns: tuple[Column, ...], listed: tuple[Listed, ...], schema: Schema, n_rows: int
    ) -> tuple[NumberMechanism | None, tuple[Response, ...]]:
        rows = schema.max_rows_per_unit or 1
        if isinstance(self.privacy, ErrorFloor):
            return self._for_errors(self.privacy, columns, listed, rows)
        if isinstance(self.privacy, ApproxDP | PureDP):
            return self._for_epsilon(self.privacy.epsilon, columns, listed, n_rows, rows)
        if self.privacy is not None and listed:
            raise PromiseError(
                f"privacy of {type(self).__name__} must have an epsilon or be an ErrorFloor, was "
                f"{self.privacy}: {listed[0].column.name!r} is randomized by levels, which promises no "
                "other way."
            )
        if not columns:
            raise ParameterError(
                f"{type(self).__name__} needs privacy= with an ErrorFloor or an epsilon: the table has no "
                "numbers."
            )
        numbers = self.numbers_as_given(columns, schema, n_rows)
        shares = [
            floor.error / prior_of(c).largest if (floor := numbers.floor(c, rows)) else 0.0 for c in columns
        ]
        return numbers, self._at_share(min(shares), listed, rows)

    def _at_share(self, share: float, listed: Sequence[Listed], rows: int) -> tuple[Response, ...]:
        """Give every list the share of what can be proven that the numbers have."""
        if listed and not share > 0:
            raise ParameterError(
                f"The noise of {type(self).__name__} proves nothing about some number, so nothing says how "
                f"to randomize {listed[0].column.name!r}. Ask for more noise, or give privacy=."
            )
        # Noise that hides the numbers altogether leaves no share by which a list could be hidden more.
        share = min(share, 1 - 2.0**-30)
        return tuple(Response.for_error(item, share * item.largest_error, rows) for item in listed)

    def _for_errors(
        self,
        privacy: ErrorFloor,
        columns: tuple[Column, ...],
        listed: tuple[Listed, ...],
        rows: int,
    ) -> tuple[NumberMechanism | None, tuple[Response, ...]]:
        asked = {name: floor.error for name, floor in privacy.entries}
        largest = {c.name: prior_of(c).largest for c in columns}
        largest |= {item.column.name: item.largest_error for item in listed if not item.missing_flag}
        if unknown := sorted(set(asked) - set(largest)):
            raise ParameterError(
                f"ErrorFloor names {unknown[0]!r}, which is not a protected column of the schema. "
                f"It has {', '.join(largest)}."
            )
        for item in listed:
            if item.column.name in asked and item.column.is_category and not item.prior.largest:
                raise PromiseError(
                    f"ErrorFloor names {item.column.name!r}, which lists one value: a guess needs no file to "
                    "be right. Leave it out of the ErrorFloor, or declare every value that it may have."
                )
        share = max(error / largest[name] for name, error in asked.items())
        if share >= 1:
            # It is refused below, in the name of the column that asked for it and not of one that did not.
            share = 0.5
        errors = {name: asked.get(name, share * most) for name, most in largest.items()}
        numbers = self.numbers_for_errors(columns, errors, rows) if columns else None
        responses = tuple(
            Response.for_error(
                item, share * item.largest_error if item.missing_flag else errors[item.column.name], rows
            )
            for item in listed
        )
        return numbers, responses

    def _for_epsilon(
        self,
        epsilon: float,
        columns: tuple[Column, ...],
        listed: tuple[Listed, ...],
        n_rows: int,
        rows: int,
    ) -> tuple[NumberMechanism | None, tuple[Response, ...]]:
        """Split epsilon: declared shares first, the rest equally."""
        items = [item.column for item in listed] + list(columns)
        given = [c.protect.share if c.protect and c.protect.share else None for c in items]
        rest = 1 - sum(share for share in given if share is not None)
        free = given.count(None)
        if rest < 0 or (rest == 0 and free):
            raise ParameterError(
                "The protect shares of the schema must leave epsilon for every sensitive column, and sum to "
                f"{1 - rest:g}. Lower them, or give every column one so that they sum to 1."
            )
        # The last binary digits are left over, so that the sum of rounded parts stays below epsilon.
        parts = [epsilon * (rest / free if share is None else share) * (1 - 2.0**-40) for share in given]
        responses = tuple(
            Response.for_epsilon(item, part, rows) for item, part in zip(listed, parts, strict=False)
        )
        if not columns:
            return None, responses
        epsilons = {c.name: part for c, part in zip(columns, parts[len(listed) :], strict=True)}
        return self.numbers_for_epsilon(columns, epsilons, n_rows, rows), responses

    def _summary(
        self,
        column: Column,
        numbers: NumberMechanism | None,
        responses: Sequence[Response],
        rows: int,
    ) -> ColumnSummary:
        flags = {r.name: r for r in responses if r.listed.missing_flag}
        for r in responses:
            if r.name == column.name and not r.listed.missing_flag:
                return ColumnSummary(
                    column=column.name,
                    law=r.law,
                    epsilon=r.epsilon * rows,
                    floor=r.floor(rows),
                    prior=r.listed.prior,
                )
        if numbers is None or not numbers.has(column):
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
            prior=prior_of(column),
        )
