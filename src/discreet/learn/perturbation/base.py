"""Base class of classifiers with a promise to each row."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from discreet.errors import PromiseError
from discreet.learn.arguments import (
    POSITIVE,
    Constraint,
    check_finite,
    declared_classes,
    is_number,
    label_codes,
)
from discreet.learn.base import Learner
from discreet.learn.paid_score import (
    COUNTED_SCORE,
    SCORE_SHARE,
    VOTE_SHARE,
    ModelScore,
    ScoreCounts,
    is_worth_asking,
)
from discreet.learn.perturbation.embedding import Embedding
from discreet.learn.perturbation.noise import inherited_fields
from discreet.noise import Stream, discrete_laplace, samplers
from discreet.privacy import ApproxDP, NoPromise, PureDP, Receipt, promise_from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.learn.perturbation.mechanisms import PerturbedProblem, TrainingPlan
    from discreet.ledger import Ledger
    from discreet.privacy import Promise


PlanT = TypeVar("PlanT")
_PART = 1 - 2.0**-40
POSITIVE_OR_NONE = Constraint(
    "None or " + POSITIVE.words, lambda v: v is None or POSITIVE.contains(v), POSITIVE.outside
)


def choice(*words: str) -> Constraint:
    """Return the constraint of a parameter that is one of a few words."""
    return Constraint(
        "one of " + ", ".join(map(repr, words)),
        lambda v: isinstance(v, str) and v in words,
        ("other", None, 1),
    )


@dataclass(frozen=True)
class ScoreNoise:
    """Laplace noise on the number of right rows and on the number of rows of each class.

    Attributes
    ----------
    right, classes : float
        Scale of the noise on each; 0 without a promise.
    promises : tuple of Promise
        Promise of both counts together; none without a promise.

    Privacy
    -------
    A row is right or not, which moves the first count by at most 1; replaced, it leaves one class for another
    and moves those counts by 2. The scales are these over their parts of epsilon, rounded up.

    Reference
    ---------
    docs/explanation/theorems/classifier.md.
    """

    right: float
    classes: float
    promises: tuple[Promise, ...]

    @classmethod
    def from_privacy(cls, privacy: PureDP | ApproxDP | NoPromise, n_classes: int) -> ScoreNoise:
        """Return the noise for the score's part of a promise."""
        if isinstance(privacy, NoPromise):
            return cls(0.0, 0.0, ())
        # A little less than the shares, which pays for the rounding of the parts of epsilon.
        right, votes = (share * privacy.epsilon * _PART for share in (SCORE_SHARE, VOTE_SHARE))
        promise = PureDP(
            epsilon=math.nextafter(right + votes, math.inf),
            total_variation=(1 + n_classes) * samplers.LAPLACE_TOTAL_VARIATION,
            **inherited_fields(privacy),
        )
        return cls(math.nextafter(1 / right, math.inf), math.nextafter(2 / votes, math.inf), (promise,))

    def rest_of(self, privacy: PureDP | ApproxDP | NoPromise) -> PureDP | ApproxDP | NoPromise:
        """Return what is left of a promise: basic composition adds epsilons and deltas up."""
        if isinstance(privacy, NoPromise):
            return privacy
        epsilon = privacy.epsilon * (1 - SCORE_SHARE - VOTE_SHARE)
        if isinstance(privacy, PureDP):
            return replace(privacy, epsilon=epsilon)
        # The rest of delta covers what the samplers of the counts may err, 2**-114 each.
        return replace(privacy, epsilon=epsilon, delta=privacy.delta * _PART)

    @property
    def right_sd(self) -> float:
        """Standard deviation of the noise on the number of right rows."""
        return math.sqrt(2) * self.right

    def score(self, right: float, classes: Any, n_rows: int, n_parameters: int) -> ModelScore:
        """Return the score of noisy counts of a model with so many parameters."""
        return ModelScore.from_counts(
            ScoreCounts(right, self.right_sd, "laplace"),
            ScoreCounts(classes, math.sqrt(2) * self.classes, "laplace"),
            n_rows,
            n_parameters,
        )

    def count(self, right: int, classes: Ints, n_parameters: int, stream: Stream) -> ModelScore:
        """Return the score of exact counts, to which noise is added here."""
        n_rows = int(classes.sum())
        if self.right:
            right += int(discrete_laplace(self.right, 1, stream)[0])
            classes = classes + discrete_laplace(self.classes, len(classes), stream)
        return self.score(right, classes, n_rows, n_parameters)


