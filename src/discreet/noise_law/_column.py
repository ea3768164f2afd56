"""The law of a published column given its true value: what a learner needs, and what a reader may check."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from discreet.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping


def short(amount: float) -> str:
    """Write an amount with four digits, as people do: 0.1234, 10.42, 14,090."""
    if amount == 0 or not 1e-4 <= abs(amount) < 1e9:
        return f"{amount:.4g}"
    decimals = 3 - math.floor(math.log10(abs(amount)))
    text = f"{round(amount, decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if decimals > 0 else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Law(ABC):
    """How a published cell follows from a true one; everything in it is public.

    Parameters
    ----------
    missing_keep : float or None
        A number that may be missing carries a flag of two levels, and this is how often the flag is
        published as it is. None: the column has no missing cells.
    """

    kind: ClassVar[str] = ""
    missing_keep: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @abstractmethod
    def words(self) -> str:
        """Say it in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear(Law):
    """Published as it is."""

    kind: ClassVar[str] = "clear"

    def words(self) -> str:
        """Say it in a few words."""
        return "published as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Additive(Law):
    """True value plus independent noise, in the column's own unit.

    Parameters
    ----------
    variance : float
        Of the noise.
    mean : float
        Of the noise; zero for the symmetric ones.
    clamped : bool
        Whether the sum was then moved into the declared range.
    grid : float or None
        The public step, counted from the lower bound, to which it was then rounded.
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
        """Say it in a few words."""
        return self._after(f"Gaussian noise with a standard deviation of {short(self.sd)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedGaussianLaw(GaussianLaw):
    """Gaussian noise that goes together with that of other columns.

    Its tag is that of Gaussian noise, which it is; the further keys tell it apart.

    Parameters
    ----------
    columns : tuple of str
        All columns of the release that have such noise, this one among them.
    covariances : tuple of float
        Of this column's noise with that of each of them, in their units.
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
        """Say it in a few words."""
        return self._after(f"Laplace noise with a scale of {short(self.scale)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedLaw(Additive):
    """The least informative noise on a bounded support.

    Parameters
    ----------
    lower, upper : float
        Ends of the support.
    regularization : float
        Price of the mean square: with the ends, it determines the density.
    """

    kind: ClassVar[str] = "bounded"
    lower: float
    upper: float
    regularization: float

    def words(self) -> str:
        """Say it in a few words."""
        return self._after(
            f"noise between {short(self.lower)} and {short(self.upper)}, with a standard deviation of "
            f"{short(self.variance**0.5)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InRangeLaw(Law):
    """An output inside the declared range, whose law depends on the value; not additive noise.

    Parameters
    ----------
    lower, upper : float
        The declared range.
    regularization : float
        Price of the squared distance from the value.
    inputs, cells : int
        Size of the table that is drawn from.
    """

    kind: ClassVar[str] = "in-range"
    lower: float
    upper: float
    regularization: float
    inputs: int
    cells: int

    def words(self) -> str:
        """Say it in a few words."""
        kappa = self.regularization * (self.upper - self.lower) ** 4
        return f"redrawn between {short(self.lower)} and {short(self.upper)}, kappa {short(kappa)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLaw(Law):
    """Randomized response on a public list: kept, or any other level with equal chances.

    Parameters
    ----------
    levels : int
        Length of the list.
    keep : float
        How often a cell is published as it is.
    """

    kind: ClassVar[str] = "response"
    levels: int
    keep: float

    def words(self) -> str:
        """Say it in a few words."""
        kept = f"kept {self.keep:.1%} of the time"
        return f"randomized response: {kept}, else any other of the {self.levels} levels"


@dataclass(frozen=True, slots=True, kw_only=True)
class JointResponseLaw(Law):
    """Randomized response on several columns together: one answer for their whole combination.

    Every column of the group has this same law. Combinations are counted with the last column moving fastest.

    Parameters
    ----------
    columns : tuple of str
        Which columns, in order; the label may be one of them.
    levels : int
        How many combinations there are: the product of the lengths of the columns' lists.
    keep : float
        How often a combination is published as it is.
    """

    kind: ClassVar[str] = "joint-response"
    columns: tuple[str, ...]
    levels: int
    keep: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))

    def words(self) -> str:
        """Say it in a few words."""
        kept = f"kept {self.keep:.1%} of the time"
        return (
            f"randomized response on {' and '.join(self.columns)} together: {kept}, else any other of the "
            f"{self.levels} combinations"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLaw(Law):
    """Published in some rows alone: each row shows ``picked`` of ``among`` columns, all choices alike.

    Which ones a row shows is drawn independently of everything that the row holds. "Not published" is a
    symbol of its own, and says nothing; a missing cell is one of the levels that ``law`` randomizes.

    Parameters
    ----------
    law : Law
        Of the cells that are published.
    picked, among : int
        How many of how many. Columns that are randomized together count as one.
    unpublished : str or int
        What stands in the file where nothing is published: no level. A number has NaN there.
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
        """In which share of the rows a cell is published."""
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
        """Say it in a few words."""
        return (
            f"one of {self.among} of which each row shows {self.picked}, picked at random; {self.law.words()}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantLaw(Law):
    """Noise, correlated over rows and columns, that the model of a named learner does not notice.

    Not to be corrected for: a learner other than the named one meets noise that depends on the true rows.

    Parameters
    ----------
    learner : str
        Whose model is the same, with its parameters.
    variance : float or None
        The most that the noise has in this column; None where rows were replaced, not noised.
    """

    kind: ClassVar[str] = "invariant"
    learner: str
    variance: float | None

    def words(self) -> str:
        """Say it in a few words."""
        if self.variance is None:
            return "replaced, keeping all sums, squares and products"
        most = short(self.variance**0.5)
        return f"noise that {self.learner} does not notice, with a standard deviation of at most {most}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SphericalLaw(Additive):
    """Noise with density ``exp(-|x| / scale)`` over several columns together, every direction alike.

    Parameters
    ----------
    scale : float
        In the column's own unit.
    dimension : int
        How many columns have it together.
    """

    kind: ClassVar[str] = "spherical"
    scale: float
    dimension: int

    def words(self) -> str:
        """Say it in a few words."""
        together = "" if self.dimension == 1 else f" over {self.dimension} columns together"
        return self._after(
            f"spherical Laplace noise{together} with a standard deviation of {short(self.variance**0.5)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedLaw(Law):
    """A coordinate of points that belong to nobody, made so that one released classifier is trained on them.

    Parameters
    ----------
    regularization : float
        With which logistic regression on all coordinates, without a further intercept, is that classifier.
    exact : bool
        Whether it is so up to rounding, or only nearly.
    origin : str
        The declared column that the coordinate comes from; empty for the constant one.
    level : str or None
        Which level of it, or "missing"; None for a number itself.
    scale, shift : float
        ``coordinate = scale * cell + shift`` carries true rows to where the classifier is used; the cell of a
        level is 1 or 0.
    beside : str
        What else is in the file: "" for nothing, or which rows stand there as they are.
    """

    kind: ClassVar[str] = "masked"
    regularization: float
    exact: bool
    origin: str
    level: str | None
    scale: float
    shift: float
    beside: str

    def words(self) -> str:
        """Say it in a few words."""
        how = "exactly" if self.exact else "nearly"
        rest = f", beside {self.beside}" if self.beside else ""
        return (
            f"a coordinate of made-up points on which logistic regression with a penalty of "
            f"{short(self.regularization)} finds {how} one released classifier{rest}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedLabelLaw(Law):
    """Labels of points that belong to nobody.

    Parameters
    ----------
    source : str
        "public shares", "noisy counts" or "the released model".
    shares : tuple of float or None
        Of each level, where they are public; the counts in the file then follow from them.
    beside : str
        As of :class:`MaskedLaw`.
    """

    kind: ClassVar[str] = "masked-label"
    source: str
    shares: tuple[float, ...] | None
    beside: str

    def __post_init__(self) -> None:
        if self.shares is not None:
            object.__setattr__(self, "shares", tuple(self.shares))

    def words(self) -> str:
        """Say it in a few words."""
        rest = f", beside {self.beside}" if self.beside else ""
        return f"labels of made-up points, counted by {self.source}{rest}"


KINDS: dict[str, type[Law]] = {
    law.kind: law
    for law in (
        Clear,
        GaussianLaw,
        LaplaceLaw,
        SphericalLaw,
        BoundedLaw,
        InRangeLaw,
        ResponseLaw,
        JointResponseLaw,
        SampledLaw,
        InvariantLaw,
        MaskedLaw,
        MaskedLabelLaw,
    )
}
"""Every law by its tag; a method with a law of its own adds it here."""


def law_from_dict(values: Mapping[str, Any]) -> Law:
    """Make the law that :meth:`Law.to_dict` wrote; unknown kinds and keys are refused."""
    rest = dict(values)
    kind = KINDS.get(str(rest.pop("kind", "")))
    if kind is GaussianLaw and "covariances" in rest:
        kind = CorrelatedGaussianLaw
    if kind is None or set(rest) != {f.name for f in dataclasses.fields(kind)}:
        raise ParameterError(
            f"The law of a column must be of a kind among {', '.join(sorted(KINDS))} with all of its keys. "
            "It may have been written by a newer version."
        )
    if kind is SampledLaw:
        rest["law"] = law_from_dict(rest["law"])
    return kind(**rest)
