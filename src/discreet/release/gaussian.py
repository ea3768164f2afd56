"""Publish a whole table with Gaussian noise: the optimum for a given loss of learning.

Sums over columns that the first paper prints as privacy, with what each of them really says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import linalg, stats

from discreet.errors import ParameterError, PromiseError
from discreet.noise import Whitening, samplers
from discreet.noise.whitening import STEPS, points_per_double
from discreet.noise_law import CorrelatedGaussianLaw, GaussianLaw
from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, Promise, floors
from discreet.privacy.amounts import exact
from discreet.privacy.calibration import gaussian_mu
from discreet.privacy.floors import GaussianNoise
from discreet.privacy.rounding import root_down, shorter_up
from discreet.privacy.sensitivity import linear_box_diameter
from discreet.release.base import check_noise
from discreet.release.mechanism import (
    SIZE_TOLERANCE,
    NumberMechanism,
    additive_floor,
    check_weights,
    matrix_power,
    prior_of,
)
from discreet.release.table import Label, TableRelease, check_exactly_one

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Bools, Floats
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.noise_law import Law
    from discreet.privacy import ColumnFloor
    from discreet.schema import Column, Schema


class GaussianNumbers(NumberMechanism):
    """Gaussian noise of one covariance on the numbers of every row.

    Parameters
    ----------
    columns : tuple of Column
        The numbers.
    covariance : array
        A vector of variances for independent noise, or a matrix.
    """

    def __init__(self, columns: tuple[Column, ...], covariance: Floats) -> None:
        self.columns = columns
        self.covariance = covariance
        variances = covariance if covariance.ndim == 1 else np.diagonal(covariance)
        check_noise(columns, np.sqrt(variances), "The standard deviation of Gaussian noise")
        ranges = np.array([c.range for c in columns])
        lower, upper = ranges[:, 0], ranges[:, 1]
        if covariance.ndim == 1:
            self.whitening = Whitening.diagonal(lower, upper, np.sqrt(covariance))
            self.information = 1 / covariance
        else:
            matrix = matrix_power(covariance, -0.5)
            self.diameter = linear_box_diameter(matrix, upper - lower)
            self.whitening = Whitening.dense(
                lower, upper, matrix, matrix_power(covariance, 0.5), self.diameter.upper
            )
            self.information = np.diagonal(matrix_power(covariance, -1.0))

    @property
    def sensitivity(self) -> float:
        """How far two rows can be apart, in standard deviations: the ``mu`` of one row."""
        return self.whitening.sensitivity

    def unit_sensitivity(self, rows: int) -> float:
        """Return the ``mu`` of a unit with up to ``rows`` rows: each has noise of its own, squares add up."""
        if rows == 1:
            return self.sensitivity
        return math.nextafter(self.sensitivity * math.sqrt(rows) * (1 + 2.0**-52), math.inf)

    def lattice_step(self, column: Column) -> float:
        """Return twice the distance by which rounding to the lattice can move a cell, in its unit."""
        sd = self.law(column).sd
        if self.covariance.ndim == 1:
            return sd * _STEP
        # Each whitened coordinate moves by at most a step; the map back has rows of length sd.
        return 2 * sd * math.sqrt(len(self.columns)) * _STEP

    def _conditional_noise(self, column: Column) -> GaussianNoise:
        """Return the noise on one cell that remains once the noise of all others is known."""
        return GaussianNoise(float(1 / math.sqrt(self.information[self.column_index(column)])))

    def law(self, column: Column) -> GaussianLaw:
        """Return the law of one column, and how its noise goes together with that of others."""
        j = self.column_index(column)
        if self.covariance.ndim == 1:
            return GaussianLaw(variance=float(self.covariance[j]))
        return CorrelatedGaussianLaw(
            variance=float(self.covariance[j, j]),
            columns=tuple(c.name for c in self.columns),
            covariances=tuple(float(v) for v in self.covariance[j]),
        )

    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """One Gaussian promise for all numbers together."""
        return [
            GaussianDP(
                mu=self.unit_sensitivity(rows),
                covers=tuple(c.name for c in self.columns),
                total_variation=self.whitening.total_variation(n_rows),
                **common,
            )
        ]

    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return the exact Bayes error under the uniform prior, and the bounds beside it."""
        return additive_floor(
            column,
            self._conditional_noise(column),
            lattice_step=self.lattice_step(column),
            total_variation=rows * self.whitening.total_variation(1),
            releases=rows,
        )

    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Add the noise on the lattice."""
        return self.whitening.release(matrix, stream)

    def scaled(self, factor: float) -> GaussianNumbers:
        """Return the mechanism with ``factor`` times the standard deviation."""
        return GaussianNumbers(self.columns, self.covariance * factor**2)

    def is_possible(self, matrix: Floats) -> Bools:
        """Say which cells are numbers that :meth:`release` writes."""
        return self.whitening.possible(matrix)

    def repeat_chance(self) -> float:
        """Bound the chance by the largest mass of a lattice point; correlated columns count as one."""
        if self.covariance.ndim == 2:
            return _LARGEST_MASS
        spread = np.sqrt(self.covariance)
        ends = np.abs([c.range for c in self.columns]).max(axis=1) + _FAR * spread
        return float(np.prod(np.minimum(1.0, _LARGEST_MASS * points_per_double(ends, spread / STEPS))))

    def with_laws(self, laws: Mapping[str, Law]) -> GaussianNumbers:
        """Return the mechanism with the covariance that published laws state, where it is as good."""
        stated = self.covariance.copy()
        for j, c in enumerate(self.columns):
            law = laws.get(c.name)
            if self.covariance.ndim == 1 and isinstance(law, GaussianLaw):
                stated[j] = law.variance
            elif isinstance(law, CorrelatedGaussianLaw) and len(law.covariances) == len(stated):
                stated[j] = law.covariances
        sd = np.sqrt(self.covariance if stated.ndim == 1 else np.diagonal(self.covariance))
        size = sd**2 if stated.ndim == 1 else np.outer(sd, sd)
        good = (np.abs(stated - self.covariance) <= 2 * SIZE_TOLERANCE * size).all()
        if not good or (stated.ndim == 2 and (stated != stated.T).any()):
            return self
        return GaussianNumbers(self.columns, stated)


# A lattice step is 2**-20 standard deviations of whitened noise; twice that leaves room for rounding errors.
_STEP = 2.0**-19
_LARGEST_MASS = 1.001 / (math.sqrt(2 * math.pi) * STEPS)
_FAR = 20.0  # standard deviations, which no draw passes


class GaussianRelease(TableRelease):
    """Add Gaussian noise to numbers and randomize everything else.

    Give exactly one of ``privacy``, ``regularization`` and ``scale``; the others follow and are shown in the
    plan.

    Parameters
    ----------
    privacy : ErrorFloor, ApproxDP, GaussianDP or ZCDP, optional
        What is promised. An :class:`ErrorFloor` names columns; the other sensitive columns get the
        same share of what can be proven for them. An :class:`ApproxDP` covers all sensitive columns
        and the target jointly; a column's ``protect`` share is taken first, the rest of epsilon is
        split equally, and the numbers put theirs together into one ``mu``.
    regularization : float, optional
        The weight lambda of the lost utility in ``Tr(Pi^-1 I) + lambda Tr(V)``, where ``I`` is the Fisher
        information and ``V`` the covariance of the noise; the optimum is ``V = Pi^(-1/2) / sqrt(lambda)``.
    scale : float, sequence or mapping, optional
        The standard deviation of the noise in each column's own unit.
    weights : vector or matrix, optional
        ``Pi``: how much the error on each number, or combination of numbers, counts; symmetric positive
        definite. By default the inverse fourth power of each declared range, so that the noise of every
        column is in proportion to it.
    label : {"randomized", "clear"}
        Whether the target is randomized, or published as it is and covered by no promise.
    clamp : bool
        Move noised numbers back into their declared range: post-processing, and part of the law.
    schema, bounds, ledger, random_state
        See :class:`~discreet.release.base.ReleaseMethod`.

    Privacy
    -------
    One unit's rows replaced. Numbers: ``mu``-GDP with ``mu`` the longest diagonal of the declared box in
    standard deviations, computed on the integer lattice; categories and missing flags: pure epsilon
    each, added up. The floors are exact Bayes errors under the uniform prior on what was declared,
    for somebody who knows nothing else. Open: the number of rows, the column names, declared lists
    and bounds, public columns, and the target when ``label="clear"``.

    Reference
    ---------
    Farokhi's theorem 2.4: docs/explanation/theorems/fisher-optimum.md; his theorem 2.5 is no guarantee:
    docs/explanation/theorems/fisher-2.5.md. See
    docs/explanation/theorems/whitening.md, analytic-gaussian.md, bayes-floor.md, box-diameter.md.

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
    accepts: ClassVar[tuple[type[Promise], ...]] = (ErrorFloor, ApproxDP, GaussianDP, ZCDP)
    refusal: ClassVar[str] = "Gaussian noise has no pure epsilon: give a delta too."

    def __init__(
        self,
        *,
        privacy: Promise | None = None,
        regularization: float | None = None,
        scale: float | Sequence[float] | Mapping[str, float] | None = None,
        weights: Any = None,
        label: Label = "randomized",
        clamp: bool = False,
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            privacy=privacy,
            label=label,
            clamp=clamp,
            schema=schema,
            bounds=bounds,
            ledger=ledger,
            random_state=random_state,
        )
        check_exactly_one(type(self).__name__, privacy=privacy, regularization=regularization, scale=scale)
        if regularization is not None and not (
            isinstance(regularization, int | float) and 0 < regularization < math.inf
        ):
            raise ParameterError(
                f"regularization of GaussianRelease must be a finite number above 0, was {regularization!r}."
            )
        if scale is not None and weights is not None:
            raise ParameterError(
                "weights of GaussianRelease say how noise is spread over columns, and so does scale. "
                "Give one of them."
            )
        self.regularization = regularization
        self.scale = scale
        self.weights = weights

    def shape(self, columns: Sequence[Column]) -> Floats:
        """Return ``Pi^(-1/2)``: the covariance of the noise up to a factor, as a vector or a matrix."""
        if self.weights is None:
            return np.array([c.width**2 for c in columns])
        return matrix_power(check_weights(self.weights, columns, type(self).__name__), -0.5)

    def numbers_as_given(self, columns: tuple[Column, ...], schema: Schema, n_rows: int) -> GaussianNumbers:
        """Use lambda, the standard deviations, or a Gaussian promise."""
        rows = schema.max_rows_per_unit or 1
        if isinstance(self.privacy, GaussianDP):
            return self._calibrate_mu(columns, self.privacy.mu, rows)
        if isinstance(self.privacy, ZCDP):
            # Down: noise for a larger mu would cost more than was asked for.
            return self._calibrate_mu(columns, root_down(2 * exact(self.privacy.rho)), rows)
        # What passes all numbers is refused there.
        with np.errstate(over="ignore"):
            if self.regularization is not None:
                return GaussianNumbers(columns, self.shape(columns) / math.sqrt(self.regularization))
            assert self.scale is not None
            return GaussianNumbers(columns, self.per_column("scale", self.scale, columns) ** 2)

    def numbers_for_epsilon(
        self, columns: tuple[Column, ...], epsilons: Mapping[str, float], n_rows: int, rows: int
    ) -> GaussianNumbers:
        """Put the parts of epsilon together into one ``mu``."""
        assert isinstance(self.privacy, ApproxDP)
        # The sampler's own distance is paid out of delta.
        growth = 1 + math.exp(min(self.privacy.epsilon, 700.0))
        tv = n_rows * len(columns) * samplers.GAUSSIAN_TOTAL_VARIATION * growth
        if tv >= self.privacy.delta / 2:
            raise PromiseError(
                f"delta of privacy must be well above the sampler's {tv:.2g} at this epsilon, was "
                f"{self.privacy.delta:g}. Ask for a larger delta or a smaller epsilon."
            )
        mu = gaussian_mu(math.fsum(epsilons.values()), self.privacy.delta - 2 * tv)
        return self._calibrate_mu(columns, mu, rows)

    def numbers_for_errors(
        self, columns: tuple[Column, ...], errors: Mapping[str, float], rows: int
    ) -> GaussianNumbers:
        """Find the least noise whose floors are the ones asked for."""
        check_noise(columns, np.array([errors[c.name] for c in columns]), "The error floor")
        least = np.array([self._smallest_sd(c, errors[c.name], len(columns), rows) for c in columns])
        if self.weights is None:
            return GaussianNumbers(columns, least**2)
        shape = self.shape(columns)
        information = 1 / shape if shape.ndim == 1 else np.diagonal(matrix_power(shape, -1.0))
        factor = float(np.max(least**2 * information))
        while True:
            factor = shorter_up(factor)
            numbers = GaussianNumbers(columns, shape * factor)
            proven = [numbers.floor(c, rows) for c in columns]
            if all(f is not None and f.error >= errors[c.name] for c, f in zip(columns, proven, strict=True)):
                return numbers
            # The lattice of correlated noise costs a little more than that of each column alone.
            factor *= 1 + 2.0**-16

    @staticmethod
    def _smallest_sd(column: Column, error: float, p: int, rows: int) -> float:
        prior, tv = prior_of(column), rows * (p + 1) * samplers.GAUSSIAN_TOTAL_VARIATION
        rough = floors.least_noise(GaussianNoise, prior, error, column=column.name, releases=rows)
        return floors.least_noise(
            GaussianNoise,
            prior,
            error,
            column=column.name,
            releases=rows,
            total_variation=tv,
            lattice_step=2 * rough.sd * _STEP,
            start=rough.sd,
        ).sd

    def _calibrate_mu(self, columns: tuple[Column, ...], mu: float, rows: int) -> GaussianNumbers:
        """Scale the shape until the rows of two units are at most ``mu`` standard deviations apart."""
        shape = self.shape(columns)
        widths = np.array([c.width for c in columns])
        if shape.ndim == 1:
            diameter = float(np.sqrt(np.sum(widths**2 / shape)))
        else:
            # Its last digits depend on the processor, and the noise must not.
            diameter = shorter_up(linear_box_diameter(matrix_power(shape, -0.5), widths).upper)
        factor = rows * (diameter / mu) ** 2
        while True:
            factor *= 1 + 2.0**-20  # rounding to the lattice may take a little more
            numbers = GaussianNumbers(columns, shape * factor)
            if numbers.unit_sensitivity(rows) <= mu:
                return numbers


