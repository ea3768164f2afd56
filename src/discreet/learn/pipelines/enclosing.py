"""What a learner can tell about the pipeline or search that fits it, from the calling frames.

A promise is about ``fit`` alone: it does not hold if a step before computed from the same rows without noise,
and fits that no ledger adds up keep less together than each of them. scikit-learn passes an estimator nothing
about its surroundings, so they are found on the stack: a frame of a method ``fit`` whose object holds this
learner among its parameters, or a copy of it. Copies are known by an origin, which ``clone`` passes on; to
worker processes, whose stack ends at the job, what was found travels in the pickled learner. No row is read.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator

from discreet.arguments import CheckedArguments
from discreet.errors import PromiseError, PromiseWarning
from discreet.learn.pipelines.steps import (
    advise,
    find_reader,
    is_ours,
    keeps_promise,
    names_in_sklearn,
    parts_of,
)
from discreet.privacy import NoPromise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

PAGE = "docs/howto/preprocess.md"
_POOLS = frozenset({"joblib", "multiprocessing", "concurrent"})
"""Packages that run jobs of another thread, whose stack then has the pipeline."""


def _count_learners(estimator: Any) -> int:
    return int(keeps_promise(estimator)) + sum(_count_learners(part) for _, part in parts_of(estimator))


def _has_reader(estimator: Any) -> bool:
    """Whether an estimator holds one that learns from rows without a promise."""
    parts = parts_of(estimator)
    if is_ours(estimator) or not parts:
        return not keeps_promise(estimator)
    return any(_has_reader(part) for _, part in parts)


REPEATING: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (
            "BaseSearchCV", "OneVsRestClassifier", "OneVsOneClassifier", "OutputCodeClassifier",
            "MultiOutputClassifier", "MultiOutputRegressor", "ClassifierChain", "RegressorChain",
            "StackingClassifier", "StackingRegressor", "CalibratedClassifierCV", "TunedThresholdClassifierCV",
            "AdaBoostClassifier", "AdaBoostRegressor", "RFE", "RFECV", "SequentialFeatureSelector",
            "SelfTrainingClassifier", "RANSACRegressor", "IterativeImputer",
        ),
        lambda _: True,
    ),
    **dict.fromkeys(("BaggingClassifier", "BaggingRegressor"), lambda s: s.n_estimators > 1),
    **dict.fromkeys(("VotingClassifier", "VotingRegressor"), lambda s: _count_learners(s) > 1),
}  # fmt: skip
"""Estimators of scikit-learn that fit what they hold more than once, with a test by their parameters."""

NOISELESS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (
            "CalibratedClassifierCV", "TunedThresholdClassifierCV", "AdaBoostClassifier", "AdaBoostRegressor",
            "RFECV", "SequentialFeatureSelector", "SelfTrainingClassifier", "RANSACRegressor",
            "IterativeImputer",
        ),
        lambda _: True,
    ),
    **dict.fromkeys(
        ("StackingClassifier", "StackingRegressor"), lambda s: s.final_estimator is None or _has_reader(s)
    ),
    **dict.fromkeys(("VotingClassifier", "VotingRegressor"), _has_reader),
}  # fmt: skip
"""Estimators of scikit-learn that compute from rows themselves, with a test by their parameters."""


class Enclosure(NamedTuple):
    """What the pipeline or search around a learner does to its promise.

    Attributes
    ----------
    refusal : str
        Why the promise would not hold, if a step before learned from the rows; else empty.
    repeating : str
        Name of the outermost search or wrapper that fits more than once; empty if there is none.
    noiseless : str
        Name of the outermost wrapper that computes from the rows itself; empty if there is none.
    process : int
        Process in which this was found.
    warned : bool
        Whether the warning was shown in that process.
    """

    refusal: str = ""
    repeating: str = ""
    noiseless: str = ""
    process: int = 0
    warned: bool = False


class _Origin:
    """What all copies of one estimator in a process share."""

    __slots__ = ("warned",)

    def __init__(self) -> None:
        self.warned: set[str] = set()


class EnclosedEstimator(BaseEstimator, metaclass=CheckedArguments):
    """Base of estimators that refuse a place in a pipeline where their promise would not hold.

    ``fit`` of a subclass calls :meth:`_check_place` before it reads a row.
    """

    def _keeps_promise(self) -> bool:
        """Whether ``fit`` reads rows under a promise, or reads none."""
        privacy = getattr(self, "privacy", None)
        return privacy is not None and not isinstance(privacy, NoPromise)

    def _check_place(self) -> None:
        """Refuse a fitted step before this one, and warn about repeated fits and suspicious bounds.

        Raises
        ------
        PromiseError
            If a step before this one in a pipeline was fitted to the rows without noise.
        """
        if not self._keeps_promise():
            return
        enclosure = self._find_place()
        if enclosure.refusal:
            raise PromiseError(enclosure.refusal)
        self._warn_of_place(enclosure)
        if look_standardized(getattr(self, "bounds", None)):
            self._warn_once(
                f"bounds of {type(self).__name__} look like those of standardized columns. If means and "
                "deviations were computed from these rows, the promise does not hold: use PrivateScaler, or "
                f"declare the range that each column can have. See {PAGE}."
            )

    def _find_place(self) -> Enclosure:
        """Return what encloses this estimator, here or in the process that sent it."""
        here = find_enclosing(self)
        sent: Enclosure | None = vars(self).get("_enclosing")
        if sent is None or sent.process == os.getpid():
            return here
        return sent._replace(
            refusal=sent.refusal or here.refusal,
            repeating=sent.repeating or here.repeating,
            noiseless=sent.noiseless or here.noiseless,
        )

    def _warn_of_place(self, enclosure: Enclosure) -> None:
        """Warn of a wrapper that fits more than once without a ledger, or computes from rows itself."""
        if enclosure.warned:
            return
        owner = type(self).__name__
        if enclosure.noiseless:
            self._warn_once(
                f"{enclosure.noiseless} computes from the rows without noise. The promise covers each "
                f"{owner} inside, not what {enclosure.noiseless} makes of it: publish the {owner} alone. "
                f"See {PAGE}."
            )
        if enclosure.repeating and getattr(self, "ledger", None) is None:
            self._warn_once(
                f"{enclosure.repeating} fits {owner} more than once, and no ledger adds the promises up: a "
                "person in several fits is promised less than one fit says. Give it a ledger=, which is "
                "charged for every fit, or fit once with parameters that were chosen without these rows. "
                f"See {PAGE}."
            )

    def _warn_once(self, message: str) -> None:
        """Show a warning once for an estimator and all its copies, at the line of the caller's code."""
        warned = self._get_origin().warned
        if message not in warned:
            warned.add(message)
            warnings.warn(message, PromiseWarning, stacklevel=_caller_level())

    def _get_origin(self) -> _Origin:
        origin: _Origin = self.__dict__.setdefault("_origin", _Origin())
        return origin

    def __sklearn_clone__(self) -> Self:
        """Return a copy that is not fitted, of the same origin."""
        copy: Self = super().__sklearn_clone__()
        copy._origin = self._get_origin()
        if "_enclosing" in vars(self):
            copy._enclosing = self._enclosing
        if self._keeps_promise():
            # Jobs may run in other processes, whose warnings the caller cannot catch.
            self._warn_of_place(self._find_place())
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, with what a worker process cannot find on its own stack."""
        state = dict(super().__getstate__())
        state.pop("_origin", None)
        sent: Enclosure | None = state.pop("_enclosing", None)
        # It may be pickled for a worker process, whose stack has neither the pipeline nor the search.
        if _is_pool_thread() and self._keeps_promise():
            found = find_enclosing(self)
            if any(found):
                state["_enclosing"] = found._replace(process=os.getpid(), warned=self._has_warned(found))
        if sent is not None and sent.process != os.getpid():
            state["_enclosing"] = sent
        return state

    def _has_warned(self, enclosure: Enclosure) -> bool:
        """Warn in this process, and return whether a worker need not; a warning made an error is for it."""
        try:
            self._warn_of_place(enclosure)
        except PromiseWarning:
            self._get_origin().warned.clear()
            return False
        return True


def find_enclosing(learner: Any) -> Enclosure:
    """Return what the pipelines and searches on the stack do to the promise of a learner.

    Parameters
    ----------
    learner : estimator
        The learner that is being fitted, copied or sent to another process.
    """
    refusal = repeating = noiseless = ""
    for frame in _frames():
        container = _container(frame)
        # Wrappers fit clones, which share the origin of the estimator that they were made from.
        if container is None or not any(_holds(container, learner, same) for same in (_is_itself, _is_copy)):
            continue
        if _is_model_selection(frame):
            repeating = _function_name(frame) or repeating or "cross-validation"
            continue
        kinds = names_in_sklearn(container)
        if kinds & {"Pipeline", "TransformedTargetRegressor"}:
            refusal = refusal or _refusal(container, learner)
        # Frames come innermost first, so that the outermost wrapper is the last to write its name.
        for kind in kinds & REPEATING.keys():
            repeating = type(container).__name__ if REPEATING[kind](container) else repeating
        for kind in kinds & NOISELESS.keys():
            noiseless = type(container).__name__ if NOISELESS[kind](container) else noiseless
    return Enclosure(refusal, repeating, noiseless)


def look_standardized(bounds: Any) -> bool:
    """Whether declared bounds are -k and k in every column, for one k from 3 to 10."""
    try:
        lower, upper = (np.asarray(side, np.float64) for side in bounds)
    except (TypeError, ValueError):
        return False
    if not lower.size or lower.shape != upper.shape:
        return False
    k = float(upper.flat[0])
    return bool(3 <= k <= 10 and (upper == k).all() and (lower == -k).all())


def _refusal(container: Any, learner: Any) -> str:
    """Return why the promise of a learner would not hold after the fitted steps before it; else empty."""
    if "TransformedTargetRegressor" in names_in_sklearn(container):
        before = [("transformer", vars(container).get("transformer_"))]
    else:
        position = _position(container, learner)
        before = container.steps[:position]
    for name, step in before:
        reader = find_reader(name, step, fitted=True)
        if reader is not None:
            return describe_refusal(*reader, type(container).__name__, type(learner).__name__)
    return ""


def describe_refusal(name: str, step: Any, container: str, learner: str) -> str:
    """Return the message for a step that learns from rows without a promise, with the way out."""
    return (
        f"steps of {container} before {learner} must not learn from the rows without a promise, and "
        f"{name!r} ({type(step).__name__}) does: the promise of {learner} would not hold. "
        f"{advise(step)} See {PAGE}."
    )


def _position(container: Any, learner: Any) -> int | None:
    """Return which part of a container is or holds a learner, itself before its copies; None for no part."""
    # Steps and not parts: words such as "passthrough" count.
    steps = vars(container).get("steps")
    parts = [step for _, step in steps] if isinstance(steps, list) else [p for _, p in parts_of(container)]
    for same in (_is_itself, _is_copy):
        for i, part in enumerate(parts):
            if _holds(part, learner, same):
                return i
    return None


def _holds(part: Any, learner: Any, same: Callable[[Any, Any], bool]) -> bool:
    return same(part, learner) or any(_holds(inner, learner, same) for _, inner in parts_of(part))


def _is_itself(part: Any, learner: Any) -> bool:
    return part is learner


def _is_copy(part: Any, learner: Any) -> bool:
    origin = getattr(learner, "__dict__", {}).get("_origin")
    return origin is not None and getattr(part, "__dict__", {}).get("_origin") is origin


# Frames. Names and the object a method belongs to are read, never its other arguments.


def _frames() -> Iterator[FrameType]:
    """Yield the frames that called this, innermost first; in a thread of a pool, then those of others."""
    here = threading.get_ident()
    yield from _walk(sys._getframe(1))
    if _is_pool_thread():
        for thread, frame in sys._current_frames().items():
            if thread != here:
                yield from _walk(frame)


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_pool_thread() -> bool:
    """Whether this is a thread that a pool of workers started."""
    if threading.current_thread() is threading.main_thread():
        return False
    return any(_module(frame).split(".")[0] in _POOLS for frame in _walk(sys._getframe(1)))


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_model_selection(frame: FrameType) -> bool:
    names = frame.f_code.co_varnames
    # A function such as cross_val_score, and not the method of a search.
    return _module(frame).startswith("sklearn.model_selection") and names[:1] != ("self",)


def _function_name(frame: FrameType) -> str:
    """Return the name of a public function of scikit-learn; empty for its helpers."""
    name = frame.f_code.co_name
    return "" if name.startswith(("_", "<")) else name


def _container(frame: FrameType) -> Any:
    """Return the estimator whose ``fit`` a frame runs, or that a search was given; else None."""
    names = frame.f_code.co_varnames
    if _is_model_selection(frame):
        value = frame.f_locals.get("estimator") if "estimator" in names else None
    elif names[:1] == ("self",) and frame.f_code.co_name.lstrip("_").startswith("fit"):
        value = frame.f_locals.get("self")
    else:
        return None
    return value if hasattr(value, "get_params") and not isinstance(value, type) else None


def _caller_level() -> int:
    """Return the stack level of the first frame outside discreet, scikit-learn and joblib."""
    level = 1
    for frame in _walk(sys._getframe(2)):
        if _module(frame).split(".")[0] not in {"discreet", "sklearn", *_POOLS}:
            return level + 1
        level += 1
    return 2
