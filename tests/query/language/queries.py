"""Questions that are in the language whatever is chosen, and texts that are spoiled.

Whoever chooses may be hypothesis, which makes a failure small, or a stream, which makes thousands of texts in
the time that hypothesis takes for some dozens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from discreet.noise import Stream

_Choice = TypeVar("_Choice")

NUMBERS = (
    "age",
    "AGE",
    '"hours-per-week"',
    "change",
    "where",
    "limit",
    "3",
    "0.25",
    "1e3",
    "DAY(admitted)",
)
TESTS = (
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
)
COLUMNS = ("sex", "Smoker", '"by"', '"where"', "age", '"select"', "admitted ('2020-02-01', '2020-03-01')")
CUT = ("age", '"hours-per-week"', "change", '"limit"', "admitted")
HOSTILE = (
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
)


class Choices(Protocol):
    """Whoever chooses."""

    def pick(self, options: Sequence[_Choice]) -> _Choice:
        """Choose one of some."""

    def edge(self) -> float:
        """Choose a number from -1e6 to 1e6."""


class Drawn:
    """Choices of hypothesis."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw

    def pick(self, options: Sequence[_Choice]) -> _Choice:
        """Choose one of some."""
        place: int = self._draw(st.integers(0, len(options) - 1))
        return options[place]

    def edge(self) -> float:
        """Choose a number from -1e6 to 1e6."""
        return float(self._draw(st.floats(-1e6, 1e6, allow_nan=False))) + 0.0


class Streamed:
    """Choices of a stream."""

    def __init__(self, stream: Stream) -> None:
        self._words = _words(stream)

    def pick(self, options: Sequence[_Choice]) -> _Choice:
        """Choose one of some."""
        return options[next(self._words) % len(options)]

    def edge(self) -> float:
        """Choose a number from -1e6 to 1e6: long, whole or tiny."""
        value = (next(self._words) >> 11) * 2.0**-53 * 2e6 - 1e6
        return self.pick((value, round(value) + 0.0, value * 1e-12, value / 1024))


def _words(stream: Stream) -> Iterator[int]:
    while True:
        yield from stream.words(4096).tolist()


def number(choose: Choices, depth: int = 2) -> str:
    """Return an expression for a number."""
    if not depth or choose.pick((True, False)):
        return choose.pick(NUMBERS)
    inner = number(choose, depth - 1)
    form = choose.pick(("arithmetic", "abs", "least", "case"))
    if form == "abs":
        return f"ABS({inner})"
    if form == "case":
        return f"CASE WHEN ({choose.pick(TESTS)}) THEN {inner} ELSE 0 END"
    other = number(choose, depth - 1)
    return (
        f"LEAST({inner}, {other})"
        if form == "least"
        else f"({inner}{choose.pick((' + ', ' - ', ' * '))}{other})"
    )


def condition(choose: Choices, depth: int = 2) -> str:
    """Return a condition."""
    form = choose.pick(("test", "relation", "both", "not")) if depth else choose.pick(("test", "relation"))
    if form == "test":
        return choose.pick(TESTS)
    if form == "relation":
        return f"{number(choose)}{choose.pick((' < ', ' >= ', ' = ', ' <> '))}{number(choose)}"
    inner = condition(choose, depth - 1)
    if form == "not":
        return f"NOT ({inner})"
    return f"({inner}){choose.pick((' AND ', ' or '))}({condition(choose, depth - 1)})"


def where(choose: Choices) -> str:
    """Return a condition in parentheses, or nothing."""
    return choose.pick(("", "yes")) and f"({condition(choose)})"


def groups(choose: Choices) -> list[str]:
    """Return up to two groups by different columns."""
    found: dict[str, str] = {}
    for _ in range(choose.pick((0, 1, 2))):
        group = choose.pick(COLUMNS)
        if choose.pick((True, False)):
            edges = sorted({choose.edge() for _ in range(choose.pick((1, 2, 3, 4)))})
            group = f"{choose.pick(CUT)} ({', '.join(map(repr, edges))})"
        found.setdefault(group.partition(" (")[0].strip('"').casefold(), group)
    return list(found.values())


WORDS = (
    *("count", "sum({0})", "Mean ({0})", "stddev({0})", "VAR_POP({0})", "ratio({0}, age)", "median({0})"),
    *("quantile({0}, 0.25)", "COUNT({0})"),
)
IN_SQL = (
    *("COUNT(*)", "SUM({0})", "avg( {0} )", "STDDEV({0})", "var_pop({0})", "SUM({0}) / SUM(age)"),
    *("MEDIAN({0})", "QUANTILE({0}, .25)", "PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY {0})", "COUNT({0})"),
)


def statistics(choose: Choices, words: Sequence[str]) -> list[str]:
    """Return up to three statistics, of which no two can be the same."""
    forms = (choose.pick(words) for _ in range(choose.pick((1, 1, 2, 3))))
    # A count of what is known in every row is that of all rows.
    found = {form.partition("(")[0].strip().upper(): form for form in forms}
    return [form.format(number(choose, 1)) for form in found.values()]


def ending(choose: Choices, named: Sequence[str]) -> str:
    """Return an order and a limit of groups, or nothing."""
    order = choose.pick(("", *named))
    limit = choose.pick(("", " limit 3", " LIMIT 100"))
    return (f" order by {order}{choose.pick(('', ' desc', ' ASC'))}" if order else "") + limit


def sentence(choose: Choices) -> str:
    """Return a question in words."""
    what, asked, by = statistics(choose, WORDS), where(choose), groups(choose)
    return (
        ", ".join(what)
        + (f" where {asked}" if asked else "")
        + (
            choose.pick((" by ", " GROUP BY ")) + ", ".join(by) + ending(choose, (*what, *by, "1"))
            if by
            else ""
        )
    )


def select(choose: Choices) -> str:
    """Return a question in SQL."""
    what, asked, by = statistics(choose, IN_SQL), where(choose), groups(choose)
    listed = [part.partition(" (")[0] for part in by] if choose.pick((True, False)) else []
    listed[(place := choose.pick(range(len(listed) + 1))) : place] = [f"{what[0]} AS x", *what[1:]]
    return (
        f"SELECT {', '.join(listed)}\nFROM people"
        + (f" WHERE {asked}" if asked else "")
        + (f" group by {', '.join(by)}" + ending(choose, (*what, *by, "1", "x")) if by else "")
    )


def question(choose: Choices) -> str:
    """Return a question."""
    return sentence(choose) if choose.pick((True, False)) else select(choose)


def spoiled(choose: Choices) -> str:
    """Return a question in which up to three places are something else."""
    text = question(choose)
    for _ in range(choose.pick((1, 2, 3))):
        at, removed = choose.pick(range(401)) % (len(text) + 1), choose.pick(range(13))
        text = text[:at] + choose.pick(HOSTILE) + text[at + removed :]
    return text


@st.composite
def drawn(draw: Callable[..., Any], make: Callable[[Choices], str]) -> str:
    """Let hypothesis choose."""
    return make(Drawn(draw))
