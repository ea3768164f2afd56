"""In and out over plain HTTP: tokens, cookies, and forms that did not come from our own pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.markup import Visitor, read

if TYPE_CHECKING:
    from tests.server.conftest import RunningService


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/datasets/town/history",
        "/datasets/town/answers/a-1",
        "/datasets/town/curator",
        "/datasets/town/curator/analysts/ana",
    ],
)
def test_whoever_is_not_logged_in_is_sent_to_the_door(shared_service: RunningService, path: str) -> None:
    response = Visitor(shared_service, None).client.get(path)
    door = "/login" if path == "/" else "/login?ended"
    assert (response.status_code, response.headers["location"]) == (303, door)


def test_every_wrong_token_gets_the_same_page(service: RunningService) -> None:
    visitor = Visitor(service, None)
    service.backend.revoke_token("test", "ben")
    wrong = ["", "nonsense", "dsc_" + "A" * 43, service.tokens["ben"], "x" * 5000, "\u0000'\"<"]
    pages = [visitor.client.post("/login", data={"token": token}) for token in wrong]
    assert {page.status_code for page in pages} == {401}
    assert len({page.text for page in pages}) == 1
    assert not any("set-cookie" in page.headers for page in pages)
    assert "token is not valid" in read(pages[0].text).one(id="token-problem").text


def test_a_session_is_a_strict_cookie_that_ends_with_logging_out(service: RunningService) -> None:
    visitor = Visitor(service)
    page = visitor.get("/datasets/town")
    cookie = visitor.client.cookies["discreet"]
    response = visitor.send(page, "/logout")
    assert response.headers["location"] == "/login"
    visitor.client.cookies.set("discreet", cookie)
    assert visitor.client.get("/datasets/town").headers["location"] == "/login?ended"
    assert "your session has ended" in visitor.get("/login?ended").one("p", class_="note").text
    assert not list(visitor.get("/login").all("p", class_="note"))


def test_logging_in_sets_the_flags_of_the_cookie_and_shows_no_token(shared_service: RunningService) -> None:
    client = shared_service.client(None)
    for who, place in (("ana", "/datasets/town"), ("cura", "/datasets/town/curator")):
        response = client.post("/login", data={"token": shared_service.tokens[who]})
        assert response.headers["location"] == place
        flags = response.headers["set-cookie"]
        assert "HttpOnly" in flags
        assert "SameSite=Strict" in flags
        assert shared_service.tokens[who] not in flags + client.get(place).text


def test_a_form_that_logs_in_from_another_site_is_refused(shared_service: RunningService) -> None:
    client = shared_service.client(None)
    sent = {"token": shared_service.tokens["ana"]}
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        response = client.post("/login", data=sent, headers=headers)
        assert response.status_code == 403
        assert "set-cookie" not in response.headers


POSTS = [
    "/logout",
    *(f"/datasets/town/{path}" for path in ("ask", "refine", "price")),
    *(f"/datasets/town/curator/{path}" for path in ("stop", "attack", "check", "tokens")),
]


@pytest.mark.parametrize("path", POSTS)
def test_a_form_without_proof_of_where_it_came_from_does_nothing(service: RunningService, path: str) -> None:
    mine, other = Visitor(service, "cura"), Visitor(service, "ben")
    right = {
        "do": "ask", "verb": "count", "where": "age > 40", "exact": "rho", "amount": "0.1", "stopped": "yes",
        "action": "create", "name": "eve", "role": "curator", "days": "9",
    }  # fmt: skip
    page = mine.get("/datasets/town")
    proof = mine.csrf()
    attempts: list[tuple[dict[str, str], dict[str, str]]] = [
        (right, {}),
        ({**right, "csrf": ""}, {}),
        ({**right, "csrf": "A" * len(proof)}, {}),
        ({**right, "csrf": other.csrf()}, {}),
        ({**right, "csrf": proof}, {"origin": "https://evil.example"}),
        ({**right, "csrf": proof}, {"sec-fetch-site": "cross-site"}),
        ({**right, "csrf": proof}, {"sec-fetch-site": "same-site"}),
    ]
    for form, headers in attempts:
        assert mine.client.post(path, data=form, headers=headers).status_code == 403
    assert service.backend.dataset.ledger.spent("cura").charges == 0
    assert service.backend.access.stop_record("town") is None
    assert {token["name"] for token in service.backend.tokens()} == {"ana", "ben", "cura"}
    assert mine.client.get("/datasets/town").status_code == 200
    assert page.one("form", action="/datasets/town/ask")
