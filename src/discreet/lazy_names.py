"""Public names of a package that are loaded when they are first used (PEP 562).

Loading scikit-learn takes a second of processor time, so a package must not load every module it publishes.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import LazyLoader
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

Kind = TypeVar("Kind")


def load_on_use(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names are loaded when they are first used.

    Parameters
    ----------
    package : str
        Full name of the package, its ``__name__``.
    modules : mapping of str to sequence of str
        For each module of the package, relative to it, the public names that it defines.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


class ClassesByName(MutableMapping[str, type[Kind]]):
    """Classes by a name, each of which is loaded when it is first looked up.

    Parameters
    ----------
    package : str
        Full name of the package in whose modules the classes are.
    homes : mapping of str to str
        For each name, the module of the class relative to the package, a dot, and the class.
    """

    def __init__(self, package: str, homes: Mapping[str, str]) -> None:
        self._package = package
        self._homes: dict[str, str | type[Kind]] = dict(homes)

    def __getitem__(self, name: str) -> type[Kind]:
        home = self._homes[name]
        if not isinstance(home, str):
            return home
        module, _, kind = home.rpartition(".")
        found: type[Kind] = getattr(import_module(f"{self._package}.{module}"), kind)
        return found

    def __setitem__(self, name: str, kind: type[Kind]) -> None:
        self._homes[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._homes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


class DeferredModules:
    """Finder of modules that are executed when one of their attributes is used, not when they are imported.

    Parameters
    ----------
    *names : str
        Full names of modules that others import without using them.
    """

    def __init__(self, *names: str) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load one of the modules; None for all others, which the next finder loads."""
        if name not in self._names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


class HiddenModule:
    """Finder by which one module does not find another that it imports and never uses.

    A module that is only deferred would not do for pandas: DuckDB asks the ``pandas`` in ``sys.modules`` for
    its frames, and thereby loads it.

    Parameters
    ----------
    name, importer : str
        Full name of the module that is not found, and of the one that does not find it.
    """

    def __init__(self, name: str, importer: str) -> None:
        self._name, self._importer = name, importer

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError if the one module imports the other; return None for all else."""
        if name != self._name:
            return None
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
            frame = frame.f_back
        if frame.f_globals.get("__name__") == self._importer:
            raise ModuleNotFoundError(f"{self._importer} does without {name}.", name=name)
        return None
