"""From words to a method: generic over the registry, and frank about what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from discreet import ApproxDP, Column, ErrorFloor, GaussianRelease, PureDP, Schema
from discreet.cli.options import read_pairs, read_value
from discreet.errors import ParameterError, PromiseError
from discreet.pipeline.methods import (
    build_promise,
    check_floors,
    choose_method,
    make_method,
    method_class,
    method_options,
    missing_noise_error,
    resolve_floors,
    resolve_method,
)
from discreet.release import METHODS
from discreet.schema import Protect

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=17, upper=90, measure="years", protect=Protect(error=5)),
        Column("hours", lower=0, upper=100, measure="hours"),
        Column("city", values=("Bern", "Basel"), role="public"),
        Column("owner", values=("no", "yes"), role="target"),
    ]
)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_registry_is_offered_with_all_it_takes(name: str) -> None:
    assert method_class(name) is METHODS[name]
    assert method_options(name)
    assert not {"self", "schema", "bounds", "ledger", "random_state", "privacy"} & set(method_options(name))


def test_a_method_that_is_added_later_is_offered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(GaussianRelease):
        name = "later"

        def __init__(self, *, gentleness: float = 1.0, **rest: Any) -> None:
            super().__init__(**rest)
            self.gentleness = gentleness

    monkeypatch.setitem(METHODS, "later", Later)
    assert "gentleness" in method_options("later")
    method = make_method("later", schema=SCHEMA, privacy=ErrorFloor(age=9), gentleness=2.0)
    assert isinstance(method, Later)
    assert method.gentleness == 2.0


def test_an_unknown_method_is_named_with_the_nearest() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'gaussian'"):
        make_method("gausian", schema=SCHEMA, privacy=None)


def test_an_option_of_another_method_is_refused_with_what_is_taken() -> None:
    with pytest.raises(ParameterError, match=r"takes regularization, scale.*one of the method bounded"):
        make_method("gaussian", schema=SCHEMA, privacy=ErrorFloor(age=9), support=3.0)


def test_floors_come_from_the_schema_and_from_the_request_which_goes_first() -> None:
    assert resolve_floors(SCHEMA) == {"age": 5.0}
    assert resolve_floors(SCHEMA, {"age": 9, "hours": 3}) == {"age": 9.0, "hours": 3.0}
    promise = build_promise(SCHEMA, protect={"hours": 3})
    assert isinstance(promise, ErrorFloor)
    assert set(promise.columns) == {"age", "hours"}


@pytest.mark.parametrize(
    ("protect", "match"),
    [
        ({"agee": 9}, "Did you mean 'age'"),
        ({"city": 9}, r"published as it is.*role: sensitive"),
        ({"age": "nine"}, "finite number above 0"),
        ({"age": -1}, "finite number above 0"),
        ({"age": True}, "finite number above 0"),
    ],
)
def test_wrong_floors_are_named(protect: dict[str, Any], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        resolve_floors(SCHEMA, protect)


def test_an_epsilon_makes_a_promise_of_its_kind() -> None:
    assert build_promise(SCHEMA, epsilon=1.0) == PureDP(epsilon=1.0)
    assert build_promise(SCHEMA, epsilon=1.0, delta=1e-6) == ApproxDP(epsilon=1.0, delta=1e-6)
    with pytest.raises(ParameterError, match="--epsilon too"):
        build_promise(SCHEMA, delta=1e-6)
    assert build_promise(Schema(columns=[Column("age", lower=0, upper=9)])) is None


def test_a_pure_epsilon_for_gaussian_noise_says_what_is_missing() -> None:
    with pytest.raises(PromiseError, match="Give --delta too"):
        make_method("gaussian", schema=SCHEMA, privacy=PureDP(epsilon=1))


def test_noise_that_was_given_goes_before_floors_and_the_floors_are_then_checked() -> None:
    privacy = build_promise(SCHEMA)
    method = make_method("gaussian", schema=SCHEMA, privacy=privacy, scale=20.0)
    assert isinstance(method, GaussianRelease)
    assert method.privacy is None
    check_floors(method.plan(SCHEMA, 100), {"age": 5.0})
    with pytest.raises(PromiseError, match=r"'age' asks for a floor of 20 years.*proves 14"):
        check_floors(method.plan(SCHEMA, 100), {"age": 20.0})


def test_floors_are_refused_where_none_can_be_proven() -> None:
    method = make_method("invariant", schema=SCHEMA, privacy=build_promise(SCHEMA), variance=4.0)
    with pytest.raises(PromiseError, match="proves none"):
        check_floors(method.plan(SCHEMA, 100), {"age": 5.0})


def test_only_a_method_that_must_be_told_missing_noise_error_noise_to_use_asks() -> None:
    assert resolve_method("invariant", schema=SCHEMA, privacy=None).name == "invariant"
    with pytest.raises(ParameterError, match="--protect"):
        resolve_method("gaussian", schema=SCHEMA, privacy=None)


def test_a_release_that_was_told_nothing_says_the_line_to_add() -> None:
    message = str(missing_noise_error("gaussian", SCHEMA))
    assert "--protect age=7" in message
    assert "protect: {error: ...}" in message
    assert "--scale" in message
    assert "--scale" not in str(missing_noise_error("invariant", SCHEMA))


PLAIN = Schema(columns=[Column("age", lower=17, upper=90)])


@pytest.mark.parametrize(
    ("privacy", "method"),
    [
        (PureDP(epsilon=1), "synthetic"),
        (ApproxDP(epsilon=1, delta=1e-6), "synthetic"),
        (ErrorFloor(age=9), "gaussian"),
    ],
)
def test_a_job_without_a_method_follows_one_rule(privacy: Any, method: str) -> None:
    assert choose_method(None, PLAIN, privacy=privacy, floors={}) == method
    assert choose_method("coarse", PLAIN, privacy=privacy, floors={}) == "coarse"


def test_neither_and_both_of_an_epsilon_and_floors_need_a_decision() -> None:
    with pytest.raises(ParameterError) as neither:
        choose_method(None, PLAIN, privacy=None, floors={})
    assert [line.split("  for")[0].strip() for line in str(neither.value).splitlines()[1:3]] == [
        "--epsilon 1 --delta 1e-6",
        "--protect age=7",
    ]
    with pytest.raises(ParameterError, match=r"here of age: .* Give --method gaussian"):
        choose_method(None, PLAIN, privacy=PureDP(epsilon=1), floors={"age": 9.0})
    assert choose_method("gaussian", PLAIN, privacy=PureDP(epsilon=1), floors={"age": 9.0}) == "gaussian"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("2.5e1", 25.0),
        ("true", True),
        ("svm", "svm"),
        ("[1, 2]", [1, 2]),
        ("age=3,hours=4.5", {"age": 3, "hours": 4.5}),
        ("a=b=3", {"a=b": 3}),
    ],
)
def test_values_are_read_as_people_type_them(text: str, value: Any) -> None:
    assert read_value(text) == value


@pytest.mark.parametrize("text", ["=3", "age=3,4", "Infinity", "NaN"])
def test_values_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        read_value(text)


@pytest.mark.parametrize("words", [["age"], ["=9"], ["age="], ["age=1", "age=2"]])
def test_pairs_that_say_nothing_are_refused(words: list[str]) -> None:
    with pytest.raises(ParameterError, match="--protect"):
        read_pairs("--protect", words)
