"""Base class of all learners: checked parameters, and files without pickle."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from discreet.arguments import promise_hint
from discreet.errors import ParameterError, SourceError
from discreet.learn.pipelines.enclosing import EnclosedEstimator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet.learn.arguments import Constraint

KIND = "discreet-model"
FORMAT = 1
_NAMED = ("n_features_in_", "feature_names_in_")
"""Attributes in which scikit-learn itself keeps the columns."""


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
                    + (
                        (name == "privacy" and promise_hint(value))
                        or f"See help(discreet.{type(self).__name__}) for what it does."
                    )
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
        # Only these attributes are set: a file must not replace a method.
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
