"""Numbers and names as text for people: rounded on the safe side, without invisible characters."""

from __future__ import annotations

import datetime
import math
import unicodedata
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


Rounding: TypeAlias = Literal["nearest", "down", "up"]

_MODES = {"nearest": ROUND_HALF_EVEN, "down": ROUND_FLOOR, "up": ROUND_CEILING}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_WRONG_GUESS = "probability of a wrong guess"

NO_BREAK = "\u00a0"
NONE = "none"
_LARGEST = 1e15  # larger numbers are written by powers of ten
_MOST_DIGITS = 400  # of a double that is written out in steps of its margin
_LARGEST_EXPONENT = 20.0  # exp of larger epsilons is not written out
CURRENCY_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "delta": "δ", "queries": "questions"}


def printable(text: str) -> str:
    """Return the text with invisible characters escaped: direction marks, controls and lone surrogates.

    A column may have any name. One that reverses the rest of a sentence, or hides a part of it, would
    change the meaning of a statement.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_hidden(character) for character in text)


def _escape_hidden(character: str) -> str:
    # The two joiners shape words of some scripts and emoji; they move nothing.
    hidden = unicodedata.category(character) in ("Cf", "Cc", "Cs", "Zl", "Zp")
    return f"\\u{ord(character):04x}" if hidden and character not in "\n\t\u200c\u200d" else character


def name(text: str) -> str:
    """Return the name of a column or of a level on one line."""
    return printable(text.replace("\r\n", "\n").replace("\n", "⏎").replace("\t", "⇥")) or "(empty)"


def shorten(text: str, length: int) -> str:
    """Return a name cut to ``length`` characters; the caller must show the whole name elsewhere."""
    whole = name(text)
    return whole if len(whole) <= length else whole[: length - 1] + "…"


def number(value: float, *, digits: int = 3, rounding: Rounding = "nearest") -> str:
    """Return a finite number as text with about three digits, whole thousands in full.

    Parameters
    ----------
    value : float
        Finite number to write.
    digits : int
        Number of significant digits; a number with more digits before the point keeps them all.
    rounding : {"nearest", "down", "up"}
        Direction of rounding: floors down and epsilons up, so that the printed number holds too.
    """
    exact = Decimal(repr(float(value)))
    if not exact:
        return "0"
    if not -4 <= exact.adjusted() < 15:
        return _powers_of_ten(exact, digits, rounding)
    step = Decimal(1).scaleb(min(0, exact.adjusted() - digits + 1))
    rounded = exact.quantize(step, rounding=_MODES[rounding])
    text = f"{rounded:,f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "\u2212")


def plain_number(value: float, *, digits: int = 6, rounding: Rounding) -> str:
    """Return a finite number as ``format(value, "g")`` writes it, rounded in the given direction."""
    exact = Decimal(repr(float(value)))
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{float(exact.quantize(step, rounding=_MODES[rounding])):.{digits}g}"


def format_factor(epsilon: float) -> str:
    """Return ``exp(epsilon)``, the factor by which probabilities may grow, as text rounded up."""
    if epsilon >= _LARGEST_EXPONENT:
        return f"exp({number(epsilon, digits=4, rounding='up')})"
    # The platform's exp errs by less than one unit in the last place.
    return number(math.nextafter(math.exp(epsilon), math.inf), rounding="up")


def _powers_of_ten(exact: Decimal, digits: int, rounding: Rounding) -> str:
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(step, rounding=_MODES[rounding])
    power = rounded.adjusted()
    lead = number(float(rounded.scaleb(-power)), digits=digits)
    ten = "10" + str(power).translate(_SUPERSCRIPTS)
    return ten if lead == "1" else f"{lead}{NO_BREAK}×{NO_BREAK}{ten}"


def percent(share: float, *, digits: int = 3, rounding: Rounding = "nearest") -> str:
    """Return a share as a percentage with at most one decimal."""
    hundred = Decimal(repr(float(share))) * 100
    rounded = hundred.quantize(Decimal("0.1"), rounding=_MODES[rounding])
    if digits < 3:
        rounded = rounded.quantize(Decimal(1), rounding=_MODES[rounding])
    text = f"{rounded:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    text = "0" if text in ("-0", "") else text
    return text.replace("-", "\u2212") + f"{NO_BREAK}%"


def small_percent(share: float) -> str:
    """Return a share as a percentage with two significant digits, for errors that may be small."""
    return number(float(f"{100 * share:.12g}"), digits=2) + f"{NO_BREAK}%"


def is_chance(statistic: str) -> bool:
    """Return whether an error is the probability of a wrong guess, and not a distance."""
    return statistic == _WRONG_GUESS


def quantity(value: float, measure: str | None, *, chance: bool, rounding: Rounding = "nearest") -> str:
    """Return an error as text: a distance in the column's unit, or the percentage of wrong guesses."""
    if chance:
        return percent(value, rounding=rounding)
    return f"±{NO_BREAK}" + number(value, rounding=rounding) + (f" {printable(measure)}" if measure else "")


def format_interval(lower: float, upper: float, measure: str | None, *, chance: bool) -> str:
    """Return an interval as text, rounded outward."""
    if chance:
        low = percent(lower, rounding="down").removesuffix(f"{NO_BREAK}%")
        return f"{low} to {percent(upper, rounding='up')}"
    unit = f" {printable(measure)}" if measure else ""
    return f"{number(lower, rounding='down')} to {number(upper, rounding='up')}{unit}"


