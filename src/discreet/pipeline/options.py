"""From what somebody asks for to a release method.

Which options a method takes is read off its constructor, so that a method that is added to the registry is
offered at once, with everything it can be told.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError, PromiseError
from discreet.privacy import ApproxDP, ErrorFloor, Promise, PureDP
from discreet.release import METHODS
from discreet.release.base import parameter_names
from discreet.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.ledger import Ledger
    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.schema import Schema

DEFAULT = "gaussian"


def method_class(name: str) -> type[ReleaseMethod]:
    """Return the method of that name."""
    if name in METHODS:
        return METHODS[name]
    close = nearest(name, METHODS)
    hint = f"Did you mean {close!r}?" if close else f"The default is {DEFAULT!r}."
    raise ParameterError(f"method must be one of {', '.join(sorted(METHODS))}, was {name!r}. {hint}")


def options_of(name: str) -> tuple[str, ...]:
    """Return what a method can be told, besides what it shall promise."""
    return tuple(option for option in parameter_names(method_class(name)) if option != "privacy")


def make_method(
    name: str, *, schema: Schema, privacy: Promise | None, ledger: Ledger | None = None, **options: Any
) -> ReleaseMethod:
    """Make a method from its name and what it was told.

    Parameters
    ----------
    name : str
        In :data:`discreet.release.METHODS`.
    schema : Schema
        What was declared.
    privacy : Promise or None
        What shall be promised, as :func:`promise_for` makes it. Floors stand back where `options` say how
        much noise there is.
    ledger : Ledger, optional
        Where it is charged.
    **options
        Parameters of the method's constructor. One that it does not have is refused.

    Returns
    -------
    ReleaseMethod
    """
    kind: Any = method_class(name)  # each has parameters of its own
    known = options_of(name)
    for option in options:
        if option not in known:
            elsewhere = [other for other in sorted(METHODS) if option in options_of(other)]
            hint = f" It is one of the method {' and '.join(elsewhere)}." if elsewhere else ""
            raise ParameterError(
                f"{option!r} is no option of the method {name}, which takes {', '.join(known)}.{hint}"
            )
    common = {"schema": schema, "ledger": ledger}
    made: ReleaseMethod
    if privacy is None:
        made = kind(**options, **common)
    elif not isinstance(privacy, ErrorFloor):
        made = kind(privacy=_fitting(privacy, kind), **options, **common)
    else:
        # Floors set the noise only if nothing else does; whether they are reached is checked on the plan.
        try:
            made = kind(**options, **common)
        except (ParameterError, PromiseError):
            if ErrorFloor not in getattr(kind, "accepts", ()):
                raise
            made = kind(privacy=privacy, **options, **common)
    return made


def method_for(
    name: str, *, schema: Schema, privacy: Promise | None, ledger: Ledger | None = None, **options: Any
) -> ReleaseMethod:
    """Make a method as :func:`make_method`; where nothing says how much noise to use, say how to say it."""
    try:
        return make_method(name, schema=schema, privacy=privacy, ledger=ledger, **options)
    except ParameterError:
        if privacy is None and not options:
            raise how_much(name, schema) from None
        raise


def promise_for(
    schema: Schema,
    *,
    protect: Mapping[str, float] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Promise | None:
    """Return what was asked for: an epsilon, else the floors of the schema and of the request, else None.

    Parameters
    ----------
    schema : Schema
        Its columns may ask for floors by ``protect: {error: ...}``.
    protect : mapping of str to float, optional
        Column to floor, in its unit; these go before the schema's.
    epsilon, delta : float, optional
        Differential privacy. Floors that were asked for beside it do not set the noise; whether they are
        reached too is for :func:`check_floors` to say.
    """
    if delta is not None and epsilon is None:
        raise ParameterError(
            f"delta must come with an epsilon, and {delta:g} came alone. Give --epsilon too."
        )
    if epsilon is not None:
        return PureDP(epsilon=epsilon) if delta is None else ApproxDP(epsilon=epsilon, delta=delta)
    asked = requested_floors(schema, protect)
    return ErrorFloor(asked) if asked else None


def requested_floors(schema: Schema, protect: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the floor that each column shall have: by request, or else by the schema."""
    declared = {c.name: c.protect.error for c in schema.released if c.protect and c.protect.error is not None}
    for name, error in (protect or {}).items():
        if name not in schema:
            close = nearest(name, schema.names)
            hint = f"Did you mean {close!r}?" if close else f"The columns are {', '.join(schema.names)}."
            raise ParameterError(f"protect names {name!r}, which the schema does not declare. {hint}")
        column = schema.column(name)
        if column.role not in ("sensitive", "target"):
            raise ParameterError(
                f"protect names {name!r}, whose role is {column.role}: "
                + (
                    "it is published as it is. Give it privacy: {role: sensitive} in the schema."
                    if column.role == "public"
                    else "it is not published at all, and needs no floor."
                )
            )
        if isinstance(error, bool) or not isinstance(error, int | float) or not 0 < error < math.inf:
            raise ParameterError(
                f"protect of {name!r} must be a finite number above 0, in the column's unit, was {error!r}."
            )
        declared[name] = float(error)
    return declared


