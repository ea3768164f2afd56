"""One seed by default; ``DISCREET_SEEDS=0-99`` or ``DISCREET_SEEDS=3,5`` for more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, _, last = os.environ.get("DISCREET_SEEDS", "0").partition("-")
        seeds = range(int(first), int(last) + 1) if last else [int(k) for k in first.split(",")]
        metafunc.parametrize("seed", seeds)
