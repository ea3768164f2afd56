"""The gallery shows every method of the papers and every way to publish. `make docs` runs its scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import discreet

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.glob("*/*.py"))
SHOWN = (
    "BoundedRelease", "CoarseRelease", "Database", "GaussianRelease", "InvariantRelease",
    "LargeMarginGaussianClassifier", "MaskedRelease", "PrivateClassifier", "PrivateID3Classifier",
    "PrivateKMeans", "PrivatePCA", "PrivatePerceptron", "SyntheticRelease",
)  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_a_script_uses_each_method(name: str) -> None:
    assert name in discreet.__all__
    assert [path for path in SCRIPTS if re.search(rf"\b{name}\(", path.read_text())]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_is_run_and_draws(path: Path) -> None:
    text = path.read_text()
    assert path.name.startswith("plot_")  # sphinx-gallery runs no others
    assert "plt.subplots(" in text
    if path.parent.name != "notebooks":
        assert "random_state=1" in text  # or the pictures would change with every build


def test_there_is_a_notebook_for_each_walk() -> None:
    walks = [path.stem[len("plot_1_") :] for path in SCRIPTS if path.parent.name == "notebooks"]
    assert walks == ["first_release", "private_database", "publish_a_model", "recipient", "audit"]
