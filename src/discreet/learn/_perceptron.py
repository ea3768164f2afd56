"""The perceptron on noisy sums over the rows that it gets wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from discreet.errors import ParameterError
from discreet.learn._centering import LEAST_COUNT, Centering, check_not_clipping
from discreet.learn._sums_base import SumsClassifier
from discreet.learn.arguments import Constraint, is_number
from discreet.query import HalfspaceSums

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.feature_map import FeatureMap
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import Answer, NoisySums, PredictionCounts
    from discreet.schema import Schema


class PrivatePerceptron(SumsClassifier):
    """A linear classifier for two classes, moved by the noisy mean of the rows that it gets wrong.

    Round ``j`` moves the plane by that mean over ``j``, and the model is the average of all planes: where no
    plane separates the classes, constant steps and the last plane are far worse. On such rows logistic
    regression is better still.

    Parameters
    ----------
    privacy : PureDP, ApproxDP, ZCDP, GaussianDP or NoPromise
        Promise of the fitted model, split evenly over the rounds.
    bounds : (lower, upper), optional
        Declared range of each column: a pair of numbers, two vectors, or ``schema.bounds``.
    schema : Schema, optional
        Schema of the table, instead of bounds; each level of a category is a column of 0 and 1.
    classes : sequence of two labels, optional
        Declared list. Needed with bounds; only :class:`NoPromise` takes it from ``y``.
    rounds : int
        Largest number of rounds, from 1 to 1000.
    step : {"shrinking", "constant"}
        Length of the steps: the noisy mean over the number of the round, or the noisy mean itself, as in the
        paper, for which :func:`most_rounds` holds.
    radius : float, optional
        Length to which rows are clipped, from the middle of the declared ranges and as a fraction of them.
        Nothing is clipped if it is left out. It cannot be had together with a paid score.
    paid_score : bool or "table"
        Whether a tenth of the promise pays for the accuracy of the model on its rows, which may then be
        published; half of it counts the rows that are right, half the rows of each class. "table" asks for
        rows by class and named class instead of right ones, with more noise. It is left out where there are
        too few rows for it, which is known before anything is charged if their number is public.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one. It is marked on the receipts.

    Attributes
    ----------
    coef_ : array of shape (1, n_coordinates)
        Coefficients of the averaged plane in the columns' own units, for rows that are not clipped.
    intercept_ : array of shape (1,)
        Intercept of the averaged plane, in the columns' own units.
    weights_, last_weights_ : array
        Weights of the averaged plane and of the last one, for centered and clipped rows.
    counts_ : array
        Noisy number of rows that each round's plane got wrong.
    n_iter_ : int
        Rounds that moved the plane.
    score_ : ModelScore or None
        Paid accuracy with its interval and verdict; None where it was not asked.
    classes_ : array
        The declared classes, sorted.
    layout_ : FeatureMap
        Columns that the model reads, and their coordinates.
    answers_, receipts_ : dict of Answer, tuple of Receipt
        Noisy answers with their standard deviations, and receipts of the charges, by round.
    promises_ : tuple of Promise
        Promises that hold for every unit whose row was read, whether rounds were left out or not.
    split_ : dict
        Share of the promise that each round and the score got.

    Privacy
    -------
    One unit under the schema's neighbors. With ``B`` the length of rows the squared sensitivity of a round
    is ``4 B**2``: entries of label times row span [-B, B]. Count and sum are one answer; whether to stop is
    decided by its noisy count alone. A round that is left out is not charged, and the promise is the same.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005), section 4.3 and theorem 2, corrected in
    docs/explanation/theorems/sulq-2.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import ApproxDP
    >>> from discreet.learn import PrivatePerceptron
    >>> X = np.linspace(0, 1, 4000).reshape(-1, 1)
    >>> y = np.where(X[:, 0] > 0.4, "yes", "no")
    >>> model = PrivatePerceptron(
    ...     privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=(0, 1), classes=["no", "yes"], random_state=1
    ... ).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), model.receipts_[0].seeded
    (True, True)
    """

    name: ClassVar[str] = "perceptron"
    theorems: ClassVar[tuple[str, ...]] = ("sulq-2",)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsClassifier.common_constraints,
        "rounds": Constraint(
            "a whole number from 1 to 1000",
            lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and bool(1 <= v <= 1000),
            (0, 1001, 2.5, "2", True, None),
        ),
        "step": Constraint(
            "'shrinking' or 'constant'",
            lambda v: isinstance(v, str) and v in ("shrinking", "constant"),
            ("other", None, 1),
        ),
        "radius": Constraint(
            "None or a number of at least 2**-16",
            lambda v: v is None or (is_number(v) and bool(v >= 2.0**-16)),
            (0, -1.0, math.inf, "auto", True),
        ),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *SumsClassifier.common_saved, "coef_", "intercept_", "weights_", "last_weights_",
        "counts_", "n_iter_",
    )  # fmt: skip

    weights_: Floats

    def __init__(
        self,
        *,
        privacy: Privacy,
        bounds: Any = None,
        schema: Schema | None = None,
        classes: Any = None,
        rounds: int = 20,
        step: Literal["shrinking", "constant"] = "shrinking",
        radius: float | None = None,
        paid_score: bool | str = False,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.classes = classes
        self.rounds = rounds
        self.step = step
        self.radius = radius
        self.paid_score = paid_score
        self.ledger = ledger
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Query the rows that the current plane gets wrong, and move it, until too few are left."""
        assert target is not None
        if len(self.classes_) != 2:
            raise ParameterError(
                "classes of PrivatePerceptron must be two. Only binary classification is supported, and "
                f"there are {len(self.classes_)} classes. Use another learner, or one for each class."
            )
        centering = self._make_centering(layout)
        check_not_clipping(centering, self)
        names = [f"round {i + 1}" for i in range(int(self.rounds))]
        schedule = self._make_schedule(sums, dict.fromkeys(names, 1.0), target, owner)
        # Rows on the plane count as wrong. At 0 these are all rows: the mean of label times row comes first.
        weights, path, counts = np.zeros(centering.size), [], []
        for name in names:
            question = HalfspaceSums(
                target=target,
                positive=self._levels[1],
                weights=tuple(weights.tolist()),
                intercept=centering.intercept,
                **centering.query_arguments,
            )
            answer = schedule.ask(name, question)
            counts.append(float(np.asarray(answer.value)[0]))
            mean = _mean_update(answer)
            if mean is None:
                break
            # Steps of 1 / j let the average settle where no plane separates the classes.
            weights = weights + (mean / len(counts) if self.step == "shrinking" else mean)
            path.append(weights)
        self.last_weights_ = weights
        # The last plane has the noise of its last steps; most of it averages out over the path.
        self.weights_ = np.mean(path, axis=0) if path else weights
        self.counts_ = np.array(counts)
        self.n_iter_ = len(path)
        coef, intercept = centering.coefficients(self.weights_)
        self.coef_, self.intercept_ = coef[None, :], np.atleast_1d(intercept)
        self._pay_score(schedule, target)
        return schedule

    def _make_centering(self, layout: FeatureMap) -> Centering:
        return Centering(layout, None if self.radius is None else float(self.radius))

    @property
    def _n_parameters(self) -> int:
        return int(self.weights_.shape[-1]) * (len(self.classes_) - 1)

    def _count_query(self, target: str, *, by_class: bool = False) -> PredictionCounts:
        centering = self._make_centering(self.layout_)
        return centering.count_query(target, self._levels, self.weights_[None, :], by_class=by_class)

    def decision_function(self, X: Any) -> Floats:
        """Return the score of the second class for each row; rows are clipped as those of the training."""
        rows = self._coordinates(X, "decision_function")
        return np.asarray(self._make_centering(self.layout_).rows(rows) @ self.weights_)

    def predict(self, X: Any) -> AnyArray:
        """Return the class of each row."""
        positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[positive.astype(np.intp)])


