"""Methods of a job: how a request becomes a release method, with its promise and its error floors.

Which options a method takes is read off its constructor, so a method that is added to the registry is offered
at once, with all of its parameters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from discreet.arguments import nearest
from discreet.errors import ParameterError, PromiseError
from discreet.formatting import plain_number
from discreet.privacy import ApproxDP, ErrorFloor, Promise, PureDP
from discreet.release import METHODS, ReleaseMethod
from discreet.release.base import check_publishable, parameter_names

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from discreet.ledger import Ledger
    from discreet.pipeline.sources import LedgerPlace
    from discreet.release import ReleasePlan
    from discreet.schema import Schema

FOR_EPSILON, FOR_FLOORS = "synthetic", "gaussian"
"""Names of the methods of a release that names none: for differential privacy, and for error floors."""


def method_class(name: str) -> type[ReleaseMethod]:
    """Return the release method that is registered under a name."""
    if name in METHODS:
        return METHODS[name]
    close = nearest(name, METHODS)
    hint = f" Did you mean {close!r}?" if close else ""
    raise ParameterError(f"method must be one of {', '.join(sorted(METHODS))}, was {name!r}.{hint}")


def method_options(name: str) -> tuple[str, ...]:
    """Return the parameters of a method other than its promise, in the order of its constructor."""
    return tuple(option for option in parameter_names(method_class(name)) if option != "privacy")


def check_options(name: str, options: Iterable[str]) -> None:
    """Refuse names that are no options of a method, and say which methods have them."""
    known = method_options(name)
    for option in options:
        if option not in known:
            elsewhere = [other for other in sorted(METHODS) if option in method_options(other)]
            hint = f" It is one of the method {' and '.join(elsewhere)}." if elsewhere else ""
            raise ParameterError(
                f"{option!r} is no option of the method {name}, which takes {', '.join(known)}.{hint}"
            )


def make_method(
    name: str, *, schema: Schema, privacy: Promise | None, ledger: Ledger | None = None, **options: Any
) -> ReleaseMethod:
    """Return a release method with the given parameters.

    Parameters
    ----------
    name : str
        Name of the method in :data:`discreet.release.METHODS`.
    schema : Schema
        Schema that declares the columns of the table.
    privacy : Promise or None
        Promise to be kept, as :func:`build_promise` returns it. Error floors set the noise only if `options`
        do not.
    ledger : Ledger, optional
        Ledger that the release is charged to; None: it is not charged.
    **options
        Parameters of the method's constructor. An unknown one is refused.

    Returns
    -------
    ReleaseMethod
    """
    kind: Any = method_class(name)  # each has parameters of its own
    check_options(name, options)
    if privacy is None and kind.asks_questions:
        raise ParameterError(
            f"A {name} release needs a promise of differential privacy, and none was given: there is no "
            "default. Give --epsilon 1 --delta 1e-6, or privacy=ApproxDP(1, 1e-6)."
        )
    common = {"schema": schema, "ledger": ledger}
    made: ReleaseMethod
    if privacy is None:
        made = kind(**options, **common)
    elif not isinstance(privacy, ErrorFloor) or kind.asks_questions:
        made = kind(privacy=_check_delta(privacy, kind), **options, **common)
    else:
        # Floors set the noise only if nothing else does; whether they are reached is checked on the plan.
        try:
            made = kind(**options, **common)
        except (ParameterError, PromiseError):
            if ErrorFloor not in getattr(kind, "accepts", ()):
                raise
            made = kind(privacy=privacy, **options, **common)
    return made


def choose_method(
    method: str | ReleaseMethod | None,
    schema: Schema,
    *,
    privacy: Promise | None,
    floors: Mapping[str, float],
) -> str | ReleaseMethod:
    """Return the method of a job: the one given, or a synthetic table for an epsilon and noise for floors.

    Parameters
    ----------
    method : str, ReleaseMethod or None
        Method as it was given; None: the rule decides.
    schema : Schema
        Schema that declares the columns, for the examples in an error.
    privacy : Promise or None
        Promise of the job, as :func:`resolve_promise` returns it.
    floors : mapping of str to float
        Error floors of request and schema, as :func:`resolve_floors` returns them.

    Raises
    ------
    ParameterError
        No method was given, and neither or both of an epsilon and error floors.
    """
    if method is not None:
        return method
    if privacy is None:
        raise missing_promise_error(schema)
    if isinstance(privacy, ErrorFloor):
        return FOR_FLOORS
    if floors:
        raise ParameterError(
            "method must be named where differential privacy and error floors both are given, here of "
            f"{', '.join(floors)}: an epsilon gives a synthetic table, which proves no floor; floors give "
            f"noise on every row. Give --method {FOR_FLOORS} for rows with noise that keep both, or leave "
            "--protect out, also in the schema."
        )
    return FOR_EPSILON


def resolve_method(
    method: str | ReleaseMethod,
    *,
    schema: Schema,
    privacy: Promise | None,
    ledger: Ledger | None = None,
    **options: Any,
) -> ReleaseMethod:
    """Return the method of a job, by name as :func:`make_method` or from one that was made before.

    Parameters
    ----------
    method : str or ReleaseMethod
        Name of a method, or a method with its parameters, as :func:`choose_method` returns it.
    schema, ledger, **options
        As for :func:`make_method`. A method that was made before takes no further options.
    privacy : Promise or None
        Promise to be kept. A method that was made before keeps its own, and takes no other.

    Raises
    ------
    ParameterError
        The amount of noise was not given, or was given twice.
    """
    if isinstance(method, ReleaseMethod):
        _check_made_before(method, privacy, options)
        # A new one: the caller's own keeps its schema, its ledger and its seed.
        return type(method).from_parameters(method.parameters(), schema=schema, ledger=ledger)
    try:
        return make_method(method, schema=schema, privacy=privacy, ledger=ledger, **options)
    except ParameterError:
        if privacy is None and not options and not method_class(method).asks_questions:
            raise missing_noise_error(method, schema) from None
        raise


def check_one_target(method: str | ReleaseMethod | None, target: str | None) -> None:
    """Refuse a target beside a method that was made with another one."""
    own = getattr(method, "target", None)
    if target is not None and own not in (None, target):
        raise ParameterError(
            f"target must be given once, was {target!r}, and the {type(method).__name__} in method has "
            f"{own!r}. Leave one of them out."
        )


def check_declared(method: str | ReleaseMethod, schema: Schema) -> None:
    """Refuse a schema that hides the number of rows, unless the method estimates it from noisy counts."""
    kind = type(method) if isinstance(method, ReleaseMethod) else method_class(method)
    if not kind.asks_questions:
        check_publishable(schema, "a release")


def resolve_declaration(
    method: str | ReleaseMethod | None,
    schema: Schema | str | os.PathLike[str] | None,
    ledger: LedgerPlace,
) -> tuple[Schema | str | os.PathLike[str] | None, LedgerPlace]:
    """Return the schema and the ledger of a job: those given, or else those of a method made before.

    Raises
    ------
    ParameterError
        The method has a schema or a ledger, and another one was given beside it.
    """
    if not isinstance(method, ReleaseMethod):
        return schema, ledger
    for name, own, given in (("schema", method.schema, schema), ("ledger", method.ledger, ledger)):
        if own is not None and given is not None and given != own:
            raise ParameterError(
                f"{name} must be given once, and the {type(method).__name__} in method has another one. "
                f"Leave {name} out, or make the method with the same."
            )
    return (method.schema if schema is None else schema), (method.ledger if ledger is None else ledger)


def resolve_promise(
    method: str | ReleaseMethod | None,
    schema: Schema,
    *,
    privacy: Promise | None,
    protect: Mapping[str, float] | None,
) -> Promise | None:
    """Return the promise of a job: the one given, that of a method made before, or the error floors."""
    if privacy is not None:
        return privacy
    if isinstance(method, ReleaseMethod):
        own: Promise | None = getattr(method, "privacy", None)
        return own
    return build_promise(schema, protect=protect)


def _check_made_before(method: ReleaseMethod, privacy: Promise | None, options: Mapping[str, Any]) -> None:
    """Refuse a method that `verify` could not plan again, or whose noise is given twice."""
    kind = type(method)
    if METHODS.get(method.name) is not kind:
        raise ParameterError(
            f"method must be one of {', '.join(sorted(METHODS))}, or made by one of their classes, was a "
            f"{kind.__name__}: `discreet verify` could not plan it again."
        )
    beside = ["privacy"] if privacy is not None and privacy != getattr(method, "privacy", None) else []
    beside += sorted(options)
    if beside:
        raise ParameterError(
            f"{beside[0]} must be left out beside a method that was made before, which has its own. Give it "
            f"to {kind.__name__}, or give the method by its name."
        )


def build_promise(
    schema: Schema,
    *,
    protect: Mapping[str, float] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Promise | None:
    """Return the requested promise: an epsilon, else the floors of request and schema, else None.

    Parameters
    ----------
    schema : Schema
        Schema whose columns may declare floors by ``protect: {error: ...}``.
    protect : mapping of str to float, optional
        Error floor of each named column, in its unit; these override the schema's.
    epsilon, delta : float, optional
        Differential privacy. Floors that are requested beside it do not set the noise; :func:`check_floors`
        checks that they hold too.
    """
    if delta is not None and epsilon is None:
        raise ParameterError(
            f"delta must come with an epsilon, and {delta:g} came alone. Give --epsilon too."
        )
    if epsilon is not None:
        about: dict[str, Any] = {"unit": schema.unit, "neighbors": schema.neighbors}
        if delta is None:
            return PureDP(epsilon=epsilon, **about)
        return ApproxDP(epsilon=epsilon, delta=delta, **about)
    floors = resolve_floors(schema, protect)
    return ErrorFloor(floors) if floors else None


def resolve_floors(schema: Schema, protect: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the error floor of each column: the requested one, or else the schema's."""
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


