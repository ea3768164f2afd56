"""Request ids, hosts, addresses and what has no route."""

from __future__ import annotations

from html import unescape
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.conftest import RunningService

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}


COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}


def shown_address(service: RunningService, **headers: str) -> str:
    """Return where the page of an answer says that programs send their token."""
    caller = service.backend.access.find(service.tokens["ana"])
    assert caller is not None
    secret = service.backend.access.open_session(caller, hours=1)
    receipts = service.ask(COUNT).json()["receipts"]
    cookie = {"Cookie": f"__Host-discreet={secret}", **headers}
    page = service.client(None).get(f"/datasets/town/answers/{receipts[0]}", headers=cookie).text
    return unescape(page).partition("connect('")[2].partition("'")[0]


def test_no_address_is_redirected_to_another(service: RunningService) -> None:
    for path in (
        "/v1/datasets/town/budget/",
        "/login/",
        "/docs/",
        "/health/",
        "/datasets/town/answers/",
        "/datasets/town/ask/",
    ):
        response = service.client().get(path, headers={"Host": "evil.example"})
        assert response.status_code == 404, path
        assert "location" not in response.headers


def test_behind_a_proxy_pages_name_an_address_with_tls(start: Callable[..., RunningService]) -> None:
    service = start(behind_proxy=True)
    assert shown_address(service, Host="data.example.org") == "https://data.example.org"


def test_a_declared_address_is_the_one_that_pages_name_and_no_other_host_is_served(
    start: Callable[..., RunningService],
) -> None:
    service = start(behind_proxy=True, address="https://data.example.org/")
    client = service.client()
    # Whoever reaches it directly is shown where others do.
    assert shown_address(service) == "https://data.example.org"
    for host in ("data.example.org", "DATA.example.org:443"):
        assert client.get("/v1/datasets/town/budget", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "data.example.org:80", "data.example.org@evil.example", "a b", "[", ""):
        for path in ("/v1/datasets/town/budget", "/login", "/docs"):
            response = client.get(path, headers={"Host": host})
            assert response.status_code == 400, (host, path)
            assert not host or host not in response.text
    # Machines look under names of their own.
    assert client.get("/health", headers={"Host": "10.0.0.7:8000"}).status_code == 200
    assert client.get("/ready", headers={"Host": "10.0.0.7:8000"}).status_code == 200


def test_ids_of_requests_tell_nothing_about_other_requests(shared_service: RunningService) -> None:
    client = shared_service.client(None)
    ids = [client.get("/health").headers["x-request-id"] for _ in range(20)]
    assert len(set(ids)) == 20
    # A counter would have all but the last characters in common.
    assert len({text[:-4] for text in ids}) == 20


@pytest.mark.parametrize(
    ("path", "status"),
    [("/nowhere", 404), ("/datasets/town/ask", 405), ("/datasets/town/curator/nowhere", 404)],
)
def test_a_browser_that_is_lost_is_shown_a_page_and_a_program_an_error(
    shared_service: RunningService, path: str, status: int
) -> None:
    page = shared_service.client(None).get(path, headers={"accept": "text/html,*/*;q=0.8"})
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "<h1" in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    told = shared_service.client(None).get(path)
    assert (told.status_code, told.headers["content-type"]) == (status, "application/json")


@pytest.mark.parametrize(
    ("accepted", "media_type"),
    [
        ("text/html", "text/html"),
        ("application/json, TEXT/HTML", "text/html"),
        ("text/html;level=1; q=0.9, application/json;q=0.8", "text/html"),
        ("application/json, text/html;q=0", "application/json"),
        ("application/json, text/html;q=0.5", "application/json"),
        ("text/html;q=much", "application/json"),
        ("text/html-like, */*", "application/json"),
    ],
)
def test_an_error_is_a_page_for_whoever_prefers_one(
    shared_service: RunningService, accepted: str, media_type: str
) -> None:
    told = shared_service.client(None).get("/nowhere", headers={"accept": accepted})
    assert told.headers["content-type"].partition(";")[0] == media_type


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/health", 405), ("POST", "/ready", 405), ("GET", "/metrics", 401)],
)
def test_what_only_programs_ask_for_is_never_a_page(
    shared_service: RunningService, method: str, path: str, status: int
) -> None:
    told = shared_service.client(None).request(method, path, headers={"accept": "text/html"})
    assert (told.status_code, told.headers["content-type"]) == (status, "application/json")


def test_a_program_is_told_in_json_what_is_not_there_whatever_it_accepts(
    shared_service: RunningService,
) -> None:
    told = shared_service.client("ana").get("/v1/nowhere", headers={"accept": "text/html"})
    assert (told.status_code, told.json()["error"]["code"]) == (404, "not-found")
