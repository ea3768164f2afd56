"""What a service answered, read with suspicion: JSON values, or the exception that a database would raise."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from discreet.errors import (
    AccessRefused,
    BudgetExceeded,
    DiscreetError,
    EngineFailed,
    ExpressionRefused,
    LedgerUnavailable,
    ParameterError,
    PromiseError,
    SchemaError,
    ServiceError,
    ServiceUnavailable,
)
from discreet.formatting import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_SAID = 2000  # characters of somebody else's sentence that an exception repeats
_KINDS = {"PromiseError": PromiseError, "SchemaError": SchemaError}
_WRONG = ("invalid", "key-reused", "malformed", "too-large")
_LATER = ("rate-limited", "busy", "ledger-unavailable", "engine-failed")
_FREE = "Ask the same again: it is free, and gets the answer that was paid for."


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """Why an attempt brought no answer.

    Attributes
    ----------
    url : str
        Of the service.
    code : str
        Of its error; "silent", "insecure" or "strange" where it sent none.
    said : str
        Its sentence, or ours.
    details : mapping
        What it added for programs.
    again : bool
        Whether another attempt may go better.
    lost : bool
        Whether the request may have been carried out though nobody said so.
    wait : float or None
        For how many seconds the service asks to be left alone.
    """

    url: str
    code: str
    said: str
    details: Mapping[str, Any] = field(default_factory=dict)
    again: bool = False
    lost: bool = False
    wait: float | None = None

    @classmethod
    def silent(cls, url: str, seconds: float | None, *, lost: bool) -> Unanswered:
        """Nobody answered, in time or at all; ``lost`` if the request may have arrived."""
        did = "did not" if seconds is not None else "broke off" if lost else "cannot be reached"
        within = "" if seconds is None else f" within {seconds:g} seconds"
        said = f"The service at {url} must answer{within}, and {did}."
        return cls(url=url, code="silent", said=said, again=True, lost=lost)

    @classmethod
    def insecure(cls, url: str, reason: str) -> Unanswered:
        """No secure connection could be made."""
        said = (
            f"The service at {url} must prove who it is, and did not ({reason}). Name the file with its "
            "certificate, or that of its authority, as verify=; or see whether it speaks http://."
        )
        return cls(url=url, code="insecure", said=said)

    @classmethod
    def strange(cls, url: str, what: str) -> Unanswered:
        """Something came that a service of this version does not send."""
        said = (
            f"The service at {url} must answer as discreet of this version does, and sent {what}. Check the "
            "address, and that both sides have the same version."
        )
        # An answer that cannot be read is an answer: whatever was asked for has been done.
        return cls(url=url, code="strange", said=said, lost=True)

    @classmethod
    def read(
        cls, url: str, status: int, headers: Mapping[str, str], content: bytes
    ) -> dict[str, Any] | Unanswered:
        """Return the values of an answer, or why there are none."""
        if 300 <= status < 400:
            return cls.strange(url, "a redirection, which is not followed: a token is for one address alone")
        values = _values(headers, content)
        if 200 <= status < 300:
            return cls.strange(url, "something else than JSON") if values is None else values
        error = values.get("error") if values is not None else None
        if not isinstance(error, dict) or not isinstance(error.get("code"), str):
            return cls._unsigned(url, status, _seconds(headers))
        details = error.get("details")
        said = " ".join(part for part in (error.get("message"), error.get("hint")) if isinstance(part, str))
        code = error["code"]
        return cls(
            url=url,
            code=code,
            said=shorten(said, _MOST_SAID),
            details=details if isinstance(details, dict) else {},
            again=code in _LATER,
            lost=status == 500,
            wait=_seconds(headers),
        )

    @classmethod
    def _unsigned(cls, url: str, status: int, wait: float | None) -> Unanswered:
        """Something on the way answered instead of the service."""
        if status in (401, 403):
            said = (
                f"The service at {url} must be given a token that it knows, and something before it refused."
            )
            return cls(url=url, code="forbidden", said=said)
        if status in (429, 502, 503, 504):
            said = f"The service at {url} must answer itself, and something before it said {status}."
            return cls(url=url, code="silent", said=said, again=True, lost=status != 429, wait=wait)
        return cls.strange(url, f"status {status} without an error of its own")

    def error(self, *, attempts: int, pays: bool, lost: bool) -> DiscreetError:
        """Return the exception of the last attempt; ``lost`` if any may have been carried out unseen."""
        if self.code in ("unauthorized", "forbidden"):
            return AccessRefused(self.said)
        if self.code == "budget-exceeded":
            return self._budget()
        if self.code == "refused" and {"refused", "nearest"} <= self.details.keys():
            what, nearest = (shorten(str(self.details[k]), _MOST_SAID) for k in ("refused", "nearest"))
            return ExpressionRefused(what, nearest)
        if self.code in (*_WRONG, "refused"):
            return _KINDS.get(str(self.details.get("error")), ParameterError)(self.said)
        if self.code == "engine-failed":
            return EngineFailed()
        if self.code == "ledger-unavailable":
            return LedgerUnavailable(self.said)
        said = self.said + (f" That was attempt {attempts}." if attempts > 1 else "")
        if pays:
            said += f" It may have been charged. {_FREE}" if lost else " Nothing was charged."
        if self.code in ("strange", "insecure") or not (self.lost or self.again or self.code == "stopped"):
            return ServiceError(said)
        return ServiceUnavailable(said, may_be_charged=pays and lost, wait=self.wait)

    def _budget(self) -> BudgetExceeded:
        asked, left, limit = (_number(self.details.get(name)) for name in ("asked", "left", "limit"))
        currency, scope = (self.details.get(name) for name in ("currency", "scope"))
        return BudgetExceeded(
            self.said,
            asked=asked,
            left=left,
            limit=limit,
            currency=shorten(str(currency), 40) if currency else "privacy",
            scope=shorten(str(scope), 200) if scope else "total",
        )


def _values(headers: Mapping[str, str], content: bytes) -> dict[str, Any] | None:
    """Read a JSON object; None for anything else, numbers that are no numbers included."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return None
    try:
        values = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _seconds(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _number(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else 0.0
