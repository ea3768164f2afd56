from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.errors import (
    DataError,
    EngineFailed,
    EngineUnavailable,
    ExpressionRefused,
    LedgerUnavailable,
)
from discreet.query.language.query import parse_query
from discreet.schema import Column, Schema
from discreet.server.api import requests
from discreet.server.errors import FAILED, STATUS, InvalidRequest
from discreet.server.middleware import HEADERS, ServiceMiddleware
from discreet.server.monitoring import Metrics
from tests.cli.run import discreet
from tests.server.conftest import Disk
from tests.server.markup import Visitor, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from tests.server.conftest import RunningService

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}
COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}


def error_of(response: httpx.Response) -> dict[str, Any]:
    """Return the error of a response, which has one shape, whatever happened."""
    content = response.json()
    assert set(content) == {"error"}
    error: dict[str, Any] = content["error"]
    assert set(error) == {"code", "message", "hint", "details", "request_id"}
    assert STATUS[error["code"]] == response.status_code
    assert error["request_id"] == response.headers["x-request-id"]
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    return error


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/nothing", "not-found"),
        ("GET", "/nothing", "not-found"),
        ("GET", "/v1/datasets/town/query", "method-not-allowed"),
        ("DELETE", "/v1/datasets/town/budget", "method-not-allowed"),
        ("POST", "/health", "method-not-allowed"),
        ("OPTIONS", "/v1/datasets/town/query", "method-not-allowed"),
        ("GET", "/v1/datasets/town/budget?token=x", "malformed"),
        ("GET", "/v1/datasets/town/history?after=-1", "invalid"),
        ("GET", "/v1/datasets/town/history?nothing=1", "invalid"),
        ("GET", "/v1/datasets/town/history?" + "&".join(f"a{i}=1" for i in range(200)), "malformed"),
    ],
)
def test_every_refusal_has_one_shape(
    shared_service: RunningService, method: str, path: str, code: str
) -> None:
    response = shared_service.client().request(method, path)
    assert error_of(response)["code"] == code
    if code == "method-not-allowed":
        assert response.headers["allow"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[" * 100_000, "malformed"),
        (b'{"kind": ' * 500 + b"1" + b"}" * 500, "malformed"),
        (b"null", "invalid"),
        (b"[]", "invalid"),
        (b"{}", "invalid"),
        (b'{"kind": "drop"}', "invalid"),
        (b'{"kind": "count", "sd": NaN}', "invalid"),
        (b'{"kind": "count", "sd": 1e999}', "invalid"),
        (b'{"kind": "count", "sd": "5"}', "invalid"),
        (b'{"kind": "count", "sd": true}', "invalid"),
        (b'{"kind": "count", "sd": -5}', "invalid"),
        (b'{"kind": "count", "where": "", "sd": 5}', "invalid"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(
    shared_service: RunningService, body: bytes, code: str
) -> None:
    response = shared_service.client().post(
        "/v1/datasets/town/query", content=body, headers={"Content-Type": "application/json"}
    )
    assert error_of(response)["code"] == code


def test_refusals_say_what_is_too_long_and_what_is_no_object(shared_service: RunningService) -> None:
    def refused(body: bytes, path: str = "query") -> str:
        response = shared_service.client().post(
            f"/v1/datasets/town/{path}", content=body, headers={"Content-Type": "application/json"}
        )
        return str(error_of(response)["message"])

    assert refused(b"[]") == "body of the request is not valid: it must be an object."
    most = shared_service.client().get("/v1/datasets/town/schema").json()["limits"]["body_bytes"]
    assert refused(b" " * (most + 1)) == f"The body of the request has more than {most:,} bytes."
    long = json.dumps({"kind": "sentence", "text": "a" * 9000, "sd": 5}).encode()
    assert refused(long) == "text of the request is not valid: it must have at most 8,192 characters."
    job = shared_service.client().get("/v1/datasets/town/jobs/abc")
    assert "You have no job with this id" in error_of(job)["message"]


def test_unknown_fields_are_named_wherever_they_stand(shared_service: RunningService) -> None:
    asked: dict[str, Any] = {
        **COUNT,
        "wher": "x",
        "privacy": {**PRIVACY, "sigma": 1},
        "by": [{"column": "age", "edge": [1]}],
    }
    details = error_of(shared_service.ask(asked))["details"]
    assert {"wher", "privacy.sigma"} <= set(details["fields"])
    assert any(field.endswith("edge") for field in details["fields"])
    assert {problem["field"] for problem in details["problems"]} == set(details["fields"])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"kind": "sums", "expressions": ["age"], "x": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}, "deep"),
        ({"kind": "sums", "expressions": ["age"], "x": 2**70}, "64 bits"),
        ({"kind": "sums", "expressions": ["x" * 9000]}, "characters"),
    ],
)
def test_statistical_questions_hold_plain_values_of_sane_size(
    shared_service: RunningService, value: dict[str, Any], said: str
) -> None:
    error = error_of(shared_service.ask({"kind": "statistical", "question": value, "privacy": PRIVACY}))
    assert error["code"] == "invalid"
    assert said in error["message"]


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"kind": "nothing"},
        {"kind": "sums"},
        {"kind": "sums", "expressions": 3},
        {"kind": "sums", "expressions": ["nope"]},
        {"kind": "sums", "expressions": ["age"], "more": 1},
        {"kind": "histogram", "columns": ["nope"]},
        {"kind": "histogram", "columns": ["sex"], "edges": {"sex": [1]}, "expression": None},
        {"kind": "gram", "columns": ["age", "age"]},
        {"kind": "node tables", "nodes": [1]},
        {"kind": "marginals", "tables": [["age", ["sex"]]]},
        {"kind": "marginals", "tables": [["sex"]], "precisions": ["x"]},
        {"kind": "dependence", "pairs": [["age", "sex"]], "reference": [1]},
        {"kind": "dependence", "pairs": [["sex", "age"]], "reference": {"kind": "tables", "values": [[1e9]]}},
        {
            "kind": "dependence",
            "pairs": [["sex", "age"]],
            "reference": {"kind": "given", "margins": 3, "by": 0},
        },
        {"kind": "cluster sums", "columns": ["age"], "centers": "x"},
    ],
)
def test_wrong_statistical_questions_are_refused_in_words(
    shared_service: RunningService, question: dict[str, Any]
) -> None:
    error = error_of(shared_service.ask({"kind": "statistical", "question": question, "privacy": PRIVACY}))
    assert error["code"] in ("invalid", "refused"), error


