"""Learners through a service: the same models as on a database at hand, bit for bit, and paid for once."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
import yaml

from discreet import (
    Database,
    Ledger,
    PrivateClassifier,
    PrivateID3Classifier,
    PrivateKMeans,
    PrivatePCA,
    PrivatePerceptron,
    RemoteDatabase,
    load_model,
    verify,
)
from discreet.client.transport import Transport
from discreet.errors import BudgetExceeded
from discreet.learn import (
    PrivateGradientLogistic,
    PrivateNaiveBayes,
    PrivateRidge,
    StatisticalQueries,
    private_quantiles,
)
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from discreet.query import Sums
from discreet.server.access import AccessStore
from tests.cli.run import discreet
from tests.server.conftest import SCHEMA, RunningService, running, settings, write_table
from tests.server.scripted import SILENCE, Heard, LossyProxy, Say, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from discreet.schema import Schema

MU = GaussianDP(mu=0.8)
ADDED = GaussianDP(mu=0.8, neighbors="add-remove")
NUMBERS = SCHEMA.with_target("income")
UNCOUNTED = dataclasses.replace(SCHEMA, neighbors="add-remove")
LEARNERS: dict[str, tuple[Schema, Callable[[], Any]]] = {
    "pca": (SCHEMA, lambda: PrivatePCA(n_components=2, privacy=MU)),
    "kmeans": (SCHEMA, lambda: PrivateKMeans(n_clusters=3, privacy=ApproxDP(epsilon=2.0, delta=1e-6))),
    "kmeans, pure": (SCHEMA, lambda: PrivateKMeans(n_clusters=2, privacy=PureDP(epsilon=3.0))),
    "pca, rows not counted": (UNCOUNTED, lambda: PrivatePCA(n_components=2, privacy=ADDED)),
    "kmeans, rows not counted": (UNCOUNTED, lambda: PrivateKMeans(n_clusters=2, privacy=ADDED)),
    "perceptron": (SCHEMA, lambda: PrivatePerceptron(privacy=ZCDP(rho=0.5), rounds=5)),
    "classifier": (SCHEMA, lambda: PrivateClassifier(privacy=MU, paid_score="table")),
    "classifier, rows not counted": (UNCOUNTED, lambda: PrivateClassifier(privacy=ADDED)),
    "id3": (SCHEMA, lambda: PrivateID3Classifier(privacy=MU, max_depth=2)),
    "naive bayes": (SCHEMA, lambda: PrivateNaiveBayes(privacy=MU, edges={"age": [20, 50.5]})),
    "ridge": (NUMBERS, lambda: PrivateRidge(privacy=MU)),
    "logistic": (SCHEMA, lambda: PrivateGradientLogistic(privacy=MU, rounds=3)),
    "logistic in cells": (SCHEMA, lambda: PrivateGradientLogistic(privacy=MU, rounds=3, n_bins=5)),
}


class Statistics:
    """The statistical-query oracle and quantiles, in so far as a learner has a fit and a file."""

    def fit_database(self, db: Any) -> Statistics:
        oracle = StatisticalQueries(db, queries=3)
        self.found: list[Any] = [
            oracle.stat(text, tolerance=tolerance).value
            for text, tolerance in (("age >= 50", 0.05), ("income / 7", 700.0), ("sex = 'f'", 0.04))
        ]
        told = private_quantiles(db, "age", [0.25, 0.5], privacy=MU)
        self.found += [np.asarray(told.value).tolist(), np.asarray(told.sd).tolist()]
        return self

    def everything(self) -> Any:
        return self.found


LEARNERS["statistical queries and quantiles"] = (SCHEMA, Statistics)


def everything(model: Any, folder: Path) -> Any:
    """All that a fitted model is, except for when it was paid and by whom."""
    if isinstance(model, Statistics):
        return model.everything()
    path = folder / "model.npz"
    model.save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "header"}
        header = json.loads(archive["header"].tobytes())
    del header["fitted"]["receipts_"]
    answers = [
        (np.asarray(a.value).tobytes(), np.asarray(a.sd).tobytes(), a.law, a.cost, a.labels)
        for a in model.answers_.values()
    ]
    return header, {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()}, answers


@contextlib.contextmanager
def a_service(folder: Path, schema: Schema, **changed: Any) -> Iterator[RunningService]:
    write_table(folder)
    (folder / "town.schema.yaml").write_text(schema.to_yaml(), encoding="utf-8")
    with running(folder, **changed) as service:
        yield service


def near(folder: Path, schema: Schema) -> Database:
    """The same rows with the same keystream."""
    return Database(folder / "town.csv", schema=schema, random_state=1)


@pytest.mark.slow
def test_the_command_line_publishes_a_model_of_a_service(tmp_path: Path) -> None:
    with a_service(tmp_path, SCHEMA) as service:
        table, token = f"{service.url}/datasets/town", {"DISCREET_TOKEN": service.tokens["ana"]}
        price = ("--epsilon", "1", "--delta", "1e-6")
        done = discreet("learn", table, *price, cwd=tmp_path, **token)
        assert done.code == 0, done.err
        assert done.out.index(" plan ") < done.out.index(" learn ") < done.out.index("How good it is")
        charged = service.backend.dataset.ledger.spent("ana").charges
        assert charged > 2
        for wrong, words in (
            (("--model", "logistic"), "must be one that needs no rows"),
            (("--target", "sex"), "target must be that of the table that answers queries"),
            (("--schema", "town.schema.yaml"), "--schema must be left out for a service"),
        ):
            refused = discreet("learn", table, *wrong, *price, "--out", "b", cwd=tmp_path, **token)
            assert (refused.code, words in refused.err) == (1, True), refused.err
        assert service.backend.dataset.ledger.spent("ana").charges == charged
    assert verify(tmp_path / "model").ok
    statement = json.loads((tmp_path / "model" / "public" / "statement.json").read_text(encoding="utf-8"))
    assert statement["composition"]["service"].startswith("The limit counts questions to this data set alone")
    assert set(load_model(tmp_path / "model").classes_) == {"no", "yes"}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_gets_the_same_model_through_a_service(name: str, tmp_path: Path) -> None:
    schema, make = LEARNERS[name]
    with (
        a_service(tmp_path, schema) as service,
        RemoteDatabase(service.url, "town", service.tokens["ana"]) as far,
        near(tmp_path, schema) as here,
    ):
        assert everything(make().fit_database(far), tmp_path) == everything(
            make().fit_database(here), tmp_path
        )
        spent = service.backend.dataset.ledger.spent("ana")
        assert spent == here.ledger.spent()
        assert spent.charges > 0
        # Once more is free, and the same.
        again = everything(make().fit_database(far), tmp_path)
        assert again == everything(make().fit_database(here), tmp_path)
        assert service.backend.dataset.ledger.spent("ana") == spent


class Rounding(RemoteDatabase):
    """The wrong twin: numbers lose their last digits on the way."""

    def _read_answer(self, values: Any, *rest: Any, **more: Any) -> Any:
        value = [float(f"{v:.7g}") for v in np.ravel(values["value"])]
        values = {**values, "value": np.reshape(value, np.shape(values["value"])).tolist()}
        return super()._read_answer(values, *rest, **more)


@pytest.mark.parametrize("name", ["pca", "ridge", "kmeans", "logistic in cells"])
def test_a_client_that_rounds_gets_another_model(name: str, tmp_path: Path) -> None:
    schema, make = LEARNERS[name]
    with (
        a_service(tmp_path, schema) as service,
        Rounding(service.url, "town", service.tokens["ana"]) as far,
        near(tmp_path, schema) as here,
    ):
        assert everything(make().fit_database(far), tmp_path) != everything(
            make().fit_database(here), tmp_path
        )


class Planless(RemoteDatabase):
    """The wrong twin: says nothing about the passes that are still to come."""

    def ask(self, question: Any, **rest: Any) -> Any:
        return super().ask(question, **{**rest, "plan": ()})


def test_a_fit_that_does_not_fit_is_refused_before_its_first_pass(tmp_path: Path) -> None:
    with a_service(tmp_path, SCHEMA, analyst_limit={"mu": 0.5}) as service:
        ledger = service.backend.dataset.ledger
        with RemoteDatabase(service.url, "town", service.tokens["ana"]) as far:
            with pytest.raises(
                BudgetExceeded, match=r"^Not enough budget for 'ana': .* would still fit"
            ) as told:
                PrivateKMeans(n_clusters=3, privacy=GaussianDP(mu=1.0)).fit_database(far)
            assert told.value.advice == "GaussianDP(mu=0.5) would still fit."
            assert ledger.spent("ana").charges == 0
            left = ledger.remaining("ana")
            assert left is not None
            assert told.value.left == left[told.value.currency]
            assert told.value.asked > told.value.left
            PrivateKMeans(n_clusters=3, privacy=GaussianDP(mu=0.499)).fit_database(far)
            assert ledger.spent("ana").charges > 1
        with Planless(service.url, "town", service.tokens["ben"]) as twin, pytest.raises(BudgetExceeded):
            PrivateKMeans(n_clusters=3, privacy=GaussianDP(mu=1.0)).fit_database(twin)
        assert ledger.spent("ben").charges > 0


@pytest.mark.slow
def test_a_proxy_that_loses_answers_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discreet.client.transport._FIRST_WAIT", 0.01)
    schema, make = LEARNERS["kmeans"]
    with a_service(tmp_path, schema) as service, near(tmp_path, schema) as here:
        proxy = LossyProxy(service.url, lambda n: n % 3 != 0)
        with served(proxy) as url, RemoteDatabase(url, "town", service.tokens["ana"]) as far:
            model = make().fit_database(far)
        assert everything(make().fit_database(here), tmp_path)[:2] == everything(model, tmp_path)[:2]
        passes = len(model.answers_)
        assert len(proxy.heard) == 3 * passes
        assert len({heard.headers["idempotency-key"] for heard in proxy.heard}) == passes
        assert service.backend.dataset.ledger.spent("ana").charges == passes


# A lost answer, and a table that is another when the question comes again.


class NewKeys(Transport):
    """The wrong twin: each attempt is a request of its own."""

    def _attempt(self, method: str, path: str, **more: Any) -> Any:
        if "Idempotency-Key" in more["headers"]:
            more["headers"] = {**more["headers"], "Idempotency-Key": f"key-{time.monotonic_ns()}"}
        return super()._attempt(method, path, **more)


def _charges_when_rows_change_before_the_second_attempt(
    folder: Path, twin: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, float, float]:
    """Return charges, the answer that was lost, and the one that came at last."""
    monkeypatch.setattr("discreet.client.transport._FIRST_WAIT", 0.01)
    with contextlib.ExitStack() as stack:
        first = contextlib.ExitStack()
        before = first.enter_context(running(folder))
        stack.callback(first.close)

        def loses(n: int) -> bool:
            if n == 1:
                first.close()
                text = (folder / "town.csv").read_text(encoding="utf-8").splitlines()
                (folder / "town.csv").write_text("\n".join([*text[:-1], text[1]]) + "\n", encoding="utf-8")
                proxy.target = stack.enter_context(running(folder, before.tokens, seed=2)).url
            return n == 1

        proxy = LossyProxy(before.url, loses)
        url = stack.enter_context(served(proxy))
        far = stack.enter_context(RemoteDatabase(url, "town", before.tokens["ana"]))
        if twin:
            far._transport.__class__ = NewKeys
        answer = far.ask(Sums("age"), privacy=MU)
        lost = json.loads(proxy.answered[0])["answer"]["value"][0]
        with Ledger.open(folder / "town.ledger") as ledger:
            return ledger.spent("ana").charges, lost, float(np.ravel(answer.value)[0])


def test_a_lost_answer_is_not_paid_again_though_the_table_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charges, lost, got = _charges_when_rows_change_before_the_second_attempt(tmp_path, False, monkeypatch)
    assert (charges, got) == (1, lost)


def test_a_client_with_a_new_key_for_each_attempt_pays_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charges, lost, got = _charges_when_rows_change_before_the_second_attempt(tmp_path, True, monkeypatch)
    assert charges == 2
    assert got != lost


# Killed in the middle, and started again.


class Process:
    """A service in a process of its own, for killing; always on the same port and files."""

    def __init__(self, folder: Path, **changed: Any) -> None:
        write_table(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        given = settings(listen=f"127.0.0.1:{self.port}", **changed)
        self.config = folder / "serve.yaml"
        self.config.write_text(yaml.safe_dump(given), encoding="utf-8")
        with contextlib.closing(AccessStore(folder / "access.db")) as book:
            self.token = book.create("ana", days=1, grants={"town": "analyst"})
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        main = "from discreet.cli import main; main()"
        command = [sys.executable, "-c", main, "serve", str(self.config)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 100
        while time.monotonic() < end:
            assert self.process.poll() is None, "the service ended before it began"
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/ready", timeout=5).status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("the service does not start")

    def kill(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


SLOT = 1.0


class KillingProxy(LossyProxy):
    """Kills the service and starts it again: over one question once it has answered, over another before."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.url, lambda _: False)
        self._process = process
        self.begun = 0
        self.interrupted = False

    def __call__(self, heard: Heard) -> Say:
        if heard.method != "POST":
            return super().__call__(heard)
        self.begun += 1
        if self.begun not in (2, 5):
            return super().__call__(heard)
        if self.begun == 2:
            super().__call__(heard)
            self._process.kill()
        else:
            killer = threading.Thread(target=self._kill_when_charged, args=(4,))
            killer.start()
            try:
                super().__call__(heard)
            except (OSError, http.client.HTTPException):
                self.interrupted = True
            killer.join()
        # However slow the machine is, the next attempt meets a service that has begun again.
        self._process.start()
        return SILENCE

    def _kill_when_charged(self, charges: int) -> None:
        """Kill between charge and answer: the answer leaves at the end of a slot."""
        with Ledger.open(self._process.config.with_name("town.ledger")) as ledger:
            end = time.monotonic() + 60
            while ledger.spent("ana").charges < charges and time.monotonic() < end:
                time.sleep(0.01)
        self._process.kill()


@pytest.mark.slow
def test_a_service_that_is_killed_in_the_middle_of_a_fit_charges_every_pass_once(tmp_path: Path) -> None:
    # Unseeded, as in earnest: a seed would begin anew with the process.
    process = Process(tmp_path, slots=SLOT, seed=None, testing=False)
    _, make = LEARNERS["kmeans"]
    try:
        process.start()
        proxy = KillingProxy(process)
        with served(proxy) as url, RemoteDatabase(url, "town", process.token, timeout=120) as far:
            model = make().fit_database(far)
            passes = len(model.answers_)
            assert passes > 4
            assert proxy.begun == passes + 2
            assert proxy.interrupted
            again = make().fit_database(far)
        assert everything(again, tmp_path)[:2] == everything(model, tmp_path)[:2]
        assert all(answer.cached for answer in again.answers_.values())
    finally:
        process.kill()
    with Ledger.open(tmp_path / "town.ledger") as ledger:
        ledger.check()
        assert ledger.spent("ana").charges == passes
