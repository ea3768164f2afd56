"""The large-margin Gaussian classifier, as scikit-learn's users know classifiers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy import special

from discreet.errors import ParameterError
from discreet.learn._kmeans import PrivateKMeans
from discreet.learn.arguments import Constraint, is_number
from discreet.learn.large_margin._problem import (
    MarginProblem,
    Squares,
    common_shift,
    ellipse_of,
    gaussians_in,
    to_coordinates,
)
from discreet.learn.large_margin._training import Cone, LargeMarginConstants, make_large_margin_plan
from discreet.learn.perturbation.base import PerturbedClassifier, choice
from discreet.learn.perturbation.embedding import Embedding
from discreet.privacy import ApproxDP, NoPromise, PureDP, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import Floats, Ints
    from discreet.learn.large_margin._problem import Ellipse
    from discreet.learn.perturbation.defaults import Mechanism
    from discreet.learn.perturbation.mechanisms import TrainingPlan
    from discreet.ledger import Ledger
    from discreet.privacy import Promise


class LargeMarginGaussianClassifier(PerturbedClassifier):
    """Classes as ellipsoids, each row nearer to its own than to any other by a margin.

    Every class has a center, an inverse covariance and an offset; a row belongs to the class with the
    smallest ``(x - center)' P (x - center) + offset``. All three stand in one symmetric matrix per class, and
    training is convex in these: the sum, over rows and wrong classes, of the Huberized hinge of
    ``1 + f(own) - f(wrong)``, plus ``regularization / 2`` times the squared norm of all matrices. Margins are
    soft: a row that is not that far from a wrong class costs what is missing.

    Parameters
    ----------
    privacy : PureDP, ApproxDP or NoPromise
        Promise of the trained model. Pure promises are kept by noise with density ``exp(-c |x|)``,
        approximate ones by Gaussian noise, or, for few weights, by a pure one of the same epsilon where that
        takes less noise.
    bounds : (lower, upper), optional
        Declared range of each column: a pair of numbers, two vectors, or ``schema.bounds``. Rows are
        clipped to it and mapped to [-1, 1].
    norm_bound : float, optional
        Declared largest norm of a row, after ``bounds`` were mapped; longer rows are shortened. By default
        the root of the number of columns; needed where no bounds are given.
    classes : sequence of labels
        Declared list. A class that no row has stays in it. Only :class:`NoPromise` takes it from ``y``.
    regularization : float, optional
        Above 0, beside a sum over rows: it grows with the table. By default it follows from the number of
        rows, columns and classes and from the promise, see
        :func:`~discreet.learn.large_margin._training.default_regularization`. Where it is too small for
        objective perturbation at this epsilon it is raised.
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.
    mechanism : {"objective", "output"}
        Noise on the objective that is trained (and a little on the matrices, to hide the solver's error), or
        on the trained matrices.
    psd : {"shift", "constrained"}
        Way to positive definite matrices: by one multiple of the identity added to all of them, which
        changes no decision, or by training among positive semidefinite ones alone, as the paper has it.
    trace_weight : float
        Weight of the trace of the inverse covariances. Without the constraint it changes no decision.
    components : int
        Number of ellipsoids per class. The distance of a class is the soft minimum over them.
    centroids : array of shape (components, n_features) or (n_classes, components, n_features), optional
        Public points, in the columns' units: a row counts for the component of its class whose point is
        nearest. By default, with several components, :class:`PrivateKMeans` finds them for all classes
        together.
    centroid_share : float
        Part of the promise that is spent on that.
    intercept_scale : float
        The constant coordinate that is appended to rows, between 0 and 1.
    tolerance : float, optional
        Norm of the gradient at which the solver stops; what it leaves is part of the sensitivity. By
        default a small part of what one row can do. One that is not certain to be
        reached for every table of its shape is refused, before a cell is looked at.
    paid_score : bool
        Whether a tenth of epsilon pays for the accuracy of the model on its rows, which may then be
        published: half of it counts the rows that are right, half the rows of each class. It is left out
        where there are too few rows for it, which is known before anything is charged.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one. It is marked on the receipt.

    Attributes
    ----------
    centroids_ : array of shape (n_classes, n_features) or (n_classes, components, n_features)
        Center of each ellipsoid, in the columns' own units.
    inverse_covariances_ : array of shape (n_classes, n_features, n_features) or with components
        Shape of each ellipsoid. Together with the others it draws the decision surfaces; it is not an
        estimate of how the rows of a class are spread.
    offsets_ : array of shape (n_classes,) or (n_classes, components)
        Constant that is added to the distance, at least 0.
    matrices_ : array of shape (n_classes, components, dimension, dimension)
        Released matrices, positive definite, of embedded rows; the other three are computed from them.
    embedding_ : Embedding
        The public map of rows.
    score_ : ModelScore or None
        Paid accuracy with its interval and verdict; None where it was not asked.
    classes_ : array
        The declared classes, sorted.
    regularization_ : float
        Regularization that was used; objective perturbation may raise it.
    mechanism_ : str
        "objective", "output" or "exact".
    starting_centroids_ : array or None
        Points by which each row is assigned to a component; None with one component.
    promises_ : tuple of Promise
        Promises that hold for every unit whose row was trained on.
    receipt_ : Receipt
        Receipt of the charge for the training.
    receipts_ : tuple of Receipt
        Receipts of all charges, those for starting centroids first.

    Privacy
    -------
    Replace-one, for a whole row with its label; the number of rows, bounds and classes are public. Noise is
    different for each class and acts on the differences between classes, which is all that decisions depend
    on. The noise and all sums that it is added to are on a lattice, and the solver's error is in the
    sensitivity, so that the promise is about what the program computes. Objective perturbation is a point
    (epsilon, delta); under a pure promise its delta is a small multiple of ``exp(epsilon)`` times 2**-64, and
    it cannot be had above an epsilon of 30. Regularization, smoothing, bounds and every other parameter
    must not have been chosen by looking at the rows, and how long the training takes must not be shown to
    others. Whether the solver reaches its tolerance does not depend on the rows: one that it might miss is
    refused. No accuracy is promised. This is not the printed algorithm, which is not private and usually has
    no minimizer.

    Reference
    ---------
    Pathak and Raj, *Large Margin Multiclass Gaussian Classification with Differential Privacy*, corrected in
    docs/explanation/theorems/large-margin-private.md, large-margin-sensitivity.md, large-margin-loss.md,
    large-margin-noise.md, large-margin-cone.md, large-margin-risk.md.

    Notes
    -----
    There is no ``predict_proba``: distances minus distances are not probabilities, and the noise in them is
    not either.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import ApproxDP
    >>> from discreet.learn import LargeMarginGaussianClassifier
    >>> t = np.arange(6000.0)
    >>> X = np.column_stack([np.sin(t), np.cos(3 * t)])
    >>> y = np.where(np.hypot(X[:, 0], X[:, 1]) < 0.9, "in", "out")
    >>> model = LargeMarginGaussianClassifier(
    ...     privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=(-1, 1), classes=["in", "out"], random_state=1
    ... ).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), model.centroids_.shape, model.receipt_.seeded
    (True, (2, 2), True)
    """

    name: ClassVar[str] = "large-margin-gaussian"
    theorems: ClassVar[tuple[str, ...]] = (
        "large-margin-private",
        "large-margin-sensitivity",
        "large-margin-loss",
        "large-margin-noise",
        "large-margin-cone",
        "large-margin-risk",
    )
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **PerturbedClassifier.common_constraints,
        "smoothing": Constraint(
            "a number from 0.001 to 1000",
            lambda v: is_number(v) and 1e-3 <= v <= 1e3,
            (0, -1.0, 1e-4, 1e4, "1", True),
        ),
        "mechanism": choice("objective", "output"),
        "psd": choice("shift", "constrained"),
        "trace_weight": Constraint(
            "a number of at least 0", lambda v: is_number(v) and v >= 0, (-1.0, "1", True, None)
        ),
        "components": Constraint(
            "a whole number from 1 to 100",
            lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and bool(1 <= v <= 100),
            (0, 101, 2.5, "2", True, None),
        ),
        "centroid_share": Constraint(
            "a number above 0 and below 1", lambda v: is_number(v) and 0 < v < 1, (0, 1, -0.5, "1", True)
        ),
        "intercept_scale": Constraint(
            "a number above 0 and below 1",
            lambda v: is_number(v) and 0 < v < 1,
            (0, 1, -0.5, "1", True),
        ),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *PerturbedClassifier.common_saved, "matrices_", "centroids_", "inverse_covariances_", "offsets_",
        "starting_centroids_", "receipts_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **PerturbedClassifier._decoders,
        "receipts_": lambda receipts: tuple(map(Receipt.from_dict, receipts)),
    }

    def __init__(
        self,
        *,
        privacy: PureDP | ApproxDP | NoPromise,
        bounds: Any = None,
        norm_bound: float | None = None,
        classes: Any = None,
        regularization: float | None = None,
        smoothing: float = 1.0,
        mechanism: Mechanism = "objective",
        psd: Cone = "shift",
        trace_weight: float = 0.0,
        components: int = 1,
        centroids: Any = None,
        centroid_share: float = 0.1,
        intercept_scale: float = 0.5,
        tolerance: float | None = None,
        paid_score: bool = False,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.privacy = privacy
        self.bounds = bounds
        self.norm_bound = norm_bound
        self.classes = classes
        self.regularization = regularization
        self.smoothing = smoothing
        self.mechanism = mechanism
        self.psd = psd
        self.trace_weight = trace_weight
        self.components = components
        self.centroids = centroids
        self.centroid_share = centroid_share
        self.intercept_scale = intercept_scale
        self.tolerance = tolerance
        self.paid_score = paid_score
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows ``X`` with labels ``y``, charge the ledger, and release the matrices."""
        self._check_parameters()
        X, codes, classes, (embedding, centroids, constants, plan) = self._read(X, y, self._plan_training)
        needs_centroids = self._needs_centroids(centroids)
        receipts: list[Receipt] = []
        promises = plan.promises
        if needs_centroids:
            privacy = self._training_privacy(len(X), len(classes))
            clusters = self._fit_centroids(X, privacy)
            centroids = np.broadcast_to(
                clusters.cluster_centers_, (len(classes), *clusters.cluster_centers_.shape)
            )
            receipts += clusters.receipts_
            promises = (_compose_promises(privacy, self.centroid_share, clusters.promises_[0], promises[0]),)
        rows = embedding.rows(X)
        problem = MarginProblem(
            rows,
            codes,
            n_classes=len(classes),
            regularization=plan.regularization,
            smoothing=constants.smoothing,
            components=constants.components,
            # By the row itself and centroids that are public or paid for: a row changes its own loss alone.
            proxies=None if centroids is None else _nearest_centroid(rows, embedding, centroids, codes),
            trace=float(self.trace_weight),
        )

        released, self.receipt_, stream = self._train(plan, problem, "large-margin Gaussian classifier")
        self._set_matrices(problem.matrices(released), embedding, len(classes))
        self.classes_ = classes
        self.embedding_ = embedding
        self.regularization_ = plan.regularization
        self.mechanism_ = plan.name
        self.starting_centroids_ = None if centroids is None else np.array(centroids)
        self.promises_ = self._with_score(promises, len(X), len(classes))
        self.receipts_ = (*receipts, self.receipt_)
        self._count_score(X, codes, stream)
        return self

    def _plan_training(
        self, n_rows: int, n_features: int, n_classes: int
    ) -> tuple[Embedding, Floats | None, LargeMarginConstants, TrainingPlan]:
        """Return the public map, given centroids, public constants and the plan for a table of this shape."""
        embedding = Embedding.declare(
            n_features,
            bounds=self.bounds,
            norm_bound=self.norm_bound,
            constant=float(self.intercept_scale),
            owner=type(self).__name__,
        )
        centroids = self._given_centroids(n_classes, n_features)
        constants = self._constants(n_rows, n_classes, embedding)
        privacy = self._training_privacy(n_rows, n_classes)
        if self._needs_centroids(centroids):
            privacy = _scale_promise(privacy, 1 - self.centroid_share)
        plan = self.plan(constants, privacy)
        return embedding, centroids, constants, plan

    @property
    def _n_parameters(self) -> int:
        # Of a whole matrix for each class the penalty leaves few free: as measured, about three for a column.
        return 3 * super()._n_parameters

    def _needs_centroids(self, centroids: Floats | None) -> bool:
        """Whether starting centroids have to be found, and paid for."""
        return self.components > 1 and centroids is None

    def _constants(self, n_rows: int, n_classes: int, embedding: Embedding) -> LargeMarginConstants:
        """Return the public constants of a table of this shape."""
        return LargeMarginConstants(
            n_rows=n_rows,
            n_classes=n_classes,
            dimension=embedding.dimension,
            smoothing=float(self.smoothing),
            components=int(self.components),
            constrained=self.psd == "constrained",
            trace=float(self.trace_weight),
            tolerance=None if self.tolerance is None else float(self.tolerance),
        )

    def recompute_promises(self, n_rows: int) -> tuple[Promise, ...] | None:
        """Return the promises of a fitted model anew; None where a part of them paid for centroids."""
        if self.components > 1 and self.centroids is None:
            return None
        n_classes = len(self.classes_)
        plan = self.plan(self._constants(n_rows, n_classes, self.embedding_))
        return self._with_score(plan.promises, n_rows, n_classes)

    def plan(
        self, constants: LargeMarginConstants, privacy: PureDP | ApproxDP | NoPromise | None = None
    ) -> TrainingPlan:
        """Return the mechanism that a table with these public constants will be trained by."""
        whole = self._training_privacy(constants.n_rows, constants.n_classes)
        return make_large_margin_plan(
            constants,
            whole if privacy is None else privacy,
            regularization=None if self.regularization is None else float(self.regularization),
            mechanism=self.mechanism,
            owner=type(self).__name__,
        )

    def _set_matrices(self, released: Floats, embedding: Embedding, n_classes: int) -> None:
        """Set the shifted matrices, and centers, inverse covariances and offsets read from them."""
        p = embedding.dimension
        # Centers are read from positive definite matrices; one shift for all changes no decision.
        matrices = common_shift(released.reshape(n_classes, int(self.components), p, p))
        gaussians = gaussians_in(matrices, embedding)
        one = slice(None) if self.components > 1 else 0
        self.matrices_ = matrices
        self.centroids_ = gaussians.centers[:, one]
        self.inverse_covariances_ = gaussians.inverse_covariances[:, one]
        self.offsets_ = gaussians.offsets[:, one]

    def decision_function(self, X: Any) -> Floats:
        """Return how much nearer a row is to the second of two classes, or minus the distance to each class.

        Rows outside the declared bounds or norm are clipped as those of the training were. Scores are
        differences of distances, in margins; they are no probabilities.
        """
        rows = self._embed_rows(X, "decision_function")
        n_classes, components, p, _ = self.matrices_.shape
        coordinates = to_coordinates(self.matrices_.reshape(-1, p, p)).T
        far = np.empty((len(rows), n_classes))
        # In blocks: the squares of all rows may exceed memory.
        for block, squares in Squares(rows, keep=False):
            apart = (squares @ coordinates).reshape(-1, n_classes, components)
            # The soft minimum over the components of a class, as in the loss.
            far[block] = apart[:, :, 0] if components == 1 else -special.logsumexp(-apart, axis=2)
        return far[:, 0] - far[:, 1] if n_classes == 2 else -far

    def ellipses(self, level: float = 1.0) -> tuple[Ellipse, ...]:
        """Return, for two features, the ellipse around each center on which its distance grew by ``level``.

        How large they are depends on the shift that made the matrices positive definite; where they cut each
        other does not show the decision boundary. The boundary is where two classes are equally near.
        """
        if self.embedding_.n_features != 2:
            raise ParameterError(
                f"X of {type(self).__name__}.fit must have had 2 columns for ellipses, had "
                f"{self.embedding_.n_features}. Train on two columns, or look at centroids_ and "
                "inverse_covariances_."
            )
        gaussians = gaussians_in(self.matrices_, self.embedding_)
        return tuple(
            ellipse_of(label, center, shape, level)
            for label, centers, shapes in zip(
                self.classes_.tolist(), gaussians.centers, gaussians.inverse_covariances, strict=True
            )
            for center, shape in zip(centers, shapes, strict=True)
        )

    def _given_centroids(self, n_classes: int, n_features: int) -> Floats | None:
        """Return the given centroids, one set for each class; None if none were given."""
        if self.centroids is None:
            return None
        shape = (int(self.components), n_features)
        try:
            points = np.asarray(self.centroids, np.float64)
        except (TypeError, ValueError):
            points = np.empty(0)
        if points.shape not in (shape, (n_classes, *shape)) or not np.isfinite(points).all():
            raise ParameterError(
                f"centroids of {type(self).__name__} must be None or finite numbers of shape {shape} or "
                f"{(n_classes, *shape)}, and were not. Centroids are public: do not take them from the rows."
            )
        return np.broadcast_to(points, (n_classes, *shape))

    def _fit_centroids(self, X: Floats, privacy: PureDP | ApproxDP | NoPromise) -> PrivateKMeans:
        """Return clusters of all classes together, fitted with their own part of the promise."""
        bounds = self.bounds
        if bounds is None:
            assert self.norm_bound is not None
            bounds = (-float(self.norm_bound), float(self.norm_bound))
        return PrivateKMeans(
            n_clusters=int(self.components),
            privacy=_scale_promise(privacy, self.centroid_share),
            bounds=bounds,
            ledger=self.ledger,
            # Another seed than that of the training: noise that is used twice cancels.
            random_state=None if self.random_state is None else int(self.random_state) + 1,
        ).fit(X)

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "receipts_":
            return [receipt.to_dict() for receipt in value]
        if name == "centroids" and value is not None:
            return np.asarray(value, np.float64).tolist()
        return super()._pack(name, value, arrays)


