"""K-means clustering by noisy counts and noisy sums of displacements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans

from discreet.errors import ParameterError
from discreet.learn._centering import LEAST_COUNT, RADIUS, query_region, shrink_to_zero
from discreet.learn._sums_base import SumsEstimator
from discreet.learn.arguments import Constraint
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.noise import Stream, standard_normal
from discreet.privacy import NoPromise
from discreet.query import ClusterSums
from discreet.query.features import ONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Bools, Floats, Ints
    from discreet.learn.feature_map import FeatureMap
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import Answer, NoisySums
    from discreet.schema import Schema

_MOST_CLUSTERS = 1024  # more would drown in their noise, and a batch of distances would exceed memory
_REGION = 0.1  # share of the promise for mean and spread of the rows
_SCHEDULE = (1.0, 0.7, 0.6, 0.5)  # radius of each pass, over the root mean square distance from the mean
_SPARE = 6  # largest number of centers per cluster in the first half of the passes
_TOLERATED = 0.15  # largest noise on a center, over the spread of the rows, at which centers are added
_START = 400  # least number of public points from which starting centers are chosen
_FLAT = 5.0  # number of coordinates from which on starting centers are drawn nearer to the mean


class PrivateKMeans(ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, SumsEstimator):
    """K-means on noisy sums.

    Each pass queries, for every center, the number of rows nearest to it and the sum of their displacements,
    clipped to a length that shrinks by a public schedule. Where noise permits, the first half of the passes
    has more centers than clusters; they are then merged, which needs no query, and the second half goes on
    from there.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, from 1 to 1024.
    privacy : PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise
        Promise of the fitted model, split over the passes as in :attr:`split_`.
    bounds : (lower, upper), optional
        Declared range of each column: a pair of numbers, two vectors, or ``schema.bounds``. Distances are
        in units of these ranges.
    schema : Schema, optional
        Schema of the table, instead of bounds; each level of a category is a column of 0 and 1.
    max_iter : int
        Number of passes over the rows, from 1 to 100.
    init : array of shape (n_clusters, n_coordinates), optional
        Public starting centers, in the columns' units; there are no further centers to merge then. By default
        they follow from public random points, the noisy mean and the noisy spread.
    radius : "auto", float or None
        Length of the first pass to which displacements are clipped, as a fraction of the declared ranges.
        "auto" takes it from the noisy spread, for a tenth of the promise. None clips nothing.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one. It is marked on the receipts.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_coordinates)
        Centers of the clusters, in the columns' units.
    counts_ : array
        Noisy number of rows nearest to each center of the last pass, which had moved a little since.
    errors_ : array
        Root mean square of the noise on each center, in units of the declared ranges; infinite where a
        center had too few rows to be moved.
    radii_ : array
        Length to which displacements were clipped, by pass; infinite without clipping.
    n_iter_ : int
        Number of passes over the rows.
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
    One unit under the schema's neighbors. A row counts for one center: with ``C`` the radius the squared
    sensitivity of a pass is ``4 C**2`` when a row is replaced, whatever the number of clusters and
    columns. A center without rows is answered like all others, and is kept or moved by its noisy count.
    Centers that start anew start from public random points. There is no early stopping.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005), section 4.2. The error of a center is that of their lemma 1 with
    the new displacement in place of the old mean:
    docs/explanation/theorems/sulq-lemma-1.md, sulq-sensitivity.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import ApproxDP
    >>> from discreet.learn import PrivateKMeans
    >>> t = np.arange(20000)
    >>> X = np.column_stack([np.where(t % 2, 0.2, 0.8), 0.5 + 0.1 * np.sin(t)])
    >>> model = PrivateKMeans(
    ...     n_clusters=2, privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=(0, 1), random_state=1
    ... ).fit(X)
    >>> np.sort(model.cluster_centers_[:, 0]).round(1).tolist()
    [0.2, 0.8]
    """

    name: ClassVar[str] = "kmeans"
    theorems: ClassVar[tuple[str, ...]] = ("sulq-lemma-1", "sulq-sensitivity")
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsEstimator.common_constraints,
        "n_clusters": Constraint(
            f"a whole number from 1 to {_MOST_CLUSTERS}",
            lambda v: (
                isinstance(v, int | np.integer) and not isinstance(v, bool) and bool(1 <= v <= _MOST_CLUSTERS)
            ),
            (0, -1, 2.5, "2", True, None, 10**9),
        ),
        "max_iter": Constraint(
            "a whole number from 1 to 100",
            lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and bool(1 <= v <= 100),
            (0, 101, 2.5, "2", True, None),
        ),
        "radius": RADIUS,
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *SumsEstimator.common_saved, "cluster_centers_", "counts_", "errors_", "radii_", "n_iter_",
    )  # fmt: skip

    cluster_centers_: Floats

    def __init__(
        self,
        *,
        n_clusters: int = 8,
        privacy: Privacy,
        bounds: Any = None,
        schema: Schema | None = None,
        max_iter: int = 4,
        init: Any = None,
        radius: float | str | None = "auto",
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.n_clusters = n_clusters
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.max_iter = max_iter
        self.init = init
        self.radius = radius
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Query the region, then move centers by noisy mean displacements in every pass."""
        k, d, rounds = int(self.n_clusters), layout.size, int(self.max_iter)
        initial = self._initial_centers(layout)
        learns_radius = self.radius == "auto" and not isinstance(self.privacy, NoPromise)
        needs_region = learns_radius or initial is None
        shares = {
            **({"region": _REGION} if needs_region else {}),
            **{f"pass {i + 1}": (1 - _REGION) / rounds for i in range(rounds)},
        }
        schedule = BudgetSchedule(sums, self.privacy, shares, owner=owner)
        # Without a query rows are taken to be uniform in the box.
        spread = np.full(d, 1 / 12)
        if needs_region:
            region = query_region(schedule, "region", layout)
            spread = region.spread(region.mean)
        full_radius = None if isinstance(self.radius, str) or self.radius is None else float(self.radius)
        if learns_radius:
            full_radius = math.sqrt(float(spread.sum()))
        radii = [
            None if full_radius is None else max(full_radius * _radius_factor(i), 2.0**-16)
            for i in range(rounds)
        ]
        points = _Points(np.full(d, 0.5) if initial is not None else region.mean, spread)
        if initial is None:
            n_start = (
                _affordable_centers(schedule, layout, k, full_radius, region.n_rows) if rounds > 1 else k
            )
            centers = points.choose_far_apart(n_start)
        else:
            centers = initial
        for i, radius in enumerate(radii):
            # Centers are rounded to the grid of the queries, from which displacements are counted.
            centers = np.floor(centers * ONE + 0.5) / ONE
            question = ClusterSums(layout.names, centers.tolist(), radius)
            answer = schedule.ask(f"pass {i + 1}", question)
            counts, kept, errors, centers = _move_centers(centers, answer)
            # After half of the passes the further centers are merged into k.
            if len(centers) > k and 2 * (i + 1) >= rounds:
                centers = merge_centers(centers, np.where(kept, counts, 0.0), k)
            # After the last pass nothing is moved any more.
            elif i + 1 < rounds:
                centers = points.reseed_empty(centers, counts, kept)
        self.cluster_centers_ = layout.decode(centers)
        self.counts_, self.errors_ = counts, errors
        self.radii_ = np.array([math.inf if radius is None else radius for radius in radii])
        self.n_iter_ = rounds
        return schedule

    def _check_parameters(self) -> None:
        """Refuse parameters that violate their constraints, and starting centers of a wrong shape."""
        super()._check_parameters()
        self._check_init(None)

    def _initial_centers(self, layout: FeatureMap) -> Floats | None:
        """Return the given starting centers in units of the declared ranges; None if none are given."""
        centers = self._check_init(layout.size)
        if centers is None:
            return None
        return np.clip((centers - layout.lower) / layout.width, 0.0, 1.0)

    def _check_init(self, size: int | None) -> Floats | None:
        """Return the given starting centers, checked; ``size`` is None while the columns are unknown."""
        if self.init is None:
            return None
        try:
            centers = np.asarray(self.init, np.float64)
        except (TypeError, ValueError, OverflowError):
            centers = np.empty(0)
        fits = centers.ndim == 2 and len(centers) == self.n_clusters and size in (None, centers.shape[1])
        if not (fits and np.isfinite(centers).all()):
            raise ParameterError(
                f"init of PrivateKMeans must be None or finite numbers of shape ({self.n_clusters}, "
                f"{size or 'n_coordinates'}), one center for each cluster, and was not. Centers are public: "
                "do not take them from the rows."
            )
        return centers

    def predict(self, X: Any) -> Ints:
        """Return the position of the nearest center for each row, in units of the declared ranges."""
        return np.asarray(self._distances(X, "predict").argmin(axis=1))

    def transform(self, X: Any) -> Floats:
        """Return the distance of each row from each center, in units of the declared ranges."""
        return self._distances(X, "transform")

    def fit_predict(self, X: Any, y: Any = None) -> Ints:
        """Fit the model and return the nearest center of each row: as private as the rows themselves."""
        return self.fit(X, y).predict(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the sum of squared distances of rows from their nearest centers."""
        return -float((self._distances(X, "score").min(axis=1) ** 2).sum())

    def _distances(self, X: Any, where: str) -> Floats:
        rows = self._coordinates(X, where)
        centers = (self.cluster_centers_ - self.layout_.lower) / self.layout_.width
        squares = [((rows - center) ** 2).sum(axis=1) for center in centers]
        return np.asarray(np.sqrt(np.column_stack(squares)))

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "init" and value is not None:
            value = np.asarray(value, np.float64)
        return super()._pack(name, value, arrays)


class _Points:
    """Public random points around a noisy mean, from which starting centers are chosen.

    Parameters
    ----------
    middle : array of shape (d,)
        Noisy mean of the rows, as fractions of the ranges.
    spread : array of shape (d,)
        Noisy mean square of each coordinate about the mean.
    """

    def __init__(self, middle: Floats, spread: Floats) -> None:
        d = len(middle)
        self._middle = middle
        # In many dimensions points as far from the mean as the rows are far from every row.
        self._scale = np.sqrt(spread) * min(1.0, math.sqrt(_FLAT / d))
        # Not noise: the points are public, so a fixed seed is fine.
        self._stream = Stream.from_seed(0)

    def _draw(self, n: int) -> Floats:
        return standard_normal((n, len(self._middle)), self._stream) * self._scale

    def choose_far_apart(self, k: int) -> Floats:
        """Return ``k`` random points, each chosen as far as possible from those before."""
        points = np.clip(self._middle + self._draw(max(_START, 20 * k)), 0.0, 1.0)
        chosen = [0]
        distance = ((points - points[0]) ** 2).sum(axis=1)
        while len(chosen) < k:
            chosen.append(int(distance.argmax()))
            distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        return points[chosen]

    def reseed_empty(self, centers: Floats, counts: Floats, kept: Bools) -> Floats:
        """Return the centers, with those that have too few rows moved near those that have most."""
        lost, living = np.flatnonzero(~kept), np.flatnonzero(kept)
        if not len(lost) or not len(living):
            return centers
        largest = living[np.argsort(-counts[living], kind="stable")]
        moved = centers.copy()
        neighbors = centers[largest[np.arange(len(lost)) % len(largest)]]
        moved[lost] = np.clip(neighbors + 0.5 * self._draw(len(lost)), 0.0, 1.0)
        return moved


def _radius_factor(i: int) -> float:
    return _SCHEDULE[min(i, len(_SCHEDULE) - 1)]


def _affordable_centers(
    schedule: BudgetSchedule, layout: FeatureMap, k: int, radius: float | None, n_rows: float
) -> int:
    """Return the number of starting centers: at most so many that noise on each stays small.

    Notes
    -----
    With ``m`` centers a sum over ``n / m`` rows has noise ``0.7 sd r`` per coordinate at radius ``r``: the
    error of a center is ``0.7 sd r sqrt(d) m / n``, which may be ``_TOLERATED`` times the spread ``r``.
    """
    question = ClusterSums(layout.names, [[0.5] * layout.size], 0.5)
    # The noise on a sum grows in proportion to the radius, here 0.5: per unit of radius.
    sd = float(schedule.expected_sd("pass 1", question)[0, 1]) / 0.5
    if sd == 0:
        return _SPARE * k
    # Without a radius rows are taken to be uniform in the box: 1/12 for each coordinate.
    length = math.sqrt(layout.size / 12) if radius is None else radius
    largest = _TOLERATED * length * n_rows / (0.7 * length * sd * math.sqrt(layout.size))
    return int(min(max(largest, k), _SPARE * k))


def _move_centers(centers: Floats, answer: Answer) -> tuple[Floats, Bools, Floats, Floats]:
    """Return counts, a mask of centers with enough rows, the error of each center, and the moved centers.

    A center moves by the noisy mean displacement of its rows, shrunk by its noise; one with too few rows
    stays.
    """
    value, sd = np.asarray(answer.value), np.asarray(answer.sd)
    counts, count_sd = value[:, 0], sd[:, 0]
    kept = (counts > LEAST_COUNT * count_sd) & (counts > 0)
    divisor = np.where(kept, counts, 1.0)
    shift = shrink_to_zero(value[:, 1:], sd[:, 1:]) / divisor[:, None]
    errors = mean_error(shift, divisor, sd[:, 1:], count_sd)
    moved = np.clip(centers + np.where(kept[:, None], shift, 0.0), 0.0, 1.0)
    return counts, kept, np.where(kept, errors, math.inf), moved


def mean_error(shift: Floats, counts: Floats, sum_sd: Floats, count_sd: Floats) -> Floats:
    """Return the root mean square error of noisy sums over noisy counts, to first order.

    Notes
    -----
    With the sum ``S + e`` and the count ``s + f``, ``(S + e) / (s + f) - S / s`` is ``(e - f S / s) / s``.

    Reference
    ---------
    Lemma 1 of the paper, which has the old mean where the new one belongs:
    docs/explanation/theorems/sulq-lemma-1.md.
    """
    # Errors of count and sum are independent.
    square = (shift**2).sum(axis=1) * count_sd**2 + (sum_sd**2).sum(axis=1)
    return np.asarray(np.sqrt(square) / counts)


def merge_centers(centers: Floats, weights: Floats, k: int) -> Floats:
    """Return ``k`` centers by weighted k-means on noisy centers: post-processing.

    Parameters
    ----------
    centers : array of shape (m, d)
        Noisy centers, as fractions of the ranges.
    weights : array of shape (m,)
        Noisy counts, 0 for centers to be left out.
    k : int
        Number of centers to return, at most ``m``.
    """
    # KMeans needs more distinct points than clusters.
    heavy = np.flatnonzero(weights > 0)
    if len(np.unique(centers[heavy], axis=0)) <= k:
        order = np.argsort(-weights, kind="stable")[:k]
        return centers[order]
    model = KMeans(k, n_init=20, random_state=0).fit(centers[heavy], sample_weight=weights[heavy])
    return np.asarray(np.clip(model.cluster_centers_, 0.0, 1.0))
