"""Checks of what a caller gives a remote database, and its form in a request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError, PromiseError
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, Promise, PureDP

if TYPE_CHECKING:
    from discreet.query.aggregates import Aggregate

PRIVACY_AMOUNTS: dict[type[Promise], tuple[str, ...]] = {
    PureDP: ("epsilon",),
    ApproxDP: ("epsilon", "delta"),
    ZCDP: ("rho",),
    GaussianDP: ("mu",),
}
DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_number(name: str, value: Any, fits: bool) -> None:
    if not fits or isinstance(value, bool):
        must = "a number of seconds above 0" if name == "timeout" else "a whole number from 0 to 100"
        raise ParameterError(f"{name} of RemoteDatabase must be {must}, was {value!r}.")


def check_dataset(name: Any) -> None:
    """Refuse what cannot be the name of a data set, before it becomes part of an address."""
    if not (isinstance(name, str) and DATASET_NAME.fullmatch(name)):
        raise ParameterError(
            "dataset of RemoteDatabase must be a name of letters, digits, dots, underscores and hyphens, was "
            f"{name!r}. discreet.connect(url).datasets() lists those that you may ask."
        )


def refuse_owner(verb: str, owner: str | None) -> None:
    if owner is not None:
        raise ParameterError(
            f"owner of RemoteDatabase.{verb} must be None, was given: the service charges the holder of the "
            "token. Use the token of that person."
        )


def promise_body(promise: Any) -> dict[str, Any]:
    """Return a promise as a request has it, without unit and neighbors, which are the schema's."""
    for kind, names in PRIVACY_AMOUNTS.items():
        if isinstance(promise, kind):
            return {"kind": kind.kind, **{name: float(getattr(promise, name)) for name in names}}
    raise PromiseError(
        "privacy of RemoteDatabase must be PureDP, ApproxDP, ZCDP or GaussianDP, was "
        f"{type(promise).__name__}. A service takes no other: cost() says what it comes to, and that can be "
        "asked for."
    )


def aggregate_body(question: Aggregate, privacy: Promise | None, variance: float | None) -> dict[str, Any]:
    """Return the body of a request with an aggregate."""
    noise = {"privacy": promise_body(privacy)} if variance is None else {"variance": float(variance)}
    return {"kind": "statistical", "question": question.to_dict(), **noise}
