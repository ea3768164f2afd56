"""A table behind a service, asked like one at hand."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from discreet.client.responses import ResponseReader
from discreet.client.results import Budget, Frame, Preview, QueryResult
from discreet.client.transport import (
    Transport,
    read_token,
    tls_verification,
    validate_url,
    warn_if_unencrypted,
)
from discreet.errors import DiscreetError, ParameterError, PromiseError
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, Promise, PureDP
from discreet.privacy.promises import describe_promise
from discreet.privacy.rounding import check_neighbors
from discreet.query.answers import Answer
from discreet.query.calibration import CostModel
from discreet.query.curation import Curation
from discreet.query.interface import PrivateTable
from discreet.schema import Schema

if TYPE_CHECKING:
    import os
    import ssl
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from discreet._types import Floats
    from discreet.query.aggregates import Aggregate, BoundAggregate
    from discreet.query.calibration import Asked, QueryNoise
    from discreet.schema.schema import Neighbors

_NUMBERS: dict[type[Promise], tuple[str, ...]] = {
    PureDP: ("epsilon",),
    ApproxDP: ("epsilon", "delta"),
    ZCDP: ("rho",),
    GaussianDP: ("mu",),
}
_HISTORY = ("row", "when", "receipt", "what", "question", "value", "sd", "law", "cost")
_PAGE = 1000  # charges that are asked for at once
_ROUNDING = 1e-9  # relative; another machine may compute a standard deviation a few units differently

Model = TypeVar("Model", bound=BaseModel)


class RemoteDatabase(PrivateTable):
    """A private table behind a service: the questions and learners of a database, without its rows.

    Parameters
    ----------
    url : str
        Of the service, such as ``https://data.example.org``.
    token : str, optional
        From the curator; by default what the variable ``DISCREET_TOKEN`` holds.
    timeout : float
        Seconds that one attempt may take.
    retries : int
        How many more attempts follow one that failed: a lost connection, or a service that is busy.
    verify : True, path or ssl.SSLContext
        By which certificates the service proves who it is; a file, for one that signed its own.

    Attributes
    ----------
    schema, n_rows, neighbors
        What is public about the table, as the service told it when this was made.
    dataset : str
        The table's lasting name.

    Notes
    -----
    Everything is checked here first, from the public schema: what a database at hand would refuse is refused
    without a request, and :meth:`cost` and :meth:`expected_sd` need none. Answers must have the shape, the
    noise and the price that were computed here. It can be used by several threads, after a fork, and in a
    ``with`` block. A pickle holds the address and not the token.

    Privacy
    -------
    The service charges before it draws; what is asked is charged to whoever holds the token and to the
    total. Each question has a random key, the same at every attempt, so that a lost answer is never paid
    twice; the same question again is free and gets the same answer, bit for bit. The token is sent to this
    address alone, and is in no message, representation, log or pickle.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005): docs/explanation/theorems/sulq-sensitivity.md, composition.md.
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
        address = validate_url(url)
        _check_number("timeout", timeout, isinstance(timeout, int | float) and 0 < timeout < float("inf"))
        _check_number("retries", retries, isinstance(retries, int) and 0 <= retries <= 100)
        self._verify = verify
        self._transport = Transport(
            address,
            read_token(token),
            timeout=float(timeout),
            retries=retries,
            verify=tls_verification(verify),
        )
        warn_if_unencrypted(address)
        try:
            self._read_schema(self._transport.get("/v1/schema"))
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._transport.url

    @property
    def schema(self) -> Schema:
        """What is public about the table."""
        return self._cost_model.schema

    @property
    def neighbors(self) -> Neighbors:
        """Which tables are hard to tell apart."""
        return self.schema.neighbors

    @property
    def n_rows(self) -> int | None:
        """The number of rows where it is public, else None."""
        return self._cost_model.n_rows

    # What learners and programs ask.

    def cost(
        self, question: Aggregate, *, privacy: Asked | None = None, variance: float | None = None
    ) -> tuple[Promise, ...]:
        """Say what a question would be charged. Free, without a request."""
        return self._cost_model.cost(question, privacy=privacy, variance=variance)

    def expected_sd(
        self, question: Aggregate, *, privacy: Asked | None = None, variance: float | None = None
    ) -> float | Floats:
        """Say how noisy the answer would be, in its own unit. Free, without a request."""
        return self._cost_model.expected_sd(question, privacy=privacy, variance=variance)

    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
        refines: str | None = None,
    ) -> Answer:
        """Have a question charged and answered.

        Parameters
        ----------
        question : Aggregate
            What to sum.
        privacy : PureDP, ApproxDP, ZCDP or GaussianDP
            What the answer shall promise. Unit and neighbors are the schema's.
        variance : float
            Instead of a promise: of the noise, in the answer's unit squared.
        owner : None
            The service charges whoever holds the token.
        plan : sequence of Promise
            What will be asked after this: refused unless all of it fits what is left. It is not charged now.
        refines : str, optional
            The receipt id of an earlier answer to the same question, with which the new one is merged.

        Raises
        ------
        BudgetExceeded
            Nothing was charged and nothing was answered.
        EngineFailed
            The charge stands; asking again is free.
        ServiceUnavailable
            No answer came; it says whether something may have been charged. Asking again is free then.
        """
        if owner is not None:
            raise ParameterError(
                "owner of RemoteDatabase.ask must be None, was given: the service charges whoever holds the "
                "token. Use the token of that person."
            )
        bound, noise = self._cost_model.calibrate(question, privacy=privacy, variance=variance)
        body: dict[str, Any] = {"kind": "statistical", "question": question.to_dict()}
        body |= {"variance": float(variance)} if variance is not None else {"privacy": _promise_body(privacy)}
        if plan:
            body["plan"] = [_promise_body(promise) for promise in plan]
        if refines is not None:
            body["refines"] = [refines]
        told = self._transport.post("/v1/query", body, pays=True)
        return self._read_answer(told.get("answer"), bound, noise, refined=refines is not None)

    # What people ask.

    def query(
        self,
        text: str,
        *,
        privacy: Promise | None = None,
        sd: float | None = None,
        refines: str | Sequence[str] = (),
    ) -> QueryResult:
        """Ask in words or in SQL.

        Parameters
        ----------
        text : str
            ``mean(age) where job = 'clerk' by town``, or the same as a SELECT.
        privacy : PureDP, ApproxDP, ZCDP or GaussianDP
            What the answer shall promise.
        sd : float
            Instead of a promise: how noisy a count or a sum may be, in its unit.
        refines : str or sequence of str
            Receipt ids of an earlier answer to the same question, with which the new one is merged.

        Raises
        ------
        ExpressionRefused
            The question is not in the language; nothing was charged.
        """
        body = self._text_query_body(text, privacy, sd)
        if refines:
            body["refines"] = [refines] if isinstance(refines, str) else list(refines)
        return self._parse(QueryResult, self._transport.post("/v1/query", body, pays=True))

    def preview(self, text: str, *, privacy: Promise | None = None, sd: float | None = None) -> Preview:
        """Say what a sentence would cost and how noisy its answer would be. Free.

        Parameters
        ----------
        text, privacy, sd
            As for :meth:`query`.
        """
        body = self._text_query_body(text, privacy, sd)
        return self._parse(Preview, self._transport.post("/v1/preview", body, pays=False))

    def _text_query_body(self, text: str, privacy: Promise | None, sd: float | None) -> dict[str, Any]:
        """Return the body of a request for a sentence."""
        if (privacy is None) == (sd is None):
            raise ParameterError(
                "privacy and sd of a question must be given one at a time, and are "
                f"{'both' if privacy is not None else 'neither'}. Give for instance "
                "privacy=ApproxDP(epsilon=1, delta=1e-6)."
            )
        body: dict[str, Any] = {"kind": "sentence", "text": str(text)}
        if sd is not None:
            return body | {"sd": float(sd)}
        wanted = _promise_body(privacy)
        assert privacy is not None
        check_neighbors(privacy, self.neighbors, "a question")
        return body | {"privacy": wanted}

    def budget(self) -> Budget:
        """Say what the holder of the token, and everybody together, has spent and has left. Free."""
        return self._parse(Budget, self._transport.get("/v1/budget"))

    def history(self, *, after: int = 0, last: int | None = None) -> Frame:
        """Return what the holder of the token has paid for, with the answers, oldest first. Free.

        It comes page by page: no response is larger than a few megabytes, however much there is.

        Parameters
        ----------
        after : int
            Rows of the ledger up to this one are left out.
        last : int, optional
            How many of the rest, the newest, to return; at most 10,000. All of them if left out.
        """
        rows = [row for page in self._pages(after, last) for row in page]
        return Frame.from_rows(_HISTORY, rows)

    def _pages(self, after: int, last: int | None) -> Iterator[list[dict[str, Any]]]:
        """Go through a history as it comes; each page begins after the last row of the one before."""
        which, left = ({"first": _PAGE}, None) if last is None else ({"last": last}, last)
        more = True
        while more:
            told = self._transport.get("/v1/history", after=after, **which, format="json")
            try:
                page = [_history_row(entry) for entry in told["entries"]]
                rows, more = [entry["row"] for entry in page], told["more"]
                # A page that is empty, or goes back, would be asked for again without end.
                onward = all(a < b for a, b in itertools.pairwise([after, *rows]))
                fits = isinstance(more, bool) and onward and bool(rows or not more)
            except (KeyError, TypeError, AttributeError, DiscreetError):
                fits = False
            if not fits:
                raise self._unexpected("a history that cannot be read")
            yield page
            if more:
                after = rows[-1]
                left = None if left is None else left - len(rows)
                which = {"first": _PAGE if left is None else min(_PAGE, left)}
                more = left is None or left > 0

    def dummy(self, n: int = 100, seed: int = 0) -> Frame:
        """Return rows that were drawn from the schema alone, to try a program on. Free.

        Parameters
        ----------
        n : int
            How many.
        seed : int
            The same rows for the same seed.
        """
        told = self._transport.get("/v1/dummy", n=n, seed=seed, format="json").get("rows")
        columns = list(told.values()) if isinstance(told, dict) else []
        if not columns or not all(isinstance(cells, list) and len(cells) == n for cells in columns):
            raise self._unexpected("rows that cannot be read")
        assert isinstance(told, dict)
        dates = {column.name for column in self.schema.columns if column.type == "date"}
        return Frame(
            {
                name: [_to_date(cell) for cell in cells] if name in dates else cells
                for name, cells in told.items()
            }
        )

    def close(self) -> None:
        """Let go of all connections."""
        self._transport.close()

    # What came back.

    def _read_schema(self, told: Mapping[str, Any]) -> None:
        """Keep what is public, if it is what it says it is."""
        try:
            schema = Schema.from_dict(told["schema"])
            n_rows, digest, dataset = told["n_rows"], told["digest"], told["dataset"]
        except (KeyError, TypeError, ValueError, DiscreetError):
            raise self._unexpected("a schema that cannot be read") from None
        if schema.digest != digest:
            raise self._unexpected("a schema whose digest is another here")
        public = schema.neighbors == "replace-one" and schema.row_count == "public"
        whole = isinstance(n_rows, int) and not isinstance(n_rows, bool) and n_rows >= 0
        if (not whole) if public else n_rows is not None:
            raise self._unexpected("a number of rows that does not go with its schema")
        if not isinstance(dataset, str | None):
            raise self._unexpected("a name that is no text")
        self.dataset = dataset
        # Whether ids are kept is for the service to say: here they only have a place.
        ids = schema.id_column is not None and schema.max_rows_per_unit == 1
        self._cost_model = CostModel(schema, n_rows, curation=Curation.from_schema(schema, ids=ids))

    def _read_answer(self, told: Any, bound: BoundAggregate, noise: QueryNoise, *, refined: bool) -> Answer:
        """Read an answer, and refuse one that was not computed for this question at this price."""
        try:
            value, sd = (_to_floats(told[name]) for name in ("value", "sd"))
            answer = Answer.from_dict(told)
        except (KeyError, TypeError, ValueError, AttributeError, DiscreetError):
            raise self._unexpected("an answer that cannot be read", pays=True) from None
        expected = bound.arrange(noise.sd(bound), 0.0)
        if value.shape != bound.shape or sd.shape != bound.shape:
            raise self._unexpected("an answer of another shape", pays=True)
        if not (np.isfinite(value).all() and np.isfinite(sd).all() and (sd >= 0).all()):
            raise self._unexpected("an answer with numbers that are none", pays=True)
        # What is merged with earlier answers is less noisy than its own part, and has the law of the widest.
        fits = sd <= expected * (1 + _ROUNDING)
        if not refined:
            fits &= sd >= expected * (1 - _ROUNDING)
        if answer.law not in ((noise.law, "laplace") if refined else (noise.law,)) or not fits.all():
            raise self._unexpected("an answer with other noise", pays=True)
        if answer.receipt.schema != self.schema.digest:
            raise self._unexpected("an answer under another schema than it told before", pays=True)
        if not _is_same_cost(answer.cost[-1:] if refined else answer.cost, noise.promise):
            raise self._unexpected("an answer at another price", pays=True)
        return dataclasses.replace(answer, labels=bound.labels)

    def _parse(self, model: type[Model], told: Mapping[str, Any]) -> Model:
        try:
            return model.model_validate(told)
        except (ValidationError, DiscreetError, TypeError):
            pays = model is QueryResult
            raise self._unexpected("an answer that cannot be read", pays=pays) from None

    def _unexpected(self, what: str, *, pays: bool = False) -> DiscreetError:
        return ResponseReader(self.url).unexpected(what).error(attempts=1, pays=pays, lost=True)

    def __repr__(self) -> str:
        return f"RemoteDatabase({self.url!r}, {len(self.schema.columns)} columns, {self.neighbors})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reconnect, (self.url, self._transport.timeout, self._transport.retries, self._verify)


