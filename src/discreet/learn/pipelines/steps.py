"""Which steps of a pipeline learn from rows without a promise, told by class, parameters and state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.base import clone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SHAPES = frozenset({"n_features_in_", "feature_names_in_", "n_features_out_", "n_output_features_"})
"""Attributes that follow from the number and names of the columns, which are public."""

_LONGEST = 1000
"""Length up to which a parameter that is a list is searched for estimators."""


def _is_declared(encoder: Any) -> bool:
    rare = encoder.min_frequency is not None or encoder.max_categories is not None
    return not isinstance(encoder.categories, str) and not rare


_PUBLIC: Mapping[str, Callable[[Any], bool]] = {
    "OneHotEncoder": _is_declared,
    "OrdinalEncoder": _is_declared,
    # A column without any cell is dropped unless it is to be kept, and which one that is depends on rows.
    "SimpleImputer": lambda s: s.strategy == "constant" and s.keep_empty_features and not s.add_indicator,
    "MissingIndicator": lambda s: s.features == "all",
    "SplineTransformer": lambda s: not isinstance(s.knots, str),
    "RBFSampler": lambda s: s.gamma != "scale",
    "HashingVectorizer": lambda _: True,
    "PolynomialFeatures": lambda _: True,
    "GaussianRandomProjection": lambda _: True,
    "SparseRandomProjection": lambda _: True,
    "SkewedChi2Sampler": lambda _: True,
    "PolynomialCountSketch": lambda _: True,
    "FrozenEstimator": lambda _: True,
}
"""Steps of scikit-learn that depend on rows for some parameters only, with the test of the others.

A frozen step was fitted before, to rows that the pipeline does not have.
"""

_ADVICE: tuple[tuple[str, str], ...] = (
    ("Imputer", "Use SimpleImputer(strategy='constant', fill_value=..., keep_empty_features=True)."),
    ("Encoder", "Declare every category in a OneHotEncoder or OrdinalEncoder, categories=[...]."),
    ("PCA", "Use PrivatePCA."),
    ("SVD", "Use PrivatePCA."),
    ("Select", "Choose the columns without these rows."),
    ("Threshold", "Choose the columns without these rows."),
    ("RFE", "Choose the columns without these rows."),
    (
        "",
        "Declare bounds, by which learners scale; or use PublicScaler(bounds=...), or PrivateScaler(privacy="
        "..., bounds=...), which pays.",
    ),
)
"""The way out for steps whose class has this text in its name; the first that fits counts."""


def names_in_sklearn(estimator: Any) -> set[str]:
    """Return the names of all classes of scikit-learn that an object is an instance of."""
    return {cls.__name__ for cls in type(estimator).__mro__ if cls.__module__.split(".")[0] == "sklearn"}


def is_ours(estimator: Any) -> bool:
    """Whether an object is an estimator of discreet, which knows by itself whether it keeps a promise."""
    return hasattr(type(estimator), "_keeps_promise")


def keeps_promise(estimator: Any) -> bool:
    """Whether an object is an estimator of discreet that reads rows under a promise, or reads none."""
    return is_ours(estimator) and bool(estimator._keeps_promise())


def parts_of(estimator: Any) -> list[tuple[str, Any]]:
    """Return the estimators among the parameters of an estimator, with the names of steps that have one.

    Notes
    -----
    Only parameters are read. A column transformer keeps fitted copies of its parts, which are returned where
    there are any.
    """
    if not hasattr(estimator, "get_params") or isinstance(estimator, type):
        return []
    values = dict(estimator.get_params(deep=False))
    fitted = vars(estimator).get("transformers_")
    if fitted is not None and "transformers" in values:
        values["transformers"] = fitted
    return [part for name, value in values.items() for part in _flatten(name, value)]


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the estimators in a parameter: itself, or entries of a list; tuples begin with a name."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        yield name, value
    elif isinstance(value, dict) and len(value) <= _LONGEST:
        for key, entry in value.items():
            yield from _flatten(str(key), entry)
    elif isinstance(value, list | tuple) and len(value) <= _LONGEST:
        label = value[0] if value and isinstance(value[0], str) and isinstance(value, tuple) else name
        for entry in value:
            yield from _flatten(label, entry)


def find_reader(name: str, step: Any, *, fitted: bool) -> tuple[str, Any] | None:
    """Return name and estimator of the first part of a step that learns from rows without a promise.

    Parameters
    ----------
    name : str
        Name of the step in its pipeline.
    step : estimator, str or None
        The step, or a word such as "passthrough".
    fitted : bool
        Whether the step was just fitted, so that its state shows what it learned. Before, a step of unknown
        class counts as a reader unless its tags say that it needs no fit.
    """
    if step is None or isinstance(step, str):
        return None
    kinds = names_in_sklearn(step)
    if is_ours(step):
        return None if keeps_promise(step) else (name, step)
    if kinds & {"Pipeline", "ColumnTransformer", "FeatureUnion"}:
        found = (find_reader(part_name, part, fitted=fitted) for part_name, part in parts_of(step))
        return next(filter(None, found), None)
    if kinds & {"SelectFromModel", "RFE"}:
        # What they keep follows from the model alone.
        return None if step.get_params().get("prefit") else find_reader(name, step.estimator, fitted=False)
    for kind in kinds & _PUBLIC.keys():
        return None if _PUBLIC[kind](step) else (name, step)
    if _needs_no_fit(step):
        return None
    return (name, step) if not fitted or _learned_attributes(step) else None


def advise(step: Any) -> str:
    """Return the way out for a step that learns from rows without a promise."""
    kind = type(step).__name__
    if is_ours(step):
        return "Give it a promise."
    advice = next(text for part, text in _ADVICE if part in kind)
    if names_in_sklearn(step) and type(step).__module__.startswith("sklearn."):
        return f"{advice} A step that was fitted to public rows passes as FrozenEstimator(step)."
    return (
        f"{advice} If fit of {kind} computes nothing from the rows, let its __sklearn_tags__ say "
        "requires_fit=False."
    )


def _needs_no_fit(step: Any) -> bool:
    """Whether the tags of a step say that it needs no fit.

    A class of someone else that inherits the tag and not the ``fit`` that it is about does not say so.
    """
    if not hasattr(step, "__sklearn_tags__") or step.__sklearn_tags__().requires_fit:
        return False
    own = [cls for cls in type(step).__mro__ if not cls.__module__.startswith("sklearn.")]
    return any("__sklearn_tags__" in vars(cls) for cls in own) or not any("fit" in vars(cls) for cls in own)


def _learned_attributes(step: Any) -> set[str]:
    """Return the attributes that a fitted step has beyond those of a fresh one and of its public shape.

    Flags are left out: that something was fitted is public.
    """
    state: dict[str, Any] = getattr(step, "__dict__", {})
    try:
        fresh = set(vars(clone(step)))
    except (TypeError, RuntimeError, AttributeError, ValueError):
        fresh = {name for name in state if not name.endswith("_")}
    return {
        name
        for name, value in state.items()
        if name not in fresh | _SHAPES
        and value is not None
        and not isinstance(value, bool)
        and not (name.startswith("_") and isinstance(value, int | str))
    }