def _scale_promise(privacy: PureDP | ApproxDP | NoPromise, share: float) -> PureDP | ApproxDP | NoPromise:
    """Return a promise with epsilon and delta multiplied by a share."""
    if isinstance(privacy, NoPromise):
        return privacy
    if isinstance(privacy, PureDP):
        return replace(privacy, epsilon=share * privacy.epsilon)
    return replace(privacy, epsilon=share * privacy.epsilon, delta=share * privacy.delta)


def _compose_promises(
    privacy: PureDP | ApproxDP | NoPromise, share: float, first: Promise, second: Promise
) -> Promise:
    """Return the promise of starting centroids and training together.

    Notes
    -----
    Epsilons of the two parts add up to that of ``privacy``; the delta is the sum of each part's delta at its
    share of epsilon.
    """
    if isinstance(privacy, NoPromise):
        return privacy
    # Basic composition at the split that was planned; rounded up below, as every promise is.
    delta = first.delta_at(share * privacy.epsilon) + second.delta_at((1 - share) * privacy.epsilon)
    return ApproxDP(
        epsilon=privacy.epsilon * (1 + 2.0**-50),
        delta=delta * (1 + 2.0**-50),
        unit=second.unit,
        neighbors=second.neighbors,
        assumes=second.assumes,
    )


def _nearest_centroid(rows: Floats, embedding: Embedding, centroids: Floats, codes: Ints) -> Ints:
    """Return the position of the nearest centroid of its class for each embedded row."""
    n_classes, components, d = centroids.shape
    # Distances are those of embedded rows, which the loss is of.
    points = embedding.rows(centroids.reshape(-1, d)).reshape(n_classes, components, -1)
    gaussians = np.empty(len(rows), np.intp)
    for code in range(n_classes):
        own = np.flatnonzero(codes == code)
        apart = ((rows[own, np.newaxis, :] - points[code]) ** 2).sum(axis=2)
        gaussians[own] = apart.argmin(axis=1)
    return gaussians
