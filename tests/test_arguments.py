"""Misspelt arguments, and numbers where a promise is expected: the message has the line to write."""

from __future__ import annotations

import inspect
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import discreet as typed
from discreet import ZCDP, ApproxDP, Column, GaussianDP, PureDP, Schema
from discreet.arguments import CheckedArguments, checked_arguments
from discreet.errors import ArgumentError, DiscreetError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

discreet: Any = typed  # the calls below are wrong on purpose
SCHEMA = Schema(columns=[Column("age", lower=0, upper=100), Column("sick", values=(0, 1))], target="sick")
CLASSES = [
    kind
    for kind in (getattr(discreet, name) for name in discreet.__all__)
    # ErrorFloor(age=9) takes any name: the columns of the table.
    if isinstance(kind, CheckedArguments) and kind is not discreet.ErrorFloor
]


def test_promises_take_their_amounts_by_position() -> None:
    assert PureDP(1.0) == PureDP(epsilon=1.0)
    assert ApproxDP(1, 1e-6) == ApproxDP(epsilon=1, delta=1e-6)
    assert ZCDP(0.5) == ZCDP(rho=0.5)
    assert GaussianDP(0.5) == GaussianDP(mu=0.5)
    with pytest.raises(TypeError):
        discreet.PureDP(1.0, "person")  # what is promised to whom is always named


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_misspelt_argument_is_answered_with_the_nearest(kind: type) -> None:
    known = max(inspect.signature(kind).parameters, key=len)
    misspelt = f"{known[:-2]}{known[-1]}{known[-2]}x"
    with pytest.raises(ArgumentError) as caught:
        kind(**{misspelt: 1})
    assert str(caught.value) == f"{kind.__name__} has no argument {misspelt!r}. Did you mean {known!r}?"
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discreet.Column("a", min=0), "Column has no argument 'min'. Did you mean 'lower'?"),
        (
            lambda: discreet.PrivateClassifier(epsilon=0.5),
            "PrivateClassifier has no argument 'epsilon'. Write privacy=PureDP(0.5) or ApproxDP(0.5, 1e-6).",
        ),
        (
            lambda: discreet.GaussianRelease(epsilon=2, delta=1e-5, schema=SCHEMA),
            "GaussianRelease has no argument 'epsilon'. Write privacy=ApproxDP(2, 1e-5).",
        ),
        (
            lambda: discreet.Database({"age": [1.0], "sick": [0]}, schema=SCHEMA).count(epsilon=1.0),
            "There is no argument 'epsilon'. Write privacy=PureDP(1.0) or ApproxDP(1.0, 1e-6).",
        ),
        (
            lambda: discreet.connect("https://data.example.org", tokn="x"),
            "There is no argument 'tokn'. Did you mean 'token'?",
        ),
    ],
)
def test_the_message_has_the_line_to_write(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: discreet.GaussianRelease(privacy=1.0, schema=SCHEMA), "Write ApproxDP(1.0, 1e-6)."),
        (lambda: discreet.LaplaceRelease(privacy=1.0, schema=SCHEMA), "Write PureDP(1.0)."),
        (lambda: discreet.CoarseRelease(privacy=1.0, schema=SCHEMA), "Write PureDP(1.0)."),
        (
            lambda: discreet.MaskedRelease(privacy=1.0, schema=SCHEMA),
            "Write PureDP(1.0) or ApproxDP(1.0, 1e-6).",
        ),
        (
            lambda: discreet.SyntheticRelease(privacy=1.0, schema=SCHEMA),
            "Write PureDP(1.0) or ApproxDP(1.0, 1e-6).",
        ),
        (
            lambda: discreet.PrivateSVM(privacy=1.0).fit(np.zeros((4, 1)), [0, 1, 0, 1]),
            "Write PureDP(1.0) or ApproxDP(1.0, 1e-6).",
        ),
        (lambda: discreet.Ledger.open(":memory:", limit=1.0), "Write PureDP(1.0) or ApproxDP(1.0, 1e-6)."),
        (
            lambda: discreet.Database({"age": [1.0], "sick": [0]}, schema=SCHEMA).count(privacy=1.0),
            "Write PureDP(1.0) or ApproxDP(1.0, 1e-6).",
        ),
    ],
)
def test_a_number_for_a_promise_is_answered_with_the_promise(call: Callable[[], object], line: str) -> None:
    with pytest.raises(DiscreetError) as caught:
        call()
    assert str(caught.value).endswith(line)


def test_other_type_errors_pass_and_signatures_stay() -> None:
    @checked_arguments
    def add(left: int, right: int) -> int:
        return left + right

    with pytest.raises(TypeError, match="unsupported operand"):
        add(1, right="2")  # type: ignore[arg-type]
    assert add(1, right=2) == 3
    assert list(inspect.signature(PureDP).parameters)[:1] == ["epsilon"]
    assert list(inspect.signature(Column).parameters)[:2] == ["name", "type"]
    assert pickle.loads(pickle.dumps(PureDP(1.0))) == PureDP(1.0)


FUNCTIONS = [
    getattr(discreet, name)
    for name in discreet.__all__
    if inspect.isfunction(getattr(discreet, name))
    and not any(
        p.kind is p.VAR_KEYWORD for p in inspect.signature(getattr(discreet, name)).parameters.values()
    )
]


@pytest.mark.parametrize(
    "function", [*FUNCTIONS, discreet.Ledger.open], ids=lambda function: function.__name__
)
def test_a_misspelt_option_of_a_function_is_answered(function: Callable[..., object]) -> None:
    parameters = inspect.signature(function).parameters.values()
    given = {p.name: None for p in parameters if p.default is p.empty}
    with pytest.raises(ArgumentError, match=r"There is no argument 'nonsense_'\. It has "):
        function(**given, nonsense_=1)


def test_a_floor_without_a_column_and_text_for_an_aggregate_are_answered() -> None:
    with pytest.raises(ParameterError, match=r"Write ErrorFloor\(age=9\)"):
        discreet.ErrorFloor(9)
    database = discreet.Database({"age": [1.0], "sick": [0]}, schema=SCHEMA)
    with pytest.raises(ParameterError, match=r"Give text to query\(\) or preview\(\)"):
        database.ask("count", privacy=discreet.PureDP(1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discreet.ApproxDP(1), "ApproxDP needs delta too, by position or by name."),
        (lambda: discreet.Database({"age": [1.0]}), "Database needs schema too, by position or by name."),
        (
            lambda: discreet.Database({"age": [1.0]}, shema=SCHEMA),
            "Database has no argument 'shema'. Did you mean 'schema'?",
        ),
    ],
)
def test_an_argument_that_is_missing_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value) == message
