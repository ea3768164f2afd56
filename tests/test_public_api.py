"""The public names, where they are documented, and the one package that may touch randomness."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from docs.generate_reference import PUBLIC, names_page

import discreet

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "discreet"
PUBLIC_CLASSES = [name for name in discreet.__all__ if inspect.isclass(getattr(discreet, name))]


def test_every_public_name_exists_and_unknown_ones_do_not() -> None:
    assert sorted(discreet.__all__) == dir(discreet)
    for name in discreet.__all__:
        assert getattr(discreet, name) is not None
    with pytest.raises(AttributeError, match="Nonsense"):
        discreet.Nonsense  # noqa: B018


@pytest.mark.parametrize("name", PUBLIC_CLASSES)
def test_every_public_class_documents_privacy_and_reference(name: str) -> None:
    text = inspect.getdoc(getattr(discreet, name)) or ""
    for section in ("Privacy", "Reference"):
        assert re.search(rf"^{section}\n-+$", text, re.MULTILINE), f"{name} has no {section} section"


def test_the_reference_lists_every_public_name_and_no_other() -> None:
    page = ROOT / "docs" / "reference" / "names.md"
    assert page.read_text(encoding="utf-8") == names_page(), "run python docs/generate_reference.py"
    public = {name for module in PUBLIC for name in import_module(module).__all__}
    explained = re.findall(
        r"^   discreet\.([\w.]+)$",
        (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert explained
    assert sorted({name.split(".")[-1] for name in explained} - public) == []


def test_theorem_pages_named_in_the_code_exist_and_every_page_is_named() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "explanation" / "theorems").glob("*.md")}
    named: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for mention in re.findall(r"docs/explanation/theorems/([\w.-]+?)\.md(?:, ([\w.\-, ]+\.md))?", text):
            named.add(mention[0])
            named.update(re.findall(r"([\w.-]+?)\.md", mention[1]))
    assert named <= pages
    assert pages <= named


def _imports_and_names(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found


RANDOM = re.compile(
    r"^(random|secrets|np\.random|numpy\.random|os\.urandom|os\.getrandom|uuid\.uuid[14])(\.|$)"
)


def test_no_module_outside_noise_touches_a_source_of_randomness() -> None:
    offenders = {
        str(path.relative_to(SOURCE)): sorted(
            filter(RANDOM.match, _imports_and_names(ast.parse(path.read_text())))
        )
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).as_posix() != "noise/stream.py"
    }
    assert {path: names for path, names in offenders.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "from secrets import token_bytes",
        "import numpy as np\nnp.random.default_rng()",
        "import os\nos.urandom(3)",
    ],
)
def test_the_search_for_randomness_finds_it(line: str) -> None:
    assert any(RANDOM.match(name) for name in _imports_and_names(ast.parse(line)))


@pytest.mark.slow
def test_the_command_line_starts_without_the_heavy_packages() -> None:
    heavy = ("numpy", "scipy", "sklearn", "duckdb", "pydantic", "matplotlib")
    code = f"import sys, discreet, discreet.cli; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
