from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from discreet.errors import DiscreetWarning, ParameterError, PromiseError, SourceError
from discreet.ledger import Ledger
from discreet.server import access_database
from discreet.server.access import AccessStore
from discreet.server.callers import Caller
from discreet.server.credentials import open_session
from discreet.server.middleware import REJECTION_DELAY
from discreet.server.sign_in import Identity, SignInConfig
from tests.server.conftest import lines_of, signed_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.conftest import RunningService

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}
COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an access store that does not exist yet, in each database."""
    if request.param == "sqlite":
        return str(tmp_path / "access.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(address: str) -> Iterator[AccessStore]:
    made = AccessStore(address)
    yield made
    made.close()


# The store.


def test_a_token_opens_for_its_bearer_and_nothing_else_does(store: AccessStore) -> None:
    token = store.create("ana", days=90)
    assert re.fullmatch(r"dsc_[A-Za-z0-9_-]{43}", token)
    assert store.find(token) == Caller("ana", 1, {})
    for wrong in ("", token[:-1], token + "x", token.upper(), "dsc_" + "A" * 43, "\udcff"):
        assert store.find(wrong) is None


def test_two_tokens_have_nothing_in_common(store: AccessStore) -> None:
    first, second = store.create("ana", days=1), store.create("ben", days=1)
    assert first != second
    assert first[4:12] != second[4:12]


def test_a_token_is_nowhere_in_its_file_and_only_the_owner_may_read_it(tmp_path: Path) -> None:
    store = AccessStore(tmp_path / "access.db")
    token = store.create("ana", days=90)
    secret = store.open_session(Caller("ana", 1, {}), hours=1)
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert token.encode() not in content
        assert token[4:20].encode() not in content
        assert secret.encode() not in content
        assert path.stat().st_mode & 0o777 == 0o600
    store.close()


def test_revoked_and_rotated_tokens_open_nothing_from_that_moment(store: AccessStore) -> None:
    first = store.create("ana", days=90)
    second = store.rotate("ana")
    assert store.find(first) is None
    assert store.find(second) == Caller("ana", 2, {})
    assert store.revoke("ana") == 1
    assert store.find(second) is None
    assert [token.state(store.now()) for token in store.tokens()] == ["revoked", "revoked"]


@pytest.mark.slow
def test_what_another_process_revokes_is_revoked_here(store: AccessStore, address: str) -> None:
    token = store.create("ana", days=90)
    assert store.find(token) is not None
    code = f"from discreet.server.access import AccessStore; AccessStore({address!r}).revoke('ana')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert store.find(token) is None


def test_a_clock_that_is_set_back_revives_nothing(tmp_path: Path) -> None:
    clock = [1_000_000.0]
    store = AccessStore(tmp_path / "access.db", clock=lambda: clock[0])
    token = store.create("ana", days=1)
    secret = store.open_session(Caller("ana", 1, {}), hours=1)
    clock[0] += 3601
    assert store.session(secret) is None
    assert store.find(token) is not None
    clock[0] += 86_400
    assert store.find(token) is None
    store.save_time()
    clock[0] = 1_000_000.0
    assert store.find(token) is None
    assert store.session(secret) is None
    store.close()
    with pytest.warns(DiscreetWarning, match="is 1 day behind the latest time in access"):
        again = AccessStore(tmp_path / "access.db", clock=lambda: clock[0])
    assert again.find(token) is None
    assert again.session(secret) is None
    # Whoever comes new is not locked out by a clock that was once too far ahead.
    assert again.find(again.create("ben", days=1)) is not None
    again.close()


class Clocks:
    """Wall clock and monotonic clock of a machine, which pass together until the first is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.ticks = 1_700_000_000.0, 50.0
        monkeypatch.setattr(access_database, "time", SimpleNamespace(monotonic=lambda: self.ticks))

    def wait(self, seconds: float) -> None:
        """Let time pass on both."""
        self.wall += seconds
        self.ticks += seconds


