"""Who adds up: one adapter for each engine, all of them with the same exact integers.

``base`` says what an engine does; ``_duckdb`` is the default; ``_postgres`` and ``_spark`` need their extras
and are imported when they are asked for; ``_sql_text`` writes their SQL.
"""

from __future__ import annotations

from typing import Any

from discreet.query.engines.base import Engine, EngineCells, Kernel

__all__ = ["Engine", "EngineCells", "Kernel", "engine_for"]


def engine_for(source: Any) -> Engine:
    """Choose the engine that goes with a source."""
    if isinstance(source, str) and source.startswith(("postgresql://", "postgres://")):
        from discreet.query.engines._postgres import PostgresEngine

        return PostgresEngine(source)
    spark = isinstance(source, str) and source.startswith("spark://")
    if spark or type(source).__module__.startswith("pyspark."):
        from discreet.query.engines._spark import SparkEngine

        return SparkEngine()
    from discreet.query.engines._duckdb import DuckDBEngine

    return DuckDBEngine()
