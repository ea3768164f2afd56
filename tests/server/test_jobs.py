"""Jobs: requests that are answered while nobody waits for the response."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.client import JobStatus, ModelResult, RemoteDatabase
from discreet.errors import (
    BudgetExceeded,
    KeyReused,
    ParameterError,
    PromiseError,
    ServiceError,
    ServiceUnavailable,
)
from discreet.learn import PrivateKMeans
from discreet.privacy import ZCDP, NoPromise
from discreet.query import Answer, Sums
from discreet.server import query_service
from discreet.server.dataset import RequestDatabase
from discreet.server.errors import ApiException
from discreet.server.job_runner import JobRunner
from discreet.server.jobs import OPEN, JobStore
from tests.server.conftest import RunningService, lines_of, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

JOBS = "/v1/datasets/town/jobs"
RHO = {"kind": "zcdp", "rho": 0.01}
COUNT = {"kind": "count", "where": "age >= 65", "privacy": RHO}
KMEANS = {"kind": "kmeans", "privacy": RHO, "parameters": {"n_clusters": 2, "max_iter": 4}}


def created(client: httpx.Client, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    response = client.post(JOBS, json=body, headers=headers)
    assert response.status_code == 202, response.text
    job: dict[str, Any] = response.json()
    assert response.headers["location"] == f"{JOBS}/{job['id']}"
    return job


def ended(client: httpx.Client, job: str) -> dict[str, Any]:
    """Wait until a job has ended."""
    while True:
        found: dict[str, Any] = client.get(f"{JOBS}/{job}").json()
        if found["state"] not in OPEN:
            return found
        time.sleep(0.01)


class Gate:
    """Holds up every aggregate of a service until it is opened, and counts those that came to it."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.came = threading.Semaphore(0)

    def wait(self, _answered: int, _planned: int) -> None:
        self.came.release()
        self.open.wait()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate before every charge: after it a job is asked whether it goes on."""
    made, plain = Gate(), RequestDatabase

    def gated(database: Any, schema: Any, *, before: Callable[[int, int], None], **more: Any) -> Any:
        def wait(answered: int, planned: int) -> None:
            before(answered, planned)
            made.wait(answered, planned)

        return plain(database, schema, before=wait, **more)

    monkeypatch.setattr(query_service, "RequestDatabase", gated)
    yield made
    made.open.set()


def test_a_job_gets_the_answer_of_the_question_and_is_charged_once(shared_service: RunningService) -> None:
    client = shared_service.client()
    before = client.get("/v1/datasets/town/budget").json()["own"]["spent"]["rho"]
    job = created(client, COUNT)
    assert job["steps_done"] == 0
    assert job["error"] is None
    assert job["kind"] == "count"
    done = ended(client, job["id"])
    assert done["state"] == "done"
    assert done["steps_done"] == done["steps"] == 1
    assert done["ended"]
    after = client.get("/v1/datasets/town/budget").json()["own"]["spent"]["rho"]
    assert after == pytest.approx(before + 0.01)
    again = shared_service.ask(COUNT).json()
    assert again["cached"]
    assert again["cells"] == done["answer"]["cells"]
    listed = client.get(JOBS).json()["jobs"]
    assert listed[0]["id"] == job["id"]
    assert "answer" not in listed[0]


def test_a_model_reports_its_passes_and_ends_with_the_model(
    shared_service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int | None]] = []
    advance = JobStore.advance

    def recorded(store: JobStore, job: str, done: int, planned: int | None) -> bool:
        seen.append((done, planned))
        return advance(store, job, done, planned)

    monkeypatch.setattr(JobStore, "advance", recorded)
    client = shared_service.client()
    done = ended(client, created(client, KMEANS)["id"])
    assert done["state"] == "done"
    assert done["answer"]["learner"] == "kmeans"
    assert seen == [(0, None), *((k, done["steps"]) for k in range(done["steps"]))]
    assert done["steps_done"] == done["steps"] == len(done["answer"]["receipts"]) > 1


def test_the_jobs_of_another_caller_cannot_be_told_from_none(shared_service: RunningService) -> None:
    ana, ben = shared_service.client(), shared_service.client("ben")
    job = created(ana, COUNT)["id"]
    ended(ana, job)
    for who in (ben, shared_service.client("cura")):
        for method in ("GET", "DELETE"):
            theirs, none = (who.request(method, f"{JOBS}/{name}") for name in (job, "0" * 32))
            assert theirs.status_code == none.status_code == 404
            assert theirs.json()["error"]["message"] == none.json()["error"]["message"]
        assert job not in who.get(JOBS).text
    assert ana.get(f"{JOBS}/{job}").json()["state"] == "done"


def test_a_refused_job_has_the_error_that_the_question_would_have(shared_service: RunningService) -> None:
    client = shared_service.client()
    asked = {"kind": "count", "where": "age > 3", "privacy": {"kind": "zcdp", "rho": 1000.0}}
    error = ended(client, created(client, asked)["id"])["error"]
    plain = shared_service.ask(asked).json()["error"]
    assert {**error, "request_id": ""} == {**plain, "request_id": ""}
    assert error["code"] == "budget-exceeded"
    assert client.post(JOBS, json={"kind": "count"}).status_code == 422, "refused when it is created"


def test_a_key_sent_again_finds_its_job(shared_service: RunningService) -> None:
    client = shared_service.client()
    first = created(client, COUNT, **{"Idempotency-Key": "k"})
    assert created(client, COUNT, **{"Idempotency-Key": "k"})["id"] == first["id"]
    other = client.post(JOBS, json=KMEANS, headers={"Idempotency-Key": "k"})
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "key-reused"


def test_a_canceled_job_ends_before_its_next_charge_and_keeps_what_was_charged(
    service: RunningService, gate: Gate
) -> None:
    client = service.client()
    job = created(client, KMEANS)["id"]
    assert gate.came.acquire()
    told = client.delete(f"{JOBS}/{job}").json()
    assert told["state"] == "canceling"
    assert "stays charged" in told["note"]
    gate.open.set()
    done = ended(client, job)
    assert done["state"] == "canceled"
    assert done["error"]["code"] == "canceled"
    assert done["answer"] is None
    assert "stays charged" in done["error"]["message"]
    charges = client.get("/v1/datasets/town/history").json()["entries"]
    assert len(charges) == 1, "the pass that was under way, and no other"
    refused = [line for line in lines_of(service.folder / "audit.jsonl") if line["event"] == "refused"]
    assert [line["code"] for line in refused] == ["canceled"]
    model = service.ask(KMEANS).json()
    entries = client.get("/v1/datasets/town/history").json()["entries"]
    assert model["receipts"][0] == charges[0]["receipt"]
    assert len(entries) == len(model["receipts"])


def test_a_waiting_job_that_is_canceled_is_never_charged(service: RunningService, gate: Gate) -> None:
    client = service.client()
    first, second = created(client, COUNT)["id"], created(client, KMEANS)["id"]
    assert gate.came.acquire()
    assert client.get(f"{JOBS}/{second}").json()["state"] == "waiting", "one of a caller runs at a time"
    client.delete(f"{JOBS}/{second}")
    gate.open.set()
    assert ended(client, first)["state"] == "done"
    assert ended(client, second)["state"] == "canceled"
    assert len(client.get("/v1/datasets/town/history").json()["entries"]) == 1
    assert client.delete(f"{JOBS}/{first}").json()["state"] == "done", "no effect on one that has ended"


def test_a_stopped_service_reports_its_jobs_as_interrupted_and_what_was_paid_is_free(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = JobRunner.close

    async def close_and_open(runner: JobRunner) -> None:
        # Called at the first pause of close, when the runner has marked itself as closing.
        asyncio.get_running_loop().call_soon(gate.open.set)
        await close(runner)

    monkeypatch.setattr(JobRunner, "close", close_and_open)
    with running(tmp_path) as first:
        job = created(first.client(), KMEANS)["id"]
        assert gate.came.acquire()
    with running(tmp_path, first.tokens) as second:
        client = second.client()
        found = client.get(f"{JOBS}/{job}").json()
        assert found["state"] == "interrupted"
        assert found["error"]["code"] == "interrupted"
        charges = client.get("/v1/datasets/town/history").json()["entries"]
        assert len(charges) == 1
        model = second.ask(KMEANS).json()
        entries = client.get("/v1/datasets/town/history").json()["entries"]
        assert model["receipts"][0] == charges[0]["receipt"]
        assert len(entries) == len(model["receipts"])


def test_answers_of_jobs_are_withheld_while_the_data_set_is_stopped(service: RunningService) -> None:
    client, curator = service.client(), service.client("cura")
    job = created(client, COUNT)["id"]
    assert ended(client, job)["answer"] is not None
    curator.post("/v1/datasets/town/curator/stop", json={"stopped": True})
    assert client.get(f"{JOBS}/{job}").status_code == 423
    other = created(client, {**COUNT, "where": "age > 7"})["id"]
    assert ended(client, other)["error"]["code"] == "stopped"


def test_a_caller_has_a_bounded_number_of_jobs(tmp_path: Path) -> None:
    with contextlib.closing(JobStore(tmp_path / "jobs")) as store:

        def create(who: str, key: str | None = None) -> str:
            return store.create("town", who, "count", "count", key=key, digest=b"1")[0]

        made = [create("ana") for _ in range(8)]
        with pytest.raises(ApiException, match="busy"):
            create("ana")
        create("ben")
        store.end(made[0], "done", answer=b"{}")
        made.append(create("ana", "k"))
        with pytest.raises(KeyReused):
            store.create("town", "ana", "count", "count", key="k", digest=b"2")
        for name in made:
            store.end(name, "refused", error="{}")
        for _ in range(30):
            store.end(create("ana"), "done", answer=b"{}")
        assert len(store.jobs_of("town", "ana")) == 20
        assert store.find("town", "ana", made[0]) is None


def test_times_of_jobs_never_go_back_although_the_clock_does(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, start = service.client(), time.time()
    wall = [start]
    monkeypatch.setattr(service.whole.access._time, "_clock", lambda: wall[0])
    for jump in (0.0, 30 * 86_400.0, -3600.0):
        wall[0] = start + jump
        assert ended(client, created(client, {**COUNT, "where": f"age > {jump % 97:.0f}"})["id"])["answer"]
    jobs = service.whole.jobs.jobs_of("town", "ana")[::-1]
    times = [when for job in jobs for when in (job.created, job.ended or 0.0)]
    assert times == sorted(times)


@pytest.mark.slow
def test_the_jobs_of_a_process_that_was_killed_are_interrupted(tmp_path: Path) -> None:
    program = (
        "import sys; from discreet.server.jobs import JobStore\n"
        "store = JobStore(sys.argv[1])\n"
        "print(store.create('town', 'ana', 'count', 'count', key=None, digest=b'')[0], flush=True)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "jobs")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    job = process.stdout.readline().strip()
    with contextlib.closing(JobStore(tmp_path / "jobs")) as store:
        found = store.find("town", "ana", job)
        assert found is not None
        assert found.state == "waiting"
        process.kill()
        process.communicate()
        found = store.find("town", "ana", job)
        assert found is not None
        assert found.state == "interrupted"


def test_the_client_waits_for_a_job_and_reports_its_progress(shared_service: RunningService) -> None:
    with RemoteDatabase(shared_service.url, "town", shared_service.tokens["ben"]) as db:
        job = db.start("count by sex", privacy=ZCDP(rho=0.01))
        seen: list[JobStatus] = []
        result = job.result(on_progress=seen.append)
        assert result.value == db.query("count by sex", privacy=ZCDP(rho=0.01)).value
        assert seen[-1] == job.status() == JobStatus("done", 1, 1, "count by sex")
        assert next(one.id for one in db.jobs()) == job.id
        assert db.job(job.id).result().value == result.value
        with pytest.raises(BudgetExceeded):
            db.start("count where age > 5", privacy=ZCDP(rho=1000)).result()
        with pytest.raises(ServiceError, match="no job with this id"):
            db.job("0" * 32).status()


def test_the_client_starts_a_model_and_gets_what_was_learned(shared_service: RunningService) -> None:
    with RemoteDatabase(shared_service.url, "town", shared_service.tokens["ben"]) as db:
        parameters: dict[str, Any] = {"n_clusters": np.int64(2), "max_iter": 3}
        job = db.start_model("kmeans", privacy=ZCDP(rho=0.01), **parameters)
        seen: list[JobStatus] = []
        model = job.result(on_progress=seen.append)
        assert isinstance(model, ModelResult)
        assert (model.model, model.parameters, model.cached) == ("kmeans", parameters, False)
        assert np.shape(model.fitted["cluster_centers_"])[0] == 2
        assert (seen[-1].state, seen[-1].question) == ("done", "kmeans")
        assert seen[-1].steps_done == len(model.receipts) > 1
        spent = db.budget().own
        # The same learner here, on the same questions, which were paid for: free, and it predicts.
        learner = PrivateKMeans(privacy=ZCDP(rho=0.01), n_clusters=2, max_iter=3).fit_database(db)
        assert learner.cluster_centers_.tolist() == model.fitted["cluster_centers_"]
        assert learner.promises_ == model.cost
        assert db.start_model("kmeans", privacy=ZCDP(rho=0.01), **parameters).result().cached
        assert db.budget().own == spent
        assert [one.result().model for one in db.jobs() if one.id == job.id] == ["kmeans"]


def test_the_client_refuses_a_wrong_model_before_a_request(shared_service: RunningService) -> None:
    with RemoteDatabase(shared_service.url, "town", shared_service.tokens["ben"]) as db:
        before = [job.id for job in db.jobs()]
        with pytest.raises(ParameterError, match=r"has no parameter 'n_cluster'\. Did you mean 'n_clusters'"):
            db.start_model("kmeans", privacy=ZCDP(rho=0.01), n_cluster=2)
        with pytest.raises(ParameterError, match="has no parameter 'ledger'"):
            db.start_model("kmeans", privacy=ZCDP(rho=0.01), ledger=None)
        with pytest.raises(ParameterError, match=r"model must be one of .*was 'count'"):
            db.start_model("count", privacy=ZCDP(rho=0.01))
        with pytest.raises(PromiseError, match="privacy of RemoteDatabase"):
            db.start_model("pca", privacy=NoPromise(reason="a test"))
        with pytest.raises(ParameterError, match="target of a model"):
            db.start_model("id3", privacy=ZCDP(rho=0.01), target="nothing")
        with pytest.raises(ParameterError, match=r"kind.*must be one of"):
            db.start_model("ridge", privacy=ZCDP(rho=0.01), target="income")  # not trained by services
        assert [job.id for job in db.jobs()] == before


def test_the_client_reads_the_answer_to_an_aggregate(shared_service: RunningService) -> None:
    with RemoteDatabase(shared_service.url, "town", shared_service.tokens["ben"]) as db:
        paid = db.ask(Sums(("age", "income")), privacy=ZCDP(rho=0.01))
        body = {"kind": "statistical", "question": Sums(("age", "income")).to_dict(), "privacy": RHO}
        job = created(shared_service.client("ben"), body)
        answer = db.job(job["id"]).result()
        assert isinstance(answer, Answer)
        assert np.asarray(answer.value).tolist() == np.asarray(paid.value).tolist()
        assert answer.cached


def test_the_client_cancels_a_job_and_does_not_wait_longer_than_told(
    service: RunningService, gate: Gate
) -> None:
    with RemoteDatabase(service.url, "town", service.tokens["ana"]) as db:
        held = db.start("count where age > 5", privacy=ZCDP(rho=0.01))
        assert gate.came.acquire()
        with pytest.raises(ServiceUnavailable, match="goes on"):
            held.result(timeout=0)
        waiting = db.start("sum(age)", privacy=ZCDP(rho=0.01))
        assert waiting.cancel().state == "canceling"
        gate.open.set()
        with pytest.raises(ServiceError, match="stays charged"):
            waiting.result()
        assert held.result().value


def test_the_client_cancels_a_model_before_its_next_pass(service: RunningService, gate: Gate) -> None:
    with RemoteDatabase(service.url, "town", service.tokens["ana"]) as db:
        job = db.start_model("id3", privacy=ZCDP(rho=0.01), target="sex", max_depth=2)
        assert gate.came.acquire()
        assert job.cancel().state == "canceling"
        gate.open.set()
        with pytest.raises(ServiceError, match="stays charged"):
            job.result()
        assert service.backend.dataset.ledger.spent("ana").charges == job.status().steps_done + 1 == 1
