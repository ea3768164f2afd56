"""Numbers of answers and prices as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet import formatting

if TYPE_CHECKING:
    from collections.abc import Mapping

LETTERS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "delta": "δ", "queries": "questions"}


def with_unit(text: str, measure: str | None) -> str:
    """Write a number's unit behind it."""
    return f"{text} {formatting.printable(measure)}" if measure else text


def letter(currency: str) -> str:
    """Return the sign of a currency of privacy."""
    return LETTERS.get(currency, currency)


def amounts(values: Mapping[str, float] | None, *, up: bool) -> str:
    """Write amounts of privacy: spent ones rounded up, those that are left rounded down."""
    shown = {name: values[name] for name in LETTERS if name in values} if values else {}
    return (
        ", ".join(f"{letter(name)} = {amount(value, up=up)}" for name, value in shown.items())
        or formatting.NONE
    )


def amount(value: float, *, up: bool) -> str:
    """Write one amount; what floating point adds in the twelfth digit is not rounded up to the third."""
    return formatting.number(float(f"{value:.12g}"), rounding="up" if up else "down")


def share_words(share: float) -> str:
    """Write a share of a budget, however small, rounded up."""
    return f"{formatting.number(float(f'{100 * share:.10g}'), digits=2, rounding='up')}{formatting.NO_BREAK}%"
