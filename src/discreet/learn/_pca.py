"""Principal components from one noisy Gram matrix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from discreet.errors import ParameterError
from discreet.learn._centering import RADIUS, query_region
from discreet.learn._sums_base import FLAG, SumsEstimator
from discreet.learn.base import Constraint
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

_REGION = 0.2  # of the promise, for where the rows are and how far they spread
_NOISE = 0.1  # of the average eigenvalue: above it rows are clipped shorter rather than noise accepted
_SHORTEST, _LONGEST = 0.8, 3.0  # radius over the root mean square length of a row


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SumsEstimator):
    """Principal component analysis, or a truncated SVD, from noisy sums.

    A noisy mean says where the rows are, a noisy mean square how long they are, and a noisy matrix of
    products about that mean, of rows clipped to that length, has the components.

    Parameters
    ----------
    n_components : int, optional
        How many to keep; all if left out.
    privacy : PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise
        Promise of the fitted model, split over the passes as in :attr:`split_`.
    bounds : (lower, upper), optional
        Declared range of each column: a pair of numbers, two vectors, or ``schema.bounds``.
    schema : Schema, optional
        Schema of the table, instead of bounds; each level of a category is a column of 0 and 1.
    centered : bool
        Whether the mean is taken off. If not, components are the right singular vectors of the rows as they
        are, in their own units.
    range_units : bool
        Whether columns are counted in units of their declared ranges, and not in their own.
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
        Of clipped rows, noise included, never below 0.
    singular_values_ : array
        Roots of the sums of squares along the components.
    mean_ : array
        Noisy mean, in the columns' units; zeros if not centered.
    n_components_ : int
        How many there are.
    noise_floor_ : float
        The largest variance that noise alone may well show.
    distinguishable_ : array of bool
        Which components are above it. The others are directions that noise has made up.
    radius_ : float or None
        The length to which rows were clipped.
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
        **SumsEstimator.common_domains,
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
        d = layout.size
        n_components = d if self.n_components is None else int(self.n_components)
        if n_components > d:
            raise ParameterError(
                f"n_components of PrivatePCA must be at most the number of coordinates, which is {d}, was "
                f"{n_components}. Leave it out to keep all."
            )
        learns_radius = self.radius == "auto" and not isinstance(self.privacy, NoPromise)
        # Uncentered and unclipped, only a private number of rows has to be asked for.
        needs_region = self.centered or learns_radius or sums.n_rows is None
        shares = {"region": _REGION, "gram": 1 - _REGION} if needs_region else {"gram": 1.0}
        schedule = BudgetSchedule(sums, self.privacy, shares, owner=owner)
        origin = np.clip(-layout.lower / layout.width, 0.0, 1.0)
        center, n_rows, drift = origin, float(max(sums.n_rows or 0, 1)), np.zeros(d)
        radius = None if isinstance(self.radius, str) else self.radius
        if needs_region:
            region = query_region(schedule, "region", layout)
            n_rows = region.n_rows
            if self.centered:
                center, drift = region.mean, region.sd
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
        divisor = max(n_rows - 1, 1.0) if self.centered else n_rows
        self._set_components(gram / divisor, n_components, divisor)
        self.noise_floor_ = noise_floor(sd / divisor) + center_floor(scale * drift)
        self.distinguishable_ = self.explained_variance_ > self.noise_floor_
        self.mean_ = layout.decode(center) if self.centered else np.zeros(d)
        self.radius_ = radius
        return schedule

    def _set_components(self, matrix: Floats, n_components: int, divisor: float) -> None:
        values, vectors = np.linalg.eigh(matrix)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
        # The sign of a direction means nothing: the largest entry is made positive.
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
    """Return what the largest eigenvalue of symmetric noise will hardly exceed.

    ``2 max_i sqrt(sum_j sd_ij**2)`` is where the spectrum of the noise ends for many coordinates; the factor
    ``1 + d**(-2/3)`` is how far it reaches beyond for few.
    """
    edge = 2 * math.sqrt(float((sd**2).sum(axis=1).max()))
    return edge * (1 + math.pow(len(sd), -2 / 3))


def center_floor(sd: Floats) -> float:
    """Return what the squared error of a noisy center will hardly exceed: it shows as one false component."""
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
    """Choose the length to which rows are clipped: as long as noise stays small, within limits."""
    d = layout.size
    unit = Gram(layout.names, tuple(center.tolist()), 0.5, with_sums)
    sd = float(np.max(schedule.expected_sd("gram", unit))) / 0.25 / math.sqrt(2)
    # Noise of the matrix at the mean square length, over the average eigenvalue: public but for n.
    ratio = 2 * d**1.5 * sd / n_rows
    factor = min(max(math.sqrt(_NOISE / ratio), _SHORTEST), _LONGEST)
    return max(factor * math.sqrt(mean_square), 2.0**-16)


def _to_column_units(
    value: Floats, sd: Floats, scale: Floats, offset: Floats, n_rows: float
) -> tuple[Floats, Floats]:
    """Turn products of fractions of ranges into products of columns in their units."""
    if len(value) == len(scale):
        return value * np.outer(scale, scale), sd * np.outer(scale, scale)
    # Rows are `offset` longer: (o + s f)(o + s f)' = o o' + o (s f)' + (s f) o' + (s f)(s f)'.
    sums, sums_sd = value[0, 1:] * scale, sd[0, 1:] * scale
    crossed = np.outer(offset, sums)
    gram = value[1:, 1:] * np.outer(scale, scale) + crossed + crossed.T + n_rows * np.outer(offset, offset)
    cross_sd = np.outer(offset, sums_sd)
    return gram, np.sqrt((sd[1:, 1:] * np.outer(scale, scale)) ** 2 + cross_sd**2 + cross_sd.T**2)
