"""Sign-in in a real browser, at a provider that others wrote."""

from __future__ import annotations

import contextlib
import socket
import warnings
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.server.sign_in import Identity
from tests.report.chromium import PROGRAM, Browser, browser
from tests.server.conftest import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.conftest import RunningService

pytestmark = [
    pytest.mark.slow,
    # The provider uses modules that its library will move; a warning would be its status 500.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PEOPLE: dict[str, dict[str, Any]] = {
    "person-1": {"name": "Ada Lovelace", "groups": ["epidemiology"]},
    "person-2": {"name": "Eve", "groups": ["chess"]},
}


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """Run a provider made with authlib; another host name makes it another site than the service."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mock = pytest.importorskip(
            "oidc_provider_mock", reason="oidc-provider-mock is NOT TESTED: not installed"
        )
    users = [mock.User(sub=sub, claims=claims) for sub, claims in PEOPLE.items()]
    with mock.run_server_in_thread(
        require_client_registration=True, require_nonce=True, user_claims=users
    ) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def office(provider: str, tmp_path: Path) -> Iterator[RunningService]:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    known = httpx.post(
        f"{provider}/oauth2/clients",
        json={
            "redirect_uris": [f"{address}/sign-in/callback"],
            "token_endpoint_auth_method": "client_secret_basic",
        },
    ).json()
    (tmp_path / "client.secret").write_text(known["client_secret"])
    settings = {
        "issuer": provider,
        "client_id": known["client_id"],
        "client_secret_file": "client.secret",
        "groups": {"epidemiology": {"town": "analyst"}},
    }
    with running(tmp_path, listen=f"127.0.0.1:{port}", address=address, sign_in=settings) as service:
        yield service


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("Chromium is NOT TESTED: found none on the path (sign-in through a provider)")
    with browser(tmp_path / "profile") as made:
        made.size(1280)
        made.media()
        # The provider's page names a style sheet elsewhere, for which a machine without a network waits.
        made.call("Network.setBlockedURLs", urls=["https://*"])
        yield made


def test_a_person_signs_in_at_the_provider_asks_and_logs_out(
    page: Browser, office: RunningService, provider: str
) -> None:
    page.visit(f"{office.url}/datasets/town")
    assert page.run("location.pathname") == "/login"
    for dark, width in ((False, 1280), (True, 390)):
        page.size(width)
        page.media(dark=dark)
        assert page.violations() == []
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
    page.size(1280)
    page.media()
    page.follow("a.button")
    assert page.run("location.origin") == provider
    page.click("button[value=person-1]")
    page.wait(f"location.href === '{office.url}/' && document.readyState === 'complete'")
    assert page.text(".who span") == "Ada Lovelace"
    page.visit(f"{office.url}/datasets/town")
    page.write("#where", "age > 40")
    page.wait("document.getElementById('ask-button').innerText.startsWith('Ask: costs')")
    page.follow("#ask-button")
    assert page.run("location.pathname").startswith("/datasets/town/answers/")
    name = Identity(provider, "person-1", "").name
    assert office.backend.dataset.ledger.spent(name).charges == 1
    # No script of a page can read the session, and no address that a page has kept holds a code.
    assert page.run("document.cookie") == ""
    assert "code=" not in page.run("document.referrer + performance.getEntries().map((e) => e.name).join()")
    page.follow(".who button")
    assert page.run("location.pathname") == "/login"
    page.visit(f"{office.url}/datasets/town")
    assert page.run("location.pathname") == "/login"
    assert page.complaints() == []


def test_a_person_whom_nobody_admitted_is_told_so(
    page: Browser, office: RunningService, provider: str
) -> None:
    page.visit(f"{office.url}/login")
    page.follow("a.button")
    page.follow("button[value=person-2]")
    assert page.run("location.pathname") == "/sign-in/callback"
    assert "person-2" in page.text("[role=alert].problem")
    page.visit(f"{office.url}/")
    assert page.run("location.pathname") == "/login"
    assert office.whole.access.identities() == []


def test_the_provider_of_others_answers_the_check(office: RunningService, provider: str) -> None:
    from discreet.server.oidc import check_provider

    check_provider(office.whole.config)
