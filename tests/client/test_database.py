"""The client of a service: asked like a database, careful with its token."""

from __future__ import annotations

import copy
import logging
import pickle
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from discreet import Database, GaussianDP, PureDP, RemoteDatabase
from discreet.client import transport
from discreet.errors import (
    AccessRefused,
    DiscreetError,
    DiscreetWarning,
    ExpressionRefused,
    MissingExtra,
    ParameterError,
    PromiseError,
    ServiceError,
    ServiceUnavailable,
)
from discreet.query import (
    Dependence,
    DistinctUnits,
    Gram,
    Histogram,
    Marginals,
    PosteriorOdds,
    Sums,
    VerticalDatabases,
)
from discreet.schema import Column, Schema
from tests.server.scripted import SILENCE, Heard, Say, served
from tests.server.stand_in import MU, N_ROWS, SCHEMA, TOKEN, StandIn, closed_port, public, standing_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.query import Answer

ADDED = GaussianDP(mu=1, neighbors="add-remove")


# Packages.


@pytest.mark.slow
def test_the_name_costs_no_web_package_until_one_is_made() -> None:
    web = ("httpx", "fastapi", "uvicorn", "starlette")
    code = (
        "import sys, discreet; from discreet import RemoteDatabase; "
        f"print([m for m in {web} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_without_httpx_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtra, match=re.escape("discreet[serve]")):
        RemoteDatabase("http://127.0.0.1:1", "survey", TOKEN)


# The same words as a database at hand.


def test_it_answers_like_the_database_behind_it_bit_for_bit() -> None:
    with standing_in() as (stand_in, db):
        assert (db.schema, db.n_rows, db.neighbors, db.dataset) == (SCHEMA, N_ROWS, "replace-one", "survey")
        questions: list[Callable[[Any], Answer]] = [
            lambda who: who.ask(Sums("share * 3"), privacy=MU),
            lambda who: who.ask(Sums("age > 40"), privacy=PureDP(epsilon=0.7)),
            lambda who: who.histogram(["job", "age"], edges={"age": [30, 60]}, variance=4.0),
            lambda who: who.ask(Gram(("age", "share")), privacy=MU),
        ]
        for asked in questions:
            far, near = asked(db), asked(stand_in.database)
            assert np.array_equal(far.value, near.value)
            assert np.array_equal(far.sd, near.sd)
            assert (far.law, far.cost, far.labels, far.parts) == (
                near.law,
                near.cost,
                near.labels,
                near.parts,
            )
            assert (far.cached, near.cached) == (False, True)
            assert type(far.value) is type(near.value)


class Rounding(RemoteDatabase):
    """The wrong twin: numbers lose their last digits on the way."""

    def _read_answer(self, values: Any, *rest: Any, **more: Any) -> Any:
        values = {**values, "value": np.round(values["value"], 12).tolist()}
        return super()._read_answer(values, *rest, **more)


def test_a_client_that_rounds_would_be_seen() -> None:
    stand_in = StandIn()
    with served(stand_in) as url, Rounding(url, "survey", TOKEN) as db:
        far = db.ask(Sums("share * 3"), privacy=MU)
    assert far.value != stand_in.database.ask(Sums("share * 3"), privacy=MU).value


def test_prices_and_noise_are_known_without_a_request() -> None:
    with standing_in() as (stand_in, db):
        local = stand_in.database
    # The service is gone by now.
    for question in (Sums("age"), Histogram("job"), Gram(("age", "share"))):
        assert db.cost(question, privacy=MU) == local.cost(question, privacy=MU)
        assert np.array_equal(db.expected_sd(question, privacy=MU), local.expected_sd(question, privacy=MU))
    assert not stand_in.heard


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (lambda db: db.sum("salary", privacy=MU), ExpressionRefused),
        (lambda db: db.sum("age"), ParameterError),
        (lambda db: db.ask(Sums("age"), privacy=MU, variance=1.0), ParameterError),
        (lambda db: db.count("age", privacy=MU), ExpressionRefused),
        (lambda db: db.histogram("share", privacy=MU), ParameterError),
        (lambda db: db.sum("age", privacy=GaussianDP(mu=1, covers=("age",))), PromiseError),
        (lambda db: db.sum("age", privacy=ADDED), PromiseError),
        (lambda db: db.query("count", privacy=ADDED), PromiseError),
        (lambda db: db.preview("count", privacy=ADDED), PromiseError),
        (lambda db: db.sum("age", privacy=MU, owner="ann"), ParameterError),
        (lambda db: db.query("count"), ParameterError),
        (lambda db: db.query("count", privacy=MU, sd=2.0), ParameterError),
    ],
)
def test_what_a_database_refuses_is_refused_without_a_request(
    asked: Callable[[RemoteDatabase], Any], kind: type[DiscreetError]
) -> None:
    with standing_in() as (stand_in, db):
        with pytest.raises(kind):
            asked(db)
        assert not stand_in.heard


