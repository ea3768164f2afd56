"""Release of a table with Gaussian noise, the optimum for a given loss of utility.

Also the sums over columns that the first paper prints as privacy, with what each of them says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy

from discreet.errors import ParameterError, PromiseError
from discreet.noise import Whitening, samplers
from discreet.noise.whitening import STEPS, points_per_double
from discreet.noise_law import CorrelatedGaussianLaw, GaussianLaw
from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, Promise, floors
from discreet.privacy.calibration import gaussian_mu
from discreet.privacy.floors import GaussianNoise
from discreet.privacy.rounding import exact, root_down, shorter_up
from discreet.privacy.sensitivity import linear_box_diameter
from discreet.release.base import check_noise
from discreet.release.mechanism import (
    SIZE_TOLERANCE,
    NumberMechanism,
    additive_floor,
    check_weights,
    matrix_power,
    uniform_prior,
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
        Numeric columns that get the noise together.
    covariance : array of shape (p,) or (p, p)
        Variances of independent noise, or the covariance matrix V, in the units of the columns.

    Notes
    -----
    Rows are whitened by ``V^(-1/2)``, rounded to an integer lattice, and get independent rounded Gaussians.
    The ``mu`` of one row is the longest diagonal of the declared box after whitening.
    """

    def __init__(self, columns: tuple[Column, ...], covariance: Floats) -> None:
        """Check the size of the noise and compute the whitening map and the Fisher information."""
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
        """Largest distance of two rows in standard deviations: the ``mu`` of one row."""
        return self.whitening.sensitivity

    def unit_sensitivity(self, rows: int) -> float:
        """Return the ``mu`` of a unit with up to ``rows`` rows: ``sqrt(rows)`` times that of one."""
        if rows == 1:
            return self.sensitivity
        # Noise of different rows is independent: their squared distances add up.
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
        """Return the law of one column, with the covariances of its noise with that of the others."""
        j = self.column_index(column)
        if self.covariance.ndim == 1:
            return GaussianLaw(variance=float(self.covariance[j]))
        return CorrelatedGaussianLaw(
            variance=float(self.covariance[j, j]),
            columns=tuple(c.name for c in self.columns),
            covariances=tuple(float(v) for v in self.covariance[j]),
        )

    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Return one Gaussian promise for all numbers together."""
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
        """Return the rows with noise, added on the lattice."""
        return self.whitening.release(matrix, stream)

    def scaled(self, factor: float) -> GaussianNumbers:
        """Return the mechanism with ``factor`` times the standard deviation."""
        return GaussianNumbers(self.columns, self.covariance * factor**2)

    def is_possible(self, matrix: Floats) -> Bools:
        """Return, cell by cell, whether :meth:`release` can write the number."""
        return self.whitening.possible(matrix)

    def repeat_chance(self) -> float:
        """Return the largest mass of a lattice point, multiplied over independent columns."""
        if self.covariance.ndim == 2:
            return _LARGEST_MASS
        spread = np.sqrt(self.covariance)
        ends = np.abs([c.range for c in self.columns]).max(axis=1) + _FAR * spread
        return float(np.prod(np.minimum(1.0, _LARGEST_MASS * points_per_double(ends, spread / STEPS))))

    def with_laws(self, laws: Mapping[str, Law]) -> GaussianNumbers:
        """Return the mechanism with the covariance that published laws state, where it matches its own."""
        stated = self.covariance.copy()
        for j, c in enumerate(self.columns):
            law = laws.get(c.name)
            if self.covariance.ndim == 1 and isinstance(law, GaussianLaw):
                stated[j] = law.variance
            elif isinstance(law, CorrelatedGaussianLaw) and len(law.covariances) == len(stated):
                stated[j] = law.covariances
        sd = np.sqrt(self.covariance if stated.ndim == 1 else np.diagonal(self.covariance))
        size = sd**2 if stated.ndim == 1 else np.outer(sd, sd)
        matches = (np.abs(stated - self.covariance) <= 2 * SIZE_TOLERANCE * size).all()
        if not matches or (stated.ndim == 2 and (stated != stated.T).any()):
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
        Promise of the release. An :class:`ErrorFloor` names columns; the other sensitive columns get the
        same share of what can be proven for them. An :class:`ApproxDP` covers all sensitive columns
        and the target jointly; a column's ``protect`` share is taken first, the rest of epsilon is
        split equally, and the numbers put theirs together into one ``mu``.
    regularization : float, optional
        Weight lambda of the lost utility in ``Tr(Pi^-1 I) + lambda Tr(V)``, where ``I`` is the Fisher
        information and ``V`` the covariance of the noise; the optimum is ``V = Pi^(-1/2) / sqrt(lambda)``.
    scale : float, sequence or mapping, optional
        Standard deviation of the noise, in the unit of each column.
    weights : vector or matrix, optional
        ``Pi``: weight of the error on each number, or combination of numbers; symmetric positive definite. By
        default the inverse fourth power of each declared range, so that the noise of every column is in
        proportion to it.
    label : {"randomized", "clear"}
        Whether the target is randomized, or published as it is and covered by no promise.
    clamp : bool
        Whether noised numbers are moved back into their declared range: post-processing, and part of the law.
    schema, bounds, ledger, random_state
        As for :class:`~discreet.release.base.ReleaseMethod`.

    Privacy
    -------
    One unit's rows replaced. Numbers: ``mu``-GDP with ``mu`` the longest diagonal of the declared box in
    standard deviations, computed on the integer lattice; categories and missing flags: pure epsilon
    each, added up. The floors are exact Bayes errors under the uniform prior on what was declared,
    for an attacker who knows nothing else. Open: the number of rows, the column names, declared lists
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
        """Check that exactly one of the three ways to set the noise is given, and store it."""
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
        """Return the mechanism for a Gaussian promise, for lambda, or for given standard deviations."""
        rows = schema.max_rows_per_unit or 1
        if isinstance(self.privacy, GaussianDP):
            return self._calibrate_mu(columns, self.privacy.mu, rows)
        if isinstance(self.privacy, ZCDP):
            # Rounded down: noise for a larger mu would cost more than was asked for.
            return self._calibrate_mu(columns, root_down(2 * exact(self.privacy.rho)), rows)
        # An overflow to infinity is refused by GaussianNumbers.
        with np.errstate(over="ignore"):
            if self.regularization is not None:
                return GaussianNumbers(columns, self.shape(columns) / math.sqrt(self.regularization))
            assert self.scale is not None
            return GaussianNumbers(columns, self.per_column("scale", self.scale, columns) ** 2)

    def numbers_for_epsilon(
        self, columns: tuple[Column, ...], epsilons: Mapping[str, float], n_rows: int, rows: int
    ) -> GaussianNumbers:
        """Return the mechanism whose ``mu`` spends the epsilons of all columns together."""
        assert isinstance(self.privacy, ApproxDP)
        # The distance of the sampler from its law is paid out of delta, for both tables.
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
        """Return the least noise that reaches the floors for a unit with up to ``rows`` rows.

        Notes
        -----
        Without weights every column gets its own least standard deviation. With weights the covariance is
        ``factor Pi^(-1/2)``; the noise of a column given that of all others has variance
        ``1 / (V^-1)_jj``, which sets the factor.
        """
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
        """Return the least standard deviation that proves an error, lattice and sampler counted in."""
        prior, tv = uniform_prior(column), rows * (p + 1) * samplers.GAUSSIAN_TOTAL_VARIATION
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
        """Return the noise under which the rows of two units are at most ``mu`` standard deviations apart."""
        shape = self.shape(columns)
        widths = np.array([c.width for c in columns])
        if shape.ndim == 1:
            diameter = float(np.sqrt(np.sum(widths**2 / shape)))
        else:
            # Shortened to 24 bits: the last digits depend on the processor, and the noise must not.
            diameter = shorter_up(linear_box_diameter(matrix_power(shape, -0.5), widths).upper)
        # Standard deviations grow with the root of the factor, and mu falls by it.
        factor = rows * (diameter / mu) ** 2
        while True:
            factor *= 1 + 2.0**-20  # rounding to the lattice may take a little more
            numbers = GaussianNumbers(columns, shape * factor)
            if numbers.unit_sensitivity(rows) <= mu:
                return numbers


def printed_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon that theorem 2.5 of the paper prints for Gaussian noise: shown, never promised.

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
        ``Tr V``: bound on ``E |x - guess|^2`` for unbiased attackers without other knowledge.
    half : float
        ``Tr(Pi V)``: bound on ``E |Pi^(1/2) (x - guess)|^2`` for the same attackers; the number of the paper.
    full : float
        ``Tr(Pi V Pi)``: bound on ``E |Pi (x - guess)|^2`` for the same attackers; the left side in the paper.
    weak : float
        ``p^2 / Tr(Pi^-1 V^-1)``: a weaker bound, below ``half``.
    anyone : float
        ``Tr (V^-1 + 4 pi^2 / widths^2)^-1``: bound for every attacker and some rows in the declared box, by
        van Trees with the cosine-squared prior.

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
    """Return the bounds for noise of one covariance.

    Parameters
    ----------
    covariance : array of shape (p,) or (p, p)
        Variances of independent noise, or the covariance matrix V.
    weights : array of shape (p,) or (p, p)
        Weights ``Pi`` on the columns, as a vector or a positive definite matrix.
    widths : array of shape (p,)
        Width of the declared range of each column.
    """
    V = np.diag(covariance) if covariance.ndim == 1 else covariance
    Pi = np.diag(weights) if weights.ndim == 1 else weights
    information = scipy.linalg.inv(V)
    prior = np.diag(4 * np.pi**2 / np.asarray(widths, float) ** 2)
    return TraceBounds(
        unbiased=float(np.trace(V)),
        half=float(np.trace(Pi @ V)),
        full=float(np.trace(Pi @ V @ Pi)),
        weak=len(V) ** 2 / float(np.trace(scipy.linalg.solve(Pi, information))),
        anyone=float(np.trace(scipy.linalg.inv(information + prior))),
    )


def informed_error(covariance: Floats, population: Floats) -> float:
    """Return the squared error of the best linear guess that knows the covariance of the population.

    Given class by class where labels are public: an attack that succeeds, not a bound.

    Notes
    -----
    ``Tr(S - S (S + V)^-1 S)`` with S the covariance of the population and V that of the noise.

    Reference
    ---------
    docs/explanation/theorems/fisher-cramer-rao.md
    """
    V = np.diag(covariance) if covariance.ndim == 1 else covariance
    return float(np.trace(population - population @ scipy.linalg.solve(population + V, population)))
