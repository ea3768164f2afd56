"""Release of a table with Laplace noise: pure differential privacy, column by column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.noise import rounded_laplace, samplers
from discreet.noise.whitening import lattice_places, points_per_double
from discreet.noise_law import LaplaceLaw
from discreet.privacy import ApproxDP, ErrorFloor, Promise, PureDP, floors
from discreet.privacy.calibration import group_epsilon
from discreet.privacy.floors import LaplaceNoise
from discreet.release.base import check_noise, collect_parameters
from discreet.release.gaussian import GaussianRelease
from discreet.release.mechanism import NumberMechanism, additive_floor, is_close_size, uniform_prior
from discreet.release.table import Label, TableRelease, check_exactly_one

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Bools, Floats
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.noise_law import Law
    from discreet.privacy import ColumnFloor
    from discreet.release.gaussian import GaussianNumbers
    from discreet.schema import Column, Schema

STEPS = 1 << 20
"""Lattice steps per scale of the noise."""
_FAR = 100.0  # scales, which no draw passes


class LaplaceNumbers(NumberMechanism):
    """Independent Laplace noise on the numbers of every row, on a lattice of its own for each column.

    Parameters
    ----------
    columns : tuple of Column
        Numeric columns that get the noise.
    scale : array of shape (p,)
        Scale b of the noise of each column, in the unit of the column.

    Notes
    -----
    A cell x becomes ``lower + (k + n) b / STEPS`` with ``k = round((x - lower) STEPS / b)`` and n discrete
    Laplace noise of scale STEPS. Its epsilon is the largest k over STEPS.
    """

    def __init__(self, columns: tuple[Column, ...], scale: Floats) -> None:
        """Check the scales against the declared ranges and compute the integer box."""
        self.columns = columns
        self.scale = scale
        check_noise(columns, scale, "The scale of Laplace noise")
        ranges = np.array([c.range for c in columns])
        self._lower = ranges[:, 0]
        ratio = (ranges[:, 1] - ranges[:, 0]) / scale
        if not np.all(ratio < 2.0**31):
            raise ParameterError(
                "The scale of Laplace noise must be at least 2**-31 of its column's range. "
                "Ask for more noise, or declare tighter bounds."
            )
        self._forward = STEPS / scale
        # The upper bound goes through the same operations as every cell, so that the box is exact.
        self._top = np.rint((ranges[:, 1] - ranges[:, 0]) * self._forward)

    def epsilon(self, column: Column) -> float:
        """Return the pure epsilon of one cell: the width of its integer box over the scale, exactly."""
        # Exact: an integer below 2**53 over a power of two.
        return float(self._top[self.column_index(column)]) / STEPS

    def law(self, column: Column) -> LaplaceLaw:
        """Return the public law of the noise of one column."""
        return LaplaceLaw(variance=2 * float(self.scale[self.column_index(column)]) ** 2)

    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Return the sum of the epsilons of the columns: pure, up to the total variation of the sampler."""
        epsilon = sum(int(top) for top in self._top) / STEPS
        return [
            PureDP(
                epsilon=group_epsilon(epsilon, rows),
                covers=tuple(c.name for c in self.columns),
                total_variation=n_rows * len(self.columns) * samplers.LAPLACE_TOTAL_VARIATION,
                **common,
            )
        ]

    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return the exact Bayes error under the uniform prior; None for units with several rows."""
        if rows > 1:
            return None
        scale = float(self.scale[self.column_index(column)])
        return additive_floor(
            column,
            LaplaceNoise(scale),
            lattice_step=scale / STEPS,
            total_variation=samplers.LAPLACE_TOTAL_VARIATION,
        )

    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Return rows rounded to the lattice, clamped to the integer box, noised and mapped back."""
        lattice = np.rint((matrix - self._lower) * self._forward)
        np.clip(lattice, 0, self._top, out=lattice)
        # Sums of integers below 2**53 in doubles are exact.
        lattice += rounded_laplace(float(STEPS), lattice.shape, stream)
        return self._restore(lattice)

    def _restore(self, lattice: Floats) -> Floats:
        """Return lattice integers in the units of the columns."""
        return np.asarray(lattice * (self.scale / STEPS) + self._lower)

    def scaled(self, factor: float) -> LaplaceNumbers:
        """Return the mechanism with ``factor`` times the scale."""
        return LaplaceNumbers(self.columns, self.scale * factor)

    def is_possible(self, matrix: Floats) -> Bools:
        """Return, cell by cell, whether :meth:`release` can write the number."""
        places = (matrix - self._lower) / (self.scale / STEPS)
        return ~np.isnan(lattice_places(matrix, places, self._restore))

    def repeat_chance(self) -> float:
        """Return the largest mass of a lattice point, multiplied over columns."""
        ends = np.abs(self._lower) + self._top / self._forward + _FAR * self.scale
        mass = 1.001 / (2 * STEPS) * points_per_double(ends, self.scale / STEPS)
        return float(np.prod(np.minimum(1.0, mass)))

    def with_laws(self, laws: Mapping[str, Law]) -> LaplaceNumbers:
        """Return the mechanism with the scales that published laws state, where they match its own."""
        scale = self.scale.copy()
        for j, c in enumerate(self.columns):
            law = laws.get(c.name)
            if isinstance(law, LaplaceLaw) and is_close_size(law.scale, float(scale[j])):
                near = law.scale
                # The law states the variance; its root may be one unit in the last place off.
                candidates = (near, math.nextafter(near, 0.0), math.nextafter(near, math.inf))
                scale[j] = next((s for s in candidates if 2 * s**2 == law.variance), near)
        return LaplaceNumbers(self.columns, scale)


