"""What tests of figures share."""

from __future__ import annotations

import importlib

import pytest

from tests.tiers import with_processes


@pytest.fixture(scope="session", autouse=True)
def _fonts() -> None:
    """Let matplotlib list the machine's fonts, for which it starts a process where it never ran before."""
    with with_processes():
        importlib.import_module("matplotlib.font_manager")
