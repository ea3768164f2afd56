"""Examples in the docstrings of public names run, and every name of the package itself has one."""

from __future__ import annotations

import doctest
import inspect
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

import discreet

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = (
    "audit", "datasets", "learn", "ledger", "noise", "noise_law", "pipeline", "privacy", "query", "release",
    "report", "schema", "tables",
)  # fmt: skip
ELSEWHERE = {
    "RemoteDatabase": "needs a service",
    "connect": "needs a service",
    "write_report": "takes what a job measured",
}


def public_names() -> dict[str, Any]:
    """Return every public class and function once, by the module and name of its definition."""
    found = {name: getattr(discreet, name) for name in discreet.__all__}
    for package in PACKAGES:
        module = import_module(f"discreet.{package}")
        found |= {f"{package}.{name}": getattr(module, name) for name in getattr(module, "__all__", ())}
    return {
        f"{thing.__module__}.{thing.__qualname__}": thing
        for thing in found.values()
        if inspect.isclass(thing) or inspect.isfunction(thing)
    }


NAMES = public_names()
WITH_EXAMPLE = [name for name, thing in NAMES.items() if ">>>" in (thing.__doc__ or "")]


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_the_examples_of_a_public_name_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    thing = NAMES[name]
    runner = doctest.DocTestRunner(verbose=False)
    said: list[str] = []
    for test in doctest.DocTestFinder().find(thing, name, globs=dict(vars(sys.modules[thing.__module__]))):
        runner.run(test, out=said.append)
    assert runner.tries > 0
    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize("name", sorted(set(discreet.__all__) - set(ELSEWHERE)))
def test_every_name_of_the_package_has_an_example(name: str) -> None:
    assert ">>>" in (getattr(discreet, name).__doc__ or "")