class LaplaceRelease(TableRelease):
    """Add independent Laplace noise to numbers and randomize everything else.

    Give exactly one of ``privacy``, ``scale`` and ``match``.

    Parameters
    ----------
    privacy : PureDP or ErrorFloor, optional
        Promise of the release; epsilon is split over all sensitive columns and the target.
    scale : float, sequence or mapping, optional
        Scale of the noise, in the unit of each column.
    match : GaussianRelease, optional
        Gaussian release whose noise is matched, for comparisons.
    on : {"fisher", "variance", "epsilon"}
        Quantity that is matched: the Fisher information per column (Laplace noise then has twice the
        variance), the variance, or the epsilon of the Gaussian release (spent without a delta).
    label, clamp, schema, bounds, ledger, random_state
        As for :class:`~discreet.release.table.TableRelease`.

    Privacy
    -------
    Pure epsilon for everything that is released, up to the sampler's total variation: each number costs its
    declared range over its scale. Floors as for the Gaussian release, for units with one row. Open:
    what is open there.

    Reference
    ---------
    The comparison in Farokhi's section 3, where "the same guarantee" means the same Fisher information and
    neither the same variance nor the same epsilon: docs/explanation/theorems/fisher-laplace.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import LaplaceRelease, PureDP
    >>> released = LaplaceRelease(privacy=PureDP(epsilon=2), bounds=(0, 1), random_state=1).release(
    ...     np.zeros((4, 2))
    ... )
    >>> released.promises[0].epsilon <= 2
    True
    """

    name: ClassVar[str] = "laplace"
    accepts: ClassVar[tuple[type[Promise], ...]] = (PureDP, ErrorFloor)
    refusal: ClassVar[str] = "Laplace noise needs no delta; ask for PureDP."

    def __init__(
        self,
        *,
        privacy: Promise | None = None,
        scale: float | Sequence[float] | Mapping[str, float] | None = None,
        match: GaussianRelease | None = None,
        on: Literal["fisher", "variance", "epsilon"] = "fisher",
        label: Label = "randomized",
        clamp: bool = False,
        schema: Schema | None = None,
        bounds: tuple[Any, Any] | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Check that exactly one of the three ways to set the noise is given, and store it."""
        check_exactly_one(type(self).__name__, privacy=privacy, scale=scale, match=match)
        if on not in ("fisher", "variance", "epsilon"):
            raise ParameterError(
                f"on of LaplaceRelease must be 'fisher', 'variance' or 'epsilon', was {on!r}."
            )
        if match is not None and on == "epsilon":
            if not isinstance(match.privacy, ApproxDP):
                raise PromiseError(
                    "match of LaplaceRelease must have been given an ApproxDP to match its epsilon. "
                    "Match on 'fisher' or 'variance' instead."
                )
            privacy = PureDP(epsilon=match.privacy.epsilon)
        super().__init__(
            privacy=privacy,
            label=label,
            clamp=clamp,
            schema=schema,
            bounds=bounds,
            ledger=ledger,
            random_state=random_state,
        )
        self.scale = scale
        self.match = match
        self.on = on

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as plain JSON values; those of a matched release are nested."""
        if self.match is None:
            return super().parameters()
        return collect_parameters(self, match=self.match.parameters(), privacy=None)

    @classmethod
    def from_parameters(cls, values: Mapping[str, Any], **common: Any) -> LaplaceRelease:
        """Return the method with the parameters that :meth:`parameters` returned."""
        arguments = dict(values)
        if arguments.get("match") is not None:
            arguments["match"] = GaussianRelease.from_parameters(
                arguments["match"], schema=common.get("schema")
            )
        return super().from_parameters(arguments, **common)

    def numbers_as_given(self, columns: tuple[Column, ...], schema: Schema, n_rows: int) -> LaplaceNumbers:
        """Return noise with the given scales, or with those that match Gaussian noise."""
        if self.match is None:
            assert self.scale is not None
            return LaplaceNumbers(columns, self.per_column("scale", self.scale, columns))
        gaussian = self.match.plan(schema, n_rows).numbers
        return LaplaceNumbers(columns, matched_scale(cast("GaussianNumbers", gaussian), self.on))

    def numbers_for_epsilon(
        self, columns: tuple[Column, ...], epsilons: Mapping[str, float], n_rows: int, rows: int
    ) -> LaplaceNumbers:
        """Return the noise that spends its epsilon on each column."""
        scale = np.array([c.width * rows / epsilons[c.name] for c in columns])
        while True:
            numbers = LaplaceNumbers(columns, scale)
            over = np.array([numbers.epsilon(c) * rows > epsilons[c.name] for c in columns])
            if not over.any():
                return numbers
            # Rounding the range to the lattice took the epsilon above its share.
            scale = np.where(over, scale * (1 + 2.0**-20), scale)

    def numbers_for_errors(
        self, columns: tuple[Column, ...], errors: Mapping[str, float], rows: int
    ) -> LaplaceNumbers:
        """Return the least noise that reaches the floors."""
        if rows > 1:
            raise PromiseError(
                "ErrorFloor of LaplaceRelease is proven for one row per unit, and the schema allows "
                f"{rows}. Use GaussianRelease, or ask for PureDP."
            )
        check_noise(columns, np.array([errors[c.name] for c in columns]), "The error floor")
        scale = []
        for c in columns:
            prior = uniform_prior(c)
            # The lattice step depends on the noise itself: solve without it, then with twice the step found.
            rough = floors.least_noise(LaplaceNoise, prior, errors[c.name], column=c.name)
            least = floors.least_noise(
                LaplaceNoise,
                prior,
                errors[c.name],
                column=c.name,
                total_variation=samplers.LAPLACE_TOTAL_VARIATION,
                lattice_step=2 * rough.scale / STEPS,
                start=rough.scale,
            )
            scale.append(least.scale)
        return LaplaceNumbers(columns, np.array(scale))


def matched_scale(gaussian: GaussianNumbers, on: Literal["fisher", "variance", "epsilon"]) -> Floats:
    """Return the Laplace scales with the Fisher information, or the variance, of Gaussian noise.

    Correlated noise has no Laplace counterpart on a box; its marginal variances are matched.
    """
    covariance = gaussian.covariance
    variances = covariance if covariance.ndim == 1 else np.diagonal(covariance)
    # Fisher information is 1 / sd^2 and 1 / scale^2, variance sd^2 and 2 scale^2.
    return np.asarray(np.sqrt(variances) / (1.0 if on == "fisher" else math.sqrt(2.0)))
