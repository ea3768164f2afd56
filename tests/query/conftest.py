"""A local Spark session for tests, started on demand and stopped at the end."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Start a session on this machine; skips, with the reason, where Spark or Java is not installed."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark is NOT TESTED: found no java (install a Java 17 runtime)")
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        pytest.skip("Spark is NOT TESTED: pyspark is not installed (install discreet[spark])")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own, about newer versions of pandas
        session = (
            SparkSession.builder.master("local[2]")
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
