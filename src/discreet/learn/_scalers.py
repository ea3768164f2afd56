"""Scaling before a learner that keeps its promise: by declared bounds, or by noisy means and deviations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from discreet.arguments import CheckedArguments
from discreet.errors import ParameterError
from discreet.learn._centering import query_region
from discreet.learn._quantiles import plan_search, search_quantiles
from discreet.learn._sums_base import FLAG, SumsEstimator
from discreet.learn.arguments import Constraint, check_finite, is_number, two_vectors
from discreet.learn.budget_schedule import BudgetSchedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Floats
    from discreet.learn.feature_map import FeatureMap
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import NoisySums
    from discreet.schema import Schema

_QUARTILES = (0.25, 0.5, 0.75)
_NORMAL_WIDTH = 1.3489795003921634  # between the quartiles of the normal law, in standard deviations
_BITS = 10  # cells of a range, by which quartiles are found, are 2**10
_LEAST_DEVIATION = 2.0**-10  # of a column, as a fraction of its range


class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator, metaclass=CheckedArguments):
    """Map columns from declared bounds to -1 and 1; rows outside are clipped.

    Learners with ``bounds`` do this by themselves: it is for what comes between, or for a learner that needs
    rows of a common scale and has no bounds.

    Parameters
    ----------
    bounds : (lower, upper)
        Declared range of each column: a pair of numbers, two vectors, or ``schema.bounds``.

    Privacy
    -------
    Nothing is learned from rows: what ``fit`` keeps is the number and the names of the columns.

    Reference
    ---------
    docs/howto/preprocess.md, docs/explanation/theorems/composition.md.

    Examples
    --------
    >>> from discreet.learn import PublicScaler
    >>> PublicScaler(bounds=([0, 18], [10, 98])).fit_transform([[5, 18], [20, 58]]).tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """

    def __init__(self, *, bounds: Any) -> None:
        """Store the parameter; it is checked in :meth:`fit`."""
        self.bounds = bounds

    def _keeps_promise(self) -> bool:
        """Whether a promise after this step holds: it reads no rows."""
        return True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check rows and bounds; nothing but the number and the names of the columns is kept.

        Parameters
        ----------
        X : matrix or frame
            Rows of finite numbers, which are checked and not used.
        y : array, optional
            Ignored; steps of pipelines have it.
        """
        self._check_rows(X, "fit", reset=True)
        two_vectors(self.bounds, self.n_features_in_, type(self).__name__)
        return self

    def transform(self, X: Any) -> Floats:
        """Return rows with every column between -1 and 1."""
        check_is_fitted(self, "n_features_in_")
        X = self._check_rows(X, "transform", reset=False)
        low, high = map(np.array, two_vectors(self.bounds, X.shape[1], type(self).__name__))
        return np.asarray(2 * ((np.clip(X, low, high) - low) / (high - low)) - 1)

    def _check_rows(self, X: Any, where: str, *, reset: bool) -> Floats:
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=reset)
        check_finite(X, f"X of PublicScaler.{where}", getattr(self, "feature_names_in_", None))
        return np.asarray(X)


