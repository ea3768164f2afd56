"""Base class of all learners: checked parameters, files without pickle, finite rows and declared classes."""

from __future__ import annotations

import json
import math
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from discreet.errors import DataError, ParameterError, SourceError
from discreet.learn.pipelines.enclosing import EnclosedEstimator
from discreet.schema.column_checks import LARGEST_NUMBER, LEAST_WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats, Ints

KIND = "discreet-model"
FORMAT = 1
_NAMED = ("n_features_in_", "feature_names_in_")
"""Attributes in which scikit-learn itself keeps the columns."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """The set of values that a parameter may have.

    Attributes
    ----------
    words : str
        Description of the set, to follow "must be" in an error message.
    contains : callable
        Predicate that is true for values in the set.
    outside : tuple
        Examples of values outside the set, for the contract tests.
    """

    words: str
    contains: Callable[[Any], bool]
    outside: tuple[Any, ...]


def is_number(value: Any) -> bool:
    """Whether a value is a finite real number; True and False are not."""
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return plain and math.isfinite(value)


POSITIVE = Constraint(
    "a number above 0", lambda v: is_number(v) and v > 0, (0, -1.0, math.nan, math.inf, "1", True)
)


class Learner(EnclosedEstimator):
    """Base of all estimators, with the conventions of scikit-learn.

    Subclasses store their parameters in ``__init__`` and check them in ``fit``. The first line of their
    docstring is published in model cards, so a change of it changes a published file.
    """

    name: ClassVar[str]
    theorems: ClassVar[tuple[str, ...]]
    """Names of the theorem pages that prove what the learner promises; a published statement lists them."""
    _constraints: ClassVar[Mapping[str, Constraint]]
    """Constraint of each parameter, for :meth:`_check_parameters` and the contract tests."""
    _saved_attributes: ClassVar[tuple[str, ...]]
    """The fitted attributes that a file holds. None of them has one entry per training row."""
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Functions that decode saved attributes and parameters, by name."""

    def _check_parameters(self) -> None:
        """Refuse parameters that violate their constraints, and a place where the promise would not hold."""
        for name, constraint in self._constraints.items():
            value = getattr(self, name)
            if not constraint.contains(value):
                raise ParameterError(
                    f"{name} of {type(self).__name__} must be {constraint.words}, was {value!r}. "
                    f"See help(discreet.{type(self).__name__}) for what it does."
                )
        self._check_place()

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file, atomically.

        The file is a NumPy archive (``.npz``) of plain arrays and a JSON header: reading it runs no code.
        It holds parameters and coefficients, nothing that has an entry for each training row.
        """
        check_is_fitted(self)
        arrays: dict[str, Any] = {}
        header = {
            "kind": KIND,
            "format": FORMAT,
            "learner": self.name,
            "parameters": {
                name: self._pack(name, value, arrays) for name, value in self.get_params(deep=False).items()
            },
            "fitted": {
                name: self._pack(name, getattr(self, name), arrays)
                for name in (*self._saved_attributes, *_NAMED)
                if hasattr(self, name)
            },
        }
        text = json.dumps(header, allow_nan=False).encode()
        path = Path(path)
        draft = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with draft.open("xb") as file:
                np.savez(file, header=np.frombuffer(text, np.uint8), **arrays)
            # Renamed when complete: a reader never finds half a model.
            draft.replace(path)
        except OSError as error:
            raise SourceError(
                f"The model cannot be written to {path}: {error.strerror}. Choose another place."
            ) from error
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model that :meth:`save` wrote to a file; nothing in the file is executed."""
        header, arrays = _read(Path(path))
        if header.get("learner") != cls.name:
            raise SourceError(
                f"{path} holds a model of kind {header.get('learner')!r}, not {cls.name!r}. "
                "Load it with the class that saved it."
            )
        parameters, fitted = header.get("parameters"), header.get("fitted")
        known = {*cls._saved_attributes, *_NAMED}
        if not isinstance(parameters, dict) or not isinstance(fitted, dict) or not fitted.keys() <= known:
            raise SourceError(f"{path} is not a model that {cls.__name__} saved. Write one with save().")
        try:
            model = cls(**{name: cls._unpack(name, value, arrays) for name, value in parameters.items()})
        except TypeError as error:
            raise SourceError(f"{path} has parameters that {cls.__name__} does not know.") from error
        for name, value in fitted.items():
            setattr(model, name, cls._unpack(name, value, arrays))
        return model

    @classmethod
    def _unpack(cls, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if isinstance(value, dict) and "array" in value:
            return arrays[value["array"]]
        if isinstance(value, dict) and "texts" in value:
            return np.array(value["texts"], dtype=object)
        return cls._decoders[name](value) if name in cls._decoders else value

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        """Return a value as plain JSON; arrays are added to ``arrays`` and referred to by name."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
            arrays[name] = value
            return {"array": name}
        if isinstance(value, np.ndarray) and all(isinstance(item, str) for item in value):
            return {"texts": value.tolist()}
        if hasattr(value, "to_dict"):
            return value.to_dict()
        raise ParameterError(
            f"{name} of {type(self).__name__} must be plain numbers or text to be saved, was "
            f"{type(value).__name__}. A file without pickle cannot hold code: apply it outside the learner."
        )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and arrays of a model file, checked for kind and format."""
    message = f"{path} is not a saved model. Write one with save()."
    try:
        # NumPy leaves a file that it cannot read open, so it is opened and closed here.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
    except OSError as error:
        raise SourceError(f"The model cannot be read from {path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise SourceError(message) from error
    if not isinstance(header, dict) or header.get("kind") != KIND:
        raise SourceError(message)
    if header.get("format") != FORMAT:
        raise SourceError(
            f"{path} was saved in format {header.get('format')}, this version reads {FORMAT}. "
            "It may have been written by a newer version."
        )
    return header, arrays


def two_vectors(bounds: Any, n: int, owner: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return declared bounds, a pair of numbers or of vectors, as a number for each of ``n`` columns."""
    try:
        lower, upper = (np.broadcast_to(np.asarray(side, np.float64), n) for side in bounds)
    except (TypeError, ValueError):
        raise ParameterError(
            f"bounds of {owner} must be a pair of numbers or of vectors of length {n}, one entry for each "
            "column, and were not. Write bounds=(0, 1), two vectors, or schema.bounds."
        ) from None
    with np.errstate(over="ignore", invalid="ignore"):
        good = (upper - lower >= LEAST_WIDTH) & (np.maximum(np.abs(lower), np.abs(upper)) <= LARGEST_NUMBER)
    if not good.all():
        raise ParameterError(
            f"bounds of {owner} must be finite with lower below upper in every column, at most "
            f"{LARGEST_NUMBER:g} and at least {LEAST_WIDTH:g} apart, were not in column "
            f"{int(np.flatnonzero(~good)[0]) + 1}. Declare the range that the column can have, in another "
            "unit if need be."
        )
    return tuple(lower.tolist()), tuple(upper.tolist())


def check_finite(values: Floats, where: str, names: AnyArray | None = None) -> None:
    """Refuse NaN and infinite cells; the message names row and column of the first, never its content."""
    # A finite sum has finite terms only; a sum that overflows is settled by the search below.
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(values.sum())):
            return
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):
        return
    row = int(bad[0, 0]) + 1
    column = None if values.ndim == 1 else str(bad[0, 1] + 1 if names is None else names[bad[0, 1]])
    place = f"row {row}" if column is None else f"row {row}, column {column}"
    raise DataError(
        f"{where} must be finite, {place} is NaN or infinite. Rows are counted from 1.",
        column=column,
        line=row,
    )


def declared_classes(classes: Any, y: AnyArray, *, owner: str, promises: bool) -> AnyArray:
    """Return the declared classes of a learner, sorted.

    Parameters
    ----------
    classes : array-like or None
        Declared classes; None takes those of the rows, where nothing is promised.
    y : array
        Labels of the rows, read only where ``classes`` is None.
    owner : str
        Name of the estimator, for error messages.
    promises : bool
        Whether the learner makes a privacy promise.

    Privacy
    -------
    The set of labels that occur depends on private rows, so it must be declared where something is promised.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    if classes is None:
        if promises:
            raise ParameterError(
                f"classes of {owner} must list the labels that a row may have, was None: which labels "
                "occur is not for free. Declare all of them, found in the rows or not."
            )
        labels = np.unique(y)
        if len(labels) < 2:
            raise DataError(
                f"y of {owner}.fit must hold two classes, held one class. There is nothing to tell apart; "
                "declare classes to train all the same."
            )
        return labels
    declared = np.asarray(classes)
    try:
        labels = np.unique(declared)
    except TypeError:
        labels = np.zeros(0)
    if declared.ndim != 1 or len(labels) < 2 or len(labels) != len(declared):
        raise ParameterError(
            f"classes of {owner} must be at least two different labels of one kind, was {classes!r}. List "
            "every label once."
        )
    return labels


def label_codes(y: AnyArray, classes: AnyArray, *, owner: str) -> Ints:
    """Return the position of each label among sorted classes."""
    kinds = {"text" if kind in "OUS" else "number" for kind in (y.dtype.kind, classes.dtype.kind)}
    known = np.isin(y, classes) if len(kinds) == 1 else np.zeros(len(y), bool)
    if not known.all():
        line = int(np.flatnonzero(~known)[0]) + 1
        raise DataError(
            f"y of {owner}.fit must hold declared classes alone, and the label of row {line} is not one. "
            "Rows are counted from 1; add it to classes, as text or number as in y.",
            line=line,
        )
    return np.searchsorted(classes, y)
