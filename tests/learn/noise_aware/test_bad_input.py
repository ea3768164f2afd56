"""What does not fit is refused in a sentence that says which and what to do, and quotes no cell."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from discreet.errors import DataError, DiscreetError, ParameterError
from discreet.learn import NoiseAwareClassifier, NoiseAwareRidge
from discreet.noise import Stream
from discreet.noise_law import Clear, ColumnLaw, GaussianLaw, InRangeLaw, NoiseLaw, ResponseLaw, SampledLaw
from tests.learn.noise_aware.simulated import noised

GENERATOR = Stream.from_seed(31).generator()
X = GENERATOR.random((600, 2))
Y = (X[:, 0] > 0.6).astype(int)
Z, LAW = noised(X, 0.2, Stream.from_seed(1))
WORDS = ColumnLaw(name="job", type="category", levels=("clerk", "nurse"), law=ResponseLaw(levels=2, keep=0.9))
LABEL = ColumnLaw(name="y", type="category", levels=(0, 1), role="target", law=Clear())


def with_law(law: Any) -> NoiseLaw:
    return NoiseLaw(columns=(dataclasses.replace(LAW.columns[0], law=law), LAW.columns[1]))


def fit(law: Any, rows: Any = Z, y: Any = Y) -> Any:
    return NoiseAwareClassifier(law, on_weak="rank").fit(rows, y)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: fit(None), "law of NoiseAwareClassifier must be the noise law of the release, was None"),
        (lambda: fit(LAW, Z[:, :1]), "one column for each of the 2 features of its law"),
        (
            lambda: fit(LAW, pd.DataFrame(Z, columns=["x0", "x2"])),
            "must have the column 'x1' of its noise law",
        ),
        (
            lambda: fit(LAW, pd.DataFrame(np.c_[Z, Z[:, 0]], columns=["x0", "x1", "wealth"])),
            "has 'wealth', which the law does not know",
        ),
        (lambda: fit(LAW, Z, np.zeros(600, int)), "must hold two classes, held one class"),
        (lambda: fit(LAW, Z, Y[:-1]), "one label for each row"),
        (lambda: fit(LAW, Z[:1], Y[:1]), "held one class"),
        (lambda: fit(NoiseLaw(columns=(*LAW.columns, LABEL)), Z[:1], Y[:1]), "at least two rows"),
        (lambda: fit(NoiseLaw(columns=(*LAW.columns, LABEL)), Z, Y + 1), "classes of its law alone, and row"),
        (lambda: fit(NoiseLaw(columns=(*LAW.columns, LABEL)), Z, np.zeros(600, int)), "held one class"),
        (lambda: fit(LAW, Z, None), "y of NoiseAwareClassifier.fit must be given"),
        (
            lambda: fit(with_law(GaussianLaw(variance=0.04, clamped=True))),
            "Column 'x0' must be published as the noise left it, was moved into its range",
        ),
        (
            lambda: fit(with_law(GaussianLaw(variance=0.04, grid=0.1))),
            "rounded to steps of 0.1 after the noise",
        ),
        (
            lambda: fit(LAW, np.round(Z, 1)),
            "Column 'x0' of X of NoiseAwareClassifier.fit must be as the noise left it",
        ),
        (lambda: fit(LAW, np.clip(Z, 0, 1)), "rounded or clamped after the noise"),
        (
            lambda: fit(with_law(InRangeLaw(lower=0, upper=1, regularization=1.0, inputs=8, cells=64))),
            "must be one that can be corrected for",
        ),
        (
            lambda: fit(NoiseLaw(columns=(WORDS,)), {"job": np.array(["clerk", "witch"] * 300)}),
            "column 'job' must",
        ),
        (
            lambda: NoiseAwareRidge(NoiseLaw(columns=(*LAW.columns, LABEL))).fit(Z, Y),
            "Use NoiseAwareClassifier for classes",
        ),
        (lambda: NoiseAwareRidge(LAW).fit(Z), "must be given where the law has no target"),
        (lambda: NoiseAwareRidge(LAW).fit(Z, np.array(["a"] * 600)), "must hold numbers"),
        (
            lambda: fit(NoiseLaw(columns=(dataclasses.replace(WORDS, law=ResponseLaw(levels=2, keep=0.5)),))),
            "a feature whose cells say something",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_a_way_out(attempt: Any, words: str) -> None:
    with pytest.raises(DiscreetError, match=words) as caught:
        attempt()
    assert isinstance(caught.value, ParameterError | DataError)
    assert "witch" not in str(caught.value)


def test_fewer_rows_than_classes_are_refused() -> None:
    label = dataclasses.replace(LABEL, levels=tuple(range(5)))
    with pytest.raises(DataError, match="one row for each of 5 classes, had 3"):
        fit(NoiseLaw(columns=(*LAW.columns, label)), Z[:3], np.array([0, 1, 2]))


def test_unlisted_codes_in_a_matrix_are_named_by_row() -> None:
    codes = ColumnLaw(name="c", type="category", levels=(0, 1), law=ResponseLaw(levels=2, keep=0.9))
    rows = np.zeros((600, 1), int)
    rows[41] = 7
    with pytest.raises(DataError, match="column 'c' alone, and row 42 holds") as caught:
        fit(NoiseLaw(columns=(codes,)), rows)
    assert (caught.value.line, caught.value.column) == (42, "c")


def test_a_missing_cell_is_not_taken_for_one_that_was_not_published() -> None:
    inner = ResponseLaw(levels=2, keep=0.9)
    law = NoiseLaw(
        columns=tuple(
            ColumnLaw(
                name=name, type="category", levels=("a", "b"), law=SampledLaw(law=inner, picked=1, among=2)
            )
            for name in "uv"
        )
    )
    u = np.where(np.arange(600) % 2, "a", "not published").astype(object)
    v = np.where(np.arange(600) % 2, "not published", "b").astype(object)
    assert fit(law, {"u": u, "v": v}).status_ in ("ok", "ranking-only", "refused")
    u[1] = None
    with pytest.raises(DataError, match="column 'u' must hold something"):
        fit(law, {"u": u, "v": v})


def test_a_model_shown_other_columns_says_so() -> None:
    model = fit(LAW, pd.DataFrame(Z, columns=["x0", "x1"]))
    with pytest.raises(ParameterError, match="feature names of X of NoiseAwareClassifier"):
        model.predict(pd.DataFrame(Z, columns=["x0", "y0"]))