class PrivateScaler(OneToOneFeatureMixin, TransformerMixin, SumsEstimator):
    """Center columns and divide them by ``limit`` deviations, both from noisy sums; rows come out in [-1, 1].

    Useful where columns fill a small part of their declared ranges. What comes out is clipped, so the learner
    after it declares ``bounds=(-1, 1)``.

    Parameters
    ----------
    privacy : PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise
        Promise of means and deviations of all columns together.
    bounds : (lower, upper), optional
        Declared range of each column: a pair of numbers, two vectors, or ``schema.bounds``.
    schema : Schema, optional
        Schema of the table, instead of bounds; all its features must be numbers or dates.
    robust : bool
        Whether to use medians and quartiles in place of means and deviations. They cost more noise, and a few
        far rows do not move them.
    limit : float
        Deviations from the center that become -1 and 1; rows farther away are clipped.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one. It is marked on the receipts.

    Attributes
    ----------
    center_ : array
        Noisy mean or median of each column, in its own unit.
    scale_ : array
        Noisy standard deviation of each column, in its own unit, at least 1/1024 of its range and at least as
        large as noise makes it look; if robust, that of a normal law with the same quartiles.
    layout_ : FeatureMap
        Columns that the scaler reads, with their declared ranges.
    answers_, receipts_ : dict of Answer, tuple of Receipt
        Noisy answers with their standard deviations, and receipts of the charges, by pass.
    promises_ : tuple of Promise
        Promises that hold for every unit whose row was read.
    split_ : dict
        Share of the promise that each pass got.

    Privacy
    -------
    One :class:`~discreet.query.Moments` question: the square of the sensitivity is 1 for each column when a
    row is replaced, for sums and squares together. If robust, the promise is split evenly over the counts by
    which the quartiles of all columns are found. A learner after it is charged as well: the promises add up,
    as ``private_pipeline`` shows.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, sulq-3.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import ApproxDP
    >>> from discreet.learn import PrivateScaler
    >>> X = np.column_stack([40 + 10 * np.sin(np.arange(9000.0)), 5.0 * (np.arange(9000) % 2)])
    >>> scaler = PrivateScaler(
    ...     privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=([0, 0], [120, 100]), random_state=1
    ... ).fit(X)
    >>> scaler.center_.round().tolist(), scaler.scale_.round().tolist()
    ([40.0, 2.0], [7.0, 3.0])
    """

    name: ClassVar[str] = "scaler"
    theorems: ClassVar[tuple[str, ...]] = ("sulq-sensitivity", "sulq-3")
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsEstimator.common_constraints,
        "robust": FLAG,
        "limit": Constraint(
            "a number from 1 to 1000",
            lambda v: is_number(v) and 1 <= v <= 1000,
            (0.5, -1, math.inf, "3", True),
        ),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (*SumsEstimator.common_saved, "center_", "scale_")

    center_: Floats
    scale_: Floats

    def __init__(
        self,
        *,
        privacy: Privacy,
        bounds: Any = None,
        schema: Schema | None = None,
        robust: bool = False,
        limit: float = 4.0,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.robust = robust
        self.limit = limit
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Query moments or quartiles of every column, and set centers and deviations."""
        category = next((c.name for c in layout.schema.columns if c.is_category), None)
        if category is not None:
            raise ParameterError(
                f"columns of {type(self).__name__} must be numbers, and {category!r} is a category. Leave it "
                "out of the scaler; learners take categories as they are."
            )
        find = _find_quartiles if self.robust else _find_moments
        center, deviation, schedule = find(sums, layout, self.privacy, owner)
        self.center_ = layout.decode(center)
        self.scale_ = layout.width * np.clip(deviation, _LEAST_DEVIATION, 1.0)
        return schedule

    def transform(self, X: Any) -> Floats:
        """Return rows in units of ``limit`` deviations from the center, clipped to [-1, 1]."""
        rows = self.layout_.decode(self._coordinates(X, "transform"))
        return np.asarray(np.clip((rows - self.center_) / (self.limit * self.scale_), -1.0, 1.0))

    def inverse_transform(self, X: Any) -> Floats:
        """Return rows in the columns' units; those that were clipped come back at the limit."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X, np.float64) * (self.limit * self.scale_) + self.center_)


def _find_moments(
    sums: NoisySums, layout: FeatureMap, privacy: Privacy, owner: str | None
) -> tuple[Floats, Floats, BudgetSchedule]:
    """Return noisy means and deviations, as fractions of the ranges, from one question.

    Notes
    -----
    ``Var x = E(x - 1/2)^2 - (E x - 1/2)^2``, at least its own noise ``hypot(s, 2 (E x - 1/2) m)`` with ``s``
    and ``m`` the deviations of the noise on the two means, and at most 1/4.
    """
    schedule = BudgetSchedule(sums, privacy, {"moments": 1.0}, owner=owner)
    region = query_region(schedule, "moments", layout)
    mean = np.clip(region.raw, 0.0, 1.0)
    offset = mean - 0.5
    noise = np.hypot(region.square_sd, 2 * offset * region.sd)
    # Rows are divided by the deviation: one that is small by noise alone would blow them up.
    variance = np.clip(np.maximum(region.square - offset**2, noise), 0.0, 0.25)
    return mean, np.sqrt(variance), schedule


def _find_quartiles(
    sums: NoisySums, layout: FeatureMap, privacy: Privacy, owner: str | None
) -> tuple[Floats, Floats, BudgetSchedule]:
    """Return noisy medians, and deviations of normal laws with the same quartiles, as fractions of ranges."""
    searches = {name: plan_search(sums.schema, name, len(_QUARTILES), _BITS) for name in layout.names}
    passes = {(name, step): f"{name}: {step}" for name, search in searches.items() for step in search.steps}
    schedule = BudgetSchedule(sums, privacy, dict.fromkeys(passes.values(), 1.0), owner=owner)
    found = []
    for name, search in searches.items():
        steps = [passes[name, step] for step in search.steps]
        values = np.array(search_quantiles(schedule, steps, search, _QUARTILES)[0])
        low, high = search.curated.lower, search.curated.upper
        found.append((values - float(low)) / float(high - low))
    lower, middle, upper = np.array(found).T
    return middle, (upper - lower) / _NORMAL_WIDTH, schedule
