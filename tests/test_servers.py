"""A test run says which engines it could not start, and fails where they were promised."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report import chromium
from tests.servers import cannot_start, required

ROOT = Path(__file__).parents[1]
NEEDS_SPARK = "tests/query/test_engines.py::test_a_table_without_rows_sums_to_zero[spark]"


def run_without_java(**more: str) -> tuple[int, str]:
    hidden = ("JAVA_HOME", "CI", "DISCREET_REQUIRE_ENGINES")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", NEEDS_SPARK],
        cwd=ROOT, env={**kept, "PATH": "", **more}, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.slow
def test_a_run_without_java_says_loudly_that_spark_was_not_tested() -> None:
    code, said = run_without_java()
    assert code == 0, said
    header, _, rest = said.partition("collected")
    assert "engines: Spark is NOT TESTED: found no java" in header
    assert "! NOT TESTED !" in rest
    assert "1 tests: Spark is NOT TESTED: found no java" in rest


@pytest.mark.parametrize("promise", ["CI", "DISCREET_REQUIRE_ENGINES"])
def test_a_run_without_java_fails_where_engines_are_promised(
    promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "DISCREET_REQUIRE_ENGINES"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.skip.Exception, match="Spark is NOT TESTED"):
        cannot_start("Spark", "found no java")
    monkeypatch.setenv(promise, "1")
    assert required() == promise
    with pytest.raises(pytest.fail.Exception, match=f"Spark is NOT TESTED: found no java; {promise} is set"):
        cannot_start("Spark", "found no java")


def test_pages_are_not_taken_for_accessible_where_axe_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "DISCREET_REQUIRE_ENGINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(chromium, "AXE", None)
    page = object.__new__(chromium.Browser)
    with pytest.raises(pytest.skip.Exception, match="axe-core is NOT TESTED"):
        page.violations()
    monkeypatch.setenv("DISCREET_REQUIRE_ENGINES", "1")
    with pytest.raises(pytest.fail.Exception, match="axe-core is NOT TESTED"):
        page.violations()


@pytest.mark.slow
def test_the_promise_reaches_a_real_run() -> None:
    code, said = run_without_java(DISCREET_REQUIRE_ENGINES="1")
    assert code == 1, said
    assert "DISCREET_REQUIRE_ENGINES is set, so this is an error" in said