def seconds(value: float) -> str:
    """Return a duration given in seconds as text, in seconds or minutes."""
    if value < 0.05:
        return f"0.0{NO_BREAK}s"
    return f"{value:.1f}{NO_BREAK}s" if value < 100 else f"{value / 60:.0f}{NO_BREAK}min"


def duration(seconds: float) -> str:
    """Return a duration as a whole number of its largest unit, in words."""
    for unit, noun in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit:
            return count_noun(int(seconds // unit), noun)
    whole = round(seconds)
    return count_noun(whole, "second") if whole else "less than a second"


def date(text: str) -> str:
    """Return a time given in ISO 8601 as text to the minute; any other text is only made printable."""
    day, mark, time = text.partition("T")
    if not mark or len(day) != 10 or len(time) < 5:
        return printable(text)
    zone = " UTC" if time.endswith(("Z", "+00:00")) else ""
    return f"{day}, {time[:5]}{zone}"


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the numbers of one column are written: all to the same digit, or as days.

    Attributes
    ----------
    decimals : int or None
        Digits after the point; negative where the last digits before it are written as zeros, None for
        exact numbers.
    first_day : date or None
        Day that the number 0 stands for, where numbers are days; None for other numbers.
    """

    decimals: int | None
    first_day: datetime.date | None = None

    @classmethod
    def from_margins(cls, margins: Iterable[float], first_day: datetime.date | None = None) -> NumberFormat:
        """Return the format of numbers with these margins of error, of which the finest decides.

        Parameters
        ----------
        margins : iterable of float
            Half the width of each interval; 0 for an exact number.
        first_day : date, optional
            Day that the number 0 stands for, where numbers are days.
        """
        finest = min((margin for margin in margins if 0 < margin < math.inf), default=None)
        if finest is None:
            return cls(None, first_day)
        power = math.floor(math.log10(finest))
        # Two digits of the margin after the point, and three before it.
        return cls(min(1 - power, 15) if power <= 1 else min(0, 2 - power), first_day)

    def __call__(self, value: float, rounding: Rounding = "nearest") -> str:
        """Return a number as text, rounded in the given direction."""
        if self.first_day is not None:
            day = Decimal(value).quantize(Decimal(1), rounding=_MODES[rounding])
            return (self.first_day + datetime.timedelta(days=int(day))).isoformat()
        if abs(value) >= _LARGEST:
            return number(value, rounding=rounding)
        if self.decimals is None:
            return f"{value:,.10g}".replace("-", "\u2212")
        step = Decimal(1).scaleb(-self.decimals)
        with localcontext(prec=_MOST_DIGITS):
            steps = (Decimal(repr(float(value))) / step).quantize(Decimal(1), rounding=_MODES[rounding])
            text = f"{steps * step:,f}" if steps else "0"
        return text.replace("-", "\u2212")

    def interval(self, lower: float, upper: float) -> str:
        """Return an interval as text, rounded outward."""
        if math.isinf(lower) and math.isinf(upper):
            return "any number"
        if math.isinf(upper):
            return f"{self(lower, 'down')} or more"
        return (
            f"{self(upper, 'up')} or less"
            if math.isinf(lower)
            else f"{self(lower, 'down')} to {self(upper, 'up')}"
        )


def number_with_margin(value: float, margin: float) -> str:
    """Return a number as text with as many digits as its margin of error leaves significant."""
    return NumberFormat.from_margins([margin])(value)


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun: "1 row", "2,000 rows"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def list_names(names: Sequence[str], most: int = 12) -> str:
    """Return the first names, separated by commas, and how many more there are."""
    listed = ", ".join(name(text) for text in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def append_unit(text: str, measure: str | None) -> str:
    """Return a number with its unit behind it, if it has one."""
    return f"{text} {printable(measure)}" if measure else text


def currency_symbol(currency: str) -> str:
    """Return the symbol of a kind of privacy cost, such as ε for "epsilon"."""
    return CURRENCY_SYMBOLS.get(currency, currency)


def format_amounts(values: Mapping[str, float] | None, *, up: bool) -> str:
    """Return privacy costs as text: spent ones rounded up, remaining ones rounded down."""
    shown = {name: values[name] for name in CURRENCY_SYMBOLS if name in values} if values else {}
    return (
        ", ".join(f"{currency_symbol(name)} = {format_amount(value, up=up)}" for name, value in shown.items())
        or NONE
    )


def format_amount(value: float, *, up: bool) -> str:
    """Return one privacy cost as text; rounding errors in the twelfth digit do not reach the third."""
    return number(float(f"{value:.12g}"), rounding="up" if up else "down")


_MOST_SHARE = 10.0  # beyond it a percentage says nothing more


def format_share(share: float, *, up: bool = True) -> str:
    """Return a share of a budget as a percentage with one decimal: what is used rounded up, the rest down."""
    if share > _MOST_SHARE:
        return f"over {_MOST_SHARE * 100:,.0f}{NO_BREAK}%"
    hundred = Decimal(f"{100 * share:.10g}")
    return f"{hundred.quantize(Decimal('0.1'), rounding=_MODES['up' if up else 'down']):,f}{NO_BREAK}%"
