"""Questions are read, written as sentences and as SQL, and read again as the same; nothing else happens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import ExpressionRefused, ParameterError
from discreet.job.axes import Axis
from discreet.job.sentence import Sentence, read_sentence, sentence_of
from tests.job.asked import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

# The grammar, in texts that are in the language whatever is drawn.


def _joined(*parts: Any) -> st.SearchStrategy[str]:
    made = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*made).map("".join)


NUMBERS = st.sampled_from(
    ["age", "AGE", '"hours-per-week"', "change", "where", "limit", "3", "0.25", "1e3", "(admitted - 30)"]
)
TESTS = st.sampled_from(
    [
        "sex = 'f'",
        "sex IN ('m', 'x')",
        "smoker",
        "by",
        "NOT (by)",
        "select = 'it''s'",
        "select <> 'group by'",
        "change IS NULL",
        "admitted < '2020-07-01'",
        "TRUE",
    ]
)


def _number(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sign = st.sampled_from([" + ", " - ", " * "])
    return st.one_of(
        _joined("(", inner, sign, inner, ")"),
        _joined("ABS(", inner, ")"),
        _joined("LEAST(", inner, ", ", inner, ")"),
        _joined("CASE WHEN ", TESTS.map(lambda test: f"({test})"), " THEN ", inner, " ELSE 0 END"),
    )


NUMBER = st.recursive(NUMBERS, _number, max_leaves=4)
RELATION = st.sampled_from([" < ", " >= ", " = ", " <> "])
SIMPLE = st.one_of(TESTS, _joined(NUMBER, RELATION, NUMBER))


def _condition(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    word = st.sampled_from([" AND ", " or "])
    return st.one_of(_joined("(", inner, ")", word, "(", inner, ")"), _joined("NOT (", inner, ")"))


CONDITION = st.recursive(SIMPLE, _condition, max_leaves=4).map(lambda text: f"({text})")
EDGE = st.floats(-1e6, 1e6, allow_nan=False).map(lambda edge: edge + 0.0)
EDGES = st.lists(EDGE, min_size=1, max_size=4, unique=True).map(sorted)
GROUP = st.one_of(
    st.sampled_from(
        ["sex", "Smoker", '"by"', '"where"', "age", '"select"', "admitted ('2020-02-01', '2020-03-01')"]
    ),
    _joined(
        st.sampled_from(["age", '"hours-per-week"', "change", '"limit"', "admitted"]),
        " (",
        EDGES.map(lambda edges: ", ".join(map(repr, edges))),
        ")",
    ),
)


def _name_of(group: str) -> str:
    return group.partition(" (")[0].strip('"').casefold()


GROUPS = st.lists(GROUP, max_size=2, unique_by=_name_of).map(", ".join)
WHERE = st.one_of(st.just(""), CONDITION)


@st.composite
def sentences(draw: Callable[..., Any]) -> str:
    expression, where, groups = draw(NUMBER), draw(WHERE), draw(GROUPS)
    what = draw(st.sampled_from(["count", "COUNT(*)", f"sum({expression})", f"Mean ({expression})"]))
    by = draw(st.sampled_from([" by ", " GROUP BY "]))
    return str(what + (f" where {where}" if where else "") + (by + groups if groups else ""))


@st.composite
def selects(draw: Callable[..., Any]) -> str:
    expression, where, groups = draw(NUMBER), draw(WHERE), draw(GROUPS)
    what = draw(st.sampled_from(["COUNT(*)", f"SUM({expression})", f"avg( {expression} ) AS x"]))
    keys = [part.partition(" (")[0] for part in _split(groups)] if draw(st.booleans()) else []
    listed = draw(st.permutations([what, *keys]))
    text = f"SELECT {', '.join(listed)}\nFROM people"
    return text + (f" WHERE {where}" if where else "") + (f" group by {groups}" if groups else "")


def _split(groups: str) -> list[str]:
    """Take a list of groups apart: commas inside of parentheses stay."""
    parts, depth = [""], 0
    for sign in groups:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def check_identity(text: str) -> None:
    found = read_sentence(text, SCHEMA)
    assert read_sentence(found.sql, SCHEMA) == found
    assert read_sentence(str(found), SCHEMA) == found
    assert read_sentence(found.sql, SCHEMA).sql == found.sql


TEXTS = st.one_of(sentences(), selects())


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_sentence_to_sql_to_sentence_is_the_identity(text: str) -> None:
    check_identity(text)


@pytest.mark.stats
@settings(max_examples=20_000, deadline=None)
@given(TEXTS)
def test_sentence_to_sql_to_sentence_is_the_identity_20_000_times(text: str) -> None:
    check_identity(text)


HOSTILE = [
    *(" where ", " by ", " group by ", " HAVING ", " order by ", " FROM ", "SELECT ", " UNION ALL ", " AS "),
    *(
        "(",
        ")",
        "((",
        "*",
        ",",
        ";",
        "--",
        "/*",
        "*/",
        "'",
        '"',
        "''",
        '""',
        "\x00",
        "\n",
        "\xa0",
        "é",
        "\ud800",
    ),
    *("age", "count", "sum(", "avg(", "DISTINCT ", " JOIN b ON ", " OVER ()", "1e999", "nan", "-", ".", "e"),
]
EDIT = st.tuples(st.integers(0, 400), st.integers(0, 12), st.sampled_from(HOSTILE))


def mutated(text: str, edits: list[tuple[int, int, str]]) -> str:
    for place, removed, put in edits:
        at = place % (len(text) + 1)
        text = text[:at] + put + text[at + removed :]
    return text


def refusal_of(text: str) -> ExpressionRefused | None:
    """Return why a text is refused; whatever else is raised is a mistake of ours."""
    try:
        read_sentence(text, SCHEMA)
    except ExpressionRefused as refused:
        return refused
    return None


def check_mutated(text: str, edits: list[tuple[int, int, str]]) -> None:
    changed = mutated(text, edits)
    refused = refusal_of(changed)
    if refused is None:
        check_identity(changed)
        return
    assert refused.construct.isprintable()
    if refused.hint.startswith("Write: "):
        check_identity(refused.hint.removeprefix("Write: "))


@settings(max_examples=250, deadline=None)
@given(TEXTS, st.lists(EDIT, min_size=1, max_size=3))
def test_a_spoiled_question_is_read_or_refused_and_nothing_else(
    text: str, edits: list[tuple[int, int, str]]
) -> None:
    check_mutated(text, edits)


@pytest.mark.stats
@settings(max_examples=20_000, deadline=None)
@given(TEXTS, st.lists(EDIT, min_size=1, max_size=3))
def test_a_spoiled_question_is_read_or_refused_and_nothing_else_20_000_times(
    text: str, edits: list[tuple[int, int, str]]
) -> None:
    check_mutated(text, edits)


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=80), st.sampled_from(["", "SELECT ", "count where ", "SELECT COUNT(*) FROM t WHERE "])
)
def test_any_text_at_all_is_read_or_refused(text: str, before: str) -> None:
    check_mutated(before + text, [])


ENDLESS = {
    "nested parentheses": "count where " + "(" * 4000 + "TRUE" + ")" * 4000,
    "nested in SQL": "SELECT SUM(" + "(" * 3000 + "age" + ")" * 3000 + ") FROM t",
    "never closed": "SELECT COUNT(*) FROM t WHERE " + "(" * 8000,
    "a chain of signs": "sum(" + "-" * 8000 + "age)",
    "a chain of NOT": "count where " + "NOT " * 1900 + "smoker",
    "comments that never end": "SELECT " + "/*" * 4000,
    "quotes": "count where sex = " + "'" * 8001,
    "quotes in SQL": "SELECT COUNT(*) FROM t WHERE sex = " + "'" * 8001,
    "commas": "count by " + "," * 8000,
    "commas in SQL": "SELECT " + "," * 8000 + " FROM t",
    "parentheses and commas": "count by " + ",(" * 4000,
    "keys": "SELECT " + "sex," * 1300 + "COUNT(*) FROM t GROUP BY " + "age," * 700 + "age",
    "edges": "count by age (" + ",".join(map(str, range(1800))) + ")",
    "a megabyte": "count where age > 1" + " " * 2**20,
    "a megabyte of SQL": "SELECT " + "x" * 2**20,
    "NUL": "\x00" * 8000,
    "a lone surrogate": "SELECT COUNT(*) FROM t WHERE sex = '\ud800'",
    "selects": "SELECT " * 1100,
    "withs": "WITH " * 1600 + "SELECT COUNT(*) FROM t",
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_hostile_texts_are_refused_at_once(text: str) -> None:
    start = time.process_time()
    refused = refusal_of(text)
    assert time.process_time() - start < 0.5
    if text == ENDLESS["edges"]:
        assert refused is None
    else:
        assert refused is not None
        # What is repeated of a text is short.
        assert len(str(refused)) < 1500


def test_something_else_than_a_text_is_refused() -> None:
    with pytest.raises(ExpressionRefused, match="no text"):
        read_sentence(b"count", SCHEMA)  # type: ignore[arg-type]


# Parts.


def test_a_sentence_of_parts_is_the_typed_one() -> None:
    made = sentence_of(
        "mean",
        "age * 2",
        "smoker",
        [
            "sex",
            {"column": "hours-per-week", "edges": [20, 40.5]},
            {"column": "admitted", "edges": ["2020-03-01"]},
        ],
        SCHEMA,
    )
    typed = "mean(age * 2) where smoker by sex, \"hours-per-week\" (20, 40.5), admitted ('2020-03-01')"
    assert made == read_sentence(typed, SCHEMA)
    assert made.by[1:] == (Axis("hours-per-week", (20.0, 40.5)), Axis("admitted", (60.0,)))
    assert sentence_of("count", None, None, [], SCHEMA) == read_sentence("count", SCHEMA)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("count", "age", None, []), "something to count"),
        (("sum", None, None, []), "nothing to compute"),
        (("sum", "age", "age", []), "something else than a condition"),
        (("count", None, None, ["agee"]), "the unknown column agee. Did you mean age"),
        (("count", None, None, ['sex", "age']), "the unknown column"),
        (("count", None, None, ["sex", "SEX"]), "comes twice"),
        (("count", None, None, ["hours-per-week"]), 'BY "hours-per-week" \\(25, 50, 75\\)'),
        (("count", None, None, [{"column": "age", "edges": []}]), "rising numbers"),
        (("count", None, None, [{"column": "age", "edges": [3, 3]}]), "rising numbers"),
        (("count", None, None, [{"column": "age", "edges": [float("nan")]}]), "rising numbers"),
        (("count", None, None, [{"column": "age", "edges": [1, float("inf")]}]), "rising numbers"),
        (("count", None, None, [{"column": "age", "edges": [10**400]}]), "rising numbers"),
        (("count", None, None, [{"column": "age", "edges": [True]}]), "rising numbers"),
        (("count", None, None, [{"column": "age", "edges": ["2020-01-01"]}]), "rising numbers"),
        (("count", None, None, [{"column": "admitted", "edges": ["2020-02-31"]}]), "rising numbers"),
        (("count", None, None, [{"column": "sex", "edges": [1]}]), "rising numbers. Leave them out"),
    ],
)
def test_parts_are_refused_like_texts(parts: Any, said: str) -> None:
    verb, expression, where, by = parts
    with pytest.raises(ExpressionRefused, match=said):
        sentence_of(verb, expression, where, by, SCHEMA)


@pytest.mark.parametrize("by", [[5], [{"column": "age"}], [{"column": "age", "edges": [1], "x": 1}], [None]])
def test_groups_that_are_none_are_refused(by: Any) -> None:
    with pytest.raises(ParameterError, match="by of sentence_of must hold names"):
        sentence_of("count", None, None, by, SCHEMA)
    with pytest.raises(ParameterError, match="verb of sentence_of"):
        sentence_of("max", "age", None, [], SCHEMA)  # type: ignore[arg-type]


# What would be read as something else.


@pytest.mark.parametrize("text", ["sum(age) + 1", "mean (age) / (where + 1)", "sum(age) > 3"])
def test_what_stands_after_the_parentheses_is_not_taken_into_them(text: str) -> None:
    with pytest.raises(ExpressionRefused, match=r"something after \w+\(...\)"):
        read_sentence(text, SCHEMA)


@pytest.mark.parametrize("text", ["count )(", "count (", "count * *", "count ()()"])
def test_only_rows_are_counted(text: str) -> None:
    with pytest.raises(ExpressionRefused, match="something to count after COUNT"):
        read_sentence(text, SCHEMA)


def test_edges_are_written_with_all_their_digits_and_odd_names_in_quotes() -> None:
    found = read_sentence('count by "hours-per-week" (1.2345678, 99.00001), "where"', SCHEMA)
    assert str(found) == 'count by "hours-per-week" (1.2345678, 99.00001), "where"'
    assert isinstance(found, Sentence)
    with pytest.raises(ExpressionRefused, match="rising numbers"):
        read_sentence("count by age (3 0)", SCHEMA)