def check_floors(plan: ReleasePlan, floors: Mapping[str, float]) -> None:
    """Refuse a plan that does not prove the requested error floors."""
    proven_for = {done.column: done.floor for done in plan.columns}
    if floors and plan.typed:
        promising = [name for name, kind in METHODS.items() if ErrorFloor in getattr(kind, "accepts", ())]
        raise PromiseError(
            f"protect of {next(iter(floors))!r} asks for an error floor, and a table of made-up rows proves "
            "none: a well-filled cell is published almost exactly. Leave protect out, also in the schema, "
            f"or give --method {' or '.join(sorted(promising))}."
        )
    for name, want in floors.items():
        have = proven_for.get(name)
        if have is not None and have.error >= want:
            continue
        unit = f" {have.measure}" if have is not None and have.measure else ""
        proven = "proves none"
        if have is not None:
            proven = f"proves {plain_number(have.error, digits=4, rounding='down')}{unit}"
        raise PromiseError(
            f"protect of {name!r} asks for a floor of {want:g}{unit}, and this release {proven}. Ask "
            "for less, for more noise, or for the floors alone: another floor cannot be added to what was "
            "given."
        )


def missing_promise_error(schema: Schema) -> ParameterError:
    """Return the error for a release with neither a method nor a promise, with the two lines to write."""
    return ParameterError(
        "A release needs an amount of privacy, and none was given: there is no default. Write one of\n"
        "  --epsilon 1 --delta 1e-6   for a synthetic table: rows of nobody, under differential privacy\n"
        f"  {_example_floor(schema):25s}  for the true rows with noise: the smallest error of an attacker "
        "who knows only what is declared\n"
        "or a --method with its options. `discreet plan TABLE --epsilon 1 --delta 1e-6` compares the ways."
    )


