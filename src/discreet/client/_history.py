"""What the holder of a token has paid for, read from a service page by page or charge by charge."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

from discreet.client.responses import ResponseReader
from discreet.errors import DiscreetError, ParameterError
from discreet.query.frames import history_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from discreet.client.transport import Transport

_PAGE = 1000  # charges of one request
_MAX_PARTS = 64  # answers that may be merged into one


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
