"""The law of a published table: one value, the same after a file, and refused where it contradicts itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from discreet.errors import ParameterError
from discreet.noise_law import (
    KINDS,
    Clear,
    ColumnLaw,
    CorrelatedGaussianLaw,
    GaussianLaw,
    JointResponseLaw,
    LaplaceLaw,
    NoiseLaw,
    ResponseLaw,
    SampledLaw,
    law_from_dict,
)
from discreet.schema import Column

ANSWER = ResponseLaw(levels=3, keep=0.5)


def listed(
    name: str, law: Any, levels: tuple[Any, ...] = ("a", "b", None), role: str = "sensitive"
) -> ColumnLaw:
    return ColumnLaw(name=name, type="category", levels=levels, missing=None in levels, law=law, role=role)


def sampled(picked: int = 1, among: int = 2, law: Any = ANSWER, **rest: Any) -> SampledLaw:
    return SampledLaw(law=law, picked=picked, among=among, **rest)


PAIR = JointResponseLaw(columns=("u", "v"), levels=6, keep=0.4)
WHOLE = NoiseLaw(
    columns=(
        ColumnLaw(name="age", lower=0, upper=120, type="integer", law=GaussianLaw(variance=81.0)),
        ColumnLaw(
            name="pay", lower=0, upper=9.5, missing=True, law=LaplaceLaw(variance=2.0, missing_keep=0.8)
        ),
        ColumnLaw(
            name="born", lower=0, upper=400, type="date", role="public", law=Clear(), origin="2001-01-31"
        ),
        listed("job", sampled(2, 3)),
        listed("home", sampled(2, 3, ResponseLaw(levels=2, keep=0.9), unpublished=-1), (0, 1)),
        listed("u", sampled(2, 3, PAIR), ("p", "q")),
        listed("v", sampled(2, 3, PAIR, unpublished="-"), ("x", "y", "z")),
        listed("label", Clear(), (False, True), "target"),
    )
)


def test_a_law_is_the_same_after_json() -> None:
    again = NoiseLaw.from_dict(json.loads(json.dumps(WHOLE.to_dict(), allow_nan=False)))
    assert again == WHOLE
    assert hash(again) == hash(WHOLE)


def test_it_says_what_is_clear_what_is_sampled_and_what_is_predicted() -> None:
    assert WHOLE.clear == ("born", "label")
    assert WHOLE.column_sample == (2, 3)
    assert WHOLE.label is not None
    assert WHOLE.label.name == "label"
    assert [column.name for column in WHOLE.features][-1] == "v"
    assert NoiseLaw(columns=(listed("job", ANSWER),)).column_sample is None


def test_what_stands_for_not_published_is_no_level_of_the_column() -> None:
    column = Column("job", values=("a", "b", "not published"), closed=True, required=False)
    made = ColumnLaw.from_column(column, sampled())
    assert made.levels == ("a", "b", None)
    with pytest.raises(ParameterError, match="'not published' that is no level"):
        listed("job", sampled(unpublished="a"))


def test_the_middle_of_the_range_stands_in_for_missing_numbers() -> None:
    assert WHOLE.columns[1].fill == 4.75
    assert ColumnLaw(name="n", lower=0, upper=5, type="integer", law=Clear()).fill == 2.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: listed("job", ResponseLaw(levels=4, keep=0.5)), "for the 3 levels of its list, was for 4"),
        (lambda: listed("job", ANSWER, ("a",)), "at least two levels"),
        (lambda: listed("job", ResponseLaw(levels=3, keep=0.2)), "chance from 1/3 to 1"),
        (lambda: ColumnLaw(name="x", law=Clear()), "finite declared range"),
        (lambda: ColumnLaw(name="x", lower=1, upper=1, law=Clear()), "finite declared range"),
        (lambda: ColumnLaw(name="x", lower=0, upper=1, law=ANSWER), "list of levels"),
        (
            lambda: ColumnLaw(name="x", lower=0, upper=1, law=GaussianLaw(variance=-1.0)),
            "variance of at least 0",
        ),
        (
            lambda: ColumnLaw(name="x", lower=0, upper=1, missing=True, law=sampled(law=Clear())),
            "NaN cannot say which",
        ),
        (lambda: sampled(3, 2), "from 1 to among"),
        (lambda: sampled(law=sampled()), "sampled again"),
        (lambda: CorrelatedGaussianLaw(variance=1.0, columns=("a",), covariances=()), "one for each"),
        (lambda: NoiseLaw(columns=()), "at least one"),
        (lambda: NoiseLaw(columns=(listed("a", ANSWER), listed("a", ANSWER))), "each name once"),
        (
            lambda: NoiseLaw(columns=tuple(listed(n, ANSWER, role="target") for n in "ab")),
            "one target at most",
        ),
        (lambda: NoiseLaw(columns=(listed("a", sampled(1, 2)),)), "among the 1 that"),
        (
            lambda: NoiseLaw(columns=(listed("a", sampled(1, 2)), listed("b", sampled(2, 2)))),
            "among the 2 that",
        ),
        (
            lambda: NoiseLaw(columns=(listed("a", sampled(1, 2)), listed("b", sampled(1, 2), role="target"))),
            "published in every row",
        ),
        (lambda: NoiseLaw(columns=(listed("u", PAIR, ("p", "q")),)), "all have the same law"),
        (
            lambda: NoiseLaw(
                columns=(listed("u", PAIR, ("p", "q")), listed("v", sampled(1, 1, PAIR), ("x", "y", "z")))
            ),
            "all have the same law",
        ),
        (
            lambda: NoiseLaw(columns=(listed("u", PAIR, ("p", "q")), listed("v", PAIR, ("x", "y")))),
            "as many combinations",
        ),
        (lambda: NoiseLaw.from_dict({"kind": "other", "columns": []}), "kind 'noise-law'"),
        (lambda: ColumnLaw.from_dict({"name": "x"}), "must have the keys"),
    ],
)
def test_a_law_that_contradicts_itself_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        make()


def test_every_kind_says_itself_in_words_and_reads_back() -> None:
    assert {"sampled", "joint-response"} <= set(KINDS)
    together = CorrelatedGaussianLaw(variance=2.0, columns=("a", "b"), covariances=(2.0, 0.5))
    for law in (PAIR, sampled(2, 3, PAIR), ANSWER, together, GaussianLaw(variance=2.0)):
        assert law_from_dict(law.to_dict()) == law
    assert "each row shows 2" in sampled(2, 3).words()
    assert "u and v together" in PAIR.words()
