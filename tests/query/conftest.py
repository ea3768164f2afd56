"""A local Spark session for tests, started on demand and stopped at the end."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import cannot_start, no_spark

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Start a session on this machine; skips with the reason, or fails, where it cannot."""
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    from pyspark.sql import SparkSession

    from discreet.query.engines import _spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own, about newer versions of pandas
        session = (
            SparkSession.builder.master("local[2]")
            # Not the encryption: with it, pyspark sends rows through sockets that it does not close.
            .config(map={k: v for k, v in _spark._SETTINGS.items() if k.startswith("spark.sql.parser")})
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
