"""A table in, a table out. ``METHODS`` is the list that everything else reads."""

from __future__ import annotations

from discreet.release.base import ColumnSummary, Plan, Publication, Release, ReleaseMethod
from discreet.release.bounded import BoundedRelease
from discreet.release.gaussian import GaussianRelease
from discreet.release.invariant import InvariantRelease
from discreet.release.laplace import LaplaceRelease

METHODS: dict[str, type[ReleaseMethod]] = {
    method.name: method for method in (BoundedRelease, GaussianRelease, InvariantRelease, LaplaceRelease)
}

__all__ = [
    "METHODS",
    "BoundedRelease",
    "ColumnSummary",
    "GaussianRelease",
    "InvariantRelease",
    "LaplaceRelease",
    "Plan",
    "Publication",
    "Release",
    "ReleaseMethod",
]
