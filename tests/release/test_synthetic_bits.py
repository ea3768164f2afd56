"""What follows the noisy answers has the same bits on every machine."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.privacy import GaussianDP, PureDP
from discreet.release.synthetic import SyntheticRelease, regenerate
from tests.release.synthetic_tables import (
    hidden_class_rows,
    mixed_rows,
    mixed_schema,
    plain_rows,
    plain_schema,
)

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
    "mixed": "788a1fbf61b5293eafafaa38ec6c324ebff2e9c1ebb1cabf12ef796301279fe4",
    "no target": "982a05a8615b3fc5ef1834a5b274603a56d1f9a07edefe05b1c18171bbc1f920",
    "hidden class": "4633167afb50c33ec920870fbb609f85f3bc526ad54de01bb20bc94c5654af61",
    "pure": "1dbd3dadd40cb8a080130531bc7faef7ebf9e18f58370261b864634172d73704",
}
"""SHA-256 of four releases; whoever changes the method on purpose changes them."""


def make(name: str) -> SyntheticRelease:
    """Return the method of one of four small releases, under a seed."""
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
    if name == "hidden class":
        return SyntheticRelease(GaussianDP(mu=20.0), schema=plain_schema(16, 6, target=False), random_state=8)
    return SyntheticRelease(PureDP(epsilon=100.0), schema=plain_schema(6), random_state=7)


def rows_of(name: str) -> dict[str, Any]:
    """Return the rows that one of the releases is made from."""
    if name == "hidden class":
        return hidden_class_rows()
    return plain_rows(800, 6) if name == "pure" else mixed_rows()


def digest(name: str) -> str:
    """Make a release, and hash every bit of its rows."""
    columns = make(name).release(rows_of(name)).columns
    bits = hashlib.sha256()
    for column in sorted(columns):
        bits.update(np.ascontiguousarray(columns[column]).tobytes())
    return bits.hexdigest()


@pytest.mark.parametrize("name", VECTOR)
def test_four_releases_have_the_bits_that_they_always_had(name: str) -> None:
    assert digest(name) == VECTOR[name]


@pytest.mark.parametrize("name", VECTOR)
def test_rows_follow_from_the_published_answers(name: str) -> None:
    method = make(name)
    made = method.release(rows_of(name))
    assert ("hidden_classes" in method.model_) == (name == "hidden class")
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
        # Products of rounded matrices are exact; arithmetic.py has no others.
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        if is_product and path.name != "arithmetic.py":
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
