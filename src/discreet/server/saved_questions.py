"""Questions that analysts have saved under names of their own, in the database of the access store."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.server.access_database import AccessDatabase

MOST_SAVED = 100
"""Questions that one person may save on one data set."""
MOST_TITLE = 80
"""Characters that the name of a saved question may have."""
_MOST_TEXT = 8192  # characters of a question, as a request may have
_COLUMNS = "id, title, text, price, created"
_OWN = "caller = ? AND dataset = ?"


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A saved question.

    Attributes
    ----------
    id : str
        Random name by which it is found.
    title : str
        Name that its owner gave it, unique among those of one owner on one data set.
    text : str
        The question in the query language.
    price : mapping
        How exact its answer is: ``privacy`` or ``sd``, as in a request.
    created : float
        Time at which it was saved, in seconds since 1970.
    """

    id: str
    title: str
    text: str
    price: Mapping[str, Any]
    created: float

    @property
    def request(self) -> dict[str, Any]:
        """The request that asks it."""
        return {"kind": "sentence", "text": self.text, **self.price}


class SavedQuestions:
    """Saved questions of all people who ask a service.

    Parameters
    ----------
    database : AccessDatabase
        Database that holds them, beside tokens and sessions.

    Privacy
    -------
    A question is found by its id together with its owner and its data set: a wrong id and the id of somebody
    else's question give the same result. Nothing of an answer is stored.
    """

    def __init__(self, database: AccessDatabase) -> None:
        self._database = database

    def list(self, caller: str, dataset: str) -> list[StoredQuestion]:
        """Return the questions that a person saved on a data set, by title."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM saved WHERE {_OWN} ORDER BY title",  # noqa: S608 - no input
            caller,
            dataset,
        )
        return [_question(row) for row in rows]

    def find(self, caller: str, dataset: str, id: str) -> StoredQuestion | None:
        """Return a question of a person; None for any id that is not one."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM saved WHERE {_OWN} AND id = ?",  # noqa: S608 - no input
            caller,
            dataset,
            id,
        )
        return _question(rows[0]) if rows else None

    def save(self, caller: str, dataset: str, title: str, text: str, price: Mapping[str, Any]) -> str:
        """Save a question and return its id; one that is saved as it is already keeps its id.

        Parameters
        ----------
        caller, dataset : str
            Names of the person, who alone will find it, and of the data set.
        title : str
            Name of the question, which no other one of the same person and data set has.
        text : str
            The question in the query language.
        price : mapping
            ``privacy`` or ``sd`` of the request that asks it.

        Raises
        ------
        ParameterError
            The title is not allowed or in use for another question, or there are as many questions as one
            person may save.
        """
        _check_title(title)
        if len(text) > _MOST_TEXT:
            raise ParameterError(
                f"The text of a saved question must have at most {_MOST_TEXT:,} characters, and this one has "
                f"{len(text):,}. Shorten it."
            )
        name = f"{Stream().integer(128):032x}"
        with self._database.transaction() as execute:
            rows = execute(f"SELECT {_COLUMNS} FROM saved WHERE {_OWN}", (caller, dataset)).fetchall()  # noqa: S608
            titles = {one.title: one for one in map(_question, rows)}
            if title in titles:
                old = titles[title]
                if (old.text, old.price) == (text, dict(price)):
                    return old.id  # sent again, perhaps because the response was lost
                raise _used(title)
            if len(titles) >= MOST_SAVED:
                raise ParameterError(
                    f"You have saved {MOST_SAVED} questions on this data set, the most that it keeps. "
                    "Delete one first."
                )
            execute(
                "INSERT INTO saved (id, caller, dataset, title, text, price, created) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, caller, dataset, title, text, json.dumps(dict(price)), time.time()),
            )
        return name

    def rename(self, caller: str, dataset: str, id: str, title: str) -> bool:
        """Give a question of a person another title; return False for any id that is not one."""
        _check_title(title)
        with self._database.transaction() as execute:
            rows = execute(f"SELECT id, title FROM saved WHERE {_OWN}", (caller, dataset)).fetchall()  # noqa: S608
            if any(used == title and other != id for other, used in rows):
                raise _used(title)
            changed = execute(
                f"UPDATE saved SET title = ? WHERE {_OWN} AND id = ?",  # noqa: S608 - no input
                (title, caller, dataset, id),
            )
            return changed.rowcount == 1

    def delete(self, caller: str, dataset: str, id: str) -> bool:
        """Delete a question of a person; return False for any id that is not one."""
        with self._database.transaction() as execute:
            deleted = execute(f"DELETE FROM saved WHERE {_OWN} AND id = ?", (caller, dataset, id))  # noqa: S608
            return deleted.rowcount == 1


def _question(row: tuple[Any, ...]) -> StoredQuestion:
    id, title, text, price, created = row
    return StoredQuestion(id, title, text, json.loads(price), created)


def _check_title(title: str) -> None:
    if not (0 < len(title) <= MOST_TITLE and title.isprintable() and title == title.strip()):
        raise ParameterError(
            f"The name of a saved question must have 1 to {MOST_TITLE} printable characters, and no space at "
            "its beginning or end. Choose another name."
        )


def _used(title: str) -> ParameterError:
    return ParameterError(f"You have already saved another question as {title!r}. Choose another name.")
