"""The theorem pages that a statement lists for a learner are those of its class, and every page exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from discreet.learn import METHODS
from discreet.report.statement.model import theorems_of

PAGES = Path(__file__).parents[2] / "docs" / "explanation" / "theorems"
PUBLISHED = {
    "svm-exact": ("fisher-svm",),
    "svm": ("svm-objective", "masked-noise", "solver-tolerance"),
    "logistic": ("masked-sensitivity", "masked-noise", "masked-objective", "masked-gradient"),
    "large-margin-gaussian": (
        "large-margin-private",
        "large-margin-sensitivity",
        "large-margin-loss",
        "large-margin-noise",
        "large-margin-cone",
        "large-margin-risk",
    ),
    "id3": ("sulq-id3", "sulq-sensitivity"),
    "classifier": ("classifier", "sulq-sensitivity", "marginals"),
    "naive-bayes": ("sulq-3", "sulq-sensitivity"),
    "ridge": ("sulq-3", "sulq-sensitivity"),
    "gradient-logistic": ("sulq-3", "sulq-sensitivity"),
    "pca": ("sulq-sensitivity",),
    "kmeans": ("sulq-lemma-1", "sulq-sensitivity"),
    "perceptron": ("sulq-2",),
    "noise-aware": ("noise-aware",),
    "noise-aware-ridge": ("noise-aware",),
}
"""What published statements list; a change of these is a change of a published document."""
_NAMED = re.compile(r"docs/explanation/theorems/((?:[\w.-]+?\.md(?:,\s+)?)+)")


def test_every_learner_has_published_theorems() -> None:
    assert PUBLISHED.keys() == METHODS.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_theorems_of_a_learner_are_the_published_ones(name: str) -> None:
    learner = METHODS[name]
    assert learner.theorems == PUBLISHED[name]
    listed = theorems_of(learner)
    assert [theorem.id for theorem in listed] == [*PUBLISHED[name], "composition", "lattice-sampler"]
    assert {theorem.about for theorem in listed[:-2]} == {f"what {learner.__name__} promises"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_theorems_of_a_learner_are_those_that_its_documentation_names(name: str) -> None:
    text = " ".join((inspect.getdoc(METHODS[name]) or "").split())
    named = [page for group in _NAMED.findall(text) for page in re.findall(r"([\w.-]+?)\.md", group)]
    assert list(dict.fromkeys(named)) == list(PUBLISHED[name])


@pytest.mark.parametrize("page", sorted({page for pages in PUBLISHED.values() for page in pages}))
def test_every_listed_theorem_has_a_page(page: str) -> None:
    assert (PAGES / f"{page}.md").is_file()