def missing_noise_error(name: str, schema: Schema) -> ParameterError:
    """Return the error for a named method without an amount of noise, with the ways to give one."""
    own = [f"--{option.replace('_', '-')}" for option in ("scale", "regularization", "support", "variance")]
    fitting = [word for word in own if word[2:] in method_options(name)]
    return ParameterError(
        f"A {name} release needs an amount of noise, and none was given: there is no default. Give "
        f"{_example_floor(schema)} (the smallest error of an attacker who knows only what is declared), or "
        "write privacy: {protect: {error: ...}} under the column in the schema, or give --epsilon and "
        f"--delta{', or ' + ' or '.join(fitting) if fitting else ''}."
    )


def _example_floor(schema: Schema) -> str:
    """Return a flag that asks for an error floor of the first number, or else of the first column."""
    numbers = [c for c in schema.released if c.is_number and c.role == "sensitive"]
    if numbers:
        return f"--protect {numbers[0].name}={_tenth(numbers[0].width):g}"
    return f"--protect {next(c.name for c in schema.released)}=0.3"


def _tenth(width: float) -> float:
    """Return a round number near a tenth of a width, as an example."""
    power = 10.0 ** math.floor(math.log10(width / 10))
    return max(1, round(width / 10 / power)) * power


def _check_delta(privacy: Promise, kind: type[ReleaseMethod]) -> Promise:
    """Return the promise; refuse an epsilon without a delta for a method that needs one."""
    accepts: tuple[type[Promise], ...] = getattr(kind, "accepts", ())
    if isinstance(privacy, PureDP) and accepts and PureDP not in accepts and ApproxDP in accepts:
        raise PromiseError(
            f"The method {kind.name} has no epsilon without a delta. Give --delta too, well below one over "
            "the number of rows, such as 1e-6; or take --method laplace."
        )
    return privacy
