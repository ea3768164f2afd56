"""How an error becomes an answer: one shape, fixed sentences wherever rows could be the reason.

What an analyst is told follows from the request, the schema and the ledger. An error of ours may say so in
its own words, since those obey the same rule; of anything else only a fixed sentence leaves.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from decimal import ROUND_DOWN, ROUND_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any

from discreet.errors import (
    BudgetExceeded,
    DataError,
    EngineFailed,
    ExpressionRefused,
    KeyReused,
    LedgerError,
    ParameterError,
    PromiseError,
    SchemaError,
    SourceError,
)
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from discreet.privacy.calibration import gaussian_epsilon, gaussian_mu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.privacy import Promise

STATUS = {
    "malformed": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not-found": 404,
    "method-not-allowed": 405,
    "budget-exceeded": 409,
    "key-reused": 409,
    "too-large": 413,
    "unsupported-media": 415,
    "invalid": 422,
    "refused": 422,
    "stopped": 423,
    "busy": 429,
    "rate-limited": 429,
    "failed": 500,
    "engine-failed": 503,
    "ledger-unavailable": 503,
}
"""Every code there is, with its HTTP status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """What somebody is told instead of an answer.

    Attributes
    ----------
    code : str
        For programs; in :data:`STATUS`.
    message, hint : str
        What is wrong, and the way out.
    details : mapping
        More for programs.
    headers : mapping of str to str
        That go with it.
    """

    code: str
    message: str
    hint: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """Of the HTTP response."""
        return STATUS[self.code]

    def body(self, request_id: str) -> bytes:
        """Return the JSON that leaves."""
        error = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "details": dict(self.details),
            "request_id": request_id,
        }
        return json.dumps({"error": error}, ensure_ascii=True, allow_nan=False).encode("ascii")


class ApiException(Exception):
    """Carries a problem to whoever writes the response."""

    def __init__(self, problem: ApiError) -> None:
        super().__init__(problem.code)
        self.error = problem


UNAUTHORIZED = ApiError(
    code="unauthorized",
    message="A valid token must come with this request, and none did.",
    hint="Send it as 'Authorization: Bearer TOKEN'. Whoever runs the service gives out tokens.",
    headers={"WWW-Authenticate": "Bearer"},
)
FORBIDDEN = ApiError(
    code="forbidden",
    message="This must be asked by a curator, and was not.",
    hint="Ask whoever runs the service.",
)
FOREIGN_FORM = ApiError(
    code="forbidden",
    message="A form must come from a page of this service, and this one did not.",
    hint="Load the page again and send it from there.",
)
STOPPED = ApiError(
    code="stopped",
    message="The curator has stopped this service: nothing is answered and nothing more is charged.",
    hint="Ask again later; what was paid for stays paid, and is free then.",
)
BUSY = ApiError(
    code="busy",
    message="Too many questions are being answered at once. Nothing was charged.",
    hint="Ask again in a moment.",
    headers={"Retry-After": "1"},
)
ENGINE_FAILED = ApiError(
    code="engine-failed",
    message=str(EngineFailed()),
    hint="If that does not help, tell whoever runs the service the request_id.",
    headers={"Retry-After": "1"},
)
LEDGER_UNAVAILABLE = ApiError(
    code="ledger-unavailable",
    message="The ledger cannot be used now, so nothing is answered. A charge that was made stands.",
    hint="Ask again later: whatever was paid for is free.",
    headers={"Retry-After": "5"},
)
FAILED = ApiError(
    code="failed",
    message="Something went wrong that should not. A charge that was made stands; asking again is free.",
    hint="Tell whoever runs the service the request_id.",
)
TOO_LARGE = ApiError(code="too-large", message="The body of a request must be smaller.", hint="Ask for less.")
NOT_JSON = ApiError(
    code="unsupported-media",
    message="The body of a request must be JSON, and says that it is something else.",
    hint="Send it with 'Content-Type: application/json'.",
)
TOKEN_IN_BODY, TOKEN_IN_ADDRESS = (
    ApiError(
        code="malformed",
        message=f"A token must never be part of {place}, and one was.",
        hint="Send it as 'Authorization: Bearer TOKEN', and have this one replaced.",
    )
    for place in ("what is asked, which is kept", "an address, where logs and histories keep it")
)
BAD_QUERY_STRING = ApiError(
    code="malformed",
    message="The part of an address after ? must be a few names with values, and is not.",
    hint="See /docs for what there is.",
)
WRONG_HOST = ApiError(
    code="malformed",
    message="The Host of a request must be the address of this service, and is not.",
    hint="Use the address that whoever runs the service gives out.",
)
KEY_REUSED = ApiError(
    code="key-reused",
    message="Idempotency-Key of the request must be new for each new question, and this one was sent before "
    "with another.",
    hint="Choose another key, or repeat the question, with its privacy, as it was.",
)
NOT_FOUND = ApiError(
    code="not-found", message="There is nothing at this address.", hint="See /docs for what there is."
)


def rate_limited(seconds: int) -> ApiError:
    """Return what somebody is told who asks too often."""
    return ApiError(
        code="rate-limited",
        message="You ask more often than this service answers one caller. Nothing was charged.",
        hint=f"Wait {seconds} s.",
        headers={"Retry-After": str(seconds)},
    )