def test_what_is_beyond_the_language_is_refused_with_the_nearest_allowed_form(
    shared_service: RunningService,
) -> None:
    for text in (
        "SELECT * FROM town",
        "SELECT COUNT(*) FROM town; DROP TABLE town",
        "SELECT COUNT(*) FROM town WHERE age IN (SELECT age FROM town)",
        "max(age)",
        "SELECT MIN(age) FROM town",
        "count by sex order by age",
        "count limit 3",
        "count where age > (select 1)",
    ):
        error = error_of(shared_service.ask({"kind": "sentence", "text": text, "privacy": PRIVACY}))
        assert error["code"] == "refused", text
        assert error["details"]["refused"]
        assert error["details"]["nearest"]
    for expression in ("age), mean(age", "age, age", "age) where (age"):
        error = error_of(shared_service.ask({"kind": "sum", "expression": expression, "privacy": PRIVACY}))
        assert error["code"] == "refused", expression
    assert shared_service.backend.dataset.ledger.spent().charges == 0


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        (
            "count where 40 < age < 60",
            "Not understood: a comparison of a comparison.",
            "Write 40 < age AND age < 60, or put one of them in parentheses: (age > 40) = smoker.",
        ),
        (
            "count where age > 150",
            "Not allowed: a comparison that no row fulfills.",
            "age is declared from 0 to 120: compare it with a value in between.",
        ),
        ("count where agee > 40", "Unknown column agee.", "Did you mean age?"),
        ("count where", "Not understood: nothing after WHERE.", "Write a condition: WHERE age > 40."),
        (
            "max(age)",
            "There is no MAX.",
            "It would be the value of one row. QUANTILE(age, 0.99) is a high value that hardly depends on "
            "one row.",
        ),
    ],
)
def test_a_refusal_has_the_same_words_for_programs_on_the_page_and_at_the_command_line(
    shared_service: RunningService, tmp_path: Path, text: str, problem: str, hint: str
) -> None:
    error = error_of(shared_service.ask({"kind": "sentence", "text": text, "privacy": PRIVACY}))
    assert (error["code"], error["message"], error["hint"]) == ("refused", f"{problem} {hint}", hint)
    visitor = Visitor(shared_service)
    page = read(
        visitor.send(
            visitor.get("/datasets/town"), "/datasets/town/ask", do="ask", source="sql", sql=text
        ).text
    )
    told = page.one(id="sql-problem")
    assert " ".join(told.text.split()).startswith(problem)
    assert told.one("span", class_="nearest").text.strip() == hint
    (tmp_path / "town.csv").write_text("age\n40\n")
    (tmp_path / "town.schema.yaml").write_text(
        "fields:\n  - {name: age, type: integer, constraints: {minimum: 0, maximum: 120, required: true}}\n"
    )
    done = discreet("query", "town.csv", text, "--epsilon", "1", cwd=tmp_path)
    assert (done.code, done.err) == (1, f"discreet: {problem} {hint}\n")


