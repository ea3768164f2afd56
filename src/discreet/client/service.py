"""A service with several private tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from discreet.arguments import checked_arguments
from discreet.client.database import RemoteDatabase
from discreet.client.responses import ResponseReader
from discreet.client.transport import open_transport, read_token
from discreet.query.frames import Budget  # noqa: TC001  # pydantic reads it

if TYPE_CHECKING:
    import os
    import ssl
    from typing import Self


class DatasetInfo(BaseModel):
    """What is public about a table of a service, and how its budget stands for the holder of the token.

    Attributes
    ----------
    name : str
        Lasting name of the table, by which it is asked.
    title, description : str or None
        Title and description for people, as the schema has them.
    n_rows : int or None
        Number of rows; None if it is not public.
    columns : int
        Number of declared columns.
    unit : str
        Whom the noise protects, such as a person.
    role : str
        Role of the holder of the token: analyst, curator or operator.
    composition : str
        What the limit counts: this table alone, or all about the same people.
    budget : Budget
        What the holder, and all together, may spend, have spent and have left; None for both while the
        ledger does not answer.
    ready : bool
        Whether table and ledger answer.

    Examples
    --------
    >>> import discreet
    >>> [info.name for info in discreet.connect("https://data.example.org").datasets()]  # doctest: +SKIP
    """

    model_config = ConfigDict(frozen=True)

    name: str
    title: str | None
    description: str | None
    n_rows: int | None
    columns: int
    unit: str
    role: str
    composition: str
    budget: Budget
    ready: bool = True

    def __str__(self) -> str:
        rows = "number of rows not public" if self.n_rows is None else f"{self.n_rows:,} rows"
        about = f": {self.title}" if self.title else ""
        state = "" if self.ready else "; its table or ledger does not answer now"
        return f"{self.name}{about} ({rows}, {self.columns} columns; {self.role}{state})\n{self.budget}"


def _known_amounts(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the budgets of an entry; None for those that are not known while the ledger does not answer."""
    budgets = {key: entry.get(key) for key in ("own", "group", "total", "people", "available")}
    known = {
        key: one if one is not None and one["spent"] is not None else None for key, one in budgets.items()
    }
    return {**known, "collusion": entry["collusion"], "composition": entry["composition"]}


class Client:
    """A service and the tables that the holder of a token may ask; made by :func:`connect`.

    Parameters
    ----------
    url, token, timeout, retries, verify
        As for :func:`connect`.

    Notes
    -----
    ``service["town"]`` is the table of that name, a :class:`RemoteDatabase`, which has all verbs of a
    :class:`~discreet.query.Database`.

    Examples
    --------
    >>> import discreet
    >>> service = discreet.connect("https://data.example.org")  # doctest: +SKIP
    >>> census = service["census"]  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 5,
        verify: bool | str | os.PathLike[str] | ssl.SSLContext = True,
    ) -> None:
        """Check the settings; requests are sent when they are needed."""
        self._token = read_token(token)
        self._settings: dict[str, Any] = {"timeout": timeout, "retries": retries, "verify": verify}
        self._transport = open_transport(url, self._token, **self._settings)
        self._databases: dict[str, RemoteDatabase] = {}

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._transport.url

    def datasets(self) -> list[DatasetInfo]:
        """Return the tables that the holder of the token may ask, in the order of their names. Free."""
        response = self._transport.get("/v1/datasets")
        try:
            return [
                DatasetInfo.model_validate(
                    {**entry, "name": entry["dataset"], "budget": _known_amounts(entry)}
                )
                for entry in response["datasets"]
            ]
        except (ValidationError, KeyError, TypeError):
            reader = ResponseReader(self.url).unexpected_response("a list of tables that cannot be read")
            raise reader.error(attempts=1, pays=False, lost=False) from None

    def dataset(self, name: str) -> RemoteDatabase:
        """Return a table by its name; the same object for the same name.

        Raises
        ------
        ServiceError
            There is no such table, or it is not granted to the holder of the token.
        """
        database = self._databases.get(name)
        if database is None:
            database = self._databases[name] = RemoteDatabase(self.url, name, self._token, **self._settings)
        return database

    def __getitem__(self, name: str) -> RemoteDatabase:
        return self.dataset(name)

    def close(self) -> None:
        """Close all connections, also those of the tables."""
        for database in self._databases.values():
            database.close()
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"


@checked_arguments
def connect(
    url: str,
    token: str | None = None,
    *,
    timeout: float = 60.0,
    retries: int = 5,
    verify: bool | str | os.PathLike[str] | ssl.SSLContext = True,
) -> Client:
    """Connect to a service with private tables.

    Parameters
    ----------
    url : str
        Address of the service, such as ``https://data.example.org``.
    token : str, optional
        Access token from a curator; by default the value of the variable ``DISCREET_TOKEN``.
    timeout : float
        Seconds that one attempt may take.
    retries : int
        Number of attempts after one that failed: a lost connection, or a service that is busy.
    verify : True, path or ssl.SSLContext
        Certificates by which the service is recognized; a file for a service that signed its own.

    Privacy
    -------
    The service lists the tables that are granted to the holder of the token, and no others. The token is sent
    to this address alone.

    Examples
    --------
    >>> import discreet
    >>> service = discreet.connect("https://data.example.org")  # doctest: +SKIP
    >>> service.datasets()  # doctest: +SKIP
    """
    return Client(url, token, timeout=timeout, retries=retries, verify=verify)
