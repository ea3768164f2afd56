"""Results of past text queries, from the answers that a ledger stores."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError, ParameterError
from discreet.formatting import name
from discreet.query.language.query import parse_stored_query
from discreet.query.text_query import run_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet.ledger import Entry
    from discreet.query.aggregates.base import Aggregate
    from discreet.query.answers import Answer
    from discreet.query.database import Database
    from discreet.query.results import QueryResult


class _StoredAnswers:
    """Source of noisy sums that returns the stored answers of charges, and charges nothing."""

    def __init__(self, db: Database, entries: Sequence[Entry], recall: Callable[[str], Answer]) -> None:
        self.schema, self.neighbors = db.schema, db.neighbors
        self.used: list[Entry] = []
        # The number of rows at the time of the answer; another may be public now.
        self.n_rows = json.loads(entries[0].answer or b"{}").get("n_rows")
        self._recall, self.left = recall, list(entries)

    def ask(self, question: Aggregate, **_: Any) -> Answer:
        """Return the first answer to an aggregate that was not used yet."""
        wanted = question.to_dict()
        for entry in self.left:
            if (entry.asked or {}).get("question") == wanted:
                self.left.remove(entry)
                self.used.append(entry)
                return self._recall(entry.receipt.id)
        raise ParameterError("entries of a past query must have all its answers, and one is missing.")


def recall_results(
    db: Database, entries: Sequence[Entry], recall: Callable[[str], Answer]
) -> dict[str, QueryResult | None]:
    """Return the results of the text queries among some charges. Free.

    Parameters
    ----------
    db : Database
        Table that was queried.
    entries : sequence of Entry
        Charges of its ledger, oldest first.
    recall : callable
        Function that returns the answer of a receipt id, as ``db.recall`` does.

    Returns
    -------
    dict
        Result by the receipt id of the last charge of each query, and None for its other charges. What is
        no text query, or cannot be read under the present schema, is left out.

    Privacy
    -------
    Computed from answers that were paid for, and public facts.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    found: dict[str, QueryResult | None] = {}
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        said = (entry.asked or {}).get("said")
        if said and entry.answer is not None:
            groups.setdefault((said, entry.receipt.owner), []).append(entry)
    for (said, _), same in groups.items():
        while same:
            stored: Any = _StoredAnswers(db, same, recall)
            try:
                # Nothing is charged: the promise only says which law of noise is planned for.
                result = run_query(
                    stored, parse_stored_query(said, db.schema), privacy=same[0].receipt.promises[0]
                )
            except DiscreetError:  # answered under an earlier schema, or in part
                same.pop(0)
                continue
            found |= dict.fromkeys((used.receipt.id for used in stored.used), None)
            found[stored.used[-1].receipt.id] = result
            same = stored.left
    return found


def past_numbers(results: Mapping[str, QueryResult | None], receipt: str) -> list[dict[str, Any]] | None:
    """Return the numbers of a past query as JSON values, each with its group and the name of its statistic.

    Parameters
    ----------
    results : mapping of str to QueryResult or None
        Results by receipt id, as :func:`recall_results` returns them.
    receipt : str
        Receipt id of a charge. Its numbers are empty if a later charge has them, and None if none has.
    """
    if receipt not in results:
        return None
    result, numbers = results[receipt], []
    if result is None:
        return []
    table = result.table  # built anew at each use
    for row in table.rows:
        group = ", ".join(map(name, row.key)) or None
        for column in table.columns:
            cell = column.to_cells(row.numbers[column.name])._asdict()
            plain = {k: v.isoformat() if isinstance(v, datetime.date) else v for k, v in cell.items()}
            numbers.append({"group": group, "statistic": column.name, **plain})
    return numbers