def test_the_papers_own_budget_is_asked_for_as_what_it_comes_to() -> None:
    odds = PosteriorOdds(epsilon=1.0, delta=1e-3, queries=10)
    with standing_in() as (stand_in, db):
        with pytest.raises(PromiseError, match=r"cost\(\)"):
            db.ask(Sums("age"), privacy=odds)
        assert not stand_in.heard
        (promise,) = db.cost(Sums("age"), privacy=odds)
        assert db.ask(Sums("age"), privacy=promise).cost[0].to_dict() == promise.to_dict()


# The token.


def test_a_token_is_given_or_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def respond(heard: Heard) -> Say:
        seen.append(heard.headers["authorization"])
        return Say.json(public())

    monkeypatch.setenv("DISCREET_TOKEN", "from-the-environment")
    with served(respond) as url:
        RemoteDatabase(url, "survey").close()
        RemoteDatabase(url, "survey", TOKEN).close()
    assert seen == ["Bearer from-the-environment", f"Bearer {TOKEN}"]
    monkeypatch.delenv("DISCREET_TOKEN")
    with pytest.raises(AccessRefused, match="DISCREET_TOKEN"):
        RemoteDatabase("http://127.0.0.1:1", "survey")


@pytest.mark.parametrize("wrong", [f"{TOKEN}\n", f"{TOKEN} x", f"{TOKEN}é", f"{TOKEN}\r\nX-Other: 1"])
def test_a_text_that_cannot_be_a_token_is_refused_without_being_repeated(wrong: str) -> None:
    with pytest.raises(ParameterError, match="no token has") as told:
        RemoteDatabase("http://127.0.0.1:1", "survey", wrong)
    assert "zebra" not in str(told.value)


def everything_about(error: BaseException) -> str:
    """All that a log or a debugger could show of an error and of what led to it."""
    shown: list[str] = []
    link: BaseException | None = error
    while link is not None:
        shown += [str(link), repr(link), repr(vars(link))]
        request = getattr(link, "_request", None) or getattr(link, "request", None)
        shown.append(repr(dict(request.headers)) if request is not None else "")
        link = link.__cause__ or link.__context__
    return " ".join(shown)


def test_the_token_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    script = [SILENCE, Say.error(401, "unauthorized"), Say(500, b"no"), Say.error(422, "invalid")]
    with standing_in(*script, retries=1) as (_, db):
        shown = [repr(db), str(vars(db)), repr(vars(db._transport)), pickle.dumps(db).decode("latin-1")]
        for _ in range(3):
            with pytest.raises(DiscreetError) as told:
                db.ask(Sums("age"), privacy=MU)
            shown.append(everything_about(told.value))
        with pytest.raises(ParameterError, match="DISCREET_TOKEN"):
            pickle.dumps(db._transport._token)
    with pytest.raises(DiscreetError) as told:
        RemoteDatabase(f"http://127.0.0.1:{closed_port()}", "survey", TOKEN, retries=0)
    shown += [everything_about(told.value), caplog.text]
    assert len(caplog.records) > 0
    assert not any("zebra4711" in text for text in shown)


def test_the_search_for_the_token_would_find_it() -> None:
    request = httpx.Request("GET", "http://localhost", headers={"Authorization": f"Bearer {TOKEN}"})

    def careless() -> None:
        try:
            raise httpx.ReadError("gone", request=request)
        except httpx.ReadError:
            raise ServiceError("hidden, and yet there") from None

    with pytest.raises(ServiceError) as told:
        careless()
    assert "zebra4711" in everything_about(told.value)


