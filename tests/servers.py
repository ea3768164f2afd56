"""What to do about an engine that cannot be started: say so loudly, or fail where it was promised."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest

MARK = "NOT TESTED"
_PROMISED = ("DISCREET_REQUIRE_ENGINES", "CI")


def required() -> str | None:
    """Name the environment variable that asks for every engine, if one does."""
    return next((name for name in _PROMISED if os.environ.get(name, "") not in ("", "0", "false")), None)


def cannot_start(engine: str, why: str) -> NoReturn:
    """Skip the test that needs an engine, or fail it where engines are required."""
    told = f"{engine} is {MARK}: {why}"
    asked = required()
    if asked is None:
        pytest.skip(told)
    pytest.fail(f"{told}; {asked} is set, so this is an error", pytrace=False)


def no_spark() -> str | None:
    """Say why Spark cannot be started, if it cannot."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "found no java (install a Java 17 runtime)"
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (install discreet[spark])"
    return None
