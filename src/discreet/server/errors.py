"""Errors of the API: their codes, their JSON body, and the mapping from exceptions.

What an analyst learns from an error follows from the request, the schema and the ledger alone. Messages of
the package's own exceptions obey this rule and are sent; any other exception becomes a fixed sentence.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from discreet.errors import (
    BudgetExceeded,
    DataError,
    EngineFailed,
    EngineUnavailable,
    ExpressionRefused,
    KeyReused,
    LedgerError,
    ParameterError,
    PromiseError,
    SchemaError,
    SourceError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUS = {
    "malformed": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not-found": 404,
    "method-not-allowed": 405,
    "request-timeout": 408,
    "budget-exceeded": 409,
    "key-reused": 409,
    "canceled": 409,
    "too-large": 413,
    "unsupported-media": 415,
    "invalid": 422,
    "refused": 422,
    "stopped": 423,
    "busy": 429,
    "rate-limited": 429,
    "work-limited": 429,
    "failed": 500,
    "engine-failed": 503,
    "interrupted": 503,
    "ledger-unavailable": 503,
}
"""HTTP status of each error code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """The body of an error response.

    Attributes
    ----------
    code : str
        Error code for programs, a key of :data:`STATUS`.
    message, hint : str
        Sentence that says what is wrong, and one that says the way out.
    details : mapping
        Further values for programs, by name.
    headers : mapping of str to str
        Additional headers of the response.
    """

    code: str
    message: str
    hint: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """HTTP status of the response."""
        return STATUS[self.code]

    def body(self, request_id: str) -> bytes:
        """Return the JSON body of the response."""
        error = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "details": dict(self.details),
            "request_id": request_id,
        }
        return json.dumps({"error": error}, ensure_ascii=True, allow_nan=False).encode("ascii")


