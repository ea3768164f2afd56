"""Public names of a package that are loaded when they are first used (PEP 562).

Loading scikit-learn takes a second of processor time, so a package must not load every module it publishes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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
