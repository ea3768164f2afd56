"""Numbers of answers and prices as people read them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from discreet.report import wording

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST = 1e15  # larger numbers are written by powers of ten
LETTERS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "delta": "δ", "queries": "questions"}


def measured(value: float, margin: float) -> str:
    """Write a number with as many digits as its margin leaves."""
    if abs(value) >= _LARGEST or margin >= _LARGEST:
        return wording.number(value)
    if margin == 0:
        text = f"{value:,.10g}"
    else:
        decimals = max(0, 1 - math.floor(math.log10(margin)))
        text = f"{value:,.{min(decimals, 15)}f}"
        if float(text.replace(",", "")) == 0:
            text = "0"
    return text.replace("-", "\u2212")


def with_unit(text: str, measure: str | None) -> str:
    """Write a number's unit behind it."""
    return f"{text} {wording.visible(measure)}" if measure else text


def letter(currency: str) -> str:
    """Return the sign of a currency of privacy."""
    return LETTERS.get(currency, currency)


def amounts(values: Mapping[str, float] | None, *, up: bool) -> str:
    """Write amounts of privacy: spent ones rounded up, those that are left rounded down."""
    shown = {name: values[name] for name in LETTERS if name in values} if values else {}
    return (
        ", ".join(f"{letter(name)} = {amount(value, up=up)}" for name, value in shown.items()) or wording.NONE
    )


def amount(value: float, *, up: bool) -> str:
    """Write one amount; what floating point adds in the twelfth digit is not rounded up to the third."""
    return wording.number(float(f"{value:.12g}"), rounding="up" if up else "down")


def share_words(share: float) -> str:
    """Write a share of a budget, however small, rounded up."""
    return f"{wording.number(float(f'{100 * share:.10g}'), digits=2, rounding='up')}{wording.NO_BREAK}%"
