"""Ridge regression from one noisy Gram matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from discreet.errors import ParameterError
from discreet.learn._centering import Centering, spectral_edge
from discreet.learn._sums_base import SumsEstimator
from discreet.learn.arguments import Constraint, is_number
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.learn.feature_map import FeatureMap
from discreet.privacy import NoPromise
from discreet.query import Gram
from discreet.schema import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import NoisySums
    from discreet.schema import Schema


class PrivateRidge(RegressorMixin, SumsEstimator):
    """Least squares with a penalty on the coefficients, from one noisy matrix of sums of products.

    Columns count as fractions of their declared ranges, the target as a fraction of its own, and the penalty
    is on coefficients in those units. The intercept is not penalized.

    Parameters
    ----------
    privacy : ApproxDP, ZCDP, GaussianDP, PureDP or NoPromise
        Promise of the fitted model. Only :class:`NoPromise` has no noise.
    bounds, schema
        Declared ranges of the columns of a matrix, or else a schema of the table; one of the two.
    target_bounds : (float, float), optional
        Declared range of the target; by default that of the schema's target.
    regularization : float
        Penalty on the squared coefficients, in rows. To it is added ``2 sd sqrt(n_coordinates)``, ``sd`` the
        standard deviation of the noise: below that no eigenvalue differs from noise.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one.

    Attributes
    ----------
    coef_ : array of shape (n_coordinates,)
        Coefficients in the columns' own units: one for each number and one for each level of a category.
    intercept_ : float
        Intercept of the model, in the target's unit.
    regularization_ : float
        Penalty that was added to every eigenvalue, that for the noise included.
    layout_ : FeatureMap
        Columns that the model reads, and their coordinates.
    answers_ : dict of str to Answer
        The noisy matrix, with the standard deviation of its noise.
    promises_ : tuple of Promise
        Promises that hold for the fitted model.
    receipts_ : tuple of Receipt
        Receipts of the charges, one for each query.
    split_ : dict of str to float
        Share of the promise that the one query got: all of it.

    Privacy
    -------
    Rows are counted from public points and have a squared length ``B**2`` of at most a quarter for each
    number, the target among them, and one for each category; products change by at most ``sqrt(2) B**2``
    under replace-one. Where there is a category, sums of columns are sums of products with its levels and
    cost nothing; otherwise they are part of the query, for twice the noise.

    Reference
    ---------
    Sections 4.1 and 4.5 of Blum, Dwork, McSherry and Nissim (2005):
    docs/explanation/theorems/sulq-3.md, sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import ApproxDP
    >>> x = np.linspace(0, 10, 5000)
    >>> model = PrivateRidge(privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=(0, 10), target_bounds=(0, 30),
    ...                      random_state=1)
    >>> model.fit(x.reshape(-1, 1), 3 * x).score(x.reshape(-1, 1), 3 * x) > 0.99
    True
    """

    name: ClassVar[str] = "ridge"
    theorems: ClassVar[tuple[str, ...]] = ("sulq-3", "sulq-sensitivity")
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsEstimator.common_constraints,
        "regularization": Constraint(
            "a number of at least 0", lambda v: is_number(v) and v >= 0, (-1.0, np.nan, np.inf, "1", True)
        ),
        "target_bounds": Constraint(
            "None or two rising numbers",
            lambda v: (
                v is None
                or (isinstance(v, list | tuple) and len(v) == 2 and all(map(is_number, v)) and v[0] < v[1])
            ),
            (1.0, (1.0, 0.0), (0.0,), ("a", "b")),
        ),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *SumsEstimator.common_saved, "coef_", "intercept_", "regularization_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **SumsEstimator._decoders,
        "target_bounds": lambda sides: None if sides is None else tuple(sides),
    }

    def __init__(
        self,
        *,
        privacy: Privacy,
        bounds: Any = None,
        schema: Schema | None = None,
        target_bounds: Any = None,
        regularization: float = 1.0,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.target_bounds = target_bounds
        self.regularization = regularization
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Query the Gram matrix of features and target, and solve the normal equations.

        Notes
        -----
        ``(S + p I)^-1 c`` with ``S`` and ``c`` the products about the noisy means, negative eigenvalues of
        ``S`` as 0, and ``p`` the regularization plus :func:`~discreet.learn._centering.spectral_edge`.
        """
        assert target is not None
        with_target = FeatureMap.from_schema(sums.schema, (*layout.names, target))
        centering = Centering(with_target)
        schedule = BudgetSchedule(sums, self.privacy, {"products": 1.0}, owner=owner)
        answer = schedule.ask("products", Gram(**centering.query_arguments, with_sums=centering.intercept))
        count, totals, products = moments(np.asarray(answer.value), centering, sums.n_rows)
        # Centered products have no intercept, so that it is not penalized.
        spread = products - np.outer(totals, totals) / max(count, 1.0)
        values, vectors = np.linalg.eigh(spread[:-1, :-1])
        # The noise of the means is left out: it is divided by the number of rows.
        penalty = float(self.regularization) + spectral_edge(np.asarray(answer.sd))
        # Negative eigenvalues are noise; the penalty keeps the rest invertible.
        inverse = (vectors / np.maximum(np.maximum(values, 0.0) + penalty, np.finfo(float).tiny)) @ vectors.T
        slopes = inverse @ spread[:-1, -1]
        # Intercept in centered coordinates.
        level = (totals[-1] - slopes @ totals[:-1]) / max(count, 1.0)
        column = sums.schema.column(target)
        (low, _), width = column.range, column.width
        features_only = Centering(layout)
        self.coef_, shift = features_only.coefficients(
            np.append(slopes, level) * width if features_only.intercept else slopes * width
        )
        # The target was counted from the middle of its range; without a constant coordinate, `coefficients`
        # has not yet added the level.
        self.intercept_ = float(shift) + low + width / 2 + (0.0 if features_only.intercept else level * width)
        self.regularization_ = penalty
        return schedule

    def predict(self, X: Any) -> Floats:
        """Return what the linear model says of each row, which may lie outside the declared range."""
        coordinates = self._coordinates(X, "predict")
        return np.asarray(self.layout_.decode(coordinates) @ self.coef_ + self.intercept_)

    def _local_target(self, schema: Schema, y: Any) -> tuple[Column, AnyArray] | None:
        """Return the column of the target and its cells, with the declared range of the target."""
        cells = column_or_1d(y, warn=True)
        if schema.target is not None:
            self._check_target(schema)
            return schema.column(schema.target), cells
        if cells.dtype.kind not in "biuf":
            cells = cells.astype(np.float64)
        bounds = self.target_bounds
        if bounds is None:
            if not isinstance(self.privacy, NoPromise):
                raise ParameterError(
                    "target_bounds of PrivateRidge must be given, were None: what the target spans is not "
                    "for free. Declare its range, target_bounds=(lower, upper)."
                )
            # Without a promise the range of the rows may be used; a constant target needs a width above 0.
            low, high = float(cells.min()), float(cells.max())
            bounds = low, high if high > low else low + max(1.0, abs(low))
        name = "y"
        while name in schema:
            name += "_"
        return Column(name, lower=bounds[0], upper=bounds[1], role="target"), cells.astype(np.float64)

    def _database_target(self, schema: Schema) -> str | None:
        self._check_target(schema)
        return schema.target

    def _check_target(self, schema: Schema) -> None:
        column = None if schema.target is None else schema.column(schema.target)
        if column is None or not column.is_number or not column.required:
            raise ParameterError(
                "schema of PrivateRidge must have a target that is a number and never missing, and has not. "
                "Use schema.with_target(name)."
            )
        if self.target_bounds is not None and tuple(self.target_bounds) != column.range:
            raise ParameterError(
                "target_bounds of PrivateRidge must be those of the schema's target or left out, were others."
            )

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "target_bounds" and value is not None:
            return [float(side) for side in value]
        return super()._pack(name, value, arrays)


def moments(answer: Floats, centering: Centering, n_rows: int | None) -> tuple[float, Floats, Floats]:
    """Return the number of rows, the sums of coordinates and the sums of products of a noisy Gram matrix.

    Parameters
    ----------
    answer : array of shape (size, size)
        Noisy Gram matrix, the constant coordinate first where there is one.
    centering : Centering
        Map of rows to vectors.
    n_rows : int or None
        Public number of rows; None takes a noisy one from the levels of the categories.
    """
    if centering.intercept:
        return float(answer[0, 0]), answer[0, 1:], answer[1:, 1:]
    products = centering.zero_level_products(answer)
    # Every row has one level of each category: products with all levels add up to the sums.
    # Every category gives the same sums with other noise: their mean is less noisy.
    totals = np.mean([products[:, block].sum(axis=1) for block in centering.blocks], axis=0)
    for block in centering.blocks:
        totals[block] = np.diag(products)[block]
    count = np.mean([totals[block].sum() for block in centering.blocks]) if n_rows is None else n_rows
    return float(count), totals, products
