"""Principal components from one noisy Gram matrix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from discreet.errors import ParameterError
from discreet.learn._centering import RADIUS, query_region
from discreet.learn._sums_base import FLAG, SumsEstimator
from discreet.learn.arguments import Constraint
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.privacy import NoPromise
from discreet.query import Gram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Bools, Floats
    from discreet.learn.feature_map import FeatureMap
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import NoisySums
    from discreet.schema import Schema

_REGION = 0.2  # share of the promise for mean and spread of the rows
_NOISE = 0.1  # noise over the mean eigenvalue above which rows are clipped shorter
_SHORTEST, _LONGEST = 0.8, 3.0  # limits of the radius, over the root mean square length of a row


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SumsEstimator):
    """Principal component analysis, or a truncated SVD, from noisy sums.

    A noisy mean locates the rows, a noisy mean square gives their length, and the eigenvectors of a noisy
    Gram matrix about that mean, of rows clipped to that length, are the components.

    Parameters
    ----------
    n_components : int, optional
        Number of components to keep; by default all.
    privacy : PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise
        Promise of the fitted model, split over the passes as in :attr:`split_`.
    bounds : (lower, upper), optional
        Declared range of each column: a pair of numbers, two vectors, or ``schema.bounds``.
    schema : Schema, optional
        Schema of the table, instead of bounds; each level of a category is a column of 0 and 1.
    centered : bool
        Whether the noisy mean is subtracted. If not, components are the right singular vectors of the rows as
        they are, in their own units.
    range_units : bool
        Whether columns are in units of their declared ranges instead of their own.
    radius : "auto", float or None
        Length to which rows are clipped, about the center, as a fraction of the declared ranges. "auto"
        follows from the noisy mean and mean square, a fifth of the promise. None clips nothing.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one. It is marked on the receipts.

    Attributes
    ----------
    components_ : array of shape (n_components, n_coordinates)
        Directions, those of the largest variance first.
    explained_variance_, explained_variance_ratio_ : array
        Variance of clipped rows along each component, noise included, at least 0; and its share of the total.
    singular_values_ : array
        Roots of the sums of squares along the components.
    mean_ : array
        Noisy mean, in the columns' units; zeros if not centered.
    n_components_ : int
        Number of components that were kept.
    noise_floor_ : float
        Largest variance that noise alone is likely to show.
    distinguishable_ : array of bool
        Whether each component is above the noise floor. The others may be directions of noise.
    radius_ : float or None
        Length to which rows were clipped, as a fraction of the ranges; None if they were not.
    layout_ : FeatureMap
        Columns that the model reads, and their coordinates.
    answers_, receipts_ : dict of Answer, tuple of Receipt
        Noisy answers with their standard deviations, and receipts of the charges, by pass.
    promises_ : tuple of Promise
        Promises that hold for every unit whose row was read.
    split_ : dict
        Share of the promise that each pass got.

    Privacy
    -------
    One unit under the schema's neighbors. With ``B`` the radius the Gram matrix has the squared sensitivity
    ``2 B**4`` when a row is replaced, whatever the number of columns, and gets symmetric noise. Center,
    radius and components depend on rows through noisy answers alone; shares and rules are public.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005), section 4.1, who charge every entry and ask for the mean first:
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import ApproxDP
    >>> from discreet.learn import PrivatePCA
    >>> t = np.linspace(0, 1, 5000)
    >>> X = np.column_stack([t, t, 0.5 + 0.1 * np.sin(50 * t)])
    >>> model = PrivatePCA(privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=(0, 1), random_state=1).fit(X)
    >>> np.abs(model.components_[0]).round(1).tolist(), model.distinguishable_.tolist()
    ([0.7, 0.7, 0.0], [True, True, False])
    """

    name: ClassVar[str] = "pca"
    theorems: ClassVar[tuple[str, ...]] = ("sulq-sensitivity",)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsEstimator.common_constraints,
        "n_components": Constraint(
            "None or a whole number of at least 1",
            lambda v: (
                v is None or (isinstance(v, int | np.integer) and not isinstance(v, bool) and bool(v >= 1))
            ),
            (0, -1, 0.5, "2", True),
        ),
        "centered": FLAG,
        "range_units": FLAG,
        "radius": RADIUS,
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *SumsEstimator.common_saved, "components_", "explained_variance_", "explained_variance_ratio_",
        "singular_values_", "mean_", "n_components_", "noise_floor_", "distinguishable_", "radius_",
    )  # fmt: skip

    components_: Floats
    mean_: Floats
    distinguishable_: Bools

    def __init__(
        self,
        *,
        n_components: int | None = None,
        privacy: Privacy,
        bounds: Any = None,
        schema: Schema | None = None,
        centered: bool = True,
        range_units: bool = False,
        radius: float | str | None = "auto",
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.n_components = n_components
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.centered = centered
        self.range_units = range_units
        self.radius = radius
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Query region and Gram matrix, and set the eigenvectors of the latter as components."""
        d = layout.size
        n_components = d if self.n_components is None else int(self.n_components)
        if n_components > d:
            raise ParameterError(
                f"n_components of PrivatePCA must be at most the number of coordinates, which is {d}, was "
                f"{n_components}. Leave it out to keep all."
            )
        learns_radius = self.radius == "auto" and not isinstance(self.privacy, NoPromise)
        # Without centering and clipping, the region is needed only for a private number of rows.
        needs_region = self.centered or learns_radius or sums.n_rows is None
        shares = {"region": _REGION, "gram": 1 - _REGION} if needs_region else {"gram": 1.0}
        schedule = BudgetSchedule(sums, self.privacy, shares, owner=owner)
        # The point of the box nearest to 0 in the columns' units.
        origin = np.clip(-layout.lower / layout.width, 0.0, 1.0)
        center, n_rows, drift = origin, float(max(sums.n_rows or 0, 1)), np.zeros(d)
        radius = None if isinstance(self.radius, str) else self.radius
        if needs_region:
            region = query_region(schedule, "region", layout)
            n_rows = region.n_rows
            if self.centered:
                center, drift = region.mean, region.sd
        # Without centering products are about 0, which may lie outside the box.
        offset = np.zeros(d) if self.centered else layout.decode(origin)
        with_sums = bool(offset.any())
        if learns_radius:
            mean_square = float(region.spread(center).sum())
            radius = _radius(schedule, layout, center, mean_square, n_rows, with_sums)
        question = Gram(layout.names, tuple(center.tolist()), radius, with_sums)
        answer = schedule.ask("gram", question)
        scale = np.ones(d) if self.range_units else layout.width
        unit = offset / layout.width if self.range_units else offset
        gram, sd = _to_column_units(np.asarray(answer.value), np.asarray(answer.sd), scale, unit, n_rows)
        # A center from the same rows costs one degree of freedom.
        divisor = max(n_rows - 1, 1.0) if self.centered else n_rows
        self._set_components(gram / divisor, n_components, divisor)
        # An error of the center shows as one more component.
        self.noise_floor_ = noise_floor(sd / divisor) + center_floor(scale * drift)
        self.distinguishable_ = self.explained_variance_ > self.noise_floor_
        self.mean_ = layout.decode(center) if self.centered else np.zeros(d)
        self.radius_ = radius
        return schedule

    def _set_components(self, matrix: Floats, n_components: int, divisor: float) -> None:
        """Set the components of a noisy covariance, largest variance first, negative variances as 0."""
        values, vectors = np.linalg.eigh(matrix)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
        # The sign of an eigenvector is arbitrary: its largest entry is made positive.
        largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)
        vectors = vectors * np.where(largest < 0, -1.0, 1.0)
        total = max(float(values.sum()), np.finfo(float).tiny)
        self.n_components_ = n_components
        self.components_ = np.ascontiguousarray(vectors[:n_components])
        self.explained_variance_ = values[:n_components]
        self.explained_variance_ratio_ = values[:n_components] / total
        self.singular_values_ = np.sqrt(values[:n_components] * divisor)

    def transform(self, X: Any) -> Floats:
        """Return the coordinates of rows along the components; rows outside the bounds are clipped."""
        rows = self.layout_.decode(self._coordinates(X, "transform")) - self.mean_
        if self.range_units:
            rows = rows / self.layout_.width
        return np.asarray(rows @ self.components_.T)

    def inverse_transform(self, X: Any) -> Floats:
        """Return the rows, in the columns' units, that have these coordinates along the components."""
        rows = np.asarray(X, np.float64) @ self.components_
        if self.range_units:
            rows = rows * self.layout_.width
        return np.asarray(rows + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


def noise_floor(sd: Floats) -> float:
    """Return a value that the largest eigenvalue of symmetric noise is unlikely to exceed.

    Parameters
    ----------
    sd : array of shape (d, d)
        Standard deviation of the noise on each entry.

    Notes
    -----
    ``2 max_i sqrt(sum_j sd_ij^2) (1 + d^(-2/3))``: the first factor is the edge of the semicircle law for
    many coordinates, the second the width of the fluctuations about it for few.
    """
    edge = 2 * math.sqrt(float((sd**2).sum(axis=1).max()))
    return edge * (1 + math.pow(len(sd), -2 / 3))


def center_floor(sd: Floats) -> float:
    """Return a value that the squared error of a noisy center is unlikely to exceed.

    Notes
    -----
    The error adds one false component of variance ``|e|^2``: its mean ``sum sd^2`` plus two standard
    deviations, ``2 sqrt(2 sum sd^4)``.
    """
    square = float((sd**2).sum())
    return square + 2 * math.sqrt(2 * float((sd**4).sum()))


def _radius(
    schedule: BudgetSchedule,
    layout: FeatureMap,
    center: Floats,
    mean_square: float,
    n_rows: float,
    with_sums: bool,
) -> float:
    """Return the length to which rows are clipped: as long as noise stays small, within limits.

    Parameters
    ----------
    schedule : BudgetSchedule
        Shares of the promise, for the expected noise of the Gram matrix.
    layout : FeatureMap
        Columns and coordinates of the rows.
    center : array of shape (d,)
        Point from which rows are counted, as fractions of the ranges.
    mean_square : float
        Noisy mean squared length of a row about the center.
    n_rows : float
        Public or noisy number of rows.
    with_sums : bool
        Whether the query includes the sums of the coordinates.

    Notes
    -----
    ``f sqrt(mean_square)`` with ``f = sqrt(0.1 / r)`` between 0.8 and 3, and ``r = 2 d^(3/2) sd / n`` the
    edge of the noise at that length over the mean eigenvalue.
    """
    d = layout.size
    unit = Gram(layout.names, tuple(center.tolist()), 0.5, with_sums)
    # Noise of radius 1, off the diagonal, where it is smaller by sqrt(2).
    sd = float(np.max(schedule.expected_sd("gram", unit))) / 0.25 / math.sqrt(2)
    # The noise grows with the squared radius: `sd` is that of radius 1.
    ratio = 2 * d**1.5 * sd / n_rows
    factor = min(max(math.sqrt(_NOISE / ratio), _SHORTEST), _LONGEST)
    return max(factor * math.sqrt(mean_square), 2.0**-16)


def _to_column_units(
    value: Floats, sd: Floats, scale: Floats, offset: Floats, n_rows: float
) -> tuple[Floats, Floats]:
    """Return Gram matrix and noise in the columns' units, from products of fractions of the ranges.

    Parameters
    ----------
    value, sd : array of shape (d, d) or (d + 1, d + 1)
        Noisy products and their standard deviations; with one more row for the sums, the first.
    scale : array of shape (d,)
        Unit of each coordinate.
    offset : array of shape (d,)
        Point ``o`` at which fractions are 0, in the same units; not 0 only with sums.
    n_rows : float
        Public or noisy number of rows.
    """
    if len(value) == len(scale):
        return value * np.outer(scale, scale), sd * np.outer(scale, scale)
    # Rows are `offset` longer: (o + s f)(o + s f)' = o o' + o (s f)' + (s f) o' + (s f)(s f)'.
    sums, sums_sd = value[0, 1:] * scale, sd[0, 1:] * scale
    crossed = np.outer(offset, sums)
    gram = value[1:, 1:] * np.outer(scale, scale) + crossed + crossed.T + n_rows * np.outer(offset, offset)
    cross_sd = np.outer(offset, sums_sd)
    return gram, np.sqrt((sd[1:, 1:] * np.outer(scale, scale)) ** 2 + cross_sd**2 + cross_sd.T**2)
