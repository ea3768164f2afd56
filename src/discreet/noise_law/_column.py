"""Laws of a published column: the distribution of a published cell given the true one, as frozen values."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from discreet.errors import ParameterError


def short(amount: float) -> str:
    """Return an amount as text with four significant digits: 0.1234, 10.42, 14,090."""
    if amount == 0 or not 1e-4 <= abs(amount) < 1e9:
        return f"{amount:.4g}"
    # Negative from 10,000 on, where digits before the point are rounded away.
    decimals = 3 - math.floor(math.log10(abs(amount)))
    text = f"{round(amount, decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if decimals > 0 else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Law(ABC):
    """Distribution of a published cell given the true one; everything in it is public.

    Parameters
    ----------
    missing_keep : float or None
        Probability that the missing flag of a number, which has two levels, is published unchanged. None if
        the column has no missing cells.
    """

    kind: ClassVar[str] = ""
    missing_keep: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @abstractmethod
    def words(self) -> str:
        """Return a short description in plain language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear(Law):
    """Law of cells that are published unchanged."""

    kind: ClassVar[str] = "clear"

    def words(self) -> str:
        """Return a short description in plain language."""
        return "published as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Additive(Law):
    """True value plus independent noise, in the column's own unit.

    Parameters
    ----------
    variance : float
        Variance of the noise, in the squared unit of the column.
    mean : float
        Mean of the noise, in the column's unit; 0 for symmetric noise.
    clamped : bool
        Whether the noisy value was then clamped to the declared range.
    grid : float or None
        Public step, counted from the lower bound, to which the value was then rounded; None for no rounding.
    """

    variance: float
    mean: float = 0.0
    clamped: bool = False
    grid: float | None = None

    def _after(self, noise: str) -> str:
        clamped = ", clamped to the range" if self.clamped else ""
        return noise + clamped + (f", rounded to steps of {self.grid:g}" if self.grid else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianLaw(Additive):
    """Gaussian noise; the columns of one release may be correlated."""

    kind: ClassVar[str] = "gaussian"

    @property
    def sd(self) -> float:
        """Standard deviation of the noise."""
        return float(self.variance**0.5)

    def words(self) -> str:
        """Return a short description in plain language."""
        return self._after(f"Gaussian noise with a standard deviation of {short(self.sd)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedGaussianLaw(GaussianLaw):
    """Gaussian noise that is correlated with the noise of other columns.

    Its ``kind`` is that of Gaussian noise; the further keys distinguish it.

    Parameters
    ----------
    columns : tuple of str
        Names of all columns with correlated noise in the release, this one included.
    covariances : tuple of float
        Covariance of this column's noise with that of each of these columns, in their units.

    Examples
    --------
    >>> from discreet.noise_law import CorrelatedGaussianLaw
    >>> law = CorrelatedGaussianLaw(variance=4.0, columns=("age", "income"), covariances=(4.0, -1.5))
    >>> dict(zip(law.columns, law.covariances))
    {'age': 4.0, 'income': -1.5}
    """

    columns: tuple[str, ...]
    covariances: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "covariances", tuple(self.covariances))
        if len(self.columns) != len(self.covariances):
            raise ParameterError("covariances of CorrelatedGaussianLaw must be one for each of its columns.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceLaw(Additive):
    """Laplace noise."""

    kind: ClassVar[str] = "laplace"

    @property
    def scale(self) -> float:
        """Scale of the noise: its standard deviation over the square root of two."""
        return float((self.variance / 2) ** 0.5)

    def words(self) -> str:
        """Return a short description in plain language."""
        return self._after(f"Laplace noise with a scale of {short(self.scale)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedLaw(Additive):
    """The least informative noise on a bounded support.

    Parameters
    ----------
    lower, upper : float
        Ends of the support of the noise, in the column's unit.
    regularization : float
        Factor of the mean square in the objective, which with the ends determines the density.
    """

    kind: ClassVar[str] = "bounded"
    lower: float
    upper: float
    regularization: float

    def words(self) -> str:
        """Return a short description in plain language."""
        return self._after(
            f"noise between {short(self.lower)} and {short(self.upper)}, with a standard deviation of "
            f"{short(self.variance**0.5)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JointBoundedLaw(BoundedLaw):
    """The least informative noise on a box of two or three columns, which share it.

    Its ``kind`` is that of bounded noise; the further keys distinguish it. Mean and variance are those of
    this column alone, whose density is a marginal of the joint one.

    Parameters
    ----------
    columns : tuple of str
        Names of all columns that share the noise, this one included.
    covariances : tuple of float
        Covariance of this column's noise with that of each of these columns, in their units.
    supports : tuple of (float, float)
        Ends of the support of each of these columns.
    weights : tuple of tuple of float
        Weight matrix of the objective, which with supports and regularization determines the joint density.
    """

    columns: tuple[str, ...]
    covariances: tuple[float, ...]
    supports: tuple[tuple[float, float], ...]
    weights: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        for name in ("columns", "covariances"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("supports", "weights"):
            object.__setattr__(self, name, tuple(map(tuple, getattr(self, name))))
        if len({len(self.columns), len(self.covariances), len(self.supports), len(self.weights)}) > 1:
            raise ParameterError(
                "columns, covariances, supports and weights of JointBoundedLaw must be of one length."
            )

    def words(self) -> str:
        """Return a short description in plain language."""
        return f"{BoundedLaw.words(self)}, drawn together with that of {len(self.columns) - 1} more"


@dataclass(frozen=True, slots=True, kw_only=True)
class InRangeLaw(Law):
    """In-range mechanism: an output inside the declared range, whose law depends on the value.

    Parameters
    ----------
    lower, upper : float
        Declared range of the column, in its unit.
    regularization : float
        Factor of the squared distance from the value in the objective.
    inputs, cells : int
        Numbers of rows and columns of the table of probabilities.
    """

    kind: ClassVar[str] = "in-range"
    lower: float
    upper: float
    regularization: float
    inputs: int
    cells: int

    def words(self) -> str:
        """Return a short description in plain language."""
        kappa = self.regularization * (self.upper - self.lower) ** 4
        return f"redrawn between {short(self.lower)} and {short(self.upper)}, kappa {short(kappa)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLaw(Law):
    """Randomized response on a public list: kept, or any other level with equal chances.

    Parameters
    ----------
    levels : int
        Number of levels in the list.
    keep : float
        Probability that a cell is published unchanged.
    """

    kind: ClassVar[str] = "response"
    levels: int
    keep: float

    def words(self) -> str:
        """Return a short description in plain language."""
        kept = f"kept {self.keep:.1%} of the time"
        return f"randomized response: {kept}, else any other of the {self.levels} levels"


@dataclass(frozen=True, slots=True, kw_only=True)
class JointResponseLaw(Law):
    """Randomized response on several columns together: one answer for their whole combination.

    Every column of the group has this same law. Combinations are counted with the last column moving fastest.

    Parameters
    ----------
    columns : tuple of str
        Names of the columns in order; the label may be one of them.
    levels : int
        Number of combinations, the product of the lengths of the columns' lists.
    keep : float
        Probability that a combination is published unchanged.

    Examples
    --------
    >>> from discreet.noise_law import JointResponseLaw
    >>> JointResponseLaw(columns=("sex", "ward"), levels=8, keep=0.6).levels
    8
    """

    kind: ClassVar[str] = "joint-response"
    columns: tuple[str, ...]
    levels: int
    keep: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))

    def words(self) -> str:
        """Return a short description in plain language."""
        kept = f"kept {self.keep:.1%} of the time"
        return (
            f"randomized response on {' and '.join(self.columns)} together: {kept}, else any other of the "
            f"{self.levels} combinations"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLaw(Law):
    """Law of a column published in some rows: each row shows ``picked`` of ``among`` columns, uniformly.

    The columns of a row are drawn independently of its values. "Not published" is a symbol of its own and
    carries no information; a missing cell is one of the levels that ``law`` randomizes.

    Parameters
    ----------
    law : Law
        Law of the cells that are published.
    picked, among : int
        Number of columns that a row shows, and number of columns that it chooses from. Columns that are
        randomized together count as one.
    unpublished : str or int
        Symbol in the file for a cell that is not published, which is no level; numbers have NaN there.

    Examples
    --------
    >>> from discreet.noise_law import ResponseLaw, SampledLaw
    >>> SampledLaw(law=ResponseLaw(levels=2, keep=0.8), picked=1, among=4).picked
    1
    """

    kind: ClassVar[str] = "sampled"
    law: Law
    picked: int
    among: int
    unpublished: str | int = "not published"

    def __post_init__(self) -> None:
        if not 1 <= self.picked <= self.among:
            raise ParameterError(
                f"picked of SampledLaw must be from 1 to among ({self.among}), was {self.picked}."
            )
        if isinstance(self.law, SampledLaw):
            raise ParameterError("law of SampledLaw must be the law of published cells, was sampled again.")

    @property
    def share(self) -> float:
        """Share of the rows in which the cell is published."""
        return self.picked / self.among

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": self.kind,
            "missing_keep": self.missing_keep,
            "law": self.law.to_dict(),
            "picked": self.picked,
            "among": self.among,
            "unpublished": self.unpublished,
        }

    def words(self) -> str:
        """Return a short description in plain language."""
        return (
            f"one of {self.among} of which each row shows {self.picked}, picked at random; {self.law.words()}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantLaw(Law):
    """Noise, correlated over rows and columns, that leaves the model of a named learner unchanged.

    It cannot be corrected for: for any other learner the noise depends on the true rows.

    Parameters
    ----------
    learner : str
        Learner, with its parameters, whose model is the same on true and on published rows.
    variance : float or None
        Largest variance of the noise in this column; None where rows were replaced instead.
    """

    kind: ClassVar[str] = "invariant"
    learner: str
    variance: float | None

    def words(self) -> str:
        """Return a short description in plain language."""
        if self.variance is None:
            return "replaced, keeping all sums, squares and products"
        most = short(self.variance**0.5)
        return f"noise that {self.learner} does not notice, with a standard deviation of at most {most}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SphericalLaw(Additive):
    """Noise with density ``exp(-|x| / scale)`` over several columns together, the same in every direction.

    Parameters
    ----------
    scale : float
        Scale of the noise, in the column's own unit.
    dimension : int
        Number of columns that share the noise vector.
    """

    kind: ClassVar[str] = "spherical"
    scale: float
    dimension: int

    def words(self) -> str:
        """Return a short description in plain language."""
        together = "" if self.dimension == 1 else f" over {self.dimension} columns together"
        return self._after(
            f"spherical Laplace noise{together} with a standard deviation of {short(self.variance**0.5)}"
        )