def test_a_redirection_does_not_take_the_token_elsewhere() -> None:
    taken: list[Heard] = []

    def elsewhere(heard: Heard) -> Say:
        taken.append(heard)
        return Say.json(public())

    with served(elsewhere) as other:
        away = Say(307, b"", {"Location": f"{other}/v1/datasets/survey/schema", "Content-Type": "text/plain"})
        with served(lambda _: away) as url, pytest.raises(ServiceError, match="redirection"):
            RemoteDatabase(url, "survey", TOKEN)
    assert taken == []


def test_copies_are_the_same_and_pickles_connect_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in(retries=2, timeout=7) as (_, db):
        assert copy.copy(db) is db
        assert copy.deepcopy(db) is db
        text = pickle.dumps(db)
        monkeypatch.delenv("DISCREET_TOKEN", raising=False)
        with pytest.raises(AccessRefused):
            pickle.loads(text)
        monkeypatch.setenv("DISCREET_TOKEN", "another")
        with pickle.loads(text) as again:
            assert again.schema == db.schema
            assert (again._transport.timeout, again._transport.retries) == (7.0, 2)
            assert again.ask(Sums("age"), privacy=MU).value == db.ask(Sums("age"), privacy=MU).value


# The address.


@pytest.mark.parametrize(
    "url",
    [
        "data.example.org",
        "ftp://data.example.org",
        "https://",
        "http://host:port",
        "http://[::1",
        "http://exa mple.org",
        "http://exa\tmple\x00.org",
        "http://host:99999",
        f"http://{'x' * 300}",
        7,
        "https://ann:zebra4711@data.example.org",
        "https://data.example.org/?token=zebra4711",
        "https://data.example.org/#zebra4711",
    ],
)
def test_an_address_that_is_none_is_refused_without_secrets(url: Any) -> None:
    with pytest.raises(ParameterError, match="url of RemoteDatabase must be") as told:
        RemoteDatabase(url, "survey", TOKEN)
    assert "zebra" not in str(told.value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://Data.Example.org/", "https://data.example.org"),
        (" http://127.0.0.1:8000/backend/ ", "http://127.0.0.1:8000/backend"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_is_kept_in_one_form(given: str, kept: str) -> None:
    assert transport.validate_url(given) == kept


def test_a_service_may_live_below_a_path() -> None:
    heard: list[str] = []

    def respond(request: Heard) -> Say:
        heard.append(request.path)
        return Say.json(public())

    with served(respond) as url:
        RemoteDatabase(f"{url}/backend/", "survey", TOKEN).close()
    assert heard == ["/backend/v1/datasets/survey/schema"]


def test_a_token_that_would_travel_in_the_open_is_warned_about() -> None:
    with (
        pytest.warns(DiscreetWarning, match="https://"),
        pytest.raises(ServiceUnavailable, match="cannot be reached"),
    ):
        RemoteDatabase("http://nowhere.invalid", "survey", TOKEN, retries=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("timeout", value) for value in (0, float("nan"), float("inf"), "1", True, None)),
        *(("retries", value) for value in (-1, 1.5, True, None)),
        *(("verify", value) for value in (False, None, "/no/such.pem")),
    ],
)
def test_parameters_outside_their_domain_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"{name} of RemoteDatabase must be"):
        RemoteDatabase("http://127.0.0.1:1", "survey", TOKEN, **{name: value})


# Threads, forks, ends.


def test_many_threads_may_ask_at_once() -> None:
    with standing_in() as (stand_in, db):
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda i: db.ask(Sums(f"age + {i % 8}"), privacy=MU).value, range(64)))
        # Whoever asks the same at the same time may share a key; different questions never do.
        assert len({heard.body for heard in stand_in.heard}) == 8
        assert len({(heard.headers["idempotency-key"], heard.body) for heard in stand_in.heard}) == len(
            set(stand_in.keys)
        )
        local = [stand_in.database.ask(Sums(f"age + {i % 8}"), privacy=MU).value for i in range(64)]
        assert found == local


