"""Routes for jobs: requests that are answered while nobody waits for the response."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Path
from starlette.requests import Request  # noqa: TC002 - FastAPI reads annotations
from starlette.responses import Response

from discreet.server.api import requests, responses
from discreet.server.api.query_routes import IdempotencyKeyHeader, answer_request, check_key
from discreet.server.api.route import (
    DATASET,
    READ_CODES,
    AnalystDataset,
    documented_route,
    dump,
    json_response,
    middleware_of,
    read_json,
)
from discreet.server.errors import INTERRUPTED, NO_SUCH_JOB, ApiException
from discreet.server.query_service import describe_request

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

    from discreet.server.dataset_service import DatasetService
    from discreet.server.jobs import JobStore, StoredJob

_JobId = Annotated[str, Path(alias="job", description="Id of the job, as its creation returned it.")]
_NOTES = {
    "waiting": "It has not begun, and nothing was charged.",
    "running": "Canceling it refunds nothing.",
    "canceling": "It ends before its next step. What was charged until then stays charged.",
}


class JobResponse(responses.ResponseModel):
    """How far a job is. Its steps are the aggregates of its plan, which is public."""

    id: str
    dataset: str
    kind: str
    question: str
    state: Literal["waiting", "running", "canceling", "done", "refused", "canceled", "interrupted"]
    steps_done: int
    steps: int | None
    created: str
    ended: str | None
    note: str
    error: responses.ErrorDetail | None


class EndedJobResponse(JobResponse):
    """A job with its answer, which is that of a question; null for one that has none yet, or never will."""

    answer: responses.QueryResponse | responses.AggregateResponse | responses.ModelResponse | None


class JobsResponse(responses.ResponseModel):
    """The caller's jobs, newest first."""

    jobs: list[JobResponse]


async def create_job(request: Request, target: AnalystDataset, key: IdempotencyKeyHeader = None) -> Response:
    """Accept a request as a job."""
    middleware, caller, body = middleware_of(request), request.state.caller, await read_json(request)
    checked = None if key is None else check_key(key)
    job = await start_job(request, target, body, key=checked)
    store = middleware.service.jobs
    content = await middleware.run_in_thread(
        lambda: dump(job_fields(find_job(store, target, caller.name, job)))
    )
    location = f"/v1/datasets/{target.name}/jobs/{job}"
    return Response(content, 202, media_type="application/json", headers={"location": location})


async def start_job(request: Request, target: DatasetService, body: bytes, *, key: str | None) -> str:
    """Record a question as a job, have it answered in its turn, and return its id.

    Parameters
    ----------
    request : Request
        Request of the caller, who alone will find the job.
    target : DatasetService
        Data set that is asked.
    body : bytes
        Question as the API takes it, written as JSON.
    key : str or None
        Idempotency key: sent again with the same question, it finds the job that it created.
    """
    middleware, caller = middleware_of(request), request.state.caller

    def create() -> tuple[Any, str, bool]:
        query = requests.parse_request(requests.QUERY_REQUEST, body)
        digest = hashlib.sha256(body).digest()
        question = describe_request(query)
        store = middleware.service.jobs
        made = store.create(target.name, caller.name, query.kind, question, key=key, digest=digest)
        return query, *made

    query, job, new = await middleware.run_in_thread(create)
    if new:
        middleware.jobs.start(
            job,
            caller.name,
            lambda watch: answer_request(
                middleware,
                # Its engine may have been opened anew since.
                middleware.service.datasets.get(target.name, target),
                caller,
                query,
                len(body),
                key=key,
                watch=watch,
                deadline=False,
            ),
            request_id=request.state.request_id,
        )
    return job


async def jobs(request: Request, target: AnalystDataset) -> Response:
    """Return the caller's jobs."""
    middleware, caller = middleware_of(request), request.state.caller
    store = middleware.service.jobs

    def work() -> bytes:
        return dump({"jobs": [job_fields(job) for job in store.jobs_of(target.name, caller.name)]})

    return json_response(await middleware.run_in_thread(work))


async def job(request: Request, target: AnalystDataset, name: _JobId) -> Response:
    """Return a job, with its answer if it has one."""
    middleware, caller = middleware_of(request), request.state.caller
    store = middleware.service.jobs
    content = await middleware.run_in_thread(lambda: _write(store, target, caller.name, name))
    return json_response(content)


async def cancel_job(request: Request, target: AnalystDataset, name: _JobId) -> Response:
    """Cancel a job."""
    middleware, caller = middleware_of(request), request.state.caller
    store = middleware.service.jobs

    def work() -> bytes:
        store.cancel(target.name, caller.name, name)
        return dump(job_fields(find_job(store, target, caller.name, name)))

    return json_response(await middleware.run_in_thread(work))


def find_job(store: JobStore, target: DatasetService, caller: str, name: str) -> StoredJob:
    """Return a job of a caller; any other id is reported as not found."""
    found = store.find(target.name, caller, name)
    if found is None:
        raise ApiException(NO_SUCH_JOB)
    return found


def _write(store: JobStore, target: DatasetService, caller: str, name: str) -> bytes:
    """Return a job with its answer as JSON; the answer is withheld while the data set is stopped."""
    found = find_job(store, target, caller, name)
    answer = None
    if found.state == "done":
        target.check_running()
        answer = store.answer(name)
    # The answer is JSON already, of up to some megabytes.
    return dump(job_fields(found))[:-1] + b', "answer": ' + (answer or b"null") + b"}"


def job_fields(found: StoredJob) -> dict[str, Any]:
    """Return a job as the response describes it, without its answer."""
    error = None if found.error is None else json.loads(found.error)
    if found.state == "interrupted":
        error = json.loads(INTERRUPTED.body(""))["error"]
    return {
        "id": found.id,
        "dataset": found.dataset,
        "kind": found.kind,
        "question": found.question,
        "state": found.state,
        "steps_done": found.done,
        "steps": found.planned,
        "created": _time(found.created),
        "ended": None if found.ended is None else _time(found.ended),
        "note": _NOTES.get(found.state, ""),
        "error": error,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()


def job_routes() -> list[APIRoute]:
    """Return the routes of this module, in the order of the document."""
    create = documented_route(
        f"{DATASET}/jobs", create_job, "Start a job, which is answered later",
        description="For long questions and models. A job is charged as its question would be, one "
        "aggregate after the other; of several jobs of yours, one runs at a time.",
        method="POST", role="analyst", body="QueryRequest", codes=("key-reused", *READ_CODES),
        model=JobResponse,
    )  # fmt: skip
    create.status_code = 202  # of the document; the endpoint sets its own
    return [
        create,
        documented_route(
            f"{DATASET}/jobs", jobs, "Your jobs", description="The latest 20, newest first.",
            role="analyst", codes=READ_CODES, model=JobsResponse,
        ),
        documented_route(
            f"{DATASET}/jobs/{{job}}", job, "State of a job, and its answer",
            role="analyst", codes=("stopped", *READ_CODES), model=EndedJobResponse,
        ),
        documented_route(
            f"{DATASET}/jobs/{{job}}", cancel_job, "Cancel a job",
            description="It ends before its next aggregate. Nothing is refunded: what was charged stays "
            "charged, and answers that were paid for are free to ask again. No effect on an ended job.",
            method="DELETE", role="analyst", codes=READ_CODES, model=JobResponse,
        ),
    ]  # fmt: skip
