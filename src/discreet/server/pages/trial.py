"""Questions tried on rows about nobody: free, and in no ledger."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query import Database
from discreet.query.text_query import run_query
from discreet.server import wire
from discreet.server.answers import answer_wire

if TYPE_CHECKING:
    from discreet._typing import AnyArray
    from discreet.server.office import Office

_MOST_ROWS = 10_000
_SEED = 1  # of rows that are public anyway: /v1/dummy?seed=1 begins with them
_NOTHING_SPENT = {"own": None, "total": None, "more": None}


def tried(office: Office, request: Any) -> dict[str, Any]:
    """Answer a request from made-up rows, with the noise that it would get.

    Parameters
    ----------
    office : Office
        Whose schema the rows are made up from.
    request : wire.Question
        What would be asked.

    Privacy
    -------
    The rows are drawn from the schema, so nothing is learned and nothing is charged.
    """
    schema = office.schema
    privacy = wire.promise_of(request.privacy, unit=schema.unit, neighbors=schema.neighbors)
    asked = office.sentence(request)
    # Made for each trial anew: one that stays would keep the answers of all of them.
    with Database(_rows(office), schema=schema) as rows:
        reply = run_query(rows, asked, privacy=privacy, sd=request.sd_or_none())
    return answer_wire(reply, _NOTHING_SPENT)


@lru_cache(maxsize=1)
def _rows(office: Office) -> dict[str, AnyArray]:
    n = min(office.database.n_rows or 1000, _MOST_ROWS)
    rows = office.dummy(n, _SEED)
    made = {column.name: np.asarray(rows[column.name], dtype=object) for column in office.schema.released}
    if office.schema.id_column is not None:
        made[office.schema.id_column] = np.arange(n)  # every made-up row is of someone else
    return made