class ApiException(Exception):
    """Exception that carries an :class:`ApiError` to the middleware, which sends it."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.code)
        self.error = error


UNAUTHORIZED = ApiError(
    code="unauthorized",
    message="This request needs a valid token.",
    hint="Send it as 'Authorization: Bearer TOKEN'. Curators issue tokens.",
    headers={"WWW-Authenticate": "Bearer"},
)
FORBIDDEN = ApiError(
    code="forbidden",
    message="Only a curator may do this.",
    hint="Ask a curator of the data set.",
)
ONLY_OPERATORS = ApiError(
    code="forbidden",
    message="Only an operator of the service may do this.",
    hint="Ask the operator of the service.",
)
FOREIGN_FORM = ApiError(
    code="forbidden",
    message="This form was not sent from a page of this service, or your session has changed since.",
    hint="Reload the page, and send the form from there.",
)
STOPPED = ApiError(
    code="stopped",
    message="A curator has stopped this data set, so questions are neither answered nor charged.",
    hint="Try again later; answers that were paid for stay free.",
)
BUSY = ApiError(
    code="busy",
    message="Too many questions are being answered at once. Nothing was charged.",
    hint="Try again in a moment.",
    headers={"Retry-After": "1"},
)
TOOK_TOO_LONG = ApiError(
    code="busy",
    message="This takes longer than the service waits for it, and goes on. Nothing was charged.",
    hint="Look again in a moment, or try again.",
    headers={"Retry-After": "5"},
)
BODY_TOO_SLOW = ApiError(
    code="request-timeout",
    message="The body of the request did not arrive in time. Nothing was charged.",
    hint="Send it again, over a faster connection.",
)
TOO_MANY_JOBS = ApiError(
    code="busy",
    message="You already have as many unfinished jobs as one analyst may have. Nothing was charged.",
    hint="Wait for one of them to finish, or cancel one.",
    headers={"Retry-After": "5"},
)
CANCELED = ApiError(
    code="canceled",
    message="This job was canceled. What had been charged by then stays charged.",
    hint="Answers that were paid for are free: ask the same question again to get them.",
)
INTERRUPTED = ApiError(
    code="interrupted",
    message="The service was stopped before this job finished. What had been charged by then stays charged.",
    hint="Ask the same question again: answers that were paid for are free.",
)
ENGINE_FAILED = ApiError(
    code="engine-failed",
    message=str(EngineFailed()),
    hint="If that does not help, send the request_id to the operator of the service.",
    headers={"Retry-After": "1"},
)
ATTACK_FAILED, NOT_READY = (
    replace(ENGINE_FAILED, message=message)
    for message in (
        "The attack could not be computed. Nothing was charged. Try it again.",
        "A table does not answer at the moment. Look again in a few seconds.",
    )
)
ENGINE_UNAVAILABLE = ApiError(code="busy", message=str(EngineUnavailable()), headers={"Retry-After": "5"})
LEDGER_UNAVAILABLE = ApiError(
    code="ledger-unavailable",
    message="The ledger is unavailable, so no question can be answered. A charge that was made remains.",
    hint="Try again later; answers that were paid for stay free.",
    headers={"Retry-After": "5"},
)
FAILED = ApiError(
    code="failed",
    message="Internal error. If the question was charged, the charge remains, and asking it again is free.",
    hint="Send the request_id to the operator of the service.",
)
NOT_JSON = ApiError(
    code="unsupported-media",
    message="The body of a request must be JSON, but its Content-Type says otherwise.",
    hint="Send it with 'Content-Type: application/json'.",
)
TOKEN_IN_BODY, TOKEN_IN_ADDRESS = (
    ApiError(
        code="malformed",
        message=f"A token was sent in {place}. Never send one there.",
        hint="Send tokens as 'Authorization: Bearer TOKEN', and have this one replaced.",
    )
    for place in ("the body of a request, which is stored", "an address, which logs and browsers store")
)
BAD_QUERY_STRING = ApiError(
    code="malformed",
    message="The query string is malformed, or has too many parameters.",
    hint="See /docs for the documentation.",
)
WRONG_HOST = ApiError(
    code="malformed",
    message="The Host header of the request is not the address of this service.",
    hint="Use the address given by the operator of the service.",
)
KEY_REUSED = ApiError(
    code="key-reused",
    message="This Idempotency-Key was sent before with another question; each question needs its own.",
    hint="Choose a new key, or repeat the same question with the same privacy.",
)
NOT_FOUND = ApiError(
    code="not-found", message="There is nothing at this address.", hint="See /docs for the documentation."
)
NO_SUCH_DATASET = ApiError(
    code="not-found",
    message="There is no data set of this name, or it is not granted to you.",
    hint="See the list of data sets, which programs get from /v1/datasets.",
)
NO_SUCH_JOB = ApiError(
    code="not-found",
    message="You have no job with this id on this data set.",
    hint="Your last 20 jobs on it are kept. If it was answered, asking the same question again is free.",
)


def too_large(most: int) -> ApiError:
    """Return the error for a body above the limit, in bytes."""
    return ApiError(
        code="too-large",
        message=f"The body of the request has more than {most:,} bytes.",
        hint="Split the request into smaller ones.",
    )


def rate_limited(seconds: int) -> ApiError:
    """Return the error for a caller above the request rate, with the seconds to wait."""
    return ApiError(
        code="rate-limited",
        message="You have sent too many requests. Nothing was charged.",
        hint=f"Wait {seconds} s, then try again.",
        headers={"Retry-After": str(seconds)},
    )


def work_limited(seconds: int, *, begun: bool = False) -> ApiError:
    """Return the error for a caller whose work of this hour is used up.

    Parameters
    ----------
    seconds : int
        Seconds to wait, in whole minutes.
    begun : bool
        Whether it ends a model of which earlier steps were charged.
    """
    message = "Your questions have used up your computing time for this hour. "
    hint = f"Wait {seconds // 60} min, or ask for fewer expressions and cells at a time."
    if begun:
        message += "The model was not finished; its earlier steps stay charged."
        hint = f"Wait {seconds // 60} min, and train it again: its earlier steps are free."
    else:
        message += "Nothing was charged."
    return ApiError(
        code="work-limited",
        message=message,
        hint=hint,
        headers={"Retry-After": str(seconds)},
    )


def api_error_from(error: BaseException) -> ApiError:
    """Return the error response for an exception; a fixed sentence unless the package raised it."""
    match error:
        case ApiException():
            return error.error
        case UnreadableRequest():
            return ApiError(code="malformed", message=str(error), hint="Send one JSON object, in UTF-8.")
        case InvalidRequest():
            details = {
                "fields": list(error.fields),
                "problems": [{"field": name, "message": text} for name, text in error.problems],
            }
            return ApiError(code="invalid", message=str(error), hint="See /docs.", details=details)
        case ExpressionRefused():
            details = {"refused": error.construct, "nearest": error.hint}
            return ApiError(code="refused", message=str(error), hint=error.hint, details=details)
        case BudgetExceeded():
            return budget_error(error, None)
        case DataError() | EngineFailed():
            return ENGINE_FAILED
        case EngineUnavailable():
            return ENGINE_UNAVAILABLE
        case LedgerError() | SourceError():
            return LEDGER_UNAVAILABLE
        case KeyReused():
            return KEY_REUSED
        case ParameterError() | PromiseError() | SchemaError():
            return _from_message("invalid", error)
    return FAILED


def curator_error(error: BaseException, done: str = "") -> ApiError:
    """Return the error response for a curator, with the messages of ledger and audit log in full.

    Parameters
    ----------
    error : Exception
        Exception that was raised while the curator's request ran.
    done : str
        Sentence that says what took effect all the same; empty for nothing.
    """
    if not isinstance(error, LedgerError | SourceError):
        return api_error_from(error)
    response = _from_message("ledger-unavailable", error)
    return replace(response, message=f"{done} {response.message}".strip(), headers=LEDGER_UNAVAILABLE.headers)


def method_not_allowed(allowed: str) -> ApiError:
    """Return the error for a method that an address does not take, with those that it does."""
    return ApiError(
        code="method-not-allowed",
        message="This address does not support this HTTP method.",
        hint=f"It supports {allowed}.",
        headers={"Allow": allowed},
    )


_NOTHING_FITS = {
    "own": "Not even a noisier answer would fit. A curator can raise this limit.",
    "total": "Not even a noisier answer would fit. Answers that were paid for stay free.",
}


def budget_error(error: BudgetExceeded, affordable: dict[str, Any] | None) -> ApiError:
    """Return the error for a query that costs more than what is left.

    Parameters
    ----------
    error : BudgetExceeded
        Exception with which the ledger refused the charge.
    affordable : dict or None
        Largest request that would fit, from :func:`~discreet.query.costs.affordable_request`; None if none
        would.
    """
    fits = (
        "" if affordable is None else f"{_describe_affordable(affordable)} would fit into what you have left."
    )
    whose = "total" if error.scope == "total" else "own"
    # What a library advises, a new ledger, is nothing that an analyst of a service can do.
    advice = error.advice if error.scale or not error.advice else _NOTHING_FITS[whose]
    return ApiError(
        code="budget-exceeded",
        message=error.shortage,
        hint=f"{error.charged} {fits or advice}".strip(),
        details={
            "asked": error.asked,
            "left": error.left,
            "limit": error.limit,
            "currency": error.currency,
            "scope": whose,
            "scale": error.scale,
            "fits": affordable,
        },
    )


def _describe_affordable(affordable: Mapping[str, Any]) -> str:
    if "sd" in affordable:
        return f"Noise with an sd of {affordable['sd']:g} or more"
    amounts = [f"{name} {value:g}" for name, value in affordable.items() if name != "kind"]
    return f"At most {' at '.join(amounts)}"


def _from_message(code: str, error: Exception, **details: Any) -> ApiError:
    """Return an error response whose message is the first sentence of an exception, its hint the rest."""
    first, dot, rest = str(error).partition(". ")
    return ApiError(code=code, message=first + dot.strip(), hint=rest, details=details)


class UnreadableRequest(ParameterError):
    """A request whose body is not JSON at all."""


class InvalidRequest(ParameterError):
    """A request with fields that are unknown, missing or outside their domain.

    Attributes
    ----------
    fields : tuple of str
        Paths of the wrong fields, such as ``privacy.epsilon``.
    problems : tuple of (str, str)
        Path of each wrong field, with what is wrong.
    """

    def __init__(self, problems: tuple[tuple[str, str], ...]) -> None:
        self.problems = problems
        self.fields = tuple(field for field, _ in problems)
        first, why = problems[0]
        rest = f" Further errors: {len(problems) - 1}, see details." if len(problems) > 1 else ""
        super().__init__(f"{first} of the request is not valid: {why}.{rest}")
