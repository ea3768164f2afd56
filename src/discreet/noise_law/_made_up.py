"""Laws of rows that are no one's: points made for a classifier, and rows made from noisy counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from discreet.noise_law._column import Law, short


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedLaw(Law):
    """Coordinate of artificial points, constructed so that training on them gives one released classifier.

    Parameters
    ----------
    regularization : float
        Penalty with which the learner on all coordinates, without an intercept, gives the classifier.
    exact : bool
        Whether it gives the classifier up to rounding, or only approximately.
    origin : str
        Declared column that the coordinate comes from; empty for the constant coordinate.
    level : str or None
        Level of the column that the coordinate indicates, or "missing"; None for a number itself.
    scale, shift : float
        Map ``coordinate = scale * cell + shift`` from true rows to the classifier's coordinates; the cell
        of a level is 1 or 0.
    beside : str
        Description of true rows that are published unchanged in the same file; empty for none.
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
        """Return a short description in plain language."""
        how = "exactly" if self.exact else "nearly"
        rest = f", beside {self.beside}" if self.beside else ""
        return (
            f"a coordinate of made-up points on which {self.learner} with a penalty of "
            f"{short(self.regularization)} finds {how} one released classifier{rest}"
        )

    @property
    def learner(self) -> str:
        """Learner that finds the released classifier on the points."""
        return "logistic regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSvmLaw(MaskedLaw):
    """Coordinate of artificial points that were made for the support vector machine.

    Parameters
    ----------
    smoothing : float
        Half-width of the interval on which its hinge is quadratic; who trains must use the same one.
    """

    kind: ClassVar[str] = "masked-svm"
    smoothing: float

    @property
    def learner(self) -> str:
        """Learner that finds the released classifier on the points."""
        return f"a support vector machine with a Huberized hinge of half-width {short(self.smoothing)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedLabelLaw(Law):
    """Labels of artificial points.

    Parameters
    ----------
    source : str
        Source of the label counts: "public shares", "noisy counts" or "the released model".
    shares : tuple of float or None
        Public share of each level, from which the counts in the file follow; None if not public.
    beside : str
        Description of true rows that are published unchanged in the same file; empty for none.
    """

    kind: ClassVar[str] = "masked-label"
    source: str
    shares: tuple[float, ...] | None
    beside: str

    def __post_init__(self) -> None:
        if self.shares is not None:
            object.__setattr__(self, "shares", tuple(self.shares))

    def words(self) -> str:
        """Return a short description in plain language."""
        rest = f", beside {self.beside}" if self.beside else ""
        return f"labels of made-up points, counted by {self.source}{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticLaw(Law):
    """Law of made-up cells, drawn from noisy tables of counts: no true cell stands behind them."""

    kind: ClassVar[str] = "synthetic"

    def words(self) -> str:
        """Return a short description in plain language."""
        return "made up from noisy tables of counts"
