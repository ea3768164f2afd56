"""Answers of one data set: requests become queries, answered under the caller's name and logged."""

from __future__ import annotations

import dataclasses
import math
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from discreet.batching import Step, run_one
from discreet.errors import BudgetExceeded, DiscreetError, ParameterError
from discreet.pipeline.training import with_target
from discreet.privacy.budget_split import BudgetSplit
from discreet.query.costs import affordable_request
from discreet.query.text_query import is_free, preview_query, query_task
from discreet.server.api import requests
from discreet.server.api.bodies import (
    aggregate_response,
    model_response,
    preview_response,
    query_response,
)
from discreet.server.audit_log import AnswerEvent
from discreet.server.dataset import RequestDatabase
from discreet.server.errors import (
    NO_SUCH_DATASET,
    STOPPED,
    UNAUTHORIZED,
    ApiException,
    api_error_from,
    budget_error,
)
from discreet.server.limits import MOST_SUMS
from discreet.server.training import make_model
from discreet.server.work import Planning, declare_work, texts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from discreet.batching import QueryTask
    from discreet.privacy import Promise, Receipt
    from discreet.query import Aggregate, Answer
    from discreet.schema import Schema
    from discreet.server.access import AccessStore
    from discreet.server.audit_log import ServiceLog
    from discreet.server.callers import Caller
    from discreet.server.dataset import Dataset

    Watch: TypeAlias = Callable[[int, int], None]
    RunTask: TypeAlias = Callable[[QueryTask[Any]], Any]

_MAX_QUESTION = 500  # characters of a refused question that the audit log keeps


