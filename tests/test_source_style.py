"""Rules for names, borders and docstrings that the syntax trees of the source can show."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "discreet"
LEAST_WORDS = 4
"""Words that a parameter's text has at least, unless its type says it all."""
LONG = 12
"""Lines from which on a function needs a docstring."""
MOST_PARAMETERS = 10
JOBS = ("publish", "publish_model")
"""The two jobs take what a person decides about a table, a ledger and a folder, one keyword for each."""
PUBLISHED = ("report.statement.documents", "report.statement.model_documents")
"""The docstrings of these modules are descriptions in published JSON Schemas, which do not change."""
FRAGMENT = re.compile(
    r"^Of (the|a|an|its|all|each|every|one|both|this|that)\b|^(Who|Whose|What|How|Where|Which)\b.{0,30}$"
)
"""A text that begins like this leaves the reader to guess which quantity is meant."""
TYPE_SAYS_IT_ALL = re.compile(r"^(seed|random_state|sample_weight|deep|copy|args|kwargs|_+)$")
# Participles and gerunds that name a value in the words of the field.
VALUE_NAMES = frozenset({
    "rounded", "scaled", "merged", "sorted", "weighted", "normalized", "centered", "standardized",
    "reversed", "escaped", "encoded", "decoded", "clipped", "padded", "nested", "bounded", "shared",
    "derived", "signed", "expected", "observed", "blinded", "truncated", "smoothed", "embedding",
    "encoding", "scaling", "rounding", "clipping", "sampling", "training", "testing", "string",
    "missing", "spelling", "remaining", "timing",
})  # fmt: skip


class Function(NamedTuple):
    """A function or method with where it stands."""

    module: str
    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: ast.ClassDef | None

    @property
    def place(self) -> str:
        return f"{self.module}:{self.node.lineno} {self.name}"


@cache
def trees() -> dict[str, ast.Module]:
    """Return the tree of every module of the package by its dotted name without the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


def functions(name: str) -> Iterator[Function]:
    """Yield the functions of a module with those of its classes, not those inside functions."""

    def visit(body: list[ast.stmt], owner: ast.ClassDef | None) -> Iterator[Function]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                label = f"{owner.name}.{node.name}" if owner else node.name
                yield Function(name, label, node, owner)
            elif isinstance(node, ast.ClassDef):
                yield from visit(node.body, node)

    yield from visit(trees()[name].body, None)


def parameter_texts(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each entry under Parameters and Attributes of a numpydoc docstring."""
    lines = docstring.expandtabs().split("\n")
    k, section = 0, ""
    while k < len(lines):
        if k + 1 < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[k + 1]):
            section = lines[k].strip()
            k += 2
            continue
        entry = re.match(r"(\s*)([\w*, ]+?)( : .*)?$", lines[k])
        if section in ("Parameters", "Attributes") and lines[k].strip() and entry:
            indent, k = len(entry.group(1)), k + 1
            text = []
            while k < len(lines) and (
                not lines[k].strip() or len(lines[k]) - len(lines[k].lstrip()) > indent
            ):
                text.append(lines[k].strip())
                k += 1
            yield entry.group(2), " ".join(text).strip()
            continue
        k += 1


def thin_parameter_texts(name: str) -> list[str]:
    """Return the parameters of a module that are explained in fewer words than a reader needs."""
    found: list[str] = []
    if name in PUBLISHED:
        return found
    for node in ast.walk(trees()[name]):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for parameter, text in parameter_texts(ast.get_docstring(node) or ""):
            if TYPE_SAYS_IT_ALL.match(parameter) or text.startswith("As for "):
                continue
            if len(text.split()) < LEAST_WORDS or FRAGMENT.match(text):
                found.append(f"{name}:{node.lineno} {node.name}({parameter}): {text!r}")
    return found


def undocumented(name: str) -> list[str]:
    """Return the long functions of a module without a docstring."""
    return [
        one.place
        for one in functions(name)
        if (one.node.end_lineno or 0) - one.node.lineno + 1 >= LONG and not ast.get_docstring(one.node)
    ]


def lone_participles(name: str) -> list[str]:
    """Return functions whose whole name is a participle or a gerund, which says neither verb nor noun."""
    found = []
    for one in functions(name):
        word = one.node.name.strip("_")
        decorators = {ast.unparse(d).split(".")[-1] for d in one.node.decorator_list}
        if "_" in word or word in VALUE_NAMES or decorators & {"property", "cached_property"}:
            continue
        if re.search(r"(ed|ing)$", word) and len(word) > 4:
            found.append(one.place)
    return found


def test_every_parameter_is_explained() -> None:
    assert [found for name in trees() for found in thin_parameter_texts(name)] == []


def test_no_docstring_has_a_section_twice() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for name, tree in trees().items():
        for node in ast.walk(tree):
            docstring = ast.get_docstring(node) if isinstance(node, documented) else None
            headings = re.findall(r"^(\w.*)\n-{3,}$", docstring or "", re.MULTILINE)
            if len(headings) != len(set(headings)):
                found.append(f"{name}: {getattr(node, 'name', 'module')}")
    assert found == []


def test_every_long_function_has_a_docstring() -> None:
    assert [found for name in trees() for found in undocumented(name)] == []


def test_functions_are_named_by_verb_and_object() -> None:
    assert [found for name in trees() for found in lone_participles(name)] == []


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of the package that a tree imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("discreet"):
            base = node.module.removeprefix("discreet").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in trees() else base
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("discreet."):
                    yield alias.name.removeprefix("discreet.")


def test_private_modules_are_imported_only_inside_their_package() -> None:
    found = [
        f"{name} imports {target}"
        for name, tree in trees().items()
        for target in imported_modules(tree)
        if any(part.startswith("_") for part in target.split("."))
        and target.split(".")[0] != name.split(".")[0]
        and target != "_types"
    ]
    assert found == []


def test_functions_take_few_parameters() -> None:
    """Constructors are exempt: statements publish the parameters of estimators and releases by name."""
    found = []
    for name in trees():
        for one in functions(name):
            arguments = one.node.args
            count = len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
            count -= one.owner is not None and not any(
                ast.unparse(d) == "staticmethod" for d in one.node.decorator_list
            )
            if count > MOST_PARAMETERS and one.node.name not in ("__init__", *JOBS):
                found.append(f"{one.place} has {count}")
    assert found == []


def test_no_constructor_is_named_by_a_bare_preposition() -> None:
    names = {"of", "make", "found", "fix", "around", "up", "down"}
    found = [
        one.place
        for name in trees()
        for one in functions(name)
        if one.node.name in names and any(ast.unparse(d) == "classmethod" for d in one.node.decorator_list)
    ]
    assert found == []
