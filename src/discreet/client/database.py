"""A private table behind a service, with the interface of one at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from discreet.arguments import checked_arguments
from discreet.client._answers import charged_noise, read_answer
from discreet.client._arguments import aggregate_body, check_dataset, promise_body, refuse_owner
from discreet.client.jobs import JobMethods
from discreet.client.responses import HistoryReader, ResponseReader
from discreet.client.saved import SavedMethods
from discreet.client.transport import open_transport
from discreet.errors import DiscreetError, ParameterError
from discreet.formatting import shorten
from discreet.privacy import (
    PosteriorOdds,
    Promise,
    Receipt,
    promise_from_dict,
)
from discreet.query.aggregates import aggregate_from_dict
from discreet.query.calibration import check_row_promise
from discreet.query.costs import CostModel
from discreet.query.curation import Curation
from discreet.query.dummy import dummy_frame
from discreet.query.frames import Budget, Frame, History
from discreet.query.interface import PrivateTable
from discreet.query.language.query import parse_query
from discreet.query.previews import Preview
from discreet.query.results import QueryResult
from discreet.schema import Schema

if TYPE_CHECKING:
    import os
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from discreet.client.transport import BearerToken
    from discreet.query.aggregates import Aggregate, BoundAggregate
    from discreet.query.answers import Answer
    from discreet.query.calibration import QueryNoise

Body = TypeVar("Body")
_MAX_SENTENCE = 500  # characters of what a service says about its limits; it goes into statements


class RemoteDatabase(JobMethods, SavedMethods, PrivateTable):
    """A private table behind a service: queries and learners of a database, without its rows.

    Parameters
    ----------
    url : str
        Address of the service, such as ``https://data.example.org``.
    dataset : str
        Name of the table, as :meth:`Client.datasets <discreet.client.Client.datasets>` lists it.
    token : str, optional
        Access token from the curator; by default the value of the variable ``DISCREET_TOKEN``.
    timeout : float
        Seconds that one attempt may take.
    retries : int
        Number of attempts after one that failed: a lost connection, or a service that is busy.
    verify : True, path or ssl.SSLContext
        Certificates by which the service is recognized; a file for a service that signed its own.

    Attributes
    ----------
    schema, n_rows, neighbors, dataset
        Public facts about the table, as the service sent them when this was made.
    limits : dict of str to int
        Largest body of a request in bytes (``body_bytes``) and most numbers of an answer (``cells``) that the
        service takes; empty if it did not say.
    composition : str or None
        What the limits count, as the service says: this table alone, or all about the same people.

    Notes
    -----
    Everything is checked here first, from the public schema: what a database at hand would refuse is refused
    without a request, and :meth:`cost` and :meth:`expected_sd` need none. Answers must have the shape, the
    noise and the cost that were computed here. It can be used by several threads, after a fork, and in a
    ``with`` block. A pickle holds the address and not the token.

    Privacy
    -------
    The service charges before it draws noise; a query is charged to the holder of the token and to the
    total. Each query has a random key, the same at every attempt, so that a lost answer is never paid twice;
    the same query again is free and gets the same answer, bit for bit. The token is sent to this address
    alone, and is in no message, representation, log or pickle.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005): docs/explanation/theorems/sulq-sensitivity.md, composition.md.

    Examples
    --------
    >>> from discreet import ApproxDP, RemoteDatabase
    >>> with RemoteDatabase("https://data.example.org") as census:  # doctest: +SKIP
    ...     print(census.query("mean(hours_per_week) by sex", privacy=ApproxDP(0.1, 1e-6)))
    """

    def __init__(
        self,
        url: str,
        dataset: str,
        token: str | BearerToken | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 5,
        verify: bool | str | os.PathLike[str] | ssl.SSLContext = True,
    ) -> None:
        """Check the parameters, connect, and read the schema of the table."""
        check_dataset(dataset)
        self._verify = verify
        self._transport = open_transport(url, token, timeout=timeout, retries=retries, verify=verify)
        self._dataset = dataset
        self._path = f"/v1/datasets/{dataset}"
        try:
            self._read_schema(self._transport.get(f"{self._path}/schema"))
        except BaseException:
            # Also when interrupted: the caller has no reference to close it by.
            self.close()
            raise

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._transport.url

    @property
    def dataset(self) -> str:
        """Lasting name of the table."""
        return self._dataset

    @checked_arguments
    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
        refines: str | None = None,
    ) -> Answer:
        """Charge and answer an aggregate.

        Parameters
        ----------
        question, variance, plan, refines
            As for :meth:`PrivateTable.ask <discreet.query.PrivateTable.ask>`.
        privacy : PureDP, ApproxDP, ZCDP or GaussianDP
            Promise that the answer keeps, with the unit and neighbors of the schema; None where `variance`
            is given instead.
        owner : None
            Refused: the service charges the holder of the token.

        Raises
        ------
        BudgetExceeded
            Nothing was charged and nothing was answered.
        EngineFailed
            The charge stands; asking again is free.
        ServiceUnavailable
            No answer came; it says whether something may have been charged. Asking again is free then.
        """
        refuse_owner("ask", owner)
        bound, candidates = self.cost_model.candidates(question, privacy=privacy, variance=variance)
        body = aggregate_body(question, privacy, variance)
        if plan:
            body["plan"] = [promise_body(promise) for promise in plan]
        if refines is not None:
            body["refines"] = [refines]
        response = self._transport.post(f"{self._path}/query", body, pays=True)
        answer = response.get("answer")
        noise = charged_noise(candidates, answer.get("cost") if isinstance(answer, dict) else None)
        return self._read_answer(answer, bound, noise, refined=refines is not None)

    @checked_arguments
    def is_free(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> bool:
        """Return whether :meth:`ask` would charge nothing: it needs no noise, or was paid for before. Free.

        Parameters
        ----------
        question, privacy, variance, refines
            As for :meth:`ask`.
        owner : None
            Refused: the service charges the holder of the token.
        """
        refuse_owner("is_free", owner)
        self.cost_model.candidates(question, privacy=privacy, variance=variance)  # refuses here what is wrong
        body = aggregate_body(question, privacy, variance)
        if refines is not None:
            body["refines"] = [refines]
        free = self._transport.post(f"{self._path}/preview", body, pays=False).get("free")
        if not isinstance(free, bool):
            raise self._unexpected_response("a price that cannot be read")
        return free

    def _calibrate(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
    ) -> tuple[BoundAggregate, QueryNoise]:
        """Return an aggregate bound to the curated table, and the noise that it would get. Free.

        Parameters
        ----------
        question, privacy, variance
            As for :meth:`ask`. If they leave the law of the noise open, the service is asked, which knows
            what each law takes of the budget.
        owner : None
            Refused: the service charges the holder of the token.
        """
        refuse_owner("cost", owner)
        bound, candidates = self.cost_model.candidates(question, privacy=privacy, variance=variance)
        if len(candidates) == 1:
            return bound, candidates[0]
        body = aggregate_body(question, privacy, variance)
        response = self._transport.post(f"{self._path}/preview", body, pays=False)
        return bound, charged_noise(candidates, response.get("cost"))

    def recall(self, receipt: str, *, owner: str | None = None) -> Answer:
        """Return an answer that was paid for, merged with those it refined, from the history. Free.

        Parameters
        ----------
        receipt : str
            Id of its receipt.
        owner : None
            Refused: the service shows the charges of the token's holder alone.

        Returns
        -------
        Answer
            Its receipt lacks what a history does not show: the hash of its row and the digest of the
            aggregate. So it cannot be merged with other answers.

        Raises
        ------
        ParameterError
            The holder of the token has no such charge, or the history leaves its answer out: of another
            schema, or of very many numbers. Asking again is free.
        """
        refuse_owner("recall", owner)
        charges = HistoryReader(self._transport, self._path).refined_charges(receipt)
        newest, asked = charges[0], charges[0]["asked"]
        if newest["value"] is None or asked.get("question") is None:
            raise ParameterError(
                "receipt of RemoteDatabase.recall must be of an answer that the history shows, and "
                f"{receipt} is not: it is of another schema, or has too many numbers. Ask the same again; "
                "that is free."
            )
        try:
            privacy = None if asked["privacy"] is None else promise_from_dict(asked["privacy"])
            charged = [promise_from_dict(promise) for promise in newest["cost"]]
            bound, noise = self.cost_model.calibrate_charged(
                aggregate_from_dict(asked["question"]), charged, privacy=privacy, variance=asked["variance"]
            )
            answer = {
                "kind": "answer",
                **{name: newest[name] for name in ("value", "sd", "law")},
                "cost": [promise for charge in reversed(charges) for promise in charge["cost"]],
                "cached": True,
                "receipt": self._receipt_of(newest).to_dict(),
                "labels": None,
                "comparison": privacy.comparison() if isinstance(privacy, PosteriorOdds) else None,
                "parts": [charge["receipt"] for charge in reversed(charges)],
                "about": None,
            }
        except (KeyError, TypeError, AttributeError, ValueError, DiscreetError):
            raise self._unexpected_response("a history that cannot be read") from None
        return self._read_answer(answer, bound, noise, refined=len(charges) > 1, pays=False)

    def _receipt_of(self, entry: Mapping[str, Any]) -> Receipt:
        """Return the receipt of a charge, as far as a history shows it."""
        return Receipt(
            id=entry["receipt"],
            what=entry["what"],
            when=entry["when"],
            promises=tuple(promise_from_dict(promise) for promise in entry["cost"]),
            owner=entry["who"],
            seq=entry["row"],
            schema=self.schema.digest,
            version="unknown",
            seeded=self._seeded,
        )

    @checked_arguments
    def query(
        self,
        text: str,
        *,
        privacy: Promise | None = None,
        sd: float | None = None,
        refines: str | Sequence[str] = (),
        owner: str | None = None,
    ) -> QueryResult:
        """Charge and answer a query in words or as a SELECT.

        Parameters
        ----------
        text, privacy, sd, refines
            As for :meth:`PrivateTable.query <discreet.query.PrivateTable.query>`.
        owner : None
            Refused: the service charges the holder of the token.
        """
        refuse_owner("query", owner)
        body = self._text_query_body(text, privacy, sd)
        if refines:
            body["refines"] = [refines] if isinstance(refines, str) else list(refines)
        response = self._transport.post(f"{self._path}/query", body, pays=True)
        return self._parse(QueryResult.from_wire, response, pays=True)

    @checked_arguments
    def preview(
        self, text: str, *, privacy: Promise | None = None, sd: float | None = None, owner: str | None = None
    ) -> Preview:
        """Return what :meth:`query` would charge, and how noisy its result would be. Free.

        Parameters
        ----------
        text, privacy, sd, owner
            As for :meth:`query`.
        """
        refuse_owner("preview", owner)
        body = self._text_query_body(text, privacy, sd)
        return self._parse(Preview.from_wire, self._transport.post(f"{self._path}/preview", body, pays=False))

    def _text_query_body(self, text: str, privacy: Promise | None, sd: float | None) -> dict[str, Any]:
        """Return the body of a request with a text query; refuses here what the service would refuse."""
        if (privacy is None) == (sd is None):
            raise ParameterError(
                "privacy and sd of a question must be given one at a time, and are "
                f"{'both' if privacy is not None else 'neither'}. Give for instance "
                "privacy=ApproxDP(epsilon=1, delta=1e-6)."
            )
        parse_query(text, self.schema)
        body: dict[str, Any] = {"kind": "sentence", "text": str(text)}
        if sd is not None:
            return body | {"sd": float(sd)}
        promise = promise_body(privacy)
        check_row_promise(privacy, self.neighbors)
        return body | {"privacy": promise}

    def budget(self, *, owner: str | None = None) -> Budget:
        """Return what the holder of the token, and all together, have spent and have left. Free.

        Parameters
        ----------
        owner : None
            Refused: the service shows the budget of the token's holder alone.
        """
        refuse_owner("budget", owner)
        return self._parse(Budget.model_validate, self._transport.get(f"{self._path}/budget"))

    def history(self, *, after: int = 0, last: int | None = None, owner: str | None = None) -> History:
        """Return what the holder of the token has paid for, with the answers, oldest first. Free.

        It comes page by page: no response is larger than a few megabytes, however much there is.

        Parameters
        ----------
        after : int
            Row of the ledger after which the history begins.
        last : int, optional
            Maximum number of charges, the newest of the rest, at most 10,000; None for all of them.
        owner : None
            Refused: the service shows the charges of the token's holder alone.
        """
        refuse_owner("history", owner)
        reader = HistoryReader(self._transport, self._path)
        return History.from_entries(entry for page in reader.pages(after, last) for entry in page)

    def dummy(self, n: int = 100, seed: int = 0) -> Frame:
        """Return rows that the service drew from the schema alone, to try a program on. Free.

        Parameters
        ----------
        n : int
            Number of rows, from 1 to 10,000.
        seed : int
            Seed of the draw; the same rows for the same seed.
        """
        rows = self._transport.get(f"{self._path}/dummy", n=n, seed=seed, format="json").get("rows")
        columns = list(rows.values()) if isinstance(rows, dict) else []
        if not columns or not all(isinstance(cells, list) and len(cells) == n for cells in columns):
            raise self._unexpected_response("rows that cannot be read")
        assert isinstance(rows, dict)
        return dummy_frame(self.schema, rows)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def _read_schema(self, response: Mapping[str, Any]) -> None:
        """Store the public facts of a response about the schema; refuses facts that do not fit together."""
        try:
            schema = Schema.from_dict(response["schema"])
            n_rows, digest, dataset = response["n_rows"], response["digest"], response["dataset"]
        except (KeyError, TypeError, ValueError, DiscreetError):
            raise self._unexpected_response("a schema that cannot be read") from None
        if schema.digest != digest:
            raise self._unexpected_response("a schema whose digest is another here")
        public = schema.neighbors == "replace-one" and schema.row_count == "public"
        whole = isinstance(n_rows, int) and not isinstance(n_rows, bool) and n_rows >= 0
        if (not whole) if public else n_rows is not None:
            raise self._unexpected_response("a number of rows that does not go with its schema")
        if dataset != self._dataset:
            raise self._unexpected_response("another table than the one that was named")
        self._seeded = response.get("seeded") is True
        limits = response.get("limits")
        known = limits if isinstance(limits, dict) else {}
        composition = response.get("composition")
        self.composition = shorten(composition, _MAX_SENTENCE) if isinstance(composition, str) else None
        self.limits = {name: most for name, most in known.items() if isinstance(most, int)}
        # Whether ids are kept is for the service to say: here they only have a place.
        ids = schema.id_column is not None and schema.max_rows_per_unit == 1
        super().__init__(CostModel(schema, n_rows, curation=Curation.from_schema(schema, ids=ids)))

    def _read_answer(
        self, values: Any, bound: BoundAggregate, noise: QueryNoise, *, refined: bool, pays: bool = True
    ) -> Answer:
        """Return an answer; refuses one that was not computed for this aggregate at this cost.

        Parameters
        ----------
        values : dict
            Answer as ``Answer.to_dict`` writes it.
        bound : BoundAggregate
            Aggregate that was asked for; it fixes the shape.
        noise : QueryNoise
            Noise that was asked for; it fixes the law, the standard deviations and the cost.
        refined : bool
            Whether earlier answers were merged into it, so that it is less noisy.
        pays : bool
            Whether it may have been charged just now; the error says so.
        """
        answer = read_answer(values, bound, noise, schema=self.schema.digest, refined=refined)
        if isinstance(answer, str):
            raise self._unexpected_response(answer, pays=pays)
        return answer

    def _parse(
        self, parser: Callable[[Mapping[str, Any]], Body], response: Mapping[str, Any], *, pays: bool = False
    ) -> Body:
        """Return a response parsed; `pays` if it may be the answer to a charged query."""
        try:
            return parser(response)
        except (ValidationError, DiscreetError, TypeError):
            raise self._unexpected_response("an answer that cannot be read", pays=pays) from None

    def _unexpected_response(self, what: str, *, pays: bool = False) -> DiscreetError:
        return ResponseReader(self.url).unexpected_response(what).error(attempts=1, pays=pays, lost=True)

    def __repr__(self) -> str:
        about = f"{len(self.schema.released)} columns, {self.neighbors}"
        return f"RemoteDatabase({self.url!r}, {self.dataset!r}, {about})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        transport = self._transport
        return _reconnect, (self.url, self.dataset, transport.timeout, transport.retries, self._verify)


def _reconnect(url: str, dataset: str, timeout: float, retries: int, verify: Any) -> RemoteDatabase:
    """Connect again where a pickle is read, with the token of that environment."""
    return RemoteDatabase(url, dataset, timeout=timeout, retries=retries, verify=verify)
