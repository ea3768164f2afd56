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
from discreet.release._bounded import BoundedRelease
from discreet.release._input_perturbation import InputPerturbation
from discreet.release._laplace import LaplaceRelease
from discreet.release.base import ReleaseMethod
from discreet.release.coarse import CoarseRelease
from discreet.release.gaussian import GaussianRelease
from discreet.release.invariant import InvariantRelease
from discreet.release.masked import MaskedRelease
from discreet.release.publication import ColumnSummary, Publication, Release, ReleasePlan, published_schema
from discreet.release.synthetic import SyntheticRelease

if TYPE_CHECKING:
    from collections.abc import Mapping

METHODS: dict[str, type[ReleaseMethod]] = {
    method.name: method
    for method in (
        BoundedRelease,
        CoarseRelease,
        GaussianRelease,
        InputPerturbation,
        InvariantRelease,
        LaplaceRelease,
        MaskedRelease,
        SyntheticRelease,
    )
}


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
    if name not in METHODS:
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
