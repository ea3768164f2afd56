"""A table in, a table out. ``METHODS`` is the list that everything else reads."""

from __future__ import annotations

from discreet.release.base import Plan, Release, ReleaseMethod
from discreet.release.gaussian import GaussianRelease

METHODS: dict[str, type[ReleaseMethod]] = {method.name: method for method in (GaussianRelease,)}

__all__ = ["METHODS", "GaussianRelease", "Plan", "Release", "ReleaseMethod"]