def printed_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon that the paper's theorem 2.5 prints for Gaussian noise: shown, never promised.

    It is larger than the true one up to about 20 (at delta 1e-5) and smaller, hence false, beyond.

    Reference
    ---------
    docs/explanation/theorems/fisher-2.5.md
    """
    return mu * (1 + math.sqrt(2 * math.log(1 / delta)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBounds:
    """Lower bounds on the squared error of guesses at a whole row, summed over columns.

    A sum hides that a column in large units may be almost unprotected; read the floors per column first.

    Attributes
    ----------
    unbiased : float
        ``Tr V``, on ``E |x - guess|^2``; unbiased attackers without other knowledge only.
    half : float
        ``Tr(Pi V)``, on ``E |Pi^(1/2) (x - guess)|^2``; the same attackers. The paper's number.
    full : float
        ``Tr(Pi V Pi)``, on ``E |Pi (x - guess)|^2``; the same attackers. What the paper's left side says.
    weak : float
        ``p^2 / Tr(Pi^-1 V^-1)``, below ``half``.
    anyone : float
        Every attacker, for some rows in the declared box: van Trees with the cosine-squared prior.

    Privacy
    -------
    Only ``anyone`` binds every attacker, and that one on average over a prior; it never exceeds
    ``sum(widths^2) / (4 pi^2)`` however large the noise.

    Reference
    ---------
    Farokhi's propositions 2.2 and 2.8: docs/explanation/theorems/fisher-cramer-rao.md.
    """

    unbiased: float
    half: float
    full: float
    weak: float
    anyone: float


def trace_bounds(covariance: Floats, weights: Floats, widths: Floats) -> TraceBounds:
    """Compute the bounds for noise of one covariance (vector or matrix) and weights ``Pi``."""
    V = np.diag(covariance) if covariance.ndim == 1 else covariance
    Pi = np.diag(weights) if weights.ndim == 1 else weights
    information = linalg.inv(V)
    prior = np.diag(4 * np.pi**2 / np.asarray(widths, float) ** 2)
    return TraceBounds(
        unbiased=float(np.trace(V)),
        half=float(np.trace(Pi @ V)),
        full=float(np.trace(Pi @ V @ Pi)),
        weak=len(V) ** 2 / float(np.trace(linalg.solve(Pi, information))),
        anyone=float(np.trace(linalg.inv(information + prior))),
    )


def clamped_information(sd: float, value: float, lower: float, upper: float) -> float:
    """Return the Fisher information that Gaussian noise leaves about a value once the sum is clamped.

    Never more than the ``1 / sd**2`` of the sum itself: clamping is post-processing.

    Reference
    ---------
    docs/explanation/theorems/fisher-cramer-rao.md
    """
    a, b = (lower - value) / sd, (upper - value) / sd
    below, above = stats.norm.cdf(a), stats.norm.sf(b)
    inside = (1 - below - above) + a * stats.norm.pdf(a) - b * stats.norm.pdf(b)
    atoms = stats.norm.pdf(a) ** 2 / below + stats.norm.pdf(b) ** 2 / above
    return float(inside + atoms) / sd**2


def informed_error(covariance: Floats, population: Floats) -> float:
    """Return the squared error of the linear guess by somebody who knows the population's covariance.

    Given class by class where labels are public: an attack that succeeds, not a bound.

    Reference
    ---------
    docs/explanation/theorems/fisher-cramer-rao.md
    """
    V = np.diag(covariance) if covariance.ndim == 1 else covariance
    return float(np.trace(population - population @ linalg.solve(population + V, population)))
