"""Engines that compute exact sums: one adapter for each, all with the same integers.

``base`` is the interface of an engine, and ``tasks`` are what it computes; ``_duckdb`` is the default;
``_postgres`` and ``_spark`` need their extras and are imported when they are used.
"""

from __future__ import annotations

from typing import Any

from discreet.query.engines.base import Engine
from discreet.query.engines.tasks import EngineCells, Kernel

__all__ = ["Engine", "EngineCells", "Kernel", "engine_for"]


def engine_for(source: Any) -> Engine:
    """Return a new engine for a source: PostgreSQL and Spark by URL or frame, else DuckDB."""
    if isinstance(source, str) and source.startswith(("postgresql://", "postgres://")):
        from discreet.query.engines._postgres import PostgresEngine

        return PostgresEngine(source)
    spark = isinstance(source, str) and source.startswith("spark://")
    if spark or type(source).__module__.startswith("pyspark."):
        from discreet.query.engines._spark import SparkEngine

        return SparkEngine()
    from discreet.query.engines._duckdb import DuckDBEngine

    return DuckDBEngine()
