"""Numbers are rounded on the safe side, and no name says what it does not show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import formatting


@pytest.mark.parametrize(
    ("value", "rounding", "text"),
    [
        (8.9999, "down", "8.99"),
        (9.0, "down", "9"),
        (9.00001, "up", "9.01"),
        (0.1, "up", "0.1"),
        (12163.9, "down", "12,163"),
        (12163.1, "up", "12,164"),
        (0.0, "nearest", "0"),
        (-3.14159, "nearest", "\u22123.14"),
        (1e-6, "up", "10⁻⁶"),
        (1.234e-7, "up", "1.24\u00a0×\u00a010⁻⁷"),
        (9.9999e-7, "up", "10⁻⁶"),
        (1e300, "nearest", "10³⁰⁰"),
        (0.00012345, "nearest", "0.000123"),
    ],
)
def test_numbers_have_three_digits_and_go_the_way_they_are_told(
    value: float, rounding: formatting.Rounding, text: str
) -> None:
    assert formatting.number(value, rounding=rounding) == text


def _back(text: str) -> float:
    return float(text.replace(",", "").replace("\u2212", "-"))


@given(st.floats(1e-3, 1e12))
def test_a_floor_is_never_printed_above_itself_and_an_epsilon_never_below(value: float) -> None:
    assert _back(formatting.number(value, rounding="down")) <= value
    assert _back(formatting.number(value, rounding="up")) >= value


@given(st.floats(0, 1))
def test_intervals_of_shares_are_printed_outward(share: float) -> None:
    low, high = (
        formatting.format_interval(share, share, None, chance=True).removesuffix("\u00a0%").split(" to ")
    )
    assert float(low) <= share * 100 + 1e-9
    assert float(high) >= share * 100 - 1e-9


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\u200b", "\x00", "\x07", "\ud800", "\u2028", "\ufeff"])
def test_signs_that_act_unseen_are_shown(sign: str) -> None:
    shown = formatting.printable(f"a{sign}b")
    assert sign not in shown
    assert shown == f"a\\u{ord(sign):04x}b"
    assert formatting.printable(shown) == shown
    shown.encode()


@pytest.mark.parametrize("name", ["وزن", "体重", "👩🏽‍⚕️", "می‌خواهم", "naïve"])
def test_names_of_all_scripts_stay_as_they_are(name: str) -> None:
    assert formatting.name(name) == name


def test_a_name_is_one_line() -> None:
    assert formatting.name("a\r\nb\tc") == "a⏎b⇥c"
    assert formatting.name("") == "(empty)"


def test_a_cut_name_ends_in_dots() -> None:
    assert formatting.shorten("abcdefgh", 5) == "abcd…"
    assert formatting.shorten("abcde", 5) == "abcde"


def test_moments_are_written_to_the_minute() -> None:
    assert formatting.date("2026-03-02T09:30:12.5+00:00") == "2026-03-02, 09:30 UTC"
    assert formatting.date("some day") == "some day"
