"""The in-range mechanism: noise whose law depends on the value, so that outputs stay in the declared range.

A value ``x`` becomes ``z`` with density ``psi_x(z)**2``, where ``psi_x`` is the ground state of
``-psi'' + (regularization / 4) (z - x)**2 psi`` on the range. All ``psi_x`` vanish at the ends to the same
order, so their ratios are bounded and the mechanism has a pure epsilon. Draws use a table of integer weights,
one row for each of finitely many inputs: the table *is* the law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.polynomial import legendre

from discreet.errors import ParameterError
from discreet.noise.polynomial import basis, legendre_rule, mass_matrix, moment_matrix, solve_ground_state
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._types import Floats, Ints, Words

CELLS = 2048
"""Default number of output cells; a power of two."""
INPUTS = 513
"""Default number of input values, for columns that do not prescribe their own."""
MOST_INPUTS = 4097
"""Largest number of input values."""
TOTAL_BITS = 63
"""Every row of a table sums to 2**63."""
LARGEST_KAPPA = 1e4
"""Beyond, epsilon is above 40, and the rarest cells have less than 2**-63."""
#: Basis functions of the ground states.
_SIZE = 64
#: Quadrature nodes per output cell.
_NODES = 4
#: Values that are drawn together.
_ROWS = 1 << 17


@dataclass(frozen=True, kw_only=True)
class InRange:
    """The in-range law on a declared range.

    Parameters
    ----------
    lower, upper : float
        Ends of the declared range, which outputs never leave, in the column's unit.
    regularization : float
        Factor of the squared distance from the value; above 0 and at most 1e4 / width**4.
    inputs : int
        Number of equally spaced values, both ends included, to the nearest of which values are first moved.
    cells : int
        Number of output cells, a power of two; outputs are their middles.

    Attributes
    ----------
    kappa : float
        ``regularization * (upper - lower)**4``, on which alone the shape depends.
    masses : ndarray of int64, shape (inputs, cells)
        Probabilities of the cells times 2**63, one row for each input.

    Privacy
    -------
    Every output is possible from every input, with probabilities in bounded ratio: pure DP, with the
    epsilon that :func:`discreet.privacy.bounded.in_range_epsilon` reads off the table. Draws follow the
    table exactly. The law is not that of additive noise: it is biased towards the middle, and its Fisher
    information is :meth:`fisher_information`.

    Reference
    ---------
    docs/explanation/theorems/fisher-in-range.md

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.noise import InRange, Stream
    >>> law = InRange(lower=17, upper=90, regularization=100 / 73**4)
    >>> z = law.draw(np.array([17.0, 40.0, 90.0]), Stream.from_seed(1))
    >>> bool(np.all((17 < z) & (z < 90)))
    True
    """

    lower: float
    upper: float
    regularization: float
    inputs: int = INPUTS
    cells: int = CELLS

    def __post_init__(self) -> None:
        """Check the range, the regularization and the size of the table."""
        if not (math.isfinite(self.lower) and math.isfinite(self.upper) and self.lower < self.upper):
            raise ParameterError(
                f"lower and upper of InRange must be finite and in order, were {self.lower!r} and "
                f"{self.upper!r}. Declare the range of the column."
            )
        if not (self.regularization > 0 and 0 < self.kappa <= LARGEST_KAPPA * (1 + 1e-9)):
            raise ParameterError(
                f"regularization of InRange must be above 0 and at most {LARGEST_KAPPA:g} over the fourth "
                f"power of the range, was {self.regularization!r}. Ask for a smaller epsilon."
            )
        if not 2 <= self.inputs <= MOST_INPUTS:
            raise ParameterError(
                f"inputs of InRange must be 2 to {MOST_INPUTS}, was {self.inputs!r}. "
                "Group the values of the column on a coarser grid."
            )
        if not (2 <= self.cells <= 1 << 16 and self.cells & (self.cells - 1) == 0):
            raise ParameterError(
                f"cells of InRange must be a power of two from 2 to 65536, was {self.cells!r}."
            )

    @property
    def kappa(self) -> float:
        """Regularization without unit, ``regularization * (upper - lower)**4``."""
        return self.regularization * (self.upper - self.lower) ** 4

    @cached_property
    def masses(self) -> Ints:
        """Probabilities times 2**63, one row for each input."""
        return np.diff(self._ends, axis=1, prepend=np.uint64(0)).view(np.int64)

    @cached_property
    def _ends(self) -> Words:
        return _cumulative_table(self.kappa, self.inputs, self.cells)

    @property
    def grid(self) -> Floats:
        """Input values, equally spaced from lower to upper bound."""
        return np.linspace(self.lower, self.upper, self.inputs)

    @property
    def outputs(self) -> Floats:
        """Middles of the output cells."""
        return np.asarray(
            self.lower + (np.arange(self.cells) + 0.5) * ((self.upper - self.lower) / self.cells)
        )

    def quantize(self, x: Floats) -> Ints:
        """Return the index of the input nearest to each value; values outside the range go to its ends."""
        x = np.asarray(x, np.float64)
        if np.isnan(x).any():
            raise ParameterError(
                "x of InRange must have no missing values. Give missing cells a declared level first."
            )
        place = (np.clip(x, self.lower, self.upper) - self.lower) * (
            (self.inputs - 1) / (self.upper - self.lower)
        )
        return np.clip(np.rint(place).astype(np.int64), 0, self.inputs - 1)

    def draw(self, x: Floats, stream: Stream | None = None) -> Floats:
        """Return a noisy value for each value: the middle of a cell drawn from the row of its input."""
        return np.asarray(self.outputs[self.draw_cells(self.quantize(x), stream)])

    def draw_cells(self, index: Ints, stream: Stream | None = None) -> Ints:
        """Draw an output cell for each input index."""
        stream = stream_or_fresh(stream)
        index = np.asarray(index, np.int64)
        out = np.empty(index.shape, np.int64)
        flat, where = out.reshape(-1), index.reshape(-1) * self.cells
        ends = self._ends.reshape(-1)
        for start in range(0, flat.size, _ROWS):
            base = where[start : start + _ROWS]
            number = stream.words(base.size) >> np.uint64(64 - TOTAL_BITS)
            # Count the row's cumulative masses that are at most the number: binary search, all rows at once.
            cell = np.zeros(base.size, np.int64)
            width = self.cells // 2
            while width:
                cell += width * (ends[base + cell + width - 1] <= number)
                width //= 2
            flat[start : start + _ROWS] = cell
        return out

    def fisher_information(self, x: float) -> float:
        """Return the Fisher information of one output about ``x``: ``4 |d psi_x / dx|^2``.

        Notes
        -----
        First-order perturbation theory: ``d psi_0 = sum_k <psi_k, H' psi_0> / (e_0 - e_k) psi_k`` over the
        excited states, with ``H' = -2 strength (z - x)`` the derivative of the potential in x.
        """
        half = 0.5 * (self.upper - self.lower)
        center = (x - self.lower) / half - 1.0
        # In the variable of [-1, 1] the factor of the potential is regularization * half**4 / 4.
        strength = self.kappa / 64
        nu, vectors = scipy.linalg.eigh(mass_matrix(_SIZE), _stiffness(center, strength))
        energy = 1 / nu[::-1]
        # eigh makes vectors' H vectors = 1; divided by sqrt(nu) they are normalized in the mean square.
        vectors = vectors[:, ::-1] * np.sqrt(energy)
        slope = -2 * strength * (moment_matrix(_SIZE, 1) - center * mass_matrix(_SIZE))
        overlap = vectors[:, 1:].T @ slope @ vectors[:, 0]
        return 4 * float(np.sum((overlap / (energy[0] - energy[1:])) ** 2)) / half**2


def end_slopes(kappa: float) -> tuple[float, float]:
    """Return the absolute slopes of ``psi`` at the far and the near end, for a value at the near end."""
    pairs = solve_ground_state(-1.0, kappa / 64).pairs
    slopes = pairs * (2 * np.arange(pairs.size) + 3)
    # Both ends of P_k - P_{k+2} have slope 2 k + 3, up to sign.
    return abs(float(np.sum(slopes * (-1.0) ** np.arange(pairs.size)))), abs(float(np.sum(slopes)))


def _stiffness(center: float, strength: float) -> Floats:
    """Return the energy matrix of ``-psi'' + strength (z - center)^2 psi`` on [-1, 1]."""
    potential = (
        moment_matrix(_SIZE, 2) - 2 * center * moment_matrix(_SIZE, 1) + center**2 * mass_matrix(_SIZE)
    )
    return np.asarray(np.eye(_SIZE) + strength * potential)


@lru_cache(maxsize=8)
def _cumulative_table(kappa: float, inputs: int, cells: int) -> Words:
    """Return cumulative masses, one row for each input; the last entry of a row is 2**63."""
    rows = (inputs + 1) // 2
    centers = np.linspace(-1.0, 1.0, inputs)[:rows]
    vectors = np.empty((rows, _SIZE))
    for i, center in enumerate(centers):
        _, vector = scipy.linalg.eigh(
            mass_matrix(_SIZE), _stiffness(float(center), kappa / 64), subset_by_index=[_SIZE - 1, _SIZE - 1]
        )
        # Neither sign nor length matters: values are squared, and rows are scaled to 2**63.
        vectors[i] = vector[:, 0]
    # The table itself is the law, so that the quadrature only has to be close.
    x, w = legendre_rule(_NODES)
    edges = np.linspace(-1.0, 1.0, cells + 1)
    nodes = (0.5 * (edges[1:] + edges[:-1]))[:, None] + x / cells
    values = legendre.legval(nodes.ravel(), basis(_SIZE).T)
    masses = np.zeros((inputs, cells))
    block = max(1, (1 << 22) // nodes.size)
    for start in range(0, rows, block):
        squares = np.square(vectors[start : start + block] @ values)
        masses[start : start + len(squares)] = squares.reshape(-1, cells, _NODES) @ w
    # The rows of the other half of the inputs are mirror images.
    masses[rows:] = masses[: inputs - rows][::-1, ::-1]
    return _cumulative_masses(masses)


def _cumulative_masses(masses: Floats) -> Words:
    """Return rows rounded to integers of at least 1 that sum to 2**63, cumulated."""
    scaled = masses * (2.0**TOTAL_BITS / masses.sum(axis=1, keepdims=True))
    # A cell with mass 0 for one input alone would make epsilon infinite.
    counts = np.maximum(np.rint(scaled), 1.0).astype(np.uint64)
    # Rounding leaves a sum a little off 2**63, up or down; the likeliest cell takes the difference, modulo
    # 2**64.
    shortfall = np.uint64(1 << TOTAL_BITS) - counts.sum(axis=1)
    counts[np.arange(len(counts)), np.argmax(counts, axis=1)] += shortfall
    return np.cumsum(counts, axis=1)
