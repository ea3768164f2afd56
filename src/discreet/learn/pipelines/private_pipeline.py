"""Pipelines that are checked before a row is read, and show the promises of their steps added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from discreet.errors import PromiseError
from discreet.learn.pipelines.enclosing import NOISELESS, PAGE, REPEATING, describe_refusal
from discreet.learn.pipelines.steps import find_reader, is_ours, keeps_promise, names_in_sklearn, parts_of
from discreet.privacy import Spending

if TYPE_CHECKING:
    from discreet.privacy import Promise, Receipt

_LEAST_DELTA = 1e-12
"""Delta at which different kinds of noise are read together where every step was asked for a pure promise."""

_COMPOSITES = frozenset({"Pipeline", "ColumnTransformer", "FeatureUnion"})


class PrivatePipeline(Pipeline):
    """A scikit-learn pipeline whose steps keep promises or read no rows; made by :func:`private_pipeline`.

    Attributes
    ----------
    promises_ : tuple of Promise
        Promise of all fitted steps together: what they publish may be published together for it.
    receipts_ : tuple of Receipt
        Receipts of the charges of all steps, in order.

    Privacy
    -------
    Every step that reads rows has a promise of its own, and that of the pipeline is their sum: what the first
    step learned is used by the second, and a person's row is read by both.

    Reference
    ---------
    docs/explanation/theorems/composition.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import GaussianDP
    >>> from discreet.learn import PrivateNaiveBayes, PublicScaler, private_pipeline
    >>> X = np.sin(np.arange(4000.0)).reshape(-1, 1)
    >>> pipeline = private_pipeline(
    ...     PublicScaler(bounds=(-1, 1)),
    ...     PrivateNaiveBayes(privacy=GaussianDP(0.4), bounds=(-1, 1), classes=[0, 1], random_state=1),
    ... )
    >>> pipeline.fit(X, X[:, 0] > 0).promises_[0].mu
    0.4
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Check the steps, then fit them one after the other; nothing is charged if one is refused."""
        check_pipeline(self)
        _check_addable(self)
        fitted: Self = super().fit(X, y, **params)
        return fitted

    @property
    def receipts_(self) -> tuple[Receipt, ...]:
        """Receipts of the charges of all steps, in order."""
        return tuple(
            receipt
            for learner in _find_learners(self)
            for receipt in getattr(learner, "receipts_", None) or (learner.receipt_,)
        )

    @property
    def promises_(self) -> tuple[Promise, ...]:
        """Promise of all steps together; of different kinds it is read at the sum of the deltas asked for."""
        learners = _find_learners(self)
        check_is_fitted(self)
        total = Spending()
        for learner in learners:
            total += Spending.from_promises(learner.promises_)
        try:
            return (total.promise(),)
        except PromiseError:
            # Kinds of noise differ: they are one promise only at a delta, of which those asked for add up.
            delta = sum(getattr(learner.privacy, "delta", 0.0) for learner in learners)
            return (total.promise(delta or _LEAST_DELTA),)


def private_pipeline(*steps: Any) -> PrivatePipeline:
    """Return a scikit-learn pipeline of steps that keep promises or read no rows.

    Parameters
    ----------
    *steps : estimator or (str, estimator)
        The steps in order, with their names or without: transformers that pass :func:`check_pipeline`, and
        learners of discreet.

    Privacy
    -------
    The pipeline is checked here and again in ``fit``, by the classes and parameters of its steps alone. Once
    it is fitted, ``promises_`` is the promise of all steps together and ``receipts_`` has their charges.

    Raises
    ------
    PromiseError
        If a step learns from the rows without a promise.

    Reference
    ---------
    docs/howto/preprocess.md, docs/explanation/theorems/composition.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import GaussianDP
    >>> from discreet.learn import PrivateNaiveBayes, PrivateScaler, private_pipeline
    >>> X = np.sin(np.arange(4000.0)).reshape(-1, 1)
    >>> pipeline = private_pipeline(
    ...     PrivateScaler(privacy=GaussianDP(mu=0.3), bounds=(-50, 50), random_state=1),
    ...     PrivateNaiveBayes(privacy=GaussianDP(mu=0.4), bounds=(-1, 1), classes=[0, 1], random_state=1),
    ... ).fit(X, X[:, 0] > 0)
    >>> round(pipeline.promises_[0].mu, 6), len(pipeline.receipts_)
    (0.5, 2)
    """
    named = [
        step if isinstance(step, tuple) else unnamed
        for step, unnamed in zip(
            steps, make_pipeline(*(s[1] if isinstance(s, tuple) else s for s in steps)).steps, strict=True
        )
    ]
    pipeline = PrivatePipeline(named)
    check_pipeline(pipeline)
    _check_addable(pipeline)
    return pipeline


def check_pipeline(pipeline: Any) -> None:
    """Refuse a pipeline, search or other wrapper around learners whose promise would not hold.

    ``fit`` of a learner makes the same check of the steps before it by itself, and warns of wrappers. This
    checks everything at once, before a row is read, and refuses whatever it finds.

    Parameters
    ----------
    pipeline : estimator
        A pipeline, or another estimator of scikit-learn that holds learners of discreet. Without a learner
        that makes a promise there is nothing to check.

    Raises
    ------
    PromiseError
        If a step learns from the rows without a promise, if a wrapper computes from them itself, or if one
        fits more than once without a ledger.

    Privacy
    -------
    Classes, parameters and fitted attributes are read, never rows. Rows that were scaled by hand before
    cannot be told from others.

    Reference
    ---------
    docs/howto/preprocess.md.

    Examples
    --------
    >>> from discreet import PureDP
    >>> from discreet.learn import PrivateNaiveBayes
    >>> from sklearn.preprocessing import StandardScaler
    >>> model = PrivateNaiveBayes(privacy=PureDP(epsilon=1.0), bounds=(-1, 1), classes=[0, 1])
    >>> check_pipeline(make_pipeline(StandardScaler(), model))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    discreet.errors.PromiseError: steps of Pipeline before PrivateNaiveBayes must not learn from the rows ...
    """
    learners = [learner for learner in _find_learners(pipeline) if keeps_promise(learner)]
    if learners:
        _check_part("estimator", pipeline, type(pipeline).__name__, type(learners[-1]).__name__)


def _check_part(name: str, part: Any, container: str, learner: str) -> None:
    """Refuse an estimator that learns from rows without a promise, or holds one that does."""
    kinds = names_in_sklearn(part)
    inner = parts_of(part)
    if "Pipeline" in kinds:
        *before, last = [step for _, step in part.steps]
        names = [step_name for step_name, _ in part.steps]
        for step_name, step in zip(names, before, strict=False):
            _refuse_reader(step_name, step, part, learner)
        inner = [(names[-1], last)]
    elif kinds & _COMPOSITES or is_ours(part) or not inner:
        _refuse_reader(name, part, container, learner)
        return
    if "TransformedTargetRegressor" in kinds:
        _refuse_reader("transformer", part.transformer, part, learner)
        inner = [("regressor", part.regressor)]
    _check_wrapper(part, kinds, learner)
    for inner_name, estimator in inner:
        if not isinstance(estimator, str | None):
            _check_part(inner_name, estimator, type(part).__name__, learner)


def _refuse_reader(name: str, step: Any, container: Any, learner: str) -> None:
    reader = find_reader(name, step, fitted=_is_fitted(container))
    if reader is not None:
        owner = container if isinstance(container, str) else type(container).__name__
        raise PromiseError(describe_refusal(*reader, owner, learner))


def _check_wrapper(wrapper: Any, kinds: set[str], learner: str) -> None:
    """Refuse a wrapper that computes from rows itself, or fits more than once without a ledger."""
    name = type(wrapper).__name__
    if any(NOISELESS[kind](wrapper) for kind in kinds & NOISELESS.keys()):
        raise PromiseError(
            f"{name} must not compute from the rows without noise around {learner}, and does: the promise "
            f"covers the {learner} inside alone. Fit and publish that one. See {PAGE}."
        )
    repeats = any(REPEATING[kind](wrapper) for kind in kinds & REPEATING.keys())
    if repeats and any(getattr(inside, "ledger", None) is None for inside in _find_learners(wrapper)):
        raise PromiseError(
            f"ledger of the {learner} in {name} must be given, because it is fitted more than once, and was "
            f"None. Open one with Ledger.open and give it to the learner. See {PAGE}."
        )


def _check_addable(pipeline: Pipeline) -> None:
    """Refuse learners inside wrappers, which keep copies whose promises a pipeline cannot add up."""
    for name, step in pipeline.steps:
        if not (is_ours(step) or names_in_sklearn(step) & _COMPOSITES) and _find_learners(step):
            raise PromiseError(
                f"steps of private_pipeline must be learners themselves for their promises to be added up, "
                f"and {name!r} ({type(step).__name__}) holds one. Use Pipeline, and give it a ledger."
            )


def _find_learners(estimator: Any) -> list[Any]:
    """Return the learners of discreet that an estimator is or holds."""
    if is_ours(estimator):
        return [estimator] if hasattr(estimator, "privacy") else []
    return [learner for _, part in parts_of(estimator) for learner in _find_learners(part)]


def _is_fitted(container: Any) -> bool:
    if isinstance(container, str):
        return False
    try:
        check_is_fitted(container)
    except NotFittedError:
        return False
    return True