def _mean_update(answer: Answer) -> Floats | None:
    """Return the noisy mean of label times row over misclassified rows; None if they are too few.

    Reference
    ---------
    The tested count is the one of this round, and it is tested before the sum is used:
    docs/explanation/theorems/sulq-2.md
    """
    value, sd = np.asarray(answer.value), np.asarray(answer.sd)
    count = float(value[0])
    # A count near its noise is no divisor: the mean could be arbitrarily long.
    if count <= LEAST_COUNT * float(sd[0]) or count <= 0:
        return None
    return np.asarray(value[1:] / count)


def most_rounds(length: float, margin: float) -> float:
    """Return the number of constant steps after which rows that some plane separates are separated.

    Parameters
    ----------
    length : float
        Length of the longest row, above 0.
    margin : float
        Least distance of a row from a plane through the origin that separates the classes, above 0.

    Notes
    -----
    ``32 (length / margin)^2``.

    Reference
    ---------
    Theorem 2 of the paper, with both squares: docs/explanation/theorems/sulq-2.md.

    Examples
    --------
    >>> most_rounds(1.0, 0.1) == most_rounds(1000.0, 100.0)
    True
    """
    if not (length > 0 and margin > 0):
        raise ParameterError(f"length and margin of most_rounds must be above 0, were {length}, {margin}.")
    return 32 * (length / margin) ** 2