def check_floors(plan: ReleasePlan, asked: Mapping[str, float]) -> None:
    """Refuse a plan that does not prove the floors that were asked for."""
    proven_for = {done.column: done.floor for done in plan.columns}
    for name, want in asked.items():
        have = proven_for.get(name)
        if have is not None and have.error >= want:
            continue
        unit = f" {have.measure}" if have is not None and have.measure else ""
        proven = "proves none" if have is None else f"proves {have.error:.4g}{unit}"
        raise PromiseError(
            f"protect of {name!r} asks for a floor of {want:g}{unit}, and this release {proven}. Ask "
            "for less, for more noise, or for the floors alone: another floor cannot be added to what was "
            "given."
        )


def how_much(name: str, schema: Schema) -> ParameterError:
    """Make the error for a release that was not told how much noise to use."""
    numbers = [c for c in schema.released if c.is_number and c.role == "sensitive"]
    column = numbers[0].name if numbers else next(c.name for c in schema.released)
    share = f"--protect {column}={_tenth(numbers[0].width):g}" if numbers else f"--protect {column}=0.3"
    own = [f"--{option.replace('_', '-')}" for option in ("scale", "regularization", "support", "variance")]
    fitting = [word for word in own if word[2:] in options_of(name)]
    return ParameterError(
        f"A release must be told how much to protect, and was not: privacy has no default. Give {share} "
        "(the least error of whoever knows no more than what is declared), or write "
        "privacy: {protect: {error: ...}} under the column in the schema, or give --epsilon and "
        f"--delta{', or ' + ' or '.join(fitting) if fitting else ''}."
    )


def _tenth(width: float) -> float:
    """Return a round number near a tenth of a width, as an example."""
    power = 10.0 ** math.floor(math.log10(width / 10))
    return max(1, round(width / 10 / power)) * power


def _fitting(privacy: Promise, kind: type[ReleaseMethod]) -> Promise:
    """Say it in the method's own words when an epsilon lacks its delta, or has one too many."""
    accepts: tuple[type[Promise], ...] = getattr(kind, "accepts", ())
    if isinstance(privacy, PureDP) and accepts and PureDP not in accepts and ApproxDP in accepts:
        raise PromiseError(
            f"The method {kind.name} has no epsilon without a delta. Give --delta too, well below one over "
            "the number of rows, such as 1e-6; or take --method laplace."
        )
    return privacy


def read_value(text: str) -> Any:
    """Read what was typed for an option: a number, yes or no, name=number pairs, JSON, or else a word.

    Examples
    --------
    >>> read_value("2.5"), read_value("age=3,hours=1e1"), read_value("svm")
    (2.5, {'age': 3, 'hours': 10.0}, 'svm')
    """
    text = text.strip()
    if "=" in text and not text.startswith(("{", "[", '"')):
        pairs = [part.rpartition("=") for part in text.split(",")]
        if not all(name.strip() and mark for name, mark, _ in pairs):
            raise ParameterError(f"An option must be a value or name=value,name=value, was {text!r}.")
        return {name.strip(): read_value(value) for name, _, value in pairs}
    try:
        return json.loads(text, parse_constant=_refused)
    except ParameterError:
        raise
    except ValueError:
        return text


def read_pairs(option: str, words: list[str]) -> dict[str, Any]:
    """Read ``name=value`` words; the name may hold an equals sign, the value may not."""
    found: dict[str, Any] = {}
    for word in words:
        name, mark, value = word.rpartition("=")
        if not mark or not name or not value.strip():
            raise ParameterError(f"{option} must be name=value, was {word!r}. For example {option} age=9.")
        if name in found:
            raise ParameterError(f"{option} must name {name!r} once, and names it twice.")
        found[name] = read_value(value)
    return found


def _refused(word: str) -> Any:
    raise ParameterError(f"An option must be a finite number, was {word}.")
