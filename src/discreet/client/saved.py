"""Questions that the holder of a token has saved at a service, under names of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.arguments import checked_arguments
from discreet.client.responses import ResponseReader
from discreet.errors import DiscreetError
from discreet.privacy import promise_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.client.transport import Transport
    from discreet.privacy import Promise
    from discreet.schema import Schema


@dataclass(frozen=True)
class SavedQuestion:
    """A question that was saved at a service, to be asked again by :meth:`RemoteDatabase.query`.

    Attributes
    ----------
    id : str
        Id of the question, by which it is deleted.
    title : str
        Name under which it was saved.
    text : str
        Text of the query.
    privacy : Promise or None
        Promise of its answer; None if it gives the noise instead.
    sd : float or None
        Standard deviation of the noise; None if it gives a promise instead.

    Examples
    --------
    >>> import discreet
    >>> census = discreet.connect("https://data.example.org")["census"]  # doctest: +SKIP
    >>> for saved in census.saved_questions():  # doctest: +SKIP
    ...     print(saved.title, census.query(saved.text, privacy=saved.privacy, sd=saved.sd).value)
    """

    id: str
    title: str
    text: str
    privacy: Promise | None
    sd: float | None


class SavedMethods:
    """Methods of a table behind a service that list, save and delete questions."""

    schema: Schema
    _transport: Transport
    _path: str

    def _text_query_body(self, text: str, privacy: Promise | None, sd: float | None) -> dict[str, Any]:
        raise NotImplementedError

    def saved_questions(self) -> list[SavedQuestion]:
        """Return the questions that the holder of the token has saved here, by title. Free."""
        return self._read_questions(self._transport.get(f"{self._path}/saved"))

    @checked_arguments
    def save_question(
        self, title: str, text: str, *, privacy: Promise | None = None, sd: float | None = None
    ) -> SavedQuestion:
        """Save a query under a name, for the holder of the token alone. Free: nothing is asked.

        Parameters
        ----------
        title : str
            Name of the question, of at most 80 characters, which no other saved one has.
        text, privacy, sd
            As for :meth:`PrivateTable.query <discreet.query.PrivateTable.query>`; a promise in epsilon alone,
            rho or mu.

        Raises
        ------
        ParameterError
            The name is in use for another question, or there are as many as one person may save.
        """
        body = {**self._text_query_body(text, privacy, sd), "title": str(title)}
        del body["kind"]
        return self._read_question(self._transport.post(f"{self._path}/saved", body, pays=False))

    def delete_question(self, saved: SavedQuestion | str) -> None:
        """Delete a saved question, given itself or by its id; no effect if it is not there. Free."""
        id = saved if isinstance(saved, str) else saved.id
        self._transport.delete(f"{self._path}/saved/{id}")

    def _read_questions(self, response: Mapping[str, Any]) -> list[SavedQuestion]:
        return [self._read_question(entry) for entry in response.get("questions", ())]

    def _read_question(self, entry: Mapping[str, Any]) -> SavedQuestion:
        """Return a saved question as the service describes it."""
        try:
            promise, sd = entry["privacy"], entry["sd"]
            context = {"unit": self.schema.unit, "neighbors": self.schema.neighbors}
            return SavedQuestion(
                id=str(entry["id"]),
                title=str(entry["title"]),
                text=str(entry["text"]),
                privacy=None if promise is None else promise_from_dict({**context, **promise}),
                sd=None if sd is None else float(sd),
            )
        except (KeyError, TypeError, ValueError, DiscreetError):
            reader = ResponseReader(self._transport.url)
            failure = reader.unexpected_response("a saved question that cannot be read")
            raise failure.error(attempts=1, pays=False, lost=False) from None