class PerturbedClassifier(ClassifierMixin, Learner):
    """A classifier of rows in a declared region with declared labels, under replace-one."""

    common_constraints: ClassVar[Mapping[str, Constraint]] = {
        "privacy": Constraint(
            "a PureDP, an ApproxDP or a NoPromise",
            lambda v: isinstance(v, PureDP | ApproxDP | NoPromise),
            (None, 1.0, "pure"),
        ),
        "norm_bound": Constraint(
            "None or a number from 1e-30 to 1e100",
            lambda v: v is None or (is_number(v) and 1e-30 <= v <= 1e100),
            (0, -1.0, math.inf, 1e-40, 1e101, "1", True),
        ),
        "regularization": POSITIVE_OR_NONE,
        "tolerance": POSITIVE_OR_NONE,
        "paid_score": COUNTED_SCORE,
        "random_state": Constraint(
            "None or a whole number",
            lambda v: v is None or (isinstance(v, int | np.integer) and not isinstance(v, bool)),
            (1.5, "1", True),
        ),
    }
    common_saved: ClassVar[tuple[str, ...]] = (
        "classes_", "embedding_", "regularization_", "mechanism_", "promises_", "receipt_", "score_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "privacy": promise_from_dict,
        "bounds": lambda sides: None if sides is None else tuple(sides),
        "embedding_": Embedding.from_dict,
        "promises_": lambda promises: tuple(map(promise_from_dict, promises)),
        "receipt_": Receipt.from_dict,
        "score_": lambda score: None if score is None else ModelScore.from_dict(score),
    }

    privacy: PureDP | ApproxDP | NoPromise
    bounds: Any
    norm_bound: float | None
    classes: Any
    paid_score: bool
    embedding_: Embedding
    score_: ModelScore | None
    ledger: Ledger | None
    random_state: int | None

    def _read(
        self, X: Any, y: Any, plan: Callable[[int, int, int], PlanT]
    ) -> tuple[Floats, Ints, AnyArray, PlanT]:
        """Return rows, the position of each label in the list of classes, that list, and the plan.

        ``plan`` is given the numbers of rows, columns and classes. It refuses what it refuses before cells
        are looked at.
        """
        name = type(self).__name__
        if self.privacy.neighbors != "replace-one":
            raise PromiseError(
                f"neighbors of the privacy of {name} must be 'replace-one', was "
                f"{self.privacy.neighbors!r}: the number of rows enters the noise. Ask for replace-one."
            )
        promises = not isinstance(self.privacy, NoPromise)
        labels = np.asarray(y)
        # Before validate_data, which refuses NaN in y with scikit-learn's own error.
        if labels.dtype.kind == "f" and labels.ndim == 1:
            check_finite(labels, f"y of {name}.fit")
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        classes = declared_classes(self.classes, y, owner=name, promises=promises)
        # Before the cells are checked: a refusal by the plan must not depend on them.
        planned = plan(len(X), X.shape[1], len(classes))
        check_finite(X, f"X of {name}.fit", getattr(self, "feature_names_in_", None))
        check_classification_targets(y)
        return X, label_codes(y, classes, owner=name), classes, planned

    def _embed_rows(self, X: Any, where: str) -> Floats:
        """Return rows to be judged by a fitted model, mapped to the unit ball."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False)
        check_finite(X, f"X of {type(self).__name__}.{where}", getattr(self, "feature_names_in_", None))
        rows: Floats = self.embedding_.rows(X)
        return rows

    @abstractmethod
    def recompute_promises(self, n_rows: int) -> tuple[Promise, ...] | None:
        """Return the promises of a fitted model, computed anew from the number of rows and its parameters.

        Returns
        -------
        tuple of Promise or None
            None where a part of the promise was spent in another way, which the plan does not have.
        """

    @property
    def _n_parameters(self) -> int:
        """Number of independent parameters of the fitted model, which the interval of its score needs."""
        return self.embedding_.dimension * (len(self.classes_) - 1)

    @abstractmethod
    def decision_function(self, X: Any) -> Floats:
        """Return the score of the second of two classes, or of each of more classes, for each row."""

    def predict(self, X: Any) -> AnyArray:
        """Return the class with the largest score for each row, the first of equal ones."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _score_noise(self, n_rows: int, n_classes: int) -> ScoreNoise | None:
        """Return the noise of the paid score on a table of this shape, by public facts; None for none."""
        if not self.paid_score:
            return None
        noise = ScoreNoise.from_privacy(self.privacy, n_classes)
        return noise if is_worth_asking(noise.right_sd, n_rows, "laplace") else None

    def _training_privacy(self, n_rows: int, n_classes: int) -> PureDP | ApproxDP | NoPromise:
        """Return what the paid score leaves of the promise for the training."""
        score = self._score_noise(n_rows, n_classes)
        return self.privacy if score is None else score.rest_of(self.privacy)

    def _with_score(self, promises: Iterable[Promise], n_rows: int, n_classes: int) -> tuple[Promise, ...]:
        """Return the promises of a training and of the paid score after it, which add up."""
        score = self._score_noise(n_rows, n_classes)
        return tuple(promises) if score is None else (*promises, *score.promises)

    def _train(
        self, plan: TrainingPlan, problem: PerturbedProblem, what: str
    ) -> tuple[Floats, Receipt, Stream]:
        """Return the released vector, the receipt for it and the paid score, and what draws further noise."""
        if plan.name != "exact":
            what += f" by {plan.name} perturbation"
        charged: list[tuple[Receipt, Stream]] = []
        # The score is charged with the training, so that no model is paid for without it.
        promises = self._with_score(plan.promises, plan.constants.n_rows, plan.constants.n_classes)

        def charge() -> Stream:
            charged.append((self._charge(promises, what), self._stream()))
            return charged[0][1]

        released = plan.train(problem, charge)
        ((receipt, stream),) = charged
        return released, receipt, stream

    def _count_score(self, X: Floats, codes: Ints, stream: Stream) -> None:
        """Set the score: the rows that the finished model gets right, counted with noise that is paid for."""
        noise = self._score_noise(len(X), len(self.classes_))
        self.score_ = None
        if noise is not None:
            right = int(np.count_nonzero(self.predict(X) == self.classes_[codes]))
            counts = np.bincount(codes, minlength=len(self.classes_))
            self.score_ = noise.count(right, counts, self._n_parameters, stream)

    def _charge(self, promises: Iterable[Promise], what: str) -> Receipt:
        seeded = self.random_state is not None
        promises = tuple(promises)
        if self.ledger is None:
            return Receipt.from_promises(promises, what=what, seeded=seeded)
        return self.ledger.charge(promises, what=what, seeded=seeded)

    def _stream(self) -> Stream:
        return Stream() if self.random_state is None else Stream.from_seed(int(self.random_state))

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "ledger":
            return None  # A saved model is paid for: the ledger stays where it is.
        if name == "promises_":
            return [promise.to_dict() for promise in value]
        if name in ("bounds", "classes") and isinstance(value, list | tuple):
            return [np.asarray(part).tolist() for part in value]
        return super()._pack(name, value, arrays)
