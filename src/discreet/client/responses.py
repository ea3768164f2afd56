"""Responses of a service, checked: JSON values, pages of history, or the exception of a local database."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, cast

from discreet.errors import (
    NOTHING_CHARGED,
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
from discreet.query.frames import history_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from discreet.client.transport import Transport


_MAX_MESSAGE = 2000  # characters of the service's message that an exception repeats
_EXCEPTIONS = {"PromiseError": PromiseError, "SchemaError": SchemaError}
_INVALID_CODES = ("invalid", "key-reused", "malformed", "too-large")
_RETRY_CODES = (
    "rate-limited",
    "work-limited",
    "busy",
    "request-timeout",
    "ledger-unavailable",
    "engine-failed",
)
_MAYBE_CHARGED = (
    "It may have been charged; if it was, the same again is free and gets the answer that was lost."
)
_PAGE = 1000  # charges of one request
_MAX_PARTS = 64  # answers that may be merged into one


@dataclass(frozen=True, kw_only=True)
class FailedAttempt:
    """Why one attempt at a request brought no answer.

    Attributes
    ----------
    code : str
        Error code of the service; "silent", "insecure" or "strange" where it sent none.
    message : str
        Message of the service, or one of the client.
    hint : str
        Sentences of the service that follow its message: the way out.
    details : mapping
        Details of the error for programs, as the service sent them.
    retry : bool
        Whether another attempt may succeed.
    lost : bool
        Whether the request may have been carried out although no answer came.
    wait : float or None
        Seconds after which the service asks to be tried again; None if it named none.
    """

    code: str
    message: str
    hint: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    retry: bool = False
    lost: bool = False
    wait: float | None = None

    def error(self, *, attempts: int, pays: bool, lost: bool) -> DiscreetError:
        """Return the exception to raise after the last attempt.

        Parameters
        ----------
        attempts : int
            Number of attempts that were made.
        pays : bool
            Whether the request is charged when it is carried out.
        lost : bool
            Whether any of the attempts may have been carried out unseen.
        """
        message = f"{self.message} {self.hint}".strip()
        if self.code in ("unauthorized", "forbidden"):
            return AccessRefused(message)
        if self.code == "budget-exceeded":
            return self._budget_exceeded()
        if self.code == "refused" and {"refused", "nearest"} <= self.details.keys():
            what, nearest = (shorten(str(self.details[k]), _MAX_MESSAGE) for k in ("refused", "nearest"))
            said = shorten(self.message.removesuffix(self.hint).strip(), _MAX_MESSAGE)
            return ExpressionRefused(what, nearest, said)
        if self.code in (*_INVALID_CODES, "refused"):
            return _EXCEPTIONS.get(str(self.details.get("error")), ParameterError)(message)
        if self.code == "engine-failed":
            return EngineFailed()
        if self.code == "ledger-unavailable":
            return LedgerUnavailable(message)
        message += f" That was attempt {attempts}." if attempts > 1 else ""
        if pays:
            # The service speaks of the last attempt; this is said of all of them, and once.
            charged = _MAYBE_CHARGED if lost else NOTHING_CHARGED
            message = f"{message.replace(f' {NOTHING_CHARGED}', '')} {charged}"
        if self.code in ("strange", "insecure") or not (self.lost or self.retry or self.code == "stopped"):
            return ServiceError(message)
        return ServiceUnavailable(message, may_be_charged=pays and lost, wait=self.wait)

    def _budget_exceeded(self) -> BudgetExceeded:
        """Return the exception of a budget that is too small, with the amounts that the service sent."""
        asked, left, limit = (_number(self.details.get(name)) for name in ("asked", "left", "limit"))
        currency, scope = (self.details.get(name) for name in ("currency", "scope"))
        return BudgetExceeded(
            self.message,
            asked=asked,
            left=left,
            limit=limit,
            currency=shorten(str(currency), 40) if currency else "privacy",
            scope=shorten(str(scope), 200) if scope else "total",
            scale=_number(self.details.get("scale")),
            charged=NOTHING_CHARGED if self.hint.startswith(NOTHING_CHARGED) else "",
            advice=self.hint.removeprefix(NOTHING_CHARGED).strip(),
        )


@dataclass(frozen=True)
class ResponseReader:
    """Reads responses of one service with suspicion.

    Parameters
    ----------
    url : str
        Address of the service, named in messages.
    """

    url: str

    def read(self, status: int, headers: Mapping[str, str], content: bytes) -> dict[str, Any] | FailedAttempt:
        """Return the JSON object of a response, or why there is none.

        Parameters
        ----------
        status : int
            HTTP status of the response.
        headers : mapping of str to str
            Headers of the response, looked up in lower case.
        content : bytes
            Body of the response, unpacked.
        """
        if 300 <= status < 400:
            return self.unexpected_response(
                "a redirection, which is not followed: a token is for one address alone"
            )
        values = _values(headers, content)
        if 200 <= status < 300:
            return self.unexpected_response("something other than JSON") if values is None else values
        error = values.get("error") if values is not None else None
        if not isinstance(error, dict) or not isinstance(error.get("code"), str):
            return self._from_intermediary(status, _seconds(headers))
        return self.read_error(error, lost=status == 500, wait=_seconds(headers))

    def read_error(
        self, error: Mapping[str, Any], *, lost: bool = False, wait: float | None = None
    ) -> FailedAttempt:
        """Return what an error of the service means.

        Parameters
        ----------
        error : mapping
            Error as the service sent it.
        lost, wait
            As for :class:`FailedAttempt`.
        """
        details = error.get("details")
        message, hint = (
            part if isinstance(part, str) else "" for part in (error.get("message"), error.get("hint"))
        )
        code = str(error.get("code"))
        return FailedAttempt(
            code=code,
            message=shorten(message, _MAX_MESSAGE),
            hint=shorten(hint, _MAX_MESSAGE) if hint else "",
            details=details if isinstance(details, dict) else {},
            retry=code in _RETRY_CODES,
            lost=lost,
            wait=wait,
        )

    def no_response(self, seconds: float | None, *, lost: bool) -> FailedAttempt:
        """Return that no response came, in time or at all.

        Parameters
        ----------
        seconds : float or None
            Timeout that passed; None if the connection failed or broke off.
        lost : bool
            Whether the request may have arrived.
        """
        did = "did not" if seconds is not None else "broke off" if lost else "cannot be reached"
        within = "" if seconds is None else f" within {seconds:g} seconds"
        message = f"The service at {self.url} must answer{within}, and {did}."
        return FailedAttempt(code="silent", message=message, retry=True, lost=lost)

    def insecure(self, reason: str) -> FailedAttempt:
        """Return that no secure connection could be made, with the reason that OpenSSL gives."""
        message = (
            f"The service at {self.url} must prove who it is, and did not ({reason}). Name the file with its "
            "certificate, or that of its authority, as verify=; or see whether it speaks http://."
        )
        return FailedAttempt(code="insecure", message=message)

    def unexpected_response(self, what: str) -> FailedAttempt:
        """Return that a response came which a service of this version does not send."""
        message = (
            f"The service at {self.url} must answer as discreet of this version does, and sent {what}. Check "
            "the address, and that both sides have the same version."
        )
        # A response that cannot be read is a response: whatever was requested has been done.
        return FailedAttempt(code="strange", message=message, lost=True)

    def _from_intermediary(self, status: int, wait: float | None) -> FailedAttempt:
        """Return what a status means that a proxy sent instead of the service."""
        if status in (401, 403):
            message = (
                f"The service at {self.url} must be given a token that it knows, and something before it "
                "refused."
            )
            return FailedAttempt(code="forbidden", message=message)
        if status in (429, 502, 503, 504):
            message = f"The service at {self.url} must answer itself, and something before it said {status}."
            return FailedAttempt(code="silent", message=message, retry=True, lost=status != 429, wait=wait)
        return self.unexpected_response(f"status {status} without an error of its own")


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


class HistoryReader:
    """Charges of the holder of a token on one data set.

    Parameters
    ----------
    transport : Transport
        Connection to the service.
    path : str
        Beginning of all paths of the data set.
    """

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self._path = path

    def refined_charges(self, receipt: str) -> list[Mapping[str, Any]]:
        """Return the charge of a receipt and all that it refined, newest first."""
        charges = [self.charge(receipt)]
        while (refined := charges[-1]["asked"].get("refines")) is not None:
            if len(charges) == _MAX_PARTS:
                raise self._unexpected_response("an answer of too many parts")
            charges.append(self.charge(refined))
        return charges

    def charge(self, receipt: str) -> Mapping[str, Any]:
        """Return the entry of the history with a receipt id, which ends in the row of its charge."""
        row = receipt.rpartition("-")[2] if isinstance(receipt, str) else ""
        entries: Any = []
        if row.isascii() and row.isdigit() and 0 < int(row) < 2**53:
            entries = self._transport.get(f"{self._path}/history", after=int(row) - 1, first=1, format="json")
            entries = entries.get("entries")
        try:
            entry = next((entry for entry in entries if entry["receipt"] == receipt), None)
            if entry is not None:
                history_rows(entry)
        except (KeyError, TypeError, AttributeError, DiscreetError):
            raise self._unexpected_response("a history that cannot be read") from None
        if entry is None:
            raise ParameterError(
                "receipt of RemoteDatabase.recall must name a charge of the token's holder, was "
                f"{receipt!r}. See history()."
            )
        return cast("Mapping[str, Any]", entry)

    def pages(self, after: int, last: int | None) -> Iterator[list[dict[str, Any]]]:
        """Yield the pages of a history; each begins after the last row of the one before."""
        which, left = ({"first": _PAGE}, None) if last is None else ({"last": last}, last)
        more = True
        while more:
            response = self._transport.get(f"{self._path}/history", after=after, **which, format="json")
            try:
                page = list(response["entries"])
                rows, more = [history_rows(entry)[0]["row"] for entry in page], response["more"]
                # A page that is empty, or goes back, would be requested again without end.
                onward = all(a < b for a, b in itertools.pairwise([after, *rows]))
                fits = isinstance(more, bool) and onward and bool(rows or not more)
            except (KeyError, TypeError, AttributeError, DiscreetError):
                fits = False
            if not fits:
                raise self._unexpected_response("a history that cannot be read")
            yield page
            if more:
                after = rows[-1]
                left = None if left is None else left - len(rows)
                which = {"first": _PAGE if left is None else min(_PAGE, left)}
                more = left is None or left > 0

    def _unexpected_response(self, what: str) -> DiscreetError:
        return (
            ResponseReader(self._transport.url)
            .unexpected_response(what)
            .error(attempts=1, pays=False, lost=True)
        )