def _reconnect(url: str, timeout: float, retries: int, verify: Any) -> RemoteDatabase:
    """Connect anew where a pickle was read, with the token that is there."""
    return RemoteDatabase(url, timeout=timeout, retries=retries, verify=verify)


def _check_number(name: str, value: Any, fits: bool) -> None:
    if not fits or isinstance(value, bool):
        must = "a number of seconds above 0" if name == "timeout" else "a whole number from 0 to 100"
        raise ParameterError(f"{name} of RemoteDatabase must be {must}, was {value!r}.")


def _promise_body(promise: Any) -> dict[str, Any]:
    """Write a promise as a request has it: unit and neighbors are the schema's."""
    for kind, names in _NUMBERS.items():
        if isinstance(promise, kind):
            return {"kind": kind.kind, **{name: float(getattr(promise, name)) for name in names}}
    raise PromiseError(
        f"privacy of RemoteDatabase must be PureDP, ApproxDP, ZCDP or GaussianDP, was "
        f"{type(promise).__name__}. A service takes no other: cost() says what it comes to, and that can be "
        "asked for."
    )


def _is_same_cost(cost: tuple[Promise, ...], promise: Promise | None) -> bool:
    if promise is None:
        return cost == ()
    if len(cost) != 1 or type(cost[0]) is not type(promise):
        return False
    about = (cost[0].unit, cost[0].neighbors) == (promise.unit, promise.neighbors)
    numbers = [(getattr(cost[0], name), getattr(promise, name)) for name in _NUMBERS[type(promise)]]
    return about and all(abs(a - b) <= _ROUNDING * b for a, b in numbers)


def _history_row(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return one paid question as a row of a table; an answer of one number is that number."""
    asked = told["asked"]
    question = asked.get("said") or json.dumps(asked.get("question"))
    single = {
        name: told[name][0] if isinstance(told[name], list) and len(told[name]) == 1 else told[name]
        for name in ("value", "sd")
    }
    cost = " and ".join(describe_promise(promise) for promise in told["cost"])
    row = {**told, "question": question, "cost": cost, **single}
    return {name: row[name] for name in _HISTORY}


def _to_floats(told: Any) -> Floats:
    """Return numbers as an array; texts that look like numbers are none."""
    array = np.asarray(told)
    if array.dtype.kind not in "fiu":
        raise ValueError
    return array.astype(np.float64)


def _to_date(cell: Any) -> Any:
    try:
        return datetime.date.fromisoformat(cell)
    except (TypeError, ValueError):
        return cell