def test_edges_are_of_the_columns_that_are_asked_for(shared_service: RunningService) -> None:
    asked = {"kind": "histogram", "columns": ["sex"], "edges": {"age": [40]}, "sd": 9}
    error = error_of(shared_service.ask(asked))
    assert error["code"] == "invalid"
    assert "'age'" in error["message"]


def test_nothing_but_http_is_spoken(shared_service: RunningService) -> None:
    host, port = shared_service.url.removeprefix("http://").split(":")
    head = (
        "GET /v1/datasets/town/budget HTTP/1.1\r\n"
        f"Host: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(head.encode())
        status = int(connection.recv(65536).split()[1])
    assert 400 <= status < 500


def test_only_json_is_read(shared_service: RunningService) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = shared_service.client().post(
            "/v1/datasets/town/query", content=json.dumps(COUNT), headers={"Content-Type": kind}
        )
        assert error_of(response)["code"] == "unsupported-media"
    response = shared_service.client().post(
        "/v1/datasets/town/preview",
        content=json.dumps(COUNT),
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert response.status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_also_in_pieces(
    start: Callable[..., RunningService], chunked: bool
) -> None:
    service = start(limits={"body_bytes": 2048, "per_minute": 1000})
    body = json.dumps({**COUNT, "where": "age > 40 AND " * 300 + "TRUE"}).encode()
    sent: Any = (body[i : i + 100] for i in range(0, len(body), 100)) if chunked else body
    response = service.client().post(
        "/v1/datasets/town/query", content=sent, headers={"Content-Type": "application/json"}
    )
    assert error_of(response)["code"] == "too-large"


def test_a_lie_about_the_length_of_a_body_is_refused(shared_service: RunningService) -> None:
    host, port = shared_service.url.removeprefix("http://").split(":")
    head = (
        "POST /v1/datasets/town/query HTTP/1.1\r\n"
        f"Host: {host}\r\nAuthorization: Bearer {shared_service.tokens['ana']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(65536)
    assert b" 413 " in answer.splitlines()[0]


@pytest.mark.parametrize(
    "error",
    [
        EngineFailed(),
        DataError("age of row 17 is 'secret'", column="age", line=17),
    ],
)
def test_whatever_rows_cause_leaves_as_one_fixed_sentence(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(service.backend.dataset.database, "ask_task", fails)
    told = error_of(service.ask(COUNT))
    assert told["code"] == "engine-failed"
    assert told["message"] == str(EngineFailed())
    assert "secret" not in json.dumps(told)


def test_an_engine_without_its_connection_says_that_nothing_was_charged(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise EngineUnavailable

    monkeypatch.setattr(service.backend.dataset.database._engine, "ensure_ready", fails)
    response = service.ask(COUNT)
    assert (error_of(response)["code"], response.headers["Retry-After"]) == ("busy", "5")
    assert "nothing was asked or charged" in error_of(response)["message"]
    assert service.backend.dataset.ledger.spent().charges == 0


def test_an_engine_that_dies_charges_the_question_that_finds_out_and_no_other(
    service: RunningService,
) -> None:
    service.backend.dataset.database._engine.close()
    first, second = service.ask(COUNT), service.ask(COUNT)
    assert error_of(first)["code"] == error_of(second)["code"] == "engine-failed"  # paid for, and free again
    for number in range(3):
        other = service.ask({**COUNT, "where": f"age < {30 + number}"})
        assert (error_of(other)["code"], other.headers["Retry-After"]) == ("busy", "5")
    assert service.backend.dataset.ledger.spent().charges == 1


def test_what_nobody_thought_of_leaves_as_a_fixed_sentence_and_its_text_goes_nowhere(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("row 17 has the secret 4711")

    monkeypatch.setattr(service.backend, "ask_task", fails)
    told = error_of(service.ask(COUNT))
    assert (told["code"], told["message"]) == ("failed", FAILED.message)
    (failure,) = [line for line in service.logged(1) if line["event"] == "failure"]
    assert "4711" not in json.dumps(told) + "".join(service.lines)
    assert failure["kind"] == "RuntimeError"
    assert failure["request_id"] == told["request_id"]
    assert any("fails" in frame for frame in failure["frames"])


class Ending(BaseException):
    """What ends a process, as opposed to an error inside it."""


@pytest.mark.parametrize("raised", [Ending, asyncio.CancelledError, RuntimeError])
def test_what_ends_the_process_passes_and_is_not_told_as_an_answer(
    shared_service: RunningService, raised: type[BaseException]
) -> None:
    async def inside(*_: Any) -> None:
        raise raised

    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    async def asked() -> None:
        guard = ServiceMiddleware(inside, shared_service.whole, Metrics(shared_service.whole))
        scope = {"type": "http", "method": "GET", "path": "/health", "query_string": b"", "headers": []}
        try:
            await guard(scope, receive, send)
        finally:
            guard.close()

    if raised is RuntimeError:
        asyncio.run(asked())
        assert [message.get("status") for message in sent] == [500, None]
    else:
        with pytest.raises(raised):
            asyncio.run(asked())
        assert sent == []


def test_a_ledger_that_cannot_be_written_answers_nothing_and_charges_nothing(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise LedgerUnavailable("the disk is full: /secret/place")

    with monkeypatch.context() as patched:
        patched.setattr(service.backend.dataset.ledger, "execute", full)
        response = service.ask(COUNT)
        told = error_of(response)
        assert told["code"] == "ledger-unavailable"
        assert int(response.headers["retry-after"]) > 0
        assert "secret" not in json.dumps(told)
    assert service.backend.dataset.ledger.spent().charges == 0
    assert service.ask(COUNT).json()["cached"] is False


def test_an_answer_whose_trail_cannot_be_written_stays_here_and_is_free_later(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        assert error_of(service.ask(COUNT))["code"] == "ledger-unavailable"
    again = service.ask(COUNT).json()
    assert again["cached"]
    assert service.backend.dataset.ledger.spent().charges == 1


def test_headers_protect_every_response(shared_service: RunningService) -> None:
    client = shared_service.client(None)
    for path in ("/health", "/docs", "/openapi.json", "/nothing", "/v1/datasets/town/budget"):
        response = client.get(path)
        for name, value in HEADERS.items():
            assert response.headers[name] == value, (path, name)
        assert response.headers["x-request-id"]
    assert "default-src 'none'" in HEADERS["content-security-policy"]
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_refusals_do_not_depend_on_rows(start: Callable[..., RunningService], tmp_path: Any) -> None:
    """The same questions to two tables that differ in every cell are refused in the same words."""
    questions: list[dict[str, Any]] = [
        {"kind": "count", "where": "nope > 1", "privacy": PRIVACY},
        {"kind": "count", "where": "age > 40", "privacy": {"kind": "zcdp", "rho": 100}},
        {"kind": "sum", "expression": "sex", "privacy": PRIVACY},
        {"kind": "id3", "privacy": PRIVACY, "target": "age"},
        {"kind": "histogram", "columns": ["income"], "sd": 5},
        {"kind": "statistical", "question": {"kind": "gram", "columns": ["rex"]}, "privacy": PRIVACY},
    ]

    def told(service: RunningService) -> list[str]:
        errors = [error_of(service.ask(question)) for question in questions]
        return [json.dumps({**error, "request_id": ""}) for error in errors]

    first = start()
    one = told(first)
    rows = (tmp_path / "town.csv").read_text().splitlines()
    (tmp_path / "other.csv").write_text("\n".join([rows[0], *(["1,1,m,Bern,no"] * (len(rows) - 1))]) + "\n")
    second = start(
        first.tokens,
        table="other.csv",
        schema="town.schema.yaml",
        ledger="other.ledger",
        audit_log="other.jsonl",
    )
    assert told(second) == one


MEAN = {"kind": "mean", "expression": "age", "by": ["sex"], "privacy": PRIVACY}


EXPENSIVE_COUNT: dict[str, Any] = {
    "kind": "count",
    "where": "age > 40",
    "privacy": {"kind": "zcdp", "rho": 0.5},
}


@pytest.fixture
def unwritable(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningService]:
    """A service whose audit log is on a disk that is full."""
    disk = Disk()
    monkeypatch.setattr(os, "write", disk.write)
    disk.full = True
    yield service
    disk.full = False


def test_a_mean_by_groups_with_a_wrong_receipt_is_refused_before_it_is_charged(
    service: RunningService,
) -> None:
    first = service.ask(MEAN).json()["receipts"]
    other = service.ask({"kind": "count", "by": MEAN["by"], "privacy": MEAN["privacy"]}).json()["receipts"]
    before = service.backend.dataset.ledger.spent()
    for refines in (other, [first[0], first[0]], [first[0], other[0]], ["nope-00"]):
        assert service.ask({**MEAN, "refines": refines}).status_code == 422
    assert service.backend.dataset.ledger.spent() == before
    assert service.ask({**MEAN, "refines": first}).status_code == 200


@pytest.mark.parametrize(("name", "kind"), [("mu", "gaussian-dp"), ("rho", "zcdp"), ("epsilon", "pure-dp")])
def test_amounts_of_privacy_are_within_reason(shared_service: RunningService, name: str, kind: str) -> None:
    client = shared_service.client()
    for value, status in ((1e-13, 422), (1e300, 422), (1.1e6, 422), (1.0, 200), (0.01, 200)):
        for asked in ({"kind": "count", "where": "age > 1"}, {"kind": "perceptron", "target": "owner"}):
            body = {**asked, "privacy": {"kind": kind, name: value}}
            response = client.post("/v1/datasets/town/preview", json=body)
            assert response.status_code == status, response.text
            if status == 422:
                assert response.json()["error"]["details"]["fields"] == [f"privacy.{name}"]


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ({"privacy": {"kind": "zcdp", "rho": 6}}, "At most rho 5 would fit"),
        ({"privacy": {"kind": "gaussian-dp", "mu": 4}}, "At most mu 3.162 would fit"),
        ({"privacy": {"kind": "approx-dp", "epsilon": 30, "delta": 1e-6}}, "At most epsilon 1"),
        ({"sd": 0.01}, "Noise with an sd of 0.3163 or more would fit"),
    ],
)
def test_a_budget_that_is_too_small_says_in_words_what_would_fit_and_that_does(
    service: RunningService, price: dict[str, Any], words: str
) -> None:
    asked = {"kind": "count", "where": "age > 40", **price}
    error = service.ask(asked).json()["error"]
    assert error["hint"].startswith(f"Nothing was charged. {words}")
    assert error["hint"].endswith("into what you have left.")
    fits = error["details"]["fits"]
    again = {"sd": fits["sd"]} if "sd" in fits else {"privacy": fits}
    assert service.ask({"kind": "count", "where": "age > 40", **again}).status_code == 200


def test_a_model_that_is_too_dear_is_refused_in_the_words_of_a_query(service: RunningService) -> None:
    asked = {"kind": "perceptron", "target": "owner", "parameters": {"rounds": 3}}
    error = service.ask({**asked, "privacy": {"kind": "zcdp", "rho": 6}}).json()["error"]
    assert error["message"].startswith("Not enough budget for 'ana': this takes 120.0\u00a0% of it and 100.0")
    assert error["hint"] == "Nothing was charged. At most rho 5 would fit into what you have left."
    assert service.backend.dataset.ledger.spent().charges == 0
    assert service.ask({**asked, "privacy": error["details"]["fits"]}).status_code == 200


def test_a_mean_by_groups_that_is_too_dear_names_what_all_of_it_costs_and_whose_limit_it_is(
    service: RunningService,
) -> None:
    asked = {"kind": "mean", "expression": "age", "by": ["sex"], "privacy": {"kind": "zcdp", "rho": 7}}
    error = service.ask(asked).json()["error"]
    assert error["details"]["asked"] == pytest.approx(7)
    assert error["details"]["left"] in (5, 10)
    assert error["message"].startswith(
        ("Not enough budget for 'ana': this takes 140.0\u00a0%", "Not enough budget: ")
    )


def test_a_key_that_is_sent_again_with_another_question_is_told_in_the_words_of_the_request(
    service: RunningService,
) -> None:
    service.ask(EXPENSIVE_COUNT, **{"Idempotency-Key": "k1"})
    error = service.ask({**EXPENSIVE_COUNT, "where": "age > 41"}, **{"Idempotency-Key": "k1"}).json()["error"]
    assert error["code"] == "key-reused"
    assert error["message"].startswith("This Idempotency-Key was sent before with another question")
    assert "Ledger" not in json.dumps(error)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"kind": "cnt"}, "kind of the request is not valid: it must be one of count, "),
        ({"kind": "count", "privacy": {"kind": "gdp"}}, "its kind must be one of pure-dp, approx-dp, zcdp, "),
        ({"kind": "count", "privacy": {"rho": 1}}, "privacy of the request .* its kind is required"),
        (
            {"kind": "count", "privacy": {"kind": "zcdp", "rho": 0}},
            "it must be at least 0.00",
        ),
        ({"kind": "count", "sd": 1, "privacy": {"kind": "zcdp", "rho": 1}}, "be given, and both were"),
        ({"kind": "count", "sd": 1, "refines": ["' OR 1"]}, "the id of a receipt, such as 0a1b2c3d4e5f-7"),
    ],
)
def test_a_request_that_is_wrong_is_told_in_words_of_ours(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told) as caught:
        requests.parse_request(requests.QUERY_REQUEST, json.dumps(asked).encode())
    assert not {"input", "tag", "pattern", "validation"} & set(str(caught.value).lower().split())


def test_a_curator_learns_that_the_stop_took_effect_although_it_could_not_be_written_down(
    unwritable: RunningService,
) -> None:
    client = unwritable.client("cura")
    stopped = client.post("/v1/datasets/town/curator/stop", json={"stopped": True})
    assert stopped.status_code == 503
    assert stopped.json()["error"]["message"].startswith("The data set is stopped. audit_log ")
    assert stopped.json()["error"]["hint"] == "Make room, or repair it."
    assert unwritable.backend.access.stop_record("town") is not None
    # Starting again is not done unless it is written down, and is not said to be.
    resumed = client.post("/v1/datasets/town/curator/stop", json={"stopped": False}).json()["error"][
        "message"
    ]
    assert resumed.startswith("The data set is stopped. ")


def test_a_curator_learns_that_a_token_is_revoked_and_that_none_was_made(unwritable: RunningService) -> None:
    client = unwritable.client("cura")
    revoked = client.post("/v1/datasets/town/curator/tokens", json={"action": "revoke", "name": "ben"})
    assert revoked.json()["error"]["message"].startswith("ben has no valid token any more. audit_log ")
    assert unwritable.client("ben").get("/v1/datasets/town/budget").status_code == 401
    made = client.post("/v1/datasets/town/curator/tokens", json={"action": "create", "name": "zoe"})
    assert made.json()["error"]["message"].startswith("audit_log ")
    page = Visitor(unwritable, "cura")
    told = page.client.post("/datasets/town/curator/stop", data={"csrf": page.csrf(), "stopped": "yes"})
    assert told.status_code == 503
    assert "The data set is stopped." in told.text


def test_analysts_are_told_nothing_about_files(unwritable: RunningService) -> None:
    error = unwritable.ask(EXPENSIVE_COUNT).json()["error"]
    assert error["code"] == "ledger-unavailable"
    assert "audit" not in json.dumps(error)
    assert str(unwritable.folder) not in json.dumps(error)


def test_a_curators_check_says_which_line_was_changed_also_to_programs(service: RunningService) -> None:
    service.ask(EXPENSIVE_COUNT)
    path = service.folder / "audit.jsonl"
    path.write_text(path.read_text().replace('"who":"ana"', '"who":"bob"'))
    error = service.client("cura").get("/v1/datasets/town/curator/check").json()["error"]
    assert error["code"] == "ledger-unavailable"
    assert "must follow from the line before" in error["message"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Straßen = 'Öschweg'", 'Did you mean "Straße"?'),
        ("Raucher? = 1", 'The name Raucher? needs quotes. Write "Raucher?".'),
        ("nothing > 1", 'There are "Straße", "Raucher?", age.'),
        ("`age` > 1", "double quotes"),
        ("ß > 1", 'Unknown column ß. There are "Straße"'),
    ],
)
def test_names_with_other_signs_are_hinted_at_as_they_must_be_written(text: str, hint: str) -> None:
    schema = Schema(
        columns=[
            Column("Straße", values=("Öschweg", "Ring")),
            Column("Raucher?", type="integer", lower=0, upper=1),
            Column("age", type="integer", lower=0, upper=120),
        ]
    )
    with pytest.raises(ExpressionRefused) as refused:
        parse_query(f"count where {text}", schema)
    assert hint in str(refused.value)
    for name in ('"Straße"', "Straße"):
        parse_query(f"""count where {name} = 'Öschweg' AND "Raucher?" = 1""", schema)
