"""Requests to the service in the order in which they are sent; each name is that of a case."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

MU: dict[str, Any] = {"kind": "gaussian-dp", "mu": 0.1}
RHO: dict[str, Any] = {"kind": "zcdp", "rho": 0.01}
PURE: dict[str, Any] = {"kind": "pure-dp", "epsilon": 0.2}
APPROXIMATE: dict[str, Any] = {"kind": "approx-dp", "epsilon": 0.5, "delta": 1e-6}
BALL: dict[str, Any] = {"center": None, "radius": None, "edges": {}}


QUERY = "/v1/datasets/town/query"


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes
    ----------
    name : str
        Name of the case.
    method, path : str
        HTTP method, and address with its query.
    body : object
        Values that are sent as JSON, or bytes that are sent as they are; None sends nothing.
    who : str or None
        Whose token it bears; None for no token.
    headers : dict of str to str
        More headers.
    failing : str or None
        What fails while it is answered: "engine", "ledger" or "program".
    gone : bool
        Whether the client goes away before its body has arrived.
    """

    name: str
    method: str
    path: str
    body: Any = None
    who: str | None = "ana"
    headers: dict[str, str] = field(default_factory=dict)
    failing: str | None = None
    gone: bool = False

    @property
    def content(self) -> bytes:
        """The bytes of the body."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body or b""
        return json.dumps(self.body).encode()


def _asked() -> dict[str, dict[str, Any]]:
    """Return a query of every kind."""
    statistical: dict[str, dict[str, Any]] = {
        "sums": {"kind": "sums", "expressions": ["age", "income"]},
        "histogram": {"kind": "histogram", "columns": ["sex"], "edges": {}, "expression": None},
        "gram": {"kind": "gram", "columns": ["age", "income"], **BALL, "with_sums": True},
        "moments": {"kind": "moments", "columns": ["age"]},
        "cluster sums": {
            "kind": "cluster sums", "columns": ["age"], "centers": [[0.25], [0.75]], "radius": 1.0,
        },
        "gradient sums": {
            "kind": "gradient sums", "columns": ["age"], "target": "owner", "positive": "yes",
            "weights": [0.5, 0.25], "intercept": True, **BALL,
        },
        "node tables": {
            "kind": "node tables", "target": "owner", "nodes": [{"path": [], "attributes": ["sex"]}],
            "edges": {},
        },
    }  # fmt: skip
    asked: dict[str, dict[str, Any]] = {
        "count": {"kind": "count", "where": "age > 40", "privacy": MU},
        "count of all": {"kind": "count", "privacy": MU},
        "count by sex": {"kind": "count", "by": ["sex"], "privacy": MU},
        "count by bands": {"kind": "count", "by": [{"column": "age", "edges": [30, 60]}], "privacy": MU},
        "count under rho": {"kind": "count", "where": "age > 50", "privacy": RHO},
        "count under epsilon": {"kind": "count", "where": "age > 51", "privacy": PURE},
        "count under epsilon and delta": {"kind": "count", "where": "age > 52", "privacy": APPROXIMATE},
        "count with sd": {"kind": "count", "where": "age > 42", "sd": 25},
        "sum": {"kind": "sum", "expression": "income / 12", "where": "sex = 'f'", "privacy": MU},
        "sum by city": {"kind": "sum", "expression": "age", "by": ["city"], "privacy": MU},
        "mean": {"kind": "mean", "expression": "age", "privacy": MU},
        "mean by sex": {"kind": "mean", "expression": "age", "by": ["sex"], "privacy": MU},
        "histogram": {"kind": "histogram", "columns": ["city", "sex"], "privacy": MU},
        "histogram of a sum": {
            "kind": "histogram", "columns": ["age"], "edges": {"age": [40]}, "expression": "income",
            "privacy": MU,
        },
        "sentence": {"kind": "sentence", "text": "sum(age) where sex = 'm'", "privacy": MU},
        "sentence as SELECT": {
            "kind": "sentence", "text": "SELECT sex, AVG(age) FROM town GROUP BY sex", "privacy": RHO,
        },
        "sentence with groups": {"kind": "sentence", "text": "count by city, sex", "privacy": RHO},
        "sentence with several statistics": {
            "kind": "sentence",
            "text": "count, mean(age), stddev(income), median(income) by city order by count desc limit 2",
            "privacy": RHO,
        },
    }  # fmt: skip
    for name, question in statistical.items():
        asked[f"statistical {name}"] = {"kind": "statistical", "question": question, "privacy": MU}
    return asked


ASKED = _asked()
MODELS: dict[str, dict[str, Any]] = {
    "pca": {"kind": "pca", "parameters": {"n_components": 1}},
    "kmeans": {"kind": "kmeans", "parameters": {"n_clusters": 2, "max_iter": 2}},
    "perceptron": {"kind": "perceptron", "parameters": {"rounds": 3}},
    "id3": {"kind": "id3", "parameters": {"max_depth": 2}},
}
BODIES: dict[str, bytes] = {
    "empty": b"",
    "brace": b"{",
    "no text": b"\xff\xfe",
    "deep": b"[" * 1000,
    "null": b"null",
    "list": b"[]",
    "no fields": b"{}",
    "unknown kind": b'{"kind": "drop"}',
    "NaN": b'{"kind": "count", "sd": NaN}',
    "infinite": b'{"kind": "count", "sd": 1e999}',
    "text for a number": b'{"kind": "count", "sd": "5"}',
    "truth for a number": b'{"kind": "count", "sd": true}',
    "negative": b'{"kind": "count", "sd": -5}',
    "empty condition": b'{"kind": "count", "where": "", "sd": 5}',
}
TEXTS = (
    "SELECT * FROM town",
    "SELECT COUNT(*) FROM town WHERE age IN (SELECT age FROM town)",
    "max(age)",
    "count where age > (select 1)",
    "count where weight > 3",
    "sum(age",
    "mean(age) by income",
)
ADDRESSES = (
    ("GET", "/v1/nothing"),
    ("GET", "/nothing"),
    ("GET", "/v1/datasets/town/query"),
    ("DELETE", "/v1/datasets/town/budget"),
    ("POST", "/health"),
    ("OPTIONS", "/v1/datasets/town/query"),
    ("HEAD", "/v1/datasets/town/budget"),
    ("GET", "/v1/datasets/town/budget?token=x"),
    ("GET", "/v1/datasets/town/history?after=-1"),
    ("GET", "/v1/datasets/town/history?nothing=1"),
    ("GET", "/v1/datasets/town/history?first=1&last=1"),
    ("GET", "/v1/datasets/town/dummy?n=0"),
    ("GET", "/v1/datasets/town/dummy?format=xml"),
)
READ = (
    "/v1/datasets/town/schema",
    "/v1/datasets/town/budget",
    "/v1/datasets/town/history",
    "/v1/datasets/town/history?last=3",
    "/v1/datasets/town/history?first=2",
    "/v1/datasets/town/history?format=csv",
    "/v1/datasets/town/history?after=5&first=2",
    "/v1/datasets/town/dummy?n=3&seed=1",
    "/v1/datasets/town/dummy?n=3&seed=1&format=csv",
)
CURATED = ("overview", "spending", "refusals", "check", "tokens", "stop")


def requests() -> list[Request]:
    """Return every recorded request, in order."""
    listed = [Request(f"query {name}", "POST", QUERY, body) for name, body in ASKED.items()]
    listed += [
        Request(f"preview {name}", "POST", "/v1/datasets/town/preview", body) for name, body in ASKED.items()
    ]
    count = ASKED["count"]
    listed += [
        Request("query again", "POST", QUERY, count),
        Request("query in other words", "POST", QUERY, {**count, "where": "40 < age"}),
        Request("query of another analyst", "POST", QUERY, count, who="ben"),
        Request("query with a key", "POST", QUERY, {**count, "where": "age > 70"},
                headers={"Idempotency-Key": "k-1"}),
        Request("query with the key again", "POST", QUERY, {**count, "where": "age > 70"},
                headers={"Idempotency-Key": "k-1"}),
        Request("query with a key of another", "POST", QUERY, {**count, "where": "age > 71"},
                headers={"Idempotency-Key": "k-1"}),
        Request("query with a wrong key", "POST", QUERY, count, headers={"Idempotency-Key": ""}),
        Request("query too expensive", "POST", QUERY,
                {"kind": "count", "where": "age > 80", "privacy": {"kind": "zcdp", "rho": 4.99}}),
        Request("query too expensive in epsilon", "POST", QUERY,
                {"kind": "count", "where": "age > 80", "privacy": {"kind": "pure-dp", "epsilon": 9.0}}),
        Request("query too expensive in sd", "POST", QUERY,
                {"kind": "count", "where": "age > 80", "sd": 0.01}),
        Request("query refining what is not there", "POST", QUERY,
                {**count, "refines": ["0123456789ab-999"]}),
        Request("query with two prices", "POST", QUERY, {**count, "sd": 5}),
        Request("query without a price", "POST", QUERY, {"kind": "count", "where": "age > 3"}),
        Request("query with unknown fields", "POST", QUERY,
                {**count, "wher": "x", "privacy": {**MU, "sigma": 1}}),
        Request("query as text", "POST", QUERY, count, headers={"Content-Type": "text/plain"}),
        Request("query that is long", "POST", QUERY,
                {"kind": "count", "where": "age > 40 AND " * 9000 + "TRUE", "sd": 5}),
        Request("query that is large", "POST", QUERY,
                {"kind": "count", "where": "age > 40 AND " * 90_000 + "TRUE", "sd": 5}),
        Request("query whose client goes away", "POST", QUERY, count, gone=True),
        Request("query without a token", "POST", QUERY, count, who=None),
        Request("query with a wrong token", "POST", QUERY, count, who=None,
                headers={"Authorization": "Bearer wrong"}),
        Request("query with another scheme", "POST", QUERY, count, who=None,
                headers={"Authorization": "Basic dTpw"}),
        Request("engine fails", "POST", QUERY, {**count, "where": "age > 90"}, failing="engine"),
        Request("ledger fails", "POST", QUERY, {**count, "where": "age > 91"}, failing="ledger"),
        Request("program fails", "POST", QUERY, {**count, "where": "age > 92"}, failing="program"),
    ]  # fmt: skip
    listed += [
        Request(
            f"model {name}",
            "POST",
            "/v1/datasets/town/query",
            {**asked, "privacy": {"kind": "zcdp", "rho": 0.2}},
        )
        for name, asked in MODELS.items()
    ]
    listed += [
        Request("model unknown", "POST", QUERY, {"kind": "forest", "privacy": RHO}),
        Request("model with a wrong parameter", "POST", QUERY,
                {"kind": "id3", "parameters": {"depth": 2}, "privacy": RHO}),
    ]  # fmt: skip
    listed += [Request(f"body {name}", "POST", QUERY, body) for name, body in BODIES.items()]
    listed += [
        Request(
            f"text {text}",
            "POST",
            "/v1/datasets/town/query",
            {"kind": "sentence", "text": text, "privacy": MU},
        )
        for text in TEXTS
    ]
    listed += [Request(f"{method} {path}", method, path) for method, path in ADDRESSES]
    listed += [Request(f"read {path}", "GET", path) for path in READ]
    listed += [Request("read all history", "GET", "/v1/datasets/town/history", who="cura")]
    listed += [Request("read ben's history", "GET", "/v1/datasets/town/history?analyst=ben", who="cura")]
    listed += [Request("read ben's history as ana", "GET", "/v1/datasets/town/history?analyst=ben")]
    listed += [Request(f"open {path}", "GET", path, who=None) for path in ("/health", "/ready")]
    listed += [
        Request(f"curator {name}", "GET", f"/v1/datasets/town/curator/{name}", who="cura") for name in CURATED
    ]
    listed += [Request(f"analyst at {name}", "GET", f"/v1/datasets/town/curator/{name}") for name in CURATED]
    listed += [
        Request(f"order {name}", "POST", "/v1/datasets/town/curator/tokens", body, who="cura")
        for name, body in {
            "create": {"action": "create", "name": "dora", "role": "analyst"},
            "create twice": {"action": "create", "name": "dora", "role": "analyst"},
            "rotate": {"action": "rotate", "name": "dora"},
            "revoke": {"action": "revoke", "name": "dora"},
            "revoke nobody": {"action": "revoke", "name": "nobody"},
            "unknown": {"action": "give", "name": "dora"},
        }.items()
    ]
    listed += [Request("curator tokens afterwards", "GET", "/v1/datasets/town/curator/tokens", who="cura")]
    listed += [
        Request("stop", "POST", "/v1/datasets/town/curator/stop", {"stopped": True}, who="cura"),
        Request("stop as ana", "POST", "/v1/datasets/town/curator/stop", {"stopped": True}),
        Request("query while stopped", "POST", QUERY, {**count, "where": "age > 93"}),
        Request("preview while stopped", "POST", "/v1/datasets/town/preview", {**count, "where": "age > 93"}),
        Request("go on", "POST", "/v1/datasets/town/curator/stop", {"stopped": False}, who="cura"),
        Request("query after the stop", "POST", QUERY, {**count, "where": "age > 93"}),
    ]
    return listed


PAGES = (
    ("GET", "/login", None),
    ("GET", "/", None),
    ("GET", "/datasets/town/history", None),
    ("GET", "/datasets/town/curator", None),
    ("GET", "/docs", None),
    ("GET", "/", "ana"),
    ("GET", "/datasets/town/history", "ana"),
    ("GET", "/datasets/town/curator", "ana"),
    ("GET", "/datasets/town/curator", "cura"),
    ("GET", "/datasets/town/answers/none", "ana"),
    ("GET", "/static/nothing", None),
    ("POST", "/datasets/town/ask", "ana"),
)
"""Pages for browsers, of which status, kind and form fields are compared."""