@pytest.mark.slow
def test_a_fork_gets_connections_of_its_own() -> None:
    program = """
    import os, sys
    from discreet import GaussianDP, RemoteDatabase
    from discreet.query import Sums
    db = RemoteDatabase(sys.argv[1], "survey", "t")
    before = db.ask(Sums("age"), privacy=GaussianDP(mu=0.5)).value
    child = os.fork()
    for _ in range(20):
        assert db.ask(Sums("age"), privacy=GaussianDP(mu=0.5)).value == before
    if child:
        assert os.waitpid(child, 0)[1] == 0
        print("both")
    """
    with served(StandIn()) as url:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), url],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    assert (done.returncode, done.stdout) == (0, "both\n"), done.stderr


def test_after_its_end_nothing_is_asked() -> None:
    with standing_in() as (stand_in, db):
        db.close()
        db.close()
        with pytest.raises(ServiceError, match="must not be closed"):
            db.ask(Sums("age"), privacy=MU)
        assert not stand_in.heard


# Columns of the same people behind two services.


def test_two_services_are_asked_as_one() -> None:
    people = np.arange(3000)

    def kept(name: str, cells: Any, seed: int) -> StandIn:
        schema = Schema(
            columns=[Column("id", role="id"), Column(name, lower=0, upper=1)],
            id_column="id",
            max_rows_per_unit=1,
        )
        made = StandIn()
        made.database = Database({"id": people, name: cells}, schema=schema, keep_ids=True, random_state=seed)
        made.public = public(schema=schema.to_dict(), digest=schema.digest, n_rows=len(people))
        return made

    def pair() -> tuple[StandIn, StandIn]:
        dose = people * 37 % 257 / 256
        return kept("dose", dose, 1), kept("cost", dose**2, 2)

    clinic, insurer = pair()
    with (
        served(clinic) as one,
        served(insurer) as two,
        RemoteDatabase(one, "survey", TOKEN) as far,
        RemoteDatabase(two, "survey", TOKEN) as there,
    ):
        remote = VerticalDatabases([far, there], key="study 7").correlation(privacy=MU)
    local = VerticalDatabases([who.database for who in pair()], key="study 7").correlation(privacy=MU)
    assert np.array_equal(remote.value, local.value)
    assert np.array_equal(remote.sd, local.sd)
    assert remote.cost == local.cost


@pytest.mark.parametrize("most", [1, 3])
def test_people_are_counted_through_a_service(most: int) -> None:
    rows = {"id": np.arange(600) % 200, "dose": np.arange(600) / 600}
    schema = Schema(
        columns=[Column("id", role="id"), Column("dose", lower=0, upper=1)],
        id_column="id",
        max_rows_per_unit=most,
    )
    question = DistinctUnits("dose", {"dose": [0.5]}, "dose > 0.1")
    asked = StandIn()
    asked.database = Database(rows, schema=schema, random_state=1)
    asked.public = public(schema=schema.to_dict(), digest=schema.digest, n_rows=asked.database.n_rows)
    with served(asked) as url, RemoteDatabase(url, "survey", TOKEN) as far:
        remote = far.ask(question, privacy=MU)
        assert far.cost(question, privacy=MU) == remote.cost
    local = asked.database.ask(question, privacy=MU)
    assert local.cached
    assert np.array_equal(remote.value, local.value)
    assert np.array_equal(remote.sd, local.sd)
    assert remote.cost == local.cost


def test_many_tables_and_their_distances_to_public_ones_are_asked_through_a_service() -> None:
    rows = {name: np.arange(600) * step % 7 % 3 for name, step in (("a", 1), ("b", 3), ("c", 5))}
    schema = Schema(columns=[Column(name, type="integer", lower=0, upper=2) for name in rows])
    margins = {name: [200, 200, 200] for name in rows}
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    questions = [
        Marginals([("a",), *pairs], {}, [9, 1, 1, 4]),
        Dependence(pairs, {}, {"kind": "given", "margins": margins, "by": None}),
    ]
    asked = StandIn()
    asked.database = Database(rows, schema=schema, random_state=1)
    asked.public = public(schema=schema.to_dict(), digest=schema.digest, n_rows=asked.database.n_rows)
    with served(asked) as url, RemoteDatabase(url, "survey", TOKEN) as far:
        for question in questions:
            remote = far.ask(question, privacy=MU)
            assert far.cost(question, privacy=MU) == remote.cost
            local = asked.database.ask(question, privacy=MU)
            assert local.cached
            assert np.array_equal(remote.value, local.value)
            assert np.array_equal(remote.sd, local.sd)
