"""Releases: methods that publish a whole table, row by row or made up, with promises.

``base`` reads, charges and draws for every method, ``publication`` has the results, ``keystream`` the
randomness of batches. ``gaussian``, ``_laplace``, ``_bounded`` and ``_input_perturbation`` add noise to
numbers, by the rules of ``table`` and ``mechanism``, whose randomized response does the rest.
``coarse``, ``invariant``, ``masked`` and ``synthetic`` are methods of their own; ``spark`` draws row-wise
ones on many machines. ``METHODS`` lists all methods by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.lazy_names import ClassesByName, load_on_use

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from discreet.release._bounded import BoundedRelease
    from discreet.release._input_perturbation import InputPerturbation
    from discreet.release._laplace import LaplaceRelease
    from discreet.release.base import ReleaseMethod
    from discreet.release.coarse import CoarseRelease
    from discreet.release.gaussian import GaussianRelease
    from discreet.release.invariant import InvariantRelease
    from discreet.release.masked import MaskedRelease
    from discreet.release.publication import (
        ColumnSummary,
        Publication,
        Release,
        ReleasePlan,
        published_schema,
    )
    from discreet.release.synthetic import SyntheticRelease

METHODS: MutableMapping[str, type[ReleaseMethod]] = ClassesByName(
    __name__,
    {
        "bounded": "_bounded.BoundedRelease",
        "coarse": "coarse.CoarseRelease",
        "gaussian": "gaussian.GaussianRelease",
        "input-perturbation": "_input_perturbation.InputPerturbation",
        "invariant": "invariant.InvariantRelease",
        "laplace": "_laplace.LaplaceRelease",
        "masked": "masked.MaskedRelease",
        "synthetic": "synthetic.SyntheticRelease",
    },
)
"""All methods by their names."""


def method_from_dict(values: Mapping[str, Any], **common: Any) -> ReleaseMethod:
    """Return the method with a given ``name`` and ``parameters``, as a statement publishes them.

    Parameters
    ----------
    values : mapping
        Name and parameters: ``{"name": method.name, "parameters": method.parameters()}``.
    **common
        Arguments that every method takes: ``schema`` or ``bounds``, and ``ledger``.

    Returns
    -------
    ReleaseMethod
    """
    name = values.get("name")
    if not isinstance(name, str) or name not in METHODS:
        raise ParameterError(
            f"The name of a method must be one of {', '.join(sorted(METHODS))}, was {name!r}."
        )
    return METHODS[name].from_parameters(values.get("parameters", {}), **common)


__all__ = [
    "METHODS",
    "BoundedRelease",
    "CoarseRelease",
    "ColumnSummary",
    "GaussianRelease",
    "InputPerturbation",
    "InvariantRelease",
    "LaplaceRelease",
    "MaskedRelease",
    "Publication",
    "Release",
    "ReleaseMethod",
    "ReleasePlan",
    "SyntheticRelease",
    "method_from_dict",
    "published_schema",
]

__getattr__ = load_on_use(
    __name__,
    {
        "_bounded": ["BoundedRelease"],
        "_input_perturbation": ["InputPerturbation"],
        "_laplace": ["LaplaceRelease"],
        "base": ["ReleaseMethod"],
        "coarse": ["CoarseRelease"],
        "gaussian": ["GaussianRelease"],
        "invariant": ["InvariantRelease"],
        "masked": ["MaskedRelease"],
        "publication": ["ColumnSummary", "Publication", "Release", "ReleasePlan", "published_schema"],
        "synthetic": ["SyntheticRelease"],
    },
)
