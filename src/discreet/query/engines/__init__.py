"""Engines that compute exact sums: one adapter for each, all with the same integers.

``base`` is the interface of an engine, and ``tasks`` are what it computes; ``_duckdb`` has the default, and
one that sums kernels over small tables in memory; ``_postgres`` and ``_spark`` need their extras and are
imported when they are used.
"""

from __future__ import annotations

from discreet.query.engines.base import Engine, engine_for, kernel_engine_for
from discreet.query.engines.tasks import EngineCells, Kernel

__all__ = ["Engine", "EngineCells", "Kernel", "engine_for", "kernel_engine_for"]
