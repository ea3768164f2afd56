"""Which method, plan or table an object is, without loading the others.

What no module has made is no instance of it. Loading every method takes 0.1 s of processor time, and a
command uses one of them.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from discreet.release.coarse import CoarsePlan
    from discreet.release.invariant.plan import InvariantPlan
    from discreet.release.masked.method import MaskedRelease
    from discreet.release.masked.plan import MaskedPlan
    from discreet.release.spark import PartitionedTable
    from discreet.release.synthetic import SyntheticRelease


def is_synthetic(method: object) -> TypeIs[SyntheticRelease]:
    """Return whether a method publishes a synthetic table."""
    return _is_instance(method, "synthetic.method", "SyntheticRelease")


def is_masked(method: object) -> TypeIs[MaskedRelease]:
    """Return whether a method publishes masked rows."""
    return _is_instance(method, "masked.method", "MaskedRelease")


def is_masked_plan(plan: object) -> TypeIs[MaskedPlan]:
    """Return whether a plan is that of masked rows."""
    return _is_instance(plan, "masked.plan", "MaskedPlan")


def is_invariant_plan(plan: object) -> TypeIs[InvariantPlan]:
    """Return whether a plan is that of rows that keep a model."""
    return _is_instance(plan, "invariant.plan", "InvariantPlan")


def is_coarse_plan(plan: object) -> TypeIs[CoarsePlan]:
    """Return whether a plan is that of a coarse table."""
    return _is_instance(plan, "coarse", "CoarsePlan")


def is_partitioned(source: object) -> TypeIs[PartitionedTable]:
    """Return whether a table is one whose parts the workers of Spark read."""
    return _is_instance(source, "spark.table", "PartitionedTable")


def _is_instance(value: object, module: str, name: str) -> bool:
    """Return whether a value is an instance of a class, whose module may not be loaded."""
    loaded = sys.modules.get(f"discreet.release.{module}")
    # A module whose loading is deferred has a type of its own, and asking it for a class would load it.
    return type(loaded) is ModuleType and isinstance(value, getattr(loaded, name))