@pytest.mark.parametrize("jump", [-3600.0, 365 * 86_400.0])
def test_a_clock_that_jumps_and_is_put_right_lets_nothing_last_longer(
    address: str, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    clocks = Clocks(monkeypatch)

    def check(store: AccessStore, name: str) -> None:
        """Check that a new token and a new session last a day and an hour."""
        token = store.create(name, days=1)
        caller = store.find(token)
        assert caller is not None
        secret = store.open_session(caller, hours=1)
        clocks.wait(3590)
        assert store.session(secret) is not None
        clocks.wait(20)
        assert store.session(secret) is None
        clocks.wait(86_400 - 3600 - 20)
        assert store.find(token) is not None
        clocks.wait(20)
        assert store.find(token) is None

    with contextlib.closing(AccessStore(address, clock=lambda: clocks.wall)) as store:
        old = store.create("old", days=30)
        clocks.wall += jump
        check(store, "jumped")
        clocks.wall -= jump
        check(store, "right")
        # A clock that ran ahead of the end of a token has ended it, one that was behind has not.
        assert (store.find(old) is None) == (jump > 0)
        store.save_time()
        before = store.now()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        store = AccessStore(address, clock=lambda: clocks.wall)
    assert len(said) == (jump > 0)
    with contextlib.closing(store):
        assert store.now() >= before
        check(store, "started again")


def test_a_session_ends_with_its_token(store: AccessStore) -> None:
    store.create("ana", days=90)
    secret = store.open_session(Caller("ana", 1, {}), hours=1)
    found = store.session(secret)
    assert found is not None
    assert found.caller.name == "ana"
    assert len(found.form) == 43
    store.rotate("ana")
    assert store.session(secret) is None


def test_a_session_that_was_closed_is_closed(store: AccessStore) -> None:
    store.create("ana", days=90)
    secret = store.open_session(Caller("ana", 1, {}), hours=1)
    store.close_session(secret)
    assert store.session(secret) is None


def test_a_token_has_sixteen_sessions_at_most_and_the_newest_stay(store: AccessStore) -> None:
    for name in ("ana", "ben"):
        store.create(name, days=90)
    other = store.open_session(Caller("ben", 2, {}), hours=1)
    secrets = [store.open_session(Caller("ana", 1, {}), hours=1) for _ in range(20)]
    assert [store.session(secret) is not None for secret in secrets] == [False] * 4 + [True] * 16
    assert store.session(other) is not None
    store.close_session(secrets[-1])
    again = store.open_session(Caller("ana", 1, {}), hours=1)
    assert [store.session(secret) is not None for secret in (*secrets[4:6], again)] == [True, True, True]


def test_a_session_that_is_opened_while_another_is_looked_for_breaks_nothing(
    store: AccessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = store.create("ana", days=90)
    secret = store.open_session(Caller("ana", 1, {}), hours=1)
    rows, come = store._database.rows, itertools.count(2)

    def rows_while_another_comes_in(statement: str, *values: object) -> Any:
        found, number = rows(statement, *values), next(come)
        store.create(f"new {number}", days=1)
        store.open_session(Caller(f"new {number}", number, {}), hours=1)
        return found

    monkeypatch.setattr(store._database, "rows", rows_while_another_comes_in)
    assert store.find(token) == Caller("ana", 1, {})
    found = store.session(secret)
    assert found is not None
    assert found.caller.name == "ana"


def test_two_stores_of_one_database_see_at_once_what_the_other_does(store: AccessStore, address: str) -> None:
    token = store.create("ana", days=90, grants={"town": "analyst"})
    secret = store.open_session(Caller("ana", 1, {}), hours=1)
    other = AccessStore(address)
    caller, session = other.find(token), other.session(secret)
    assert caller is not None
    assert session is not None
    assert session.caller == caller == Caller("ana", 1, {"town": "analyst"})
    assert store.withdraw("ana", "town")
    assert other.are_valid([caller], "town") == [False]
    other.grant("ana", "town", "curator")
    assert store.find(token) == Caller("ana", 1, {"town": "curator"})
    store.close_session(secret)
    assert other.session(secret) is None
    other.revoke("ana")
    assert store.find(token) is None
    assert store.are_valid([caller], "town") == [False]
    other.close()


def test_one_of_many_who_create_the_same_name_at_once_succeeds(address: str) -> None:
    stores = [AccessStore(address) for _ in range(4)]

    def create(store: AccessStore) -> str | None:
        try:
            return store.create("ana", days=1)
        except ParameterError:
            return None

    with ThreadPoolExecutor(4) as threads:
        made = [token for token in threads.map(create, stores) if token is not None]
    assert len(made) == 1
    assert stores[0].find(made[0]) is not None
    for store in stores:
        store.close()


def test_a_store_in_postgresql_goes_on_after_its_connections_were_ended(postgres_url: str) -> None:
    store = AccessStore(postgres_url)
    token = store.create("ana", days=1)
    assert store.find(token) is not None
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    assert len(ended) >= 2
    assert store.find(token) is not None
    assert store.revoke("ana") == 1
    assert store.find(token) is None
    store.close()


def test_a_schema_that_holds_something_else_is_refused(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA discreet_access")
    with pytest.raises(SourceError, match="something else"):
        AccessStore(postgres_url)
    Ledger.open(f"{postgres_url}#survey").close()
    with pytest.raises(SourceError, match="discreet ledger"):
        AccessStore(f"{postgres_url}#survey")
    with pytest.raises(SourceError, match="reached") as caught:
        AccessStore("postgresql://ana:secret@127.0.0.1:1/nowhere")
    assert "secret" not in str(caught.value)


def test_whoever_looks_reads_what_they_look_for_however_much_is_there(tmp_path: Path) -> None:
    store = AccessStore(tmp_path / "access.db")
    token = store.create("ana", days=90)
    secret = store.open_session(Caller("ana", 1, {}), hours=1)
    file = sqlite3.connect(tmp_path / "access.db")
    with file:
        file.executemany(
            "INSERT INTO tokens (name, dataset, digest, created, expires) VALUES (?, '*', ?, 0, 1e12)",
            [(f"n{i}", f"{i}".encode()) for i in range(2000)],
        )
        file.executemany(
            "INSERT INTO sessions VALUES (?, 1, '', 1e12)", [(f"{i}".encode(),) for i in range(2000)]
        )
    file.close()
    steps: list[int] = []

    def count() -> int:
        steps.append(1)
        return 0

    store._database._reader.set_progress_handler(count, 1)  # type: ignore[attr-defined]
    assert store.find(token) is not None
    assert store.session(secret) is not None
    assert store.find("dsc_wrong") is None
    assert store.stop_record("town") is None
    assert len(steps) < 500
    store.close()


def test_the_stop_switch_outlives_the_process(store: AccessStore, address: str) -> None:
    assert store.stop_record("town") is None
    store.stop("town", "cura")
    again = AccessStore(address)
    found = again.stop_record("town")
    assert found is not None
    assert found.caller == "cura"
    again.resume("town")
    assert store.stop_record("town") is None
    again.close()


@pytest.mark.parametrize("name", ["", " ana", "a" * 65, "a\nb", "total", "a\u202eb", 3])
def test_names_are_short_visible_and_not_the_name_of_the_whole_budget(store: AccessStore, name: Any) -> None:
    with pytest.raises(ParameterError, match="name of a token"):
        store.create(name, days=1)


@pytest.mark.parametrize(
    ("dataset", "role", "days"),
    [("town", "root", 1), ("town", "analyst", 0), ("*", "analyst", 4000), ("town", "operator", 1)],
)
def test_role_and_length_of_a_token_are_checked(
    store: AccessStore, dataset: str, role: Any, days: Any
) -> None:
    with pytest.raises(ParameterError, match=r"until a token expires|of a grant|operator's grant"):
        store.create("ana", days=days, grants={dataset: role})
    assert not store.tokens()
    assert not store.grants()


def test_one_name_has_one_valid_token(store: AccessStore) -> None:
    store.create("ana", days=1)
    with pytest.raises(ParameterError, match="has a valid token already"):
        store.create("ana", days=1)
    for wrong in (store.rotate, store.revoke):
        with pytest.raises(ParameterError, match="'nobody'"):
            wrong("nobody")


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "access.db").write_text("this is not a database, and long enough to show it" * 40)
    with pytest.raises(SourceError, match="something else"):
        AccessStore(tmp_path / "access.db")
    with pytest.raises(SourceError, match="written"):
        AccessStore(tmp_path / "none" / "access.db")


# Over HTTP.


def test_whatever_is_wrong_with_a_token_the_answer_is_the_same(service: RunningService) -> None:
    backend = service.backend
    expired = backend.create_token("test", "eve", days=1e-9)
    revoked = backend.create_token("test", "rex")
    backend.revoke_token("test", "rex")
    good = service.tokens["ana"]
    sent: list[dict[str, str]] = [
        {},
        {"Authorization": f"Bearer {expired}"},
        {"Authorization": f"Bearer {revoked}"},
        {"Authorization": "Bearer dsc_" + "A" * 43},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer " + "x" * 2000},
        {"Authorization": f"Basic {good}"},
        {"Authorization": good},
        {"Authorization": f"Bearer {good}x"},
    ]
    bodies = set()
    for headers in sent:
        response = httpx.post(f"{service.url}/v1/datasets/town/query", json=COUNT, headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        error = response.json()["error"]
        error.pop("request_id")
        bodies.add(json.dumps(error))
    assert len(bodies) == 1
    for path in ("/v1/nothing", "/v1", "/v1/datasets/town/curator/overview", "/metrics"):
        assert httpx.get(service.url + path).status_code == 401


def test_a_refusal_takes_the_same_time_whatever_is_wrong(service: RunningService) -> None:
    revoked = service.backend.create_token("test", "rex")
    service.backend.revoke_token("test", "rex")
    kinds: dict[str, dict[str, str]] = {
        "missing": {},
        "revoked": {"Authorization": f"Bearer {revoked}"},
        "guessed": {"Authorization": "Bearer dsc_" + "A" * 43},
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    with httpx.Client(base_url=service.url) as client:
        client.get("/health")
        # The least of many rounds, as many as it takes: a busy machine delays all kinds, and none for ever.
        for _ in range(200):
            for kind, headers in kinds.items():
                began = time.perf_counter()
                assert client.get("/v1/datasets/town/budget", headers=headers).status_code == 401
                times[kind].append(time.perf_counter() - began)
            least = [min(taken) for taken in times.values()]
            if max(least) - min(least) < REJECTION_DELAY / 2:
                break
    assert min(least) >= REJECTION_DELAY
    assert max(least) - min(least) < REJECTION_DELAY / 2


def test_analysts_see_nothing_of_what_is_the_curators(shared_service: RunningService) -> None:
    client = shared_service.client("ana")
    told = set()
    for path in (
        *("overview", "tokens", "stop", "check", "attack", "refusals", "spending"),
        *("../curator/overview", "overview?x=1"),
    ):
        response = client.get(f"/v1/datasets/town/curator/{path}")
        assert response.status_code == 403, path
        told.add(response.json()["error"]["message"])
    for path in ("tokens", "stop"):
        response = client.post(f"/v1/datasets/town/curator/{path}", json={"stopped": True})
        assert response.status_code == 403
        told.add(response.json()["error"]["message"])
    assert client.get("/metrics").status_code == 403
    assert len(told) == 1
    assert shared_service.backend.access.stop_record("town") is None


def test_a_token_in_an_address_is_refused_and_appears_nowhere(service: RunningService) -> None:
    token = service.tokens["ana"]
    for query in (f"token={token}", f"x={token}", "access_token=abc", f"after={token[4:]}&Token=1"):
        response = httpx.get(f"{service.url}/v1/datasets/town/budget?{query}")
        assert response.status_code == 400
        assert "was sent in an address" in response.json()["error"]["message"]
        assert token not in response.text
    hidden = [token.replace("_", "%5F"), token.replace("d", "%64", 1), token.replace("_", "%255f")]
    for address in (
        *(f"v1/budget?x={text}" for text in hidden),
        *hidden[:2],
        f"v1/{token}",
        f"health?x={token}",
    ):
        response = httpx.get(f"{service.url}/{address}")
        assert response.status_code == 400, address
        assert "was sent in an address" in response.json()["error"]["message"]
    service.logged(11)
    assert token[4:] not in "".join(service.lines)
    assert token[4:].encode() not in (service.folder / "audit.jsonl").read_bytes()


def test_a_token_in_a_question_or_a_key_is_refused_and_kept_nowhere(service: RunningService) -> None:
    token = service.tokens["ana"]
    sent: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({**COUNT, "where": f"age > 40 AND sex = '{token}'"}, {}),
        ({"kind": "sentence", "text": token, "privacy": PRIVACY}, {}),
        (COUNT, {"Idempotency-Key": token}),
    ]
    for question, headers in sent:
        response = service.ask(question, **headers)
        assert response.status_code == 400
        assert token not in response.text
    for path in service.folder.iterdir():
        assert token[4:].encode() not in path.read_bytes()


def test_no_token_is_in_any_log_page_history_error_or_file(service: RunningService) -> None:
    seen = []
    for who in ("ana", "cura"):
        client = service.client(who)
        asked = (COUNT, {"kind": "count", "where": "nope > 1", "privacy": PRIVACY}, {"kind": "what"})
        seen += [client.post("/v1/datasets/town/query", json=question) for question in asked]
        paths = (
            *("budget", "history", "schema", "curator/overview", "curator/tokens", "curator/refusals"),
            *("curator/spending", "curator/check", "nothing"),
        )
        seen += [client.get(f"/v1/datasets/town/{path}") for path in paths]
        seen.append(client.get("/metrics"))
    service.logged(len(seen))
    told = "".join(service.lines)
    for token in service.tokens.values():
        secret = token[4:]
        assert all(secret not in response.text and secret not in str(response.headers) for response in seen)
        assert secret not in told
        for file in service.folder.iterdir():
            assert secret.encode() not in file.read_bytes(), file.name


def test_revocation_is_immediate_over_http_and_spares_others(service: RunningService) -> None:
    client = service.client("ana")
    assert client.get("/v1/datasets/town/budget").status_code == 200
    cura = service.client("cura")
    assert (
        cura.post("/v1/datasets/town/curator/tokens", json={"action": "revoke", "name": "ana"}).json()[
            "revoked"
        ]
        == 1
    )
    assert client.get("/v1/datasets/town/budget").status_code == 401
    assert service.client("ben").get("/v1/datasets/town/budget").status_code == 200


def test_a_curator_makes_rotates_and_revokes_tokens(service: RunningService) -> None:
    client = service.client("cura")
    limit = {"kind": "zcdp", "rho": 0.25}
    order = {"action": "create", "name": "dora", "days": 3, "limit": limit}
    token = client.post("/v1/datasets/town/curator/tokens", json=order).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    own = httpx.get(f"{service.url}/v1/datasets/town/budget", headers=headers).json()["own"]
    assert own["limit"]["rho"] == 0.25
    fresh = client.post("/v1/datasets/town/curator/tokens", json={"action": "rotate", "name": "dora"}).json()[
        "token"
    ]
    assert httpx.get(f"{service.url}/v1/datasets/town/budget", headers=headers).status_code == 401
    headers = {"Authorization": f"Bearer {fresh}"}
    assert httpx.get(f"{service.url}/v1/datasets/town/budget", headers=headers).status_code == 200
    listed = client.get("/v1/datasets/town/curator/tokens").json()["tokens"]
    assert [(t["name"], t["state"]) for t in listed][-2:] == [("dora", "revoked"), ("dora", "valid")]
    lines = (service.folder / "audit.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events[-3:] == ["token created", "limit set", "token rotated"]


def test_a_token_whose_limit_is_refused_is_not_left_behind(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PromiseError("no limit can be set")

    monkeypatch.setattr(Ledger, "set_owner_limit", refuse)
    service.backend.revoke_token("test", "ana")
    order = {"action": "create", "name": "ana", "limit": {"kind": "zcdp", "rho": 0.25}}
    response = service.client("cura").post("/v1/datasets/town/curator/tokens", json=order)
    assert response.status_code >= 400
    assert [t["state"] for t in service.backend.tokens() if t["name"] == "ana"] == ["revoked"]


# Browsers.


def cookie(service: RunningService, who: str) -> dict[str, str]:
    found = next(token for token in service.backend.access.tokens() if token.name == who)
    header = open_session(service.whole, Caller(who, found.id, {}))
    assert "HttpOnly" in header
    assert "SameSite=Strict" in header
    assert "Secure" not in header  # plain HTTP on this machine alone
    return {"Cookie": header.partition(";")[0]}


def form_of(service: RunningService, headers: dict[str, str]) -> str:
    session = service.backend.access.session(headers["Cookie"].partition("=")[2])
    assert session is not None
    return session.form


def test_a_session_reads_but_asks_only_from_our_own_page(service: RunningService) -> None:
    headers = cookie(service, "ana")
    assert httpx.get(f"{service.url}/v1/datasets/town/budget", headers=headers).status_code == 200
    url, form = f"{service.url}/v1/datasets/town/query", form_of(service, headers)
    wrong: list[dict[str, str]] = [
        {},
        {"X-CSRF-Token": "x" * 43},
        {"X-CSRF-Token": form, "Origin": "http://elsewhere.example"},
        {"X-CSRF-Token": form, "Origin": "null"},
        {"X-CSRF-Token": form, "Sec-Fetch-Site": "cross-site"},
        {"X-CSRF-Token": form, "Sec-Fetch-Site": "same-site"},
    ]
    for more in wrong:
        assert httpx.post(url, json=COUNT, headers=headers | more).status_code == 403
    assert service.backend.dataset.ledger.spent().charges == 0
    right = {"X-CSRF-Token": form, "Origin": service.url, "Sec-Fetch-Site": "same-origin"}
    assert httpx.post(url, json=COUNT, headers=headers | right).status_code == 200


def test_the_proof_of_one_session_is_worth_nothing_in_another(service: RunningService) -> None:
    ana, ben = cookie(service, "ana"), cookie(service, "ben")
    stolen = {"X-CSRF-Token": form_of(service, ana)}
    assert (
        httpx.post(f"{service.url}/v1/datasets/town/query", json=COUNT, headers=ben | stolen).status_code
        == 403
    )


def test_cookies_are_tied_to_the_host_where_browsers_come_over_https(
    start: Callable[..., RunningService],
) -> None:
    service = start(behind_proxy=True)
    token = service.backend.access.tokens()[0]
    header = open_session(service.whole, Caller("ana", token.id, {}))
    assert header.startswith("__Host-discreet=")
    assert header.endswith("; Secure")
    health = httpx.get(f"{service.url}/health")
    assert health.headers["strict-transport-security"] == "max-age=63072000"


@pytest.mark.slow
def test_the_command_line_makes_and_revokes_tokens_while_the_service_runs(
    service: RunningService, tmp_path: Path
) -> None:
    lines = ["datasets:", "  town:", "    table: town.csv", "    ledger: town.ledger"]
    lines += ["    limit: {rho: 10}", "    analyst_limit: {rho: 5}"]
    lines += ["access: access.db", "audit_log: audit.jsonl"]
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    environment = {**os.environ, "DISCREET_CONFIG": str(tmp_path / "config.yaml")}

    def run(*words: str) -> str:
        command = [sys.executable, "-c", "from discreet.cli import main; main()", "token", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    token = run("create", "dora", "--days", "3", "--rho", "0.5")
    headers = {"Authorization": f"Bearer {token}"}
    assert (
        httpx.get(f"{service.url}/v1/datasets/town/budget", headers=headers).json()["own"]["left"]["rho"]
        == 0.5
    )
    assert "dora" in run("list")
    assert token not in run("list", "--json")
    run("revoke", "dora")
    assert httpx.get(f"{service.url}/v1/datasets/town/budget", headers=headers).status_code == 401


MEAN = {"kind": "mean", "expression": "age", "by": ["sex"], "privacy": PRIVACY}


KMEANS = {"kind": "kmeans", "privacy": PRIVACY, "parameters": {"n_clusters": 2, "max_iter": 4}}


def interrupted(
    service: RunningService, request: dict[str, Any], after: int, act: Callable[[], object]
) -> Any:
    """Ask, and have something done once so many questions were answered inside."""
    backend, asked = service.backend, 0
    real = backend.dataset.database.ask_task

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal asked
        answer = yield from real(*given, **named)
        asked += 1
        if asked == after:
            act()
        return answer

    backend.dataset.database.ask_task = counted  # type: ignore[method-assign]
    try:
        return service.ask(request), lambda: asked
    finally:
        backend.dataset.database.ask_task = real  # type: ignore[method-assign]


@pytest.mark.parametrize(("request_", "after"), [(KMEANS, 1), (MEAN, 1), (COUNT, 1), (KMEANS, 2)])
def test_the_switch_ends_what_is_under_way_before_its_next_question(
    service: RunningService, request_: dict[str, Any], after: int
) -> None:
    cura = service.backend.access.find(service.tokens["cura"])
    assert cura is not None
    response, asked = interrupted(service, request_, after, lambda: service.backend.stop(cura))
    assert response.json()["error"]["code"] == "stopped"
    assert asked() == after
    assert service.backend.dataset.ledger.spent().charges == after
    # What was paid for is free once it answers again.
    service.backend.resume(cura)
    assert service.ask(request_).status_code == 200
    left = service.backend.dataset.ledger.spent().charges
    assert service.ask(request_).json()["cached"]
    assert service.backend.dataset.ledger.spent().charges == left


@pytest.mark.parametrize(("request_", "after"), [(KMEANS, 1), (MEAN, 1), (COUNT, 1)])
def test_a_token_that_is_revoked_ends_what_is_under_way_before_its_next_question(
    service: RunningService, request_: dict[str, Any], after: int
) -> None:
    response, asked = interrupted(
        service, request_, after, lambda: service.backend.revoke_token("test", "ana")
    )
    assert response.status_code == 401
    assert asked() == after
    assert not [line for line in lines_of(service.folder / "audit.jsonl") if line["event"] == "answer"]


def test_a_browser_whose_token_is_revoked_while_it_asks_is_sent_to_the_door(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = signed_in(service, "ana")
    page = browser.get("/datasets/town").text
    csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
    real = service.backend.dataset.database.ask_task

    def revoking(*given: Any, **named: Any) -> Any:
        service.backend.revoke_token("test", "ana")
        return real(*given, **named)

    monkeypatch.setattr(service.backend.dataset.database, "ask_task", revoking)
    form = {"csrf": csrf, "do": "ask", "source": "sql", "sql": "count where age > 40"}
    response = browser.post("/datasets/town/ask", data={**form, "exact": "mu", "amount": "0.1"})
    assert (response.status_code, response.headers["location"]) == (303, "/login?ended")


# People who signed in through a provider.

SIGN_IN = SignInConfig(issuer="https://a", client_id="c", subjects={"1": {"town": "analyst"}})
ADA = Identity("https://a", "1", "Ada", ())


def test_a_person_is_known_at_every_store_until_the_person_is_removed(address: str) -> None:
    first, second = AccessStore(address, sign_in=SIGN_IN), AccessStore(address, sign_in=SIGN_IN)
    with contextlib.closing(first), contextlib.closing(second):
        secret = first.sign_in(ADA, attempt="x", hours=1)
        assert secret is not None
        session = second.session(secret)
        assert session is not None
        assert session.caller == Caller(ADA.name, None, {"town": "analyst"}, "Ada")
        assert second.are_valid([session.caller], "town") == [True]
        assert second.are_valid([session.caller], "village") == [False]
        assert second.sign_in(ADA, attempt="x", hours=1) is None
        second.grant(ADA.name, "village", "curator")
        assert first.are_valid([session.caller], "village") == [True]
        first.close_session(secret)
        assert second.session(secret) is None
        again = first.sign_in(ADA, attempt="y", hours=1)
        assert again is not None
        second.set_sign_in(None)
        assert second.session(again) is None
        assert second.are_valid([session.caller], "town") == [False]
        assert first.session(again) is not None
        assert second.revoke(ADA.name) == 1
        assert first.session(again) is None


def test_a_person_has_16_sessions_and_an_expired_one_is_none(address: str) -> None:
    now = [1e9]
    with contextlib.closing(AccessStore(address, clock=lambda: now[0], sign_in=SIGN_IN)) as store:
        secrets = [store.sign_in(ADA, attempt=str(number), hours=1) for number in range(17)]
        found = [store.session(secret or "") for secret in secrets]
        assert [one is None for one in found] == [True] + [False] * 16
        now[0] += 3601
        assert store.session(secrets[-1] or "") is None


def test_a_store_from_before_people_signed_in_is_opened(address: str) -> None:
    with contextlib.closing(AccessStore(address)) as store:
        token = store.create("ana", days=9)
        with store._transaction() as execute:
            for table in ("attempts", "sign_ins", "identities"):
                execute(f"DROP TABLE {table}", ())
    with contextlib.closing(AccessStore(address, sign_in=SIGN_IN)) as store:
        assert store.find(token) is not None
        assert store.session(store.sign_in(ADA, attempt="x", hours=1) or "") is not None
