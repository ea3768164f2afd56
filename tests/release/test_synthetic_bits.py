"""What follows the noisy answers has the same bits on every machine."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.privacy import GaussianDP, PureDP
from discreet.release.synthetic import SyntheticRelease, regenerate
from tests.release.synthetic_tables import mixed_rows, mixed_schema, plain_rows, plain_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "discreet" / "release" / "synthetic"
BANNED = frozenset({
    "sum", "mean", "average", "std", "var", "dot", "vdot", "inner", "matmul", "einsum", "tensordot", "exp",
    "exp2", "expm1", "log", "log2", "log10", "log1p", "power", "pow", "cbrt", "hypot", "norm", "quantile",
    "median", "fsum", "reduceat", "reduce",
})  # fmt: skip
"""Sums in an order that differs with the processor, and functions whose last digit does."""
VECTOR = {
    "mixed": "b982c5702a2beddfd67ec95fce65a51d1a3a8694fcf5284fd2abb2ebd5a74734",
    "no target": "04a4e65bb0a6b23dc7e8ffad0e21069f1c35590fb497efbb8e8363454d3656b9",
    "pure": "8776f9e86b457606d3eda6640b07d58c6e35ebd66650b7661c13f3cfb7ac8b4b",
}
"""SHA-256 of three releases; whoever changes the method on purpose changes them."""


def make(name: str) -> SyntheticRelease:
    """Return the method of one of three small releases, under a seed."""
    # No calibration is in these promises, whose last digit could differ as well.
    if name == "mixed":
        return SyntheticRelease(GaussianDP(mu=20.0), schema=mixed_schema(), random_state=5)
    if name == "no target":
        return SyntheticRelease(
            GaussianDP(mu=1.0),
            schema=mixed_schema(),
            target=False,
            cells={"age": (20, 40, 60)},
            random_state=6,
        )
    return SyntheticRelease(PureDP(epsilon=100.0), schema=plain_schema(6), random_state=7)


def digest(name: str) -> str:
    """Make a release, and hash every bit of its rows."""
    rows = plain_rows(800, 6) if name == "pure" else mixed_rows()
    columns = make(name).release(rows).columns
    bits = hashlib.sha256()
    for column in sorted(columns):
        bits.update(np.ascontiguousarray(columns[column]).tobytes())
    return bits.hexdigest()


@pytest.mark.parametrize("name", VECTOR)
def test_three_releases_have_the_bits_that_they_always_had(name: str) -> None:
    assert digest(name) == VECTOR[name]


@pytest.mark.parametrize("name", VECTOR)
def test_rows_follow_from_the_published_answers(name: str) -> None:
    method = make(name)
    made = method.release(plain_rows(800, 6) if name == "pure" else mixed_rows())
    again = regenerate(method, json.loads(json.dumps(method.tables_)))
    for column, values in made.columns.items():
        assert values.tobytes() == again.columns[column].tobytes()


@pytest.mark.slow
def test_releases_have_the_same_bits_under_two_kernels_of_linear_algebra() -> None:
    found = []
    for kernel in ("Prescott", "Haswell"):
        environment = {
            **os.environ,
            "OPENBLAS_CORETYPE": kernel,
            "NPY_DISABLE_CPU_FEATURES": "" if kernel == "Haswell" else "AVX2 FMA3 AVX512F AVX512_SKX",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.release.test_synthetic_bits"],
            cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout))
    assert found == [VECTOR, VECTOR]


def banned(path: Path) -> Iterator[str]:
    """Yield calls and operators of a module whose results differ between machines."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        place = f"{path.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in BANNED:
                yield f"{place} {called}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield f"{place} @"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            ends = (node.left, node.right)
            plain = all(isinstance(end, ast.Constant | ast.UnaryOp) for end in ends)
            # Powers of whole numbers are exact; arithmetic.py has no others.
            if not plain and path.name != "arithmetic.py":
                yield f"{place} **"


def test_no_module_adds_in_an_order_of_the_processor() -> None:
    assert [found for path in sorted(PACKAGE.glob("*.py")) for found in banned(path)] == []


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: digest(name) for name in VECTOR}))