class QueryService:
    """What answers the requests about one private table.

    Parameters
    ----------
    dataset : Dataset
        Table that is opened.
    access : AccessStore
        Tokens, grants, sessions and stop switches of the service.
    audit_log : ServiceLog
        Hash-chained log of what happened.

    Privacy
    -------
    A query is charged to its caller and to the total before the engine runs, and its answer is in the
    ledger and its row in the audit log before it is returned, the first time and whenever it is repeated. A
    revoked token, a withdrawn grant or the stop switch ends a request of several queries before the next of
    them, and withholds what was answered. The reasons of a refusal follow from the request, the schema and
    the ledger.
    """

    def __init__(self, dataset: Dataset, access: AccessStore, audit_log: ServiceLog) -> None:
        """Keep references to the table and to what all tables of the service share."""
        self.dataset = dataset
        self.access = access
        self.audit_log = audit_log
        self._use = threading.Condition()
        self._running = 0
        self._retired = False

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Return a context that keeps the table open, or refuse a question about one that was retired."""
        with self._use:
            if self._retired:
                raise ApiException(NO_SUCH_DATASET)
            self._running += 1
        try:
            yield
        finally:
            with self._use:
                self._running -= 1
                self._use.notify_all()

    def retire(self) -> None:
        """Refuse new questions, and return once those that run have ended."""
        with self._use:
            self._retired = True
            self._use.wait_for(lambda: not self._running)

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.dataset.name

    def ask(
        self,
        caller: Caller,
        request: Any,
        *,
        key: str | None = None,
        watch: Watch | None = None,
        run: RunTask = run_one,
    ) -> dict[str, Any]:
        """Answer a request.

        Parameters
        ----------
        caller : Caller
            Authenticated caller; the charge goes to this name and to the total.
        request : requests.QueryRequest
            Query, aggregate or model that is requested.
        key : str, optional
            Idempotency key: a request sent again with the same key is never charged twice. Models have none:
            training one again asks the same queries again, which are free as long as the rows are the same.
        watch : callable, optional
            Function called before each aggregate with the number of those that were answered and of all that
            are planned, which are public; it raises to end the request. None for none.
        run : callable
            Function that runs the query tasks of a model, one after the other.

        Returns
        -------
        dict
            The answer as it goes over the wire.

        Raises
        ------
        DiscreetError, ApiException
            As :func:`~discreet.server.errors.api_error_from` reads them.
        """
        return run_one(self.ask_task(caller, request, key=key, watch=watch, run=run))

    def ask_task(
        self,
        caller: Caller,
        request: Any,
        *,
        key: str | None = None,
        watch: Watch | None = None,
        run: RunTask = run_one,
    ) -> QueryTask[dict[str, Any]]:
        """Return the task of a request, which is run in one batch with those of other callers.

        Parameters
        ----------
        caller, request, key, watch, run
            As for :meth:`ask`. A model is trained in one step, without interruption by other tasks.
        """
        with self._in_use():
            try:
                yield Step(self._check_running_of, caller)
                self.audit_log.require()
                match request:
                    case requests.AggregateRequest():
                        response, receipts = yield from self._answer_aggregate(caller, request, key, watch)
                    case requests.TrainRequest():
                        response, receipts = self._train(caller, request, watch, run)
                    case _:
                        response, receipts = yield from self._answer_query(caller, request, key, watch)
                yield Step(self._check_access_of, caller)
            except (DiscreetError, ApiException) as error:
                self.record_refusal(caller, api_error_from(error).code, describe_request(request))
                raise
            event = AnswerEvent(self.name, caller.name, response["question"], receipts, response["cached"])
            yield Step(self.audit_log.write_answers, event)
            return response

    def planning_task(self, request: Any) -> QueryTask[None]:
        """Return the task that reads the texts of a request one by one, so that others may go first."""
        texts = list(texts_of(getattr(request, "question", None)))
        # More are refused before any of them is read.
        for text in texts if len(texts) <= MOST_SUMS else ():
            yield Planning(self.dataset.read_expressions, text)

    def preview(self, caller: Caller, request: Any) -> dict[str, Any]:
        """Return what a request would cost and how noisy its answer would be, without any charge.

        A query that the caller has paid for costs nothing; for a model, which chooses its queries as it
        learns, this is not computed.

        Parameters
        ----------
        caller, request
            As for :meth:`ask`.
        """
        dataset = self.dataset
        privacy = requests.promise_from_request(request.privacy, **dataset.promise_context)
        if isinstance(request, requests.AggregateRequest):
            return self._preview_aggregate(caller, request, privacy)
        if isinstance(request, requests.TrainRequest):
            assert privacy is not None
            make_model(request, with_target(dataset.schema, request.target), privacy)
            # What a learner charges for a promise of (epsilon, delta) is the noise that keeps it.
            whole = BudgetSplit(
                privacy,  # type: ignore[arg-type]
                {request.kind: 1.0},
                unit=dataset.schema.unit,
                neighbors=dataset.database.neighbors,
            ).whole
            left = dataset.accounting.remaining_amounts(caller, (whole,))
            return preview_response(request.kind, (privacy,), left, learner=request.kind)
        query, sd = dataset.parse_query(request), request.requested_sd()
        result = preview_query(
            dataset.schema,
            dataset.database.n_rows,
            query,
            privacy=privacy,
            sd=sd,
            earlier=lambda aggregate: self._find_answer(caller, aggregate),
            accounts=dataset.database.accounts(caller.name),
        )
        free = is_free(
            dataset.database, query, privacy=privacy, sd=sd, owner=caller.name, refines=request.refines
        )
        left = dataset.accounting.remaining_amounts(caller, result.cost)
        return query_response(dataclasses.replace(result, is_free=free), left)

    def _find_answer(self, caller: Caller, aggregate: Aggregate) -> Answer | None:
        """Return an answer that the caller has paid for; the audit log has its receipt before it is used."""
        answer = self.dataset.database.find_answer(aggregate, owner=caller.name)
        if answer is not None:
            self.audit_log.cover_receipts(self.name, caller.name, [answer.receipt])
        return answer

    def _answer_query(
        self, caller: Caller, request: Any, key: str | None, watch: Watch | None
    ) -> QueryTask[tuple[dict[str, Any], Sequence[Receipt]]]:
        """Return the task of a count, sum, mean, histogram or text query: its response and its receipts."""
        dataset = self.dataset
        query, sd = dataset.parse_query(request), request.requested_sd()
        privacy = requests.promise_from_request(request.privacy, **dataset.promise_context)
        yield declare_work(dataset.query_work(query))
        try:
            result = yield from query_task(
                self._request_database(caller, dataset.schema, watch),
                query,
                privacy=privacy,
                sd=sd,
                owner=caller.name,
                refines=request.refines,
                request=key,
            )
        except BudgetExceeded as error:
            affordable = affordable_request(privacy, sd, error.scale)
            raise ApiException(budget_error(error, affordable)) from None
        left = dataset.accounting.remaining_amounts(
            caller, result.cost, result.charges, charged=result.charged
        )
        return query_response(result, left), result.charges

    def _answer_aggregate(
        self, caller: Caller, request: requests.AggregateRequest, key: str | None, watch: Watch | None
    ) -> QueryTask[tuple[dict[str, Any], Sequence[Receipt]]]:
        """Return the task of an aggregate: its response and its receipt."""
        dataset = self.dataset
        privacy = requests.promise_from_request(request.privacy, **dataset.promise_context)
        plan = [requests.promise_from_request(promise, **dataset.promise_context) for promise in request.plan]
        yield from self.planning_task(request)
        aggregate, work = dataset.parse_aggregate(request, privacy)
        yield declare_work(work)
        try:
            answer = yield from self._request_database(caller, dataset.schema, watch).ask_task(
                aggregate,
                privacy=privacy,
                variance=request.variance,
                owner=caller.name,
                plan=plan,
                refines=_refined_receipt(request),
                request=key,
            )
        except BudgetExceeded as error:
            sd = None if request.variance is None else math.sqrt(request.variance)
            affordable = affordable_request(privacy, sd, error.scale)
            raise ApiException(budget_error(error, affordable)) from None
        charged = () if answer.cached else answer.cost
        left = dataset.accounting.remaining_amounts(caller, answer.cost, [answer.receipt], charged=charged)
        return aggregate_response(request.question, answer, left), [answer.receipt]

    def _preview_aggregate(
        self, caller: Caller, request: requests.AggregateRequest, privacy: Promise | None
    ) -> dict[str, Any]:
        """Return what an aggregate would cost and how noisy its answer would be."""
        dataset = self.dataset
        aggregate, _ = dataset.parse_aggregate(request, privacy)
        asked: Any = {"privacy": privacy, "variance": request.variance, "owner": caller.name}
        cost = dataset.database.cost(aggregate, **asked)
        sd = dataset.database.expected_sd(aggregate, **asked)
        free = dataset.database.is_free(aggregate, refines=_refined_receipt(request), **asked)
        left = dataset.accounting.remaining_amounts(caller, cost)
        return preview_response(request.question, cost, left, sd=sd, free=free)

    def _train(
        self, caller: Caller, request: requests.TrainRequest, watch: Watch | None, run: RunTask
    ) -> tuple[dict[str, Any], Sequence[Receipt]]:
        """Train a model on paid answers; return its response and its receipts."""
        dataset = self.dataset
        privacy = requests.promise_from_request(request.privacy, **dataset.promise_context)
        schema = with_target(dataset.schema, request.target)
        learner = make_model(request, schema, privacy)
        try:
            learner.fit_database(self._request_database(caller, schema, watch, run), owner=caller.name)
        except BudgetExceeded as error:
            affordable = affordable_request(privacy, None, error.scale)
            raise ApiException(budget_error(error, affordable)) from None
        answers = learner.answers_.values()
        charged = [promise for answer in answers if not answer.cached for promise in answer.cost]
        left = dataset.accounting.remaining_amounts(caller, learner.promises_, charged=charged)
        return model_response(request, learner, left), learner.receipts_

    def _request_database(
        self, caller: Caller, schema: Schema, watch: Watch | None, run: RunTask = run_one
    ) -> Any:
        """Return the database for one request, which stops once its caller may no longer ask."""

        def before(answered: int, planned: int) -> None:
            if answered:  # before the first one the caller was just authenticated
                (refusal,) = self._check_access_of([caller])
                if refusal is not None:
                    raise refusal
            if watch is not None:
                watch(answered, planned)

        return RequestDatabase(self.dataset, schema, before=before, run=run)

    def check_running(self) -> None:
        """Refuse every request while a curator has stopped the data set."""
        if self.access.stop_record(self.name) is not None:
            raise ApiException(STOPPED)

    def _check_running_of(self, callers: Sequence[Caller]) -> list[None]:
        """Refuse all callers of a batch while a curator has stopped the data set."""
        self.check_running()
        return [None] * len(callers)

    def _check_access_of(self, callers: Sequence[Caller]) -> list[ApiException | None]:
        """Return the refusal of each caller of a batch who may no longer ask; refuse all if it is stopped."""
        self.check_running()
        valid = self.access.are_valid(callers, self.name)
        return [None if one else ApiException(UNAUTHORIZED) for one in valid]

    def record_refusal(self, caller: Caller | None, code: str, question: str) -> None:
        """Write to the audit log that a request was refused.

        Parameters
        ----------
        caller : Caller or None
            Caller of the request; None if there was no valid token.
        code : str
            Error code of the refusal.
        question : str
            Text of the request, of which the beginning is kept.
        """
        name = None if caller is None else caller.name
        self.audit_log.write(
            "refused", dataset=self.name, who=name, code=code, asked=question[:_MAX_QUESTION]
        )


def _refined_receipt(request: requests.AggregateRequest) -> str | None:
    """Return the receipt of the answer that an aggregate refines."""
    if len(request.refines) > 1:
        raise ParameterError(
            "refines of a statistical question must name one receipt, and named "
            f"{len(request.refines)}. Give that of the answer to refine."
        )
    return request.refines[0] if request.refines else None


def describe_request(request: Any) -> str:
    """Return a one-line description of a request for the audit log."""
    match request:
        case requests.TextQueryRequest():
            return request.text
        case requests.AggregateRequest():
            return f"statistical {request.question.get('kind')}"
        case requests.TrainRequest():
            return request.kind
        case requests.HistogramRequest():
            return f"histogram of {', '.join(request.columns)}"
    words = str(request.kind) + (f" of {request.expression}" if hasattr(request, "expression") else "")
    words += f" where {request.where}" if request.where else ""
    groups = [group if isinstance(group, str) else group.column for group in request.by]
    return words + (f" by {', '.join(groups)}" if groups else "")
