"""Requests that nobody should send: questions of every kind, well formed or bent in some way."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, TypeVar

from discreet.noise import Stream, uniform_integers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    10**400,
    1e308,
    -1e-320,
    "",
    " ",
    "\x00",
    "é" * 50,
    "𝔸",
    "‮",
    [],
    {},
    [[]],
    "TRUE",
    "'; DROP TABLE people; --",
    "SELECT 1",
    "../../etc/passwd",
    {"$ne": 1},
    "a" * 5000,
    ["age"] * 300,
    {"kind": "pure-dp"},
    "NaN",
    {"": {"": {"": []}}},
]
SQL = [
    "SELECT COUNT(*) FROM people",
    "SELECT * FROM people",
    "SELECT AVG(age) FROM people GROUP BY sex",
    "SELECT COUNT(*) FROM people WHERE age > 40; DELETE FROM people",
    "SELECT COUNT(*) FROM a JOIN b ON a.x = b.x",
    "WITH x AS (SELECT 1) SELECT COUNT(*) FROM x",
    "SELECT COUNT(*) FROM people HAVING COUNT(*) > 3",
    "SELECT COUNT(DISTINCT age) FROM people",
    "SELECT MAX(age) FROM people",
    "SELECT SUM(age) OVER () FROM people",
    "COPY people TO '/tmp/x'",
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')",
    "SELECT COUNT(*) FROM people LIMIT 1",
    "SELECT COUNT(*) FROM people WHERE age IN (SELECT age FROM people)",
    "PRAGMA database_list",
    "SELECT",
    "SELECT COUNT(*) FROM people WHERE pg_sleep(9) IS NULL",
    "SELECT SUM(income) FROM people WHERE sex = 'f'",
]


class Dice:
    """Choices that a seed fixes, so that what was found can be found again."""

    def __init__(self, seed: int) -> None:
        self._stream = Stream.from_seed(seed)

    def below(self, n: int) -> int:
        """Return a whole number from 0 to n - 1."""
        return int(uniform_integers(n, 1, self._stream)[0])

    def one_of(self, things: Sequence[T]) -> T:
        """Choose one of several."""
        return things[self.below(len(things))]


def expression(dice: Dice, names: Sequence[str], depth: int = 3) -> str:
    """Make up an expression, in the language or just outside of it."""
    atoms = [
        *names,
        "1",
        "0",
        "-3.5",
        "1e9",
        "'f'",
        "''",
        "NULL",
        "age2",
        '"age"',
        "TRUE",
        "0x10",
        "1_0",
        "$1",
        "?",
    ]
    if depth == 0 or dice.below(4) == 0:
        return dice.one_of(atoms)
    a, b = (expression(dice, names, depth - 1) for _ in range(2))
    shapes = [
        f"({a} + {b})",
        f"{a} - {b}",
        f"{a} * {b}",
        f"{a} / {b}",
        f"{a} > {b}",
        f"{a} = {b}",
        f"{a} AND {b}",
        f"NOT {a}",
        f"{a} IS NULL",
        f"ABS({a})",
        f"SQRT({a})",
        f"LN({a})",
        f"EXP({a})",
        f"LEAST({a}, {b})",
        f"CASE WHEN {a} THEN {b} ELSE 0 END",
        f"{a} BETWEEN {b} AND 9",
        f"{a} IN (1, 2, {b})",
        f"({a}",
        f"{a} {b}",
        f"{a} LIKE '%'",
        f"COALESCE({a}, {b})",
        f"CAST({a} AS TEXT)",
        f"{a} || {b}",
        f"SLEEP({a})",
        f"{a} /* */ > {b}",
        f"{a} -- {b}",
        f"{a}; {b}",
        f"{a}::int",
        f"({a})({b})",
        f"{a} ** {b}",
        f"{a} % {b}",
        f"{a} <> {b}",
    ]
    return dice.one_of(shapes)


def _privacy(dice: Dice) -> Any:
    small = dice.one_of([1e-9, 1e-7, 1e-6])
    return dice.one_of(
        [
            {"kind": "zcdp", "rho": small},
            {"kind": "gaussian-dp", "mu": small},
            {"kind": "pure-dp", "epsilon": small},
            {"kind": "approx-dp", "epsilon": 1e-4, "delta": 1e-9},
            {"kind": "zcdp", "rho": 1e9},
            {"kind": "approx-dp", "epsilon": 1, "delta": 2},
        ]
    )


def body(dice: Dice, names: Sequence[str], lists: Sequence[str]) -> dict[str, Any]:
    """Make up a question: most have the right fields, what is in them is another matter."""
    where, what = expression(dice, names), expression(dice, names)
    by = dice.one_of(
        [[], [dice.one_of(lists)], [{"column": "age", "edges": [30, 60]}], list(lists), [names[0]]]
    )
    column = dice.one_of(list(names))
    asked: dict[str, Any] = dice.one_of(
        [
            {"kind": "count", "where": where, "by": by},
            {"kind": "sum", "expression": what, "where": where},
            {"kind": "mean", "expression": column, "by": by},
            {"kind": "histogram", "columns": [dice.one_of(lists)], "expression": what},
            {"kind": "histogram", "columns": ["age"], "edges": {"age": [20, 40, 60]}},
            {"kind": "sentence", "text": f"COUNT WHERE {where}"},
            {"kind": "sentence", "text": f"MEAN({what}) BY {dice.one_of(lists)}"},
            {"kind": "sentence", "text": dice.one_of(SQL)},
            {"kind": "statistical", "question": {"kind": "sums", "expressions": [what]}},
            {"kind": "statistical", "question": {"kind": "gram", "columns": list(names[:2])}},
            {
                "kind": "statistical",
                "question": {"kind": dice.one_of(["moments", "nodes", "x"]), "columns": [column]},
            },
            {"kind": dice.one_of(["pca", "kmeans", "perceptron", "id3", "svm"]), "parameters": {}},
        ]
    )
    asked["privacy"] = _privacy(dice)
    return _bent(dice, asked) if dice.below(3) == 0 else asked


def _bent(dice: Dice, asked: dict[str, Any]) -> dict[str, Any]:
    """Break one thing."""
    made = copy.deepcopy(asked)
    match dice.below(4):
        case 0:
            made[dice.one_of(list(made))] = dice.one_of(JUNK)
        case 1:
            made[dice.one_of(["owner", "limit", "__proto__", "random_state", "sd", "variance"])] = (
                dice.one_of(JUNK)
            )
        case 2:
            del made[dice.one_of(list(made))]
        case _:
            made["refines"] = dice.one_of([["nothing-1"], "x", [["a"]], ["0" * 12 + "-2"]])
    return made


def contents(seed: int, count: int, names: Sequence[str], lists: Sequence[str]) -> Iterator[bytes]:
    """Make up bodies of requests: JSON, and what only looks like it."""
    dice = Dice(seed)
    for _ in range(count):
        content = json.dumps(body(dice, names, lists)).encode()
        match dice.below(40):
            case 0:
                content = content[: dice.below(len(content))]
            case 1:
                content = b"[" * 5000
            case 2:
                content = content.replace(b'"', b"'")
            case 3:
                content = b"\xff\xfe" + content
            case 4:
                content = content.replace(b"1", b"NaN", 1)
            case _:
                pass
        yield content
