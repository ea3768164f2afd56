"""The files for people who find the repository: citation, security policy, workflows, issue forms, hooks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def make_targets(text: str) -> set[str]:
    """Return the targets of every `make` command in a text."""
    commands = re.findall(r"(?:^|[\s`&])make((?: [a-z]+)+)(?=[`\n]|$)", text, re.MULTILINE)
    return {target for command in commands for target in command.split()}


def test_the_citation_is_of_this_version_and_license() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert [reference["authors"][0]["family-names"] for reference in citation["references"]] == [
        "Farokhi", "Pathak", "Pham", "Blum",
    ]  # fmt: skip


def test_the_security_policy_is_found_and_covers_this_version() -> None:
    assert "](SECURITY.md)" in (ROOT / "README.md").read_text()
    minor = PROJECT["version"].rpartition(".")[0]
    assert f"| {minor}.x | yes |" in (ROOT / "SECURITY.md").read_text()
    privacy = (ROOT / ".github" / "ISSUE_TEMPLATE" / "privacy.yml").read_text()
    assert "SECURITY.md" in privacy


@pytest.mark.parametrize(
    "path",
    [*WORKFLOWS, ROOT / ".ci" / "run", ROOT / "CONTRIBUTING.md", ROOT / "README.md"],
    ids=lambda p: p.name,
)
def test_every_make_target_that_is_named_exists(path: Path) -> None:
    named = make_targets(path.read_text())
    assert named
    assert named <= TARGETS


def test_a_target_that_does_not_exist_is_found() -> None:
    assert make_targets("- run: make check nonsense\n") - TARGETS == {"nonsense"}


def test_the_workflow_tests_every_python_that_the_package_names() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert jobs["test"]["strategy"]["matrix"]["python"] == classified
    assert f">={classified[0]}" == PROJECT["requires-python"]
    named = {
        target
        for job in jobs.values()
        for step in job["steps"]
        for target in make_targets(step.get("run", ""))
    }
    assert named == make_targets((ROOT / ".ci" / "run").read_text())


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_every_issue_form_has_what_the_host_demands(path: Path) -> None:
    form = read(path)
    if path.name == "config.yml":
        assert form == {"blank_issues_enabled": False}
        return
    assert {"name", "description", "body"} <= set(form)
    labels = [part["attributes"]["label"] for part in form["body"] if part["type"] != "markdown"]
    assert len(labels) == len(set(labels)) > 0


def test_every_hook_calls_a_tool_that_the_checks_install() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert check is not None
    for hook in repository["hooks"]:
        assert hook["entry"].replace(".venv/bin", "$(BIN)").split()[0] in check.group(1)
