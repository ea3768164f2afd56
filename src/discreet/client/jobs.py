"""Jobs of a service: long queries, and models, that are computed while nobody waits for the response."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from discreet.arguments import checked_arguments
from discreet.client._arguments import promise_body
from discreet.client.responses import ResponseReader
from discreet.errors import DiscreetError, ServiceUnavailable
from discreet.privacy import promise_from_dict
from discreet.query.answers import Answer
from discreet.query.calibration import check_row_promise
from discreet.query.results import QueryResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet.client.transport import Transport
    from discreet.privacy import Promise
    from discreet.schema import Schema

Result = TypeVar("Result", bound="QueryResult | Answer | ModelResult")
_OPEN = ("waiting", "running", "canceling")
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds between two looks at a job, growing by half


@dataclass(frozen=True)
class JobStatus:
    """How far a job is.

    Attributes
    ----------
    state : str
        ``waiting``, ``running`` or ``canceling``; once it has ended ``done``, ``refused``, ``canceled`` or
        ``interrupted``.
    steps_done : int
        Number of aggregates of its plan that were answered.
    steps : int or None
        Number of aggregates of its plan, which is public; None before it has begun.
    question : str
        Text of the query, or the name of the model.

    Examples
    --------
    >>> JobStatus("running", steps_done=3, steps=10, question="count by sex").has_ended
    False
    """

    state: str
    steps_done: int
    steps: int | None
    question: str

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self.state not in _OPEN


@dataclass(frozen=True, repr=False)
class ModelResult:
    """A model that a service trained.

    Attributes
    ----------
    model : str
        Name of the model, such as ``kmeans``.
    parameters : dict
        Parameters that were given; the others had their defaults.
    fitted : dict
        What was learned: the fitted attributes of the model by their names, as plain lists and numbers.
    cost : tuple of Promise
        Promises that its training keeps.
    cached : bool
        Whether every answer that it needed had been paid for before.
    receipts : tuple of str
        Ids of the receipts of these answers.

    Notes
    -----
    It holds numbers and does not predict. A learner of :mod:`discreet.learn` with the same promise and
    parameters does, after ``fit_database(table)``: its questions were paid for, so that they are free as long
    as the rows are the same. That holds for the target that the table declares; a model of another target is
    trained at the service alone.

    Examples
    --------
    >>> result = ModelResult("kmeans", {"n_clusters": 1}, {"cluster_centers_": [[0.4]]}, (), False, ("a-1",))
    >>> result
    <ModelResult: kmeans(n_clusters=1); fitted: cluster_centers_>
    >>> result.fitted["cluster_centers_"]
    [[0.4]]
    """

    model: str
    parameters: dict[str, Any]
    fitted: dict[str, Any]
    cost: tuple[Promise, ...]
    cached: bool
    receipts: tuple[str, ...]

    def __repr__(self) -> str:
        # What was learned may be thousands of numbers.
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"<ModelResult: {self.model}({given}); fitted: {', '.join(self.fitted)}>"

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> ModelResult:
        """Return the model in a response of the service."""
        return cls(
            model=str(values["learner"]),
            parameters=dict(values["parameters"]),
            fitted=dict(values["fitted"]),
            cost=tuple(promise_from_dict(promise) for promise in values["cost"]),
            cached=bool(values["cached"]),
            receipts=tuple(map(str, values["receipts"])),
        )


class Job(Generic[Result]):
    """A query or a model that a service computes while nobody waits.

    Made by :meth:`RemoteDatabase.start` and :meth:`RemoteDatabase.start_model`.

    Parameters
    ----------
    transport : Transport
        Sender of requests to the service.
    path : str
        Path of the data set's jobs.
    id : str
        Id of the job, by which it is found again also from another program of the same caller.

    Privacy
    -------
    It is charged as the query would be. Canceling refunds nothing; a job that ended without an answer left
    its charges, and the same query again gets what they paid for without another charge.

    Examples
    --------
    >>> import discreet
    >>> census = discreet.connect("https://data.example.org")["census"]  # doctest: +SKIP
    >>> job = census.start("mean(age) by sex", sd=2)  # doctest: +SKIP
    >>> job.result(on_progress=print)  # doctest: +SKIP
    """

    def __init__(self, transport: Transport, path: str, id: str) -> None:
        self._transport = transport
        self._path = f"{path}/{id}"
        self.id = id

    def status(self) -> JobStatus:
        """Return how far the job is. Free."""
        return self._status(self._transport.get(self._path))

    def cancel(self) -> JobStatus:
        """Have the job end before its next aggregate; nothing is refunded. No effect once it has ended."""
        return self._status(self._transport.delete(self._path))

    def result(
        self, timeout: float | None = None, *, on_progress: Callable[[JobStatus], None] | None = None
    ) -> Result:
        """Wait for the job to end, and return its result. Free: it was charged when it ran.

        That of a query is a :class:`~discreet.query.QueryResult`, of a model a :class:`ModelResult`, of an
        aggregate that a program sent as a job an :class:`~discreet.query.Answer`.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; None waits until it ends.
        on_progress : callable, optional
            Function that is called with the status whenever it has changed; None for none.

        Raises
        ------
        ServiceUnavailable
            It has not ended in time; it goes on, and can be waited for again.
        ServiceError
            It was canceled, or the service was stopped before it ended. Charges made until then remain.
        BudgetExceeded, ParameterError
            It was refused, as the query would have been.
        """
        end = None if timeout is None else time.monotonic() + timeout
        wait, last = _FIRST_WAIT, None
        while True:
            response = self._transport.get(self._path)
            status = self._status(response)
            if on_progress is not None and status != last:
                on_progress(status)
            last = status
            if status.has_ended:
                return self._result(response)
            if end is not None and time.monotonic() >= end:
                raise ServiceUnavailable(
                    f"Job {self.id} has not ended within {timeout:g} seconds. It goes on: wait for it again, "
                    "or cancel it.",
                    may_be_charged=True,
                )
            time.sleep(wait if end is None else max(0.0, min(wait, end - time.monotonic())))
            wait = min(_LONGEST_WAIT, 1.5 * wait)

    def _status(self, response: Mapping[str, Any]) -> JobStatus:
        try:
            state, done, steps, question = (
                response[name] for name in ("state", "steps_done", "steps", "question")
            )
        except KeyError:
            raise self._unexpected_response() from None
        return JobStatus(str(state), done, steps, str(question))

    def _result(self, response: Mapping[str, Any]) -> Result:
        error, answer = response.get("error"), response.get("answer")
        if isinstance(error, dict):
            failure = ResponseReader(self._transport.url).read_error(error)
            raise failure.error(attempts=1, pays=False, lost=False)
        try:
            return _read_result(answer)  # type: ignore[return-value]  # the kind is that of what was started
        except (KeyError, TypeError, AttributeError, ValueError, DiscreetError):
            raise self._unexpected_response() from None

    def _unexpected_response(self) -> DiscreetError:
        failure = ResponseReader(self._transport.url).unexpected_response("a job that cannot be read")
        return failure.error(attempts=1, pays=False, lost=False)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"


class JobMethods:
    """Methods of a table behind a service that start and list jobs."""

    schema: Schema
    neighbors: Any
    _transport: Transport
    _path: str

    def _text_query_body(self, text: str, privacy: Promise | None, sd: float | None) -> dict[str, Any]:
        raise NotImplementedError

    @checked_arguments
    def start(
        self,
        text: str,
        *,
        privacy: Promise | None = None,
        sd: float | None = None,
        refines: str | Sequence[str] = (),
    ) -> Job[QueryResult]:
        """Have a query answered without waiting for it, and return the job.

        Parameters
        ----------
        text, privacy, sd, refines
            As for :meth:`PrivateTable.query <discreet.query.PrivateTable.query>`.

        Raises
        ------
        ServiceUnavailable
            The caller has as many unfinished jobs as one may have.
        """
        body = self._text_query_body(text, privacy, sd)
        if refines:
            body["refines"] = [refines] if isinstance(refines, str) else list(refines)
        return self._start(body)

    def start_model(
        self, model: str, *, privacy: Promise, target: str | None = None, **parameters: Any
    ) -> Job[ModelResult]:
        """Have a model trained without waiting for it, and return the job.

        Parameters
        ----------
        model : str
            Name of a model that the service trains: ``classifier``, ``id3``, ``perceptron``, ``pca`` or
            ``kmeans``.
        privacy : PureDP, ApproxDP, ZCDP or GaussianDP
            Promise that the model keeps, with the unit and neighbors of the schema.
        target : str, optional
            Column to predict; None for that of the schema.
        **parameters
            Parameters of the learner, such as ``n_clusters``; those that are left out have their defaults.

        Raises
        ------
        ParameterError, PromiseError
            The learner does not have such a parameter, or cannot keep the promise; nothing was sent.
        ServiceUnavailable
            The caller has as many unfinished jobs as one may have.

        Examples
        --------
        >>> import discreet
        >>> census = discreet.connect("https://data.example.org")["census"]  # doctest: +SKIP
        >>> job = census.start_model("kmeans", privacy=discreet.ZCDP(0.1), n_clusters=3)  # doctest: +SKIP
        >>> job.result().fitted["cluster_centers_"]  # doctest: +SKIP
        """
        # These import every learner, which a table that is only queried does not need.
        from discreet.pipeline.training import check_parameter_names, make_learner, with_target

        promise = promise_body(privacy)
        check_row_promise(privacy, self.neighbors)
        check_parameter_names(model, parameters)
        make_learner(model, schema=with_target(self.schema, target), privacy=privacy, **parameters)
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
            for name, value in parameters.items()
        }
        body = {"kind": model, "privacy": promise, "parameters": plain}
        return self._start(body if target is None else {**body, "target": target})

    def _start(self, body: Mapping[str, Any]) -> Job[Any]:
        response = self._transport.post(f"{self._path}/jobs", body, pays=True)
        return self.job(str(response.get("id")))

    def job(self, id: str) -> Job[Any]:
        """Return a job of the holder of the token by its id."""
        return Job(self._transport, f"{self._path}/jobs", id)

    def jobs(self) -> list[Job[Any]]:
        """Return the last jobs of the holder of the token, newest first. Free."""
        response = self._transport.get(f"{self._path}/jobs")
        return [self.job(str(entry["id"])) for entry in response.get("jobs", ())]


def _read_result(answer: Any) -> QueryResult | Answer | ModelResult:
    """Return the answer of a job, of the kind that it has."""
    if answer["kind"] == "model":
        return ModelResult.from_wire(answer)
    return Answer.from_dict(answer["answer"]) if "answer" in answer else QueryResult.from_wire(answer)