def api_error_from(error: BaseException) -> ApiError:
    """Return what may be told about an error."""
    match error:
        case ApiException():
            return error.error
        case UnreadableRequest():
            return ApiError(code="malformed", message=str(error), hint="Send one JSON object.")
        case InvalidRequest():
            details = {
                "fields": list(error.fields),
                "problems": [{"field": name, "message": said} for name, said in error.problems],
            }
            return ApiError(code="invalid", message=str(error), hint="See /docs.", details=details)
        case ExpressionRefused():
            details = {"refused": error.construct, "nearest": error.hint}
            return ApiError(code="refused", message=str(error), hint=error.hint, details=details)
        case BudgetExceeded():
            return budget_error(error, asked=error.asked, fits=None)
        case DataError() | EngineFailed():
            return ENGINE_FAILED
        case LedgerError() | SourceError():
            return LEDGER_UNAVAILABLE
        case KeyReused():
            return KEY_REUSED
        case ParameterError() | PromiseError() | SchemaError():
            return _from_message("invalid", error)
    return FAILED


def curator_error(error: BaseException, done: str = "") -> ApiError:
    """Return what a curator is told: of ledger and audit log in their own words, which quote no row.

    Parameters
    ----------
    error : Exception
        What went wrong.
    done : str
        What took effect all the same, as a sentence.
    """
    if not isinstance(error, LedgerError | SourceError):
        return api_error_from(error)
    told = _from_message("ledger-unavailable", error)
    return replace(told, message=f"{done} {told.message}".strip(), headers=LEDGER_UNAVAILABLE.headers)


def method_not_allowed(allowed: str) -> ApiError:
    """Return what somebody is told who asks an address in a way that it does not take."""
    return ApiError(
        code="method-not-allowed",
        message="This address must be asked in another way.",
        hint=f"It takes {allowed}.",
        headers={"Allow": allowed},
    )


def budget_error(error: BudgetExceeded, *, asked: float, fits: dict[str, Any] | None) -> ApiError:
    """Return what somebody is told who cannot pay.

    Parameters
    ----------
    error : BudgetExceeded
        What the ledger said.
    asked : float
        What all of it would cost, in the currency of the error.
    fits : dict or None
        What would fit, from :func:`fitting`.
    """
    told = _from_message(
        "budget-exceeded",
        error,
        asked=asked,
        left=error.left,
        limit=error.limit,
        currency=error.currency,
        scope="total" if error.scope == "total" else "own",
        fits=fits,
    )
    if fits is None:
        return told
    # The ledger names the limit that it met first, and the part that it was asked for; both limits count.
    whose = "the limit of the whole data set" if error.scope == "total" else "your own limit"
    return replace(
        told,
        message=f"The {error.currency} of a question must stay within what is left of {whose}: this one asks "
        f"for {asked:.6g}, and {error.left:.6g} of {error.limit:.6g} is left.",
        hint=f"Nothing was charged. {_describe_affordable(fits)} would fit what is left for you.",
    )


def _describe_affordable(fits: Mapping[str, Any]) -> str:
    if "sd" in fits:
        return f"Noise with an sd of {fits['sd']:g} or more"
    amounts = [f"{name} {value:g}" for name, value in fits.items() if name != "kind"]
    return f"At most {' at '.join(amounts)}"


def affordable_request(
    privacy: Promise | None, sd: float | None, currency: str, share: float
) -> dict[str, Any] | None:
    """Return the largest of what was asked for, of the same kind, that the budget would still pay for.

    Parameters
    ----------
    privacy, sd
        What was asked for.
    currency : str
        In which it is too much.
    share : float
        How much of it the budget would pay for, in that currency.
    """
    if share <= 0:
        return None
    found: dict[str, Any] | None = None
    if currency == "rho":
        root = math.sqrt(share)
        match privacy:
            case GaussianDP():
                found = {"kind": privacy.kind, "mu": _round_down_4(privacy.mu * root)}
            case ZCDP():
                found = {"kind": privacy.kind, "rho": _round_down_4(privacy.rho * share)}
            case ApproxDP():
                mu = gaussian_mu(privacy.epsilon, privacy.delta) * root
                epsilon = _round_down_4(gaussian_epsilon(mu, privacy.delta))
                found = {"kind": privacy.kind, "epsilon": epsilon, "delta": privacy.delta}
            case PureDP():
                found = {"kind": privacy.kind, "epsilon": _round_down_4(privacy.epsilon * root)}
            case None if sd is not None:
                found = {"sd": _round_down_4(sd / root, up=True)}
    elif currency == "epsilon" and isinstance(privacy, PureDP):
        found = {"kind": privacy.kind, "epsilon": _round_down_4(privacy.epsilon * share)}
    return found if found is not None and min(v for v in found.values() if isinstance(v, float)) > 0 else None


def _round_down_4(value: float, *, up: bool = False) -> float:
    """Round to four digits on the side that fits; the last is lost to rounding anyway."""
    if not 0 < value < math.inf:
        return 0.0
    with localcontext() as context:
        context.prec, context.rounding = 4, ROUND_UP if up else ROUND_DOWN
        return float(+Decimal(value))


def _from_message(code: str, error: Exception, **details: Any) -> ApiError:
    """Tell an error of ours: its first sentence is what is wrong, the rest the way out."""
    first, dot, rest = str(error).partition(". ")
    return ApiError(code=code, message=first + dot.strip(), hint=rest, details=details)


class UnreadableRequest(ParameterError):
    """A request is no JSON at all, as opposed to JSON that says something wrong."""


class InvalidRequest(ParameterError):
    """A request has fields that are unknown, missing or outside their domain.

    Attributes
    ----------
    fields : tuple of str
        Which, as paths.
    problems : tuple of (str, str)
        Path and sentence.
    """

    def __init__(self, problems: tuple[tuple[str, str], ...]) -> None:
        self.problems = problems
        self.fields = tuple(field for field, _ in problems)
        first, why = problems[0]
        rest = f" {len(problems) - 1} more things are wrong: see details." if len(problems) > 1 else ""
        super().__init__(f"{first} of the request must be as documented, and is not: {why}.{rest}")
