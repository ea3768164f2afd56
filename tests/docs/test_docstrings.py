"""Examples in the docstrings of public names run, and every name with a page of its own has one."""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import discreet

PACKAGES = (
    "audit", "datasets", "learn", "ledger", "noise", "noise_law", "pipeline", "privacy", "query", "release",
    "report", "schema", "tables",
)  # fmt: skip
API = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
# What only a function returns, or only a class implements, is in the example of that one.
INSIDE = {
    "Reidentification": "attack_records",
    "InvariantLearner": "RidgeLearner",
    "LearnerSolution": "RidgeLearner",
}
# These need a service or a cluster: their examples are shown and not run.
SHOWN = {"Client", "DatasetInfo", "RemoteDatabase", "connect", "PartitionedTable"}


def documented_names() -> dict[str, Any]:
    """Return what has a page of its own in the reference, by its full name."""
    names = re.findall(r"^   (discreet\.[\w.]+)$", API.read_text(encoding="utf-8"), re.MULTILINE)
    split = [name.rpartition(".") for name in names]
    return {f"{module}.{name}": getattr(import_module(module), name) for module, _, name in split}


DOCUMENTED = documented_names()


def public_names() -> dict[str, Any]:
    """Return every public class and function once, by the module and name of its definition."""
    found = {name: getattr(discreet, name) for name in discreet.__all__}
    for package in PACKAGES:
        module = import_module(f"discreet.{package}")
        found |= {f"{package}.{name}": getattr(module, name) for name in getattr(module, "__all__", ())}
    return {
        f"{thing.__module__}.{thing.__qualname__}": thing
        for thing in (found | DOCUMENTED).values()
        if inspect.isclass(thing) or inspect.isfunction(thing)
    }


NAMES = public_names()
WITH_EXAMPLE = [
    name
    for name, thing in NAMES.items()
    if ">>>" in (thing.__doc__ or "") and name.split(".")[-1] not in SHOWN
]


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


@pytest.mark.parametrize("name", [*DOCUMENTED, *(f"discreet.{name}" for name in discreet.__all__)])
def test_every_name_with_a_page_has_an_example(name: str) -> None:
    last = name.split(".")[-1]
    name = name.replace(last, INSIDE.get(last, last))
    thing = DOCUMENTED.get(name) or getattr(discreet, name.removeprefix("discreet."))
    assert ">>>" in (thing.__doc__ or "")
