"""Publish a whole table with Gaussian noise on numbers and randomized response on categories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.noise import Stream, Whitening, gaussian, randomized_response, response_threshold
from discreet.privacy import ZCDP, ApproxDP, ColumnFloor, ErrorFloor, GaussianDP, Promise, PureDP, floors
from discreet.privacy.calibrate import (
    gaussian_mu,
    group_epsilon,
    group_mu,
    keep_probability,
    response_epsilon,
    rho_mu,
)
from discreet.privacy.floors import GaussianNoise, IntegerPrior, UniformPrior
from discreet.release.base import Plan, ReleaseMethod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._typing import AnyArray
    from discreet.privacy import Ledger
    from discreet.release.base import Encoded
    from discreet.schema import Column, Schema

INDEPENDENT = (
    "under the prior and in the noise the column is independent of everything else that is published; "
    "correlated columns, clear labels and public columns lower the floor"
)
LABEL_CLEAR = "the target is published as it is, and nothing here covers it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Randomized response on one published list of levels."""

    column: Column
    levels: int
    keep: float
    missing_flag: bool = False

    @property
    def epsilon(self) -> float:
        """Of one answer, rounded up."""
        return response_epsilon(self.keep, self.levels)

    def draw(self, values: AnyArray, stream: Stream) -> AnyArray:
        """Return the randomized codes; of a number, whether it is missing."""
        codes = np.isnan(values).astype(np.int64) if self.missing_flag else values
        return randomized_response(codes, self.levels, response_threshold(self.keep, self.levels), stream)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GaussianPlan(Plan):
    """What a Gaussian release does to each row.

    Attributes
    ----------
    sd : mapping of str to float
        Standard deviation of the noise on each number, in its own unit.
    responses : tuple of Response
        What happens to each category and to each missing flag.
    """

    schema: Schema
    numbers: tuple[Column, ...]
    sd: Mapping[str, float]
    responses: tuple[Response, ...]
    promises: tuple[Promise, ...]

    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Noise every protected column; the others leave as they are."""
        out = {c.name: rows[c.name] for c in self.schema.released if c.name in rows}
        if self.numbers:
            matrix = np.column_stack(
                [np.where(np.isnan(rows[c.name]), c.fill, rows[c.name]) for c in self.numbers]
            )
            noised = whitening(self.numbers, self.sd).release(matrix, stream)
            out.update({c.name: noised[:, j] for j, c in enumerate(self.numbers)})
        for response in self.responses:
            name = response.column.name
            codes = response.draw(rows[name], stream)
            out[name] = np.where(codes == 1, np.nan, out[name]) if response.missing_flag else codes
        return out


class GaussianRelease(ReleaseMethod):
    """Add independent Gaussian noise to numbers and randomize categories.

    Parameters
    ----------
    privacy : ErrorFloor, ApproxDP, GaussianDP or ZCDP, optional
        What is promised. An :class:`ErrorFloor` names columns; the other sensitive columns get the
        same share of what can be proven for them. An :class:`ApproxDP` covers all sensitive columns
        and the target jointly; a column's ``protect`` share is taken first, the rest of epsilon is
        split equally, and the numbers put theirs together into one ``mu``.
    scale : mapping of str to float, optional
        Instead of ``privacy``: the standard deviation of each number, in its own unit.
    label : {"randomized", "clear"}
        Whether the target is randomized, or published as it is and covered by no promise.
    schema, bounds, ledger, random_state
        See :class:`~discreet.release.base.ReleaseMethod`.

    Privacy
    -------
    One unit's rows replaced. Numbers: ``mu``-GDP with ``mu`` the diagonal of the declared box in
    standard deviations, computed on the integer lattice; categories and missing flags: pure epsilon
    each, added up. The floors are exact Bayes errors under the uniform prior on what was declared,
    for somebody who knows nothing else. Open: the number of rows, the column names, declared lists
    and bounds, public columns, and the target when ``label="clear"``.

    Reference
    ---------
    docs/explanation/theorems/whitening.md, analytic-gaussian.md, bayes-floor.md

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import Column, ErrorFloor, GaussianRelease, Schema
    >>> schema = Schema(columns=[Column("age", lower=17, upper=90, measure="years")])
    >>> released = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema, random_state=1).release(
    ...     np.array([[30.0], [44.0], [71.0]])
    ... )
    >>> released.data.shape, released.receipt.seeded
    ((3, 1), True)
    """

    name: ClassVar[str] = "gaussian"

    def __init__(
        self,
        *,
        privacy: Promise | None = None,
        scale: Mapping[str, float] | None = None,
        label: Literal["randomized", "clear"] = "randomized",
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(schema=schema, bounds=bounds, ledger=ledger, random_state=random_state)
        if (privacy is None) == (scale is None):
            raise ParameterError("GaussianRelease needs exactly one of privacy and scale.")
        if label not in ("randomized", "clear"):
            raise ParameterError(f"label of GaussianRelease must be 'randomized' or 'clear', was {label!r}.")
        self.privacy = privacy
        self.scale = scale
        self.label = label

    def plan(self, schema: Schema, n_rows: int) -> GaussianPlan:
        """Choose the noise of each column and say what it promises."""
        protected = tuple(
            c
            for c in schema.released
            if c.role == "sensitive" or (c.role == "target" and self.label == "randomized")
        )
        if not protected:
            raise ParameterError(
                "schema of GaussianRelease must have a sensitive column, all of its columns are public. "
                "There is nothing to protect."
            )
        rows = schema.max_rows_per_unit or 1
        numbers = tuple(c for c in protected if c.is_number)
        wanted = [(c, len(c.levels), False) for c in protected if c.is_category]
        wanted += [(c, 2, True) for c in numbers if not c.required]
        sd, keep = self._calibrate(numbers, wanted, n_rows, rows)
        responses = tuple(
            Response(column=c, levels=k, keep=p, missing_flag=flag)
            for (c, k, flag), p in zip(wanted, keep, strict=True)
        )
        clear = (LABEL_CLEAR,) if self.label == "clear" and schema.target is not None else ()
        promises = _promises(schema, numbers, sd, responses, n_rows, rows, clear)
        return GaussianPlan(schema=schema, numbers=numbers, sd=sd, responses=responses, promises=promises)

    def _calibrate(
        self,
        numbers: Sequence[Column],
        wanted: Sequence[tuple[Column, int, bool]],
        n_rows: int,
        rows: int,
    ) -> tuple[dict[str, float], list[float]]:
        """Return the noise of each number and the keep probability of each response."""
        match self.privacy:
            case None:
                if wanted:
                    raise ParameterError(
                        f"scale of GaussianRelease is for numbers; {wanted[0][0].name!r} has levels to "
                        "randomize. Give privacy= instead."
                    )
                return self._given_scale(numbers), []
            case ErrorFloor():
                return _from_floors(self.privacy, numbers, wanted, rows)
            case ApproxDP():
                return _from_epsilon(self.privacy, numbers, wanted, n_rows, rows)
            case GaussianDP() | ZCDP():
                if wanted:
                    raise PromiseError(
                        f"privacy of GaussianRelease must be ApproxDP or ErrorFloor, was {self.privacy}: "
                        f"{wanted[0][0].name!r} is randomized by levels, which has no Gaussian promise."
                    )
                mu = self.privacy.mu if isinstance(self.privacy, GaussianDP) else rho_mu(self.privacy.rho)
                return _sd_for(numbers, mu / rows), []
            case _:
                raise PromiseError(
                    "privacy of GaussianRelease must be ErrorFloor, ApproxDP, GaussianDP or ZCDP, was "
                    f"{type(self.privacy).__name__}. Gaussian noise has no pure epsilon."
                )

    def _given_scale(self, numbers: Sequence[Column]) -> dict[str, float]:
        assert self.scale is not None
        names = {c.name for c in numbers}
        if set(self.scale) != names:
            raise ParameterError(
                f"scale of GaussianRelease must name exactly the columns {', '.join(sorted(names))}, named "
                f"{', '.join(sorted(self.scale)) or 'none'}."
            )
        return {name: float(sd) for name, sd in self.scale.items()}


def whitening(numbers: Sequence[Column], sd: Mapping[str, float]) -> Whitening:
    """Return the map to the lattice for these columns and this noise."""
    ranges = np.array([c.range for c in numbers])
    return Whitening.diagonal(ranges[:, 0], ranges[:, 1], np.array([sd[c.name] for c in numbers]))


def prior_of(column: Column) -> UniformPrior | IntegerPrior:
    """Return the uniform prior on what was declared; whole numbers stay whole."""
    lower, upper = column.range
    if column.type == "number":
        return UniformPrior(lower, upper)
    return IntegerPrior(int(lower), int(upper))


def _sd_for(numbers: Sequence[Column], mu: float) -> dict[str, float]:
    """Give every column the same share of ``mu``: noise in proportion to its range."""
    relative = math.sqrt(len(numbers)) / mu
    while True:
        sd = {c.name: c.width * relative for c in numbers}
        if whitening(numbers, sd).sensitivity <= mu:
            return sd
        relative *= 1 + 2.0**-20  # rounding to the lattice pushed it over


def _from_epsilon(
    privacy: ApproxDP,
    numbers: Sequence[Column],
    wanted: Sequence[tuple[Column, int, bool]],
    n_rows: int,
    rows: int,
) -> tuple[dict[str, float], list[float]]:
    """Split epsilon: declared shares first, the rest equally; numbers pool theirs."""
    items = [c for c, _, _ in wanted] + list(numbers)
    given = [c.protect.share if c.protect and c.protect.share else None for c in items]
    rest = 1 - sum(share for share in given if share is not None)
    free = given.count(None)
    if rest < 0 or (rest == 0 and free):
        raise ParameterError(
            "The protect shares of the schema must leave epsilon for every sensitive column, and sum to "
            f"{1 - rest:g}. Lower them, or give every column one that sums to 1."
        )
    shares = [rest / free if share is None else share for share in given]
    epsilons = [privacy.epsilon * share / rows * (1 - 2.0**-40) for share in shares]
    keep = [keep_probability(e, k) for e, (_, k, _) in zip(epsilons, wanted, strict=False)]
    if not numbers:
        return {}, keep
    # The sampler's own distance is paid out of delta.
    tv = n_rows * len(numbers) * gaussian.TOTAL_VARIATION * (1 + math.exp(min(privacy.epsilon, 700)))
    if tv >= privacy.delta / 2:
        raise PromiseError(
            f"delta of privacy must be well above the sampler's {tv:.2g} at this epsilon, was "
            f"{privacy.delta:g}. Ask for a larger delta or a smaller epsilon."
        )
    pooled = sum(epsilons[len(wanted) :]) * rows
    return _sd_for(numbers, gaussian_mu(pooled, privacy.delta - 2 * tv) / rows), keep


def _from_floors(
    privacy: ErrorFloor, numbers: Sequence[Column], wanted: Sequence[tuple[Column, int, bool]], rows: int
) -> tuple[dict[str, float], list[float]]:
    """Calibrate each named floor; the other columns get the same share of what can be proven."""
    asked = {name: floor.error for name, floor in privacy.entries}
    largest = {c.name: prior_of(c).largest for c in numbers}
    largest |= {c.name: 1 - 1 / k for c, k, flag in wanted if not flag}
    if unknown := sorted(set(asked) - set(largest)):
        raise ParameterError(
            f"ErrorFloor names {unknown[0]!r}, which is not a protected column of the schema. "
            f"It has {', '.join(largest)}."
        )
    share = max(error / largest[name] for name, error in asked.items())
    tv = (len(numbers) + 1) * gaussian.TOTAL_VARIATION
    sd = {}
    for c in numbers:
        error = asked.get(c.name, share * largest[c.name])
        rough = floors.least_noise(GaussianNoise, prior_of(c), error, column=c.name, releases=rows)
        # Rounding to the lattice costs half a step; a step is 2**-20 standard deviations.
        sd[c.name] = floors.least_noise(
            GaussianNoise, prior_of(c), error, column=c.name, releases=rows,
            total_variation=rows * tv, lattice_step=rough.sd * 2.0**-19,
        ).sd  # fmt: skip
    keep = []
    for c, k, flag in wanted:
        chance = share * (1 - 1 / k) if flag else asked.get(c.name, share * largest[c.name])
        kept = floors.keep_for_wrong_guess(chance, k, column=c.name)
        # Several answers of one unit multiply their odds: each gets its part of the log odds.
        keep.append(kept if rows == 1 else keep_probability(response_epsilon(kept, k) / rows, k))
    return sd, keep


def _promises(
    schema: Schema,
    numbers: Sequence[Column],
    sd: Mapping[str, float],
    responses: Sequence[Response],
    n_rows: int,
    rows: int,
    assumes: tuple[str, ...],
) -> tuple[Promise, ...]:
    """Say everything that holds for one unit with up to ``rows`` rows."""
    if rows > 1:
        assumes = (*assumes, "how many rows each unit has is public")
    common: dict[str, Any] = {"unit": schema.unit, "assumes": assumes}
    promises: list[Promise] = []
    entries: dict[str, ColumnFloor] = {}
    if numbers:
        lattice = whitening(numbers, sd)
        promises.append(
            GaussianDP(
                mu=group_mu(lattice.sensitivity, rows),
                covers=tuple(c.name for c in numbers),
                total_variation=lattice.total_variation(n_rows),
                **common,
            )
        )
        tv = rows * lattice.total_variation(1)
        entries |= {c.name: _floor(c, sd[c.name], rows, tv) for c in numbers}
    if responses:
        epsilon = math.fsum(r.epsilon for r in responses) * (1 + 2.0**-50)
        covers = tuple(dict.fromkeys(r.column.name for r in responses))
        promises.append(PureDP(epsilon=group_epsilon(epsilon, rows), covers=covers, **common))
        for r in responses:
            if not r.missing_flag:
                keep = r.keep if rows == 1 else keep_probability(group_epsilon(r.epsilon, rows), r.levels)
                entries[r.column.name] = ColumnFloor(
                    error=floors.wrong_guess_floor(keep, r.levels),
                    statistic="probability of a wrong guess",
                    prior=f"uniform on the {r.levels} declared levels",
                )
    provable = {name: floor for name, floor in entries.items() if floor is not None}
    promises.append(ErrorFloor(provable, unit=schema.unit, assumes=(*assumes, INDEPENDENT)))
    return tuple(promises)


def _floor(column: Column, sd: float, rows: int, tv: float) -> ColumnFloor:
    noise, prior = GaussianNoise(sd), prior_of(column)
    error = floors.bayes_floor(noise, prior, releases=rows, total_variation=tv, lattice_step=sd * 2.0**-20)
    continuous = isinstance(prior, UniformPrior)
    return ColumnFloor(
        error=error,
        measure=column.measure,
        prior=prior.name,
        van_trees=floors.van_trees_floor(noise, prior, releases=rows) if continuous else None,
        cramer_rao=floors.cramer_rao_unbiased_only(noise, releases=rows),
        fisher_information=noise.information * rows,
    )
