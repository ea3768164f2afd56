"""Sign-in through a provider: who gets in, as whom, and every token that must not be believed."""

from __future__ import annotations

import base64
import hmac
import json
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwk, jwt
from joserfc.errors import SecurityWarning

from discreet.errors import ParameterError, ServiceUnavailable
from discreet.server import oidc
from discreet.server.config import Config
from discreet.server.sign_in import Identity
from tests.cli.run import discreet
from tests.server.conftest import configured, running, settings, write_table
from tests.server.markup import read
from tests.server.provider import (
    ADA,
    CLIENT,
    SECRET,
    Provider,
    begin,
    key,
    running_provider,
    sign_in,
    sign_in_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from tests.server.conftest import RunningService

ASKED: dict[str, Any] = {"kind": "count", "where": "age > 40", "privacy": {"kind": "gaussian-dp", "mu": 0.1}}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as made:
        yield made


@pytest.fixture
def begun(tmp_path: Path, provider: Provider) -> Callable[..., Any]:
    """Return a context in which a service runs whose people sign in at the provider."""
    write_table(tmp_path)
    (tmp_path / "client.secret").write_text(f"{SECRET}\n")

    def make(tokens: dict[str, str] | None = None, **changed: Any) -> Any:
        return running(tmp_path, tokens, sign_in=sign_in_settings(provider, **changed))

    return make


@pytest.fixture(scope="module")
def _lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningService, Provider]]:
    folder = tmp_path_factory.mktemp("lent")
    (folder / "client.secret").write_text(SECRET)
    with running_provider() as made, running(folder, sign_in=sign_in_settings(made)) as service:
        yield service, made


@pytest.fixture
def lent(
    _lent: tuple[RunningService, Provider], monkeypatch: pytest.MonkeyPatch
) -> tuple[RunningService, Provider]:
    """A service and its provider, which is honest again: for attempts that must leave nothing behind."""
    service, made = _lent
    made.reset()
    service.lines.clear()
    monkeypatch.setattr(oidc, "_KEYS_SECONDS", 0.0)
    return service, made


@pytest.fixture
def office(begun: Callable[..., Any]) -> Iterator[RunningService]:
    with begun() as service:
        yield service


def name_of(provider: Provider, subject: str = ADA["sub"]) -> str:  # type: ignore[assignment]
    return Identity(provider.url, subject, "").name


def reasons(service: RunningService) -> list[str]:
    lines = map(json.loads, service.lines)
    return [line["reason"] for line in lines if line["event"] in ("sign-in refused", "provider unavailable")]


def assert_no_session(service: RunningService, client: httpx.Client, response: httpx.Response) -> None:
    assert response.status_code in (401, 403, 503), response.text
    assert "discreet" not in client.cookies
    assert not any(c.startswith("discreet=") for c in response.headers.get_list("set-cookie"))
    assert client.get("/").headers["location"] == "/login"
    assert service.whole.access.identities() == []
    assert "signed in" not in (service.folder / "audit.jsonl").read_text()


def test_a_person_signs_in_asks_and_signs_out(office: RunningService, provider: Provider) -> None:
    client, response = sign_in(office)
    assert (response.status_code, response.headers["location"]) == (303, "/signed-in")
    session, attempt = sorted(response.headers.get_list("set-cookie"), key=lambda one: "sign-in" in one)
    assert session.startswith("discreet=")
    assert all(flag in session for flag in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=28800"))
    assert attempt.startswith("discreet-sign-in=; ")
    assert 'content="0; url=/"' in client.get("/signed-in").text
    page = read(client.get("/").text)
    assert page.one("form", action="/logout").one("span").text == "Ada Lovelace"
    csrf = page.one("form", action="/logout").one("input", name="csrf").attributes["value"]
    sent = {"x-csrf-token": csrf, "origin": office.url}
    assert client.post("/v1/datasets/town/query", json=ASKED, headers=sent).status_code == 200
    assert office.backend.dataset.ledger.spent(name_of(provider)).charges == 1
    cookie = client.cookies["discreet"]
    assert client.post("/logout", data={"csrf": csrf}).headers["location"] == "/login"
    client.cookies.set("discreet", cookie)
    assert client.get("/").headers["location"] == "/login"


def test_renaming_and_a_new_address_create_no_second_allocation(
    office: RunningService, provider: Provider
) -> None:
    for name, mail in (("Ada Lovelace", "ada@example.org"), ("Ada King", "ada.king@example.org")):
        provider.person |= {"name": name, "email": mail, "preferred_username": mail}
        client, _ = sign_in(office)
        page = read(client.get("/").text)
        form = page.one("form", action="/logout")
        assert form.one("span").text == name
        sent = {"x-csrf-token": form.one("input", name="csrf").attributes["value"], "origin": office.url}
        asked = {**ASKED, "where": f"age > {len(name)}"}
        assert client.post("/v1/datasets/town/query", json=asked, headers=sent).status_code == 200
    assert office.backend.dataset.ledger.spent(name_of(provider)).charges == 2
    assert [one.display for one, _ in office.whole.access.identities()] == ["Ada King"]


def test_the_same_subject_of_another_issuer_is_another_person() -> None:
    names = {
        Identity(issuer, subject, "").name
        for issuer, subject in (
            ("https://a", "1"),
            ("https://b", "1"),
            ("https://a", "2"),
            ("https://a1", ""),
        )
    }
    assert len(names) == 4
    assert Identity("https://a", "1", "Ada", ("x",)).name == Identity("https://a", "1", "Eve").name


def test_a_bearer_cannot_be_taken_for_a_person_by_a_chosen_name(
    office: RunningService, provider: Provider
) -> None:
    provider.person |= {"name": "ana", "preferred_username": "ana", "email": "ana"}
    sign_in(office)
    assert office.whole.access.person("ana") is None
    assert [one.name for one, _ in office.whole.access.identities()] == [name_of(provider)]


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def _unsigned(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join(_encoded(json.dumps(part).encode()) for part in parts) + "."


def _by_public_key(claims: dict[str, Any]) -> str:
    """Sign as whoever knows the public key alone can, if it is taken for a shared secret."""
    parts = ({"alg": "HS256", "kid": key(0).kid, "typ": "JWT"}, claims)
    text = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
    return f"{text}.{_encoded(hmac.digest(key(0).as_pem(private=False), text.encode(), 'sha256'))}"


def _by_stranger(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": key(0).kid}, claims, key(9))


def _by_unpublished(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "key-9"}, claims, key(9))


def _changed_after_signing(claims: dict[str, Any]) -> str:
    head, _, signature = jwt.encode({"alg": "RS256", "kid": key(0).kid}, claims, key(0)).split(".")
    return f"{head}.{_encoded(json.dumps({**claims, 'name': 'Eve'}).encode())}.{signature}"


NOW = time.time()
HOSTILE: dict[str, dict[str, Any]] = {
    "another nonce": {"claims": {"nonce": "A" * 43}},
    "no nonce": {"claims": {"nonce": None}},
    "for another client": {"claims": {"aud": "another"}},
    "for no client": {"claims": {"aud": []}},
    "for two clients": {"claims": {"aud": [CLIENT, "another"]}},
    "issued to another client": {"claims": {"aud": [CLIENT, "another"], "azp": "another"}},
    "issued to another client alone": {"claims": {"azp": "another"}},
    "expired": {"claims": {"exp": int(NOW) - 3600}},
    "without an end": {"claims": {"exp": None}},
    "with an end that is no number": {"claims": {"exp": "2999"}},
    "issued long ago": {"claims": {"iat": int(NOW) - 7200}},
    "issued in the future": {"claims": {"iat": int(NOW) + 7200}},
    "without a time": {"claims": {"iat": None}},
    "not valid yet": {"claims": {"nbf": int(NOW) + 7200}},
    "of another issuer": {"claims": {"iss": "https://evil.example"}},
    "without a subject": {"claims": {"sub": None}},
    "with an empty subject": {"claims": {"sub": ""}},
    "with a subject that is no text": {"claims": {"sub": 248289761001}},
    "unsigned": {"sign": _unsigned},
    "signed with the public key": {"sign": _by_public_key},
    "signed by a stranger": {"sign": _by_stranger},
    "signed by a key that is not published": {"sign": _by_unpublished},
    "changed after it was signed": {"sign": _changed_after_signing},
    "no token at all": {"sign": lambda _: "none"},
    "sent back by another issuer": {"sent_back": {"iss": "https://evil.example"}},
    "sent back without the promised issuer": {"sent_back": {"iss": None}},
    "sent back with another state": {"sent_back": {"state": "A" * 43}},
    "sent back without a state": {"sent_back": {"state": None}},
    "sent back without a code": {"sent_back": {"code": None}},
    "sent back with a code of nobody": {"sent_back": {"code": "A" * 32}},
    "refused by the person": {"sent_back": {"code": None, "error": "access_denied"}},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_whatever_is_wrong_opens_no_session(lent: tuple[RunningService, Provider], case: str) -> None:
    service, provider = lent
    for name, value in HOSTILE[case].items():
        setattr(provider, name, value)
    client, response = sign_in(service)
    assert_no_session(service, client, response)
    assert response.status_code == 401
    assert "The sign-in failed" in response.text
    (reason,) = reasons(service)
    assert reason


def test_each_of_them_is_refused_for_what_is_wrong_alone(office: RunningService, provider: Provider) -> None:
    for case, wrong in HOSTILE.items():
        for name, value in wrong.items():
            setattr(provider, name, value)
        assert sign_in(office)[1].status_code == 401, case
        provider.reset()
        assert sign_in(office)[1].status_code == 303, case


def test_what_the_person_sees_does_not_say_which_check_failed(lent: tuple[RunningService, Provider]) -> None:
    office, provider = lent
    pages = set()
    for claims in ({"nonce": "x"}, {"exp": 0}, {"aud": "another"}):
        provider.claims = claims
        pages.add(sign_in(office)[1].text)
    assert len(pages) == 1
    assert len(set(reasons(office))) > 1


def test_a_browser_cannot_come_back_with_the_state_of_another(lent: tuple[RunningService, Provider]) -> None:
    """Login CSRF: the way back of a stranger's attempt, opened in the browser of a victim."""
    office, _ = lent
    stranger, victim = office.client(None), office.client(None)
    way_back = begin(stranger)
    assert_no_session(office, victim, victim.get(way_back))
    victim = office.client(None)
    begin(victim)
    assert_no_session(office, victim, victim.get(way_back))


def test_an_attempt_opens_one_session(office: RunningService, provider: Provider) -> None:
    client = office.client(None)
    way_back = begin(client)
    attempt = client.cookies["discreet-sign-in"]
    assert client.get(way_back).headers["location"] == "/signed-in"
    assert "discreet-sign-in" not in client.cookies
    # Without the cookie, and even with it, and even if the provider gave the code again.
    again = office.client(None)
    assert again.get(way_back).status_code == 401
    provider._codes = _Forgetful(provider._codes, oidc.Attempt(attempt))
    again.cookies.set("discreet-sign-in", attempt)
    assert again.get(way_back).status_code == 401
    assert "discreet" not in again.cookies
    assert reasons(office)[-1] == "This attempt to sign in was already used."


class _Forgetful(dict[str, dict[str, str]]):
    """Codes of a provider that gives an ID token for one as often as it is asked."""

    def __init__(self, codes: dict[str, dict[str, str]], attempt: oidc.Attempt) -> None:
        super().__init__(codes)
        self._asked = {
            "code_challenge": attempt.challenge,
            "redirect_uri": "http://127.0.0.1:8000/sign-in/callback",
            "nonce": attempt.nonce,
        }

    def pop(self, *_: Any) -> dict[str, str]:
        return self._asked


def test_a_new_key_of_the_provider_is_found_and_strange_keys_cause_no_storm(
    office: RunningService, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sign_in(office)[1].status_code == 303
    provider.keys = [key(0), key(1)]
    # Read a moment ago, so not again at once.
    assert sign_in(office)[1].status_code == 401
    monkeypatch.setattr(oidc, "_KEYS_SECONDS", 0.0)
    assert sign_in(office)[1].status_code == 303
    monkeypatch.undo()
    provider.keys = [key(1), key(2)]
    before = provider.requests.count("/jwks")
    for _ in range(5):
        assert sign_in(office)[1].status_code == 401
    assert provider.requests.count("/jwks") == before
    # A key that is withdrawn counts no more, once keys are read again.
    monkeypatch.setattr(oidc, "_KEYS_SECONDS", 0.0)
    assert sign_in(office)[1].status_code == 303
    provider.sign = lambda claims: jwt.encode({"alg": "RS256", "kid": key(0).kid}, claims, key(0))
    assert sign_in(office)[1].status_code == 401


def test_a_withdrawn_key_is_not_believed_for_ever(
    office: RunningService, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sign_in(office)[1].status_code == 303
    provider.sign = lambda claims: jwt.encode({"alg": "RS256", "kid": key(0).kid}, claims, key(0))
    provider.keys = [key(1)]
    # Its number is known, so nothing but time has the keys read again.
    assert sign_in(office)[1].status_code == 303
    monkeypatch.setattr(oidc, "_METADATA_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "_KEYS_SECONDS", 0.0)
    assert sign_in(office)[1].status_code == 401


@pytest.mark.parametrize(
    "published",
    [
        [{**key(3).as_dict(private=False), "use": "enc"}],
        [{**key(3).as_dict(private=False), "alg": "PS256"}],
        [key(3).as_dict(private=False), key(3).as_dict(private=False)],
        [{"kty": "oct", "k": "AAAA"}],
        [{"kty": "RSA", "n": "!", "e": "AQAB"}],
        [],
        ["key"],
    ],
    ids=["encrypts", "other algorithm", "twice", "shared secret", "garbled", "none", "no object"],
)
def test_a_published_key_must_fit(lent: tuple[RunningService, Provider], published: list[Any]) -> None:
    office, provider = lent
    provider.keys = [key(0), key(3)]  # the service has not read the second
    published = [{**one, "kid": "key-3"} if isinstance(one, dict) else one for one in published]
    provider.published = published
    client, response = sign_in(office)
    assert_no_session(office, client, response)


def test_a_short_key_is_not_believed(office: RunningService, provider: Provider) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        short = jwk.RSAKey.generate_key(1024, {"kid": "short", "use": "sig", "alg": "RS256"})
        provider.keys = [short]
        client, response = sign_in(office)
    assert_no_session(office, client, response)


def test_nobody_unlisted_gets_in(lent: tuple[RunningService, Provider]) -> None:
    office, provider = lent
    provider.person["sub"] = "unlisted-7"
    client, response = sign_in(office)
    assert_no_session(office, client, response)
    assert response.status_code == 403
    assert "unlisted-7" in response.text
    assert "unlisted-7" not in "".join(office.lines)


def test_groups_give_roles_and_an_entry_without_roles_bars(
    begun: Callable[..., Any], provider: Provider
) -> None:
    declared = {
        "subjects": {"barred": {}, "listed": {"town": "curator"}},
        "groups": {"town": {"town": "analyst"}, "office": {"*": "operator"}},
    }
    with begun(**declared) as service:
        found = {}
        for subject, groups in (
            ("one", ["town", "chess"]), ("two", "office"), ("three", ["chess", 7]), ("four", {"town": 1}),
            ("barred", ["town"]), ("listed", ["town"]), ("listed alone", None),
        ):  # fmt: skip
            provider.person = {"sub": subject.split()[0], "groups": groups}
            _, response = sign_in(service)
            person = service.whole.access.person(name_of(provider, subject.split()[0]))
            found[subject] = None if person is None else person.grants
            assert response.status_code == (403 if person is None else 303)
        assert found == {
            "one": {"town": "analyst"}, "two": {"*": "operator"}, "three": None, "four": None, "barred": None,
            "listed": {"town": "curator"}, "listed alone": {"town": "curator"},
        }  # fmt: skip
        # Of what the provider says about groups, only those that are declared here are stored.
        assert {group for one, _ in service.whole.access.identities() for group in one.groups} == {
            "town", "office",
        }  # fmt: skip


def test_a_person_who_is_removed_is_out_at_once(begun: Callable[..., Any], provider: Provider) -> None:
    with begun() as service:
        client, _ = sign_in(service)
        cookie = client.cookies["discreet"]
        assert client.get("/datasets/town").status_code == 200
        caller = service.whole.access.person(name_of(provider))
        assert caller is not None
        assert service.whole.access.are_valid([caller], "town") == [True]
        new = settings(sign_in=sign_in_settings(provider, subjects={"another": {"town": "analyst"}}))
        service.whole.change_datasets(Config.from_dict(new, service.folder), "opal")
        assert client.get("/datasets/town").headers["location"] == "/login?ended"
        assert service.whole.access.are_valid([caller], "town") == [False]
        assert service.whole.access.session(cookie) is None
        other = settings(sign_in=sign_in_settings(provider, client_id="another"))
        with pytest.raises(ParameterError, match="sign_in of the configuration must stay the same"):
            service.whole.change_datasets(Config.from_dict(other, service.folder), "opal")
        tokens = service.tokens
    # The other way: the session outlives a restart, and ends by one without the person.
    with begun(tokens) as service:
        assert service.whole.access.session(cookie) is not None
    with begun(tokens, subjects={"another": {"town": "analyst"}}) as service:
        assert service.whole.access.session(cookie) is None


def test_revoking_a_person_ends_all_sessions_and_a_curator_ends_none(
    office: RunningService, provider: Provider
) -> None:
    clients = [sign_in(office)[0] for _ in range(2)]
    name = name_of(provider)
    with pytest.raises(ParameterError, match="No token was ever created"):
        office.whole.access.revoke(name, "town")
    assert clients[0].get("/datasets/town").status_code == 200
    assert office.whole.tokens.revoke("opal", name) == 2
    assert [client.get("/").headers.get("location") for client in clients] == ["/login"] * 2
    assert office.whole.tokens.revoke("opal", name) == 0


def test_a_grant_of_the_store_comes_on_top_and_a_token_shares_the_allocation(
    office: RunningService, provider: Provider
) -> None:
    client, _ = sign_in(office)
    name = name_of(provider)
    assert client.get("/datasets/town/curator").status_code == 403
    token = office.whole.tokens.create("test", name, days=9, dataset="town", role="curator")
    assert client.get("/datasets/town/curator").status_code == 200
    office.tokens["ada"] = token
    assert office.ask(ASKED, "ada").status_code == 200
    assert office.backend.dataset.ledger.spent(name).charges == 1
    office.whole.tokens.withdraw("test", name, "town")
    assert client.get("/datasets/town/curator").status_code == 403
    assert client.get("/datasets/town").status_code == 200


def test_sessions_end_in_time(office: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = sign_in(office)
    now = office.whole.access.now()
    monkeypatch.setattr(office.whole.access._time, "_clock", lambda: now + 8 * 3600 - 60)
    assert client.get("/datasets/town").status_code == 200
    monkeypatch.setattr(office.whole.access._time, "_clock", lambda: now + 8 * 3600 + 60)
    assert client.get("/datasets/town").headers["location"] == "/login?ended"


def test_the_browser_is_sent_nowhere_else(office: RunningService, provider: Provider) -> None:
    client = office.client(None)
    response = client.get("/sign-in?next=https://evil.example&redirect_uri=https://evil.example")
    assert response.headers["location"].startswith(f"{provider.url}/authorize?tenant=1&")
    assert "evil" not in response.headers["location"]
    response = client.get(begin(client) + "&next=https://evil.example&return_to=//evil.example")
    assert response.headers["location"] == "/signed-in"
    assert client.get("/sign-in", headers={"sec-fetch-site": "cross-site"}).headers["location"] == "/login"


def test_a_parameter_that_comes_twice_is_refused(lent: tuple[RunningService, Provider]) -> None:
    office, _ = lent
    client = office.client(None)
    way_back = begin(client)
    state = way_back.partition("state=")[2].partition("&")[0]
    assert_no_session(office, client, client.get(f"{way_back}&state={state}"))


def test_no_secret_is_logged_or_shown(office: RunningService, provider: Provider) -> None:
    tokens = []
    provider.sign = lambda claims: tokens.append(provider.signed(claims)) or tokens[-1]  # type: ignore[func-returns-value]
    client = office.client(None)
    way_back = begin(client)
    attempt = client.cookies["discreet-sign-in"]
    response = client.get(way_back)
    page = client.get("/").text + client.get("/signed-in").text + response.text
    code = way_back.partition("code=")[2].partition("&")[0]
    office.logged(4)
    told = "".join(office.lines) + page + (office.folder / "audit.jsonl").read_text()
    stored = b"".join(path.read_bytes() for path in office.folder.glob("access.db*"))
    for secret in (
        tokens[0],
        code,
        attempt,
        client.cookies["discreet"],
        SECRET,
        oidc.Attempt(attempt).verifier,
    ):
        assert secret not in told
        assert secret.encode() not in stored
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"
    (line,) = [line for line in map(json.loads, told_lines(office)) if line["event"] == "signed in"]
    assert (line["who"], line["issuer"], line["subject"]) == (name_of(provider), provider.url, ADA["sub"])


def told_lines(service: RunningService) -> list[str]:
    return (service.folder / "audit.jsonl").read_text().splitlines()


def test_the_provider_may_be_away_and_tokens_still_work(office: RunningService, provider: Provider) -> None:
    provider.failing = True
    client = office.client(None)
    response = client.get("/sign-in")
    assert response.status_code == 503
    assert "cannot be reached" in response.text
    assert client.post("/login", data={"token": office.tokens["ana"]}).status_code == 303
    provider.failing = False
    assert sign_in(office)[1].status_code == 303


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"token_endpoint": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"response_types_supported": ["id_token"]},
        {"code_challenge_methods_supported": ["plain"]},
    ],
)
def test_a_provider_that_lacks_what_is_needed_is_not_used(
    office: RunningService, provider: Provider, metadata: dict[str, Any]
) -> None:
    provider.metadata = metadata
    assert office.client(None).get("/sign-in").status_code == 503
    with pytest.raises(ServiceUnavailable, match=r"sign_in\.issuer of the configuration"):
        oidc.check_provider(office.whole.config)
    provider.metadata = {}
    oidc.check_provider(office.whole.config)


def test_a_service_without_a_provider_has_no_way_in(shared_service: RunningService) -> None:
    client = shared_service.client(None)
    assert client.get("/sign-in").status_code == 404
    assert client.get("/sign-in/callback").status_code == 404
    assert "Sign in with" not in client.get("/login").text


def test_sign_ins_that_wait_for_the_provider_are_limited(
    office: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = office.client(None)
    way_back = begin(client)
    monkeypatch.setattr(oidc, "_MAX_SIGN_INS", 0)
    assert client.get("/sign-in").status_code == 429
    assert client.get(way_back).status_code == 429
    monkeypatch.undo()
    assert client.get(way_back).headers["location"] == "/signed-in"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"issuer": "http://login.example.org"}, "sign_in.issuer of .* must be an https:// address"),
        ({"issuer": "https://login.example.org?x=1"}, "sign_in.issuer of .* must be an https:// address"),
        ({"subjects": {}}, "sign_in.subjects of .* must name at least one person"),
        ({"subjects": {248: {"town": "analyst"}}}, "sign_in.subjects.248"),
        ({"subjects": {"a": {"village": "analyst"}}}, "sign_in of .* 'village' is not one"),
        ({"subjects": {"a": {"town": "operator"}}}, "sign_in.subjects of .* must give operators"),
        ({"subjects": {"a": {"town": "king"}}}, "sign_in.subjects.a.town"),
        ({"algorithms": ["HS256"]}, "sign_in.algorithms.0"),
        ({"algorithms": ["none"]}, "sign_in.algorithms.0"),
        ({"scopes": ["profile"]}, "sign_in.scopes of .* must contain openid"),
        ({"redirect_url": "http://127.0.0.1:8000/elsewhere"}, "sign_in.redirect_url of .* with the path"),
        (
            {"redirect_url": "https://example.org/sign-in/callback"},
            "sign_in.redirect_url of .* http:// elsewhere",
        ),
        ({"redirect_url": None}, "sign_in.redirect_url of .* is required"),
        (
            {"client_secret_variable": "X"},
            "sign_in.client_secret_variable of .* must not be set together with",
        ),
        ({"clientid": "x"}, "sign_in.clientid of .* Did you mean client_id"),
        ({"client_id": None}, "sign_in.client_id of .* is required"),
    ],
)
def test_mistakes_in_the_configuration_are_named(tmp_path: Path, changed: Any, told: str) -> None:
    content = settings(sign_in=sign_in_settings(Provider("http://127.0.0.1:1"), **changed))
    with pytest.raises(ParameterError, match=told):
        Config.from_dict(content, tmp_path)


def test_the_secret_is_in_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def secret(**changed: Any) -> str | None:
        content = settings(sign_in=sign_in_settings(Provider("http://127.0.0.1:1"), **changed))
        config = Config.from_dict(content, tmp_path).sign_in
        assert config is not None
        return config.client_secret()

    with pytest.raises(ParameterError, match="client_secret_file"):
        secret()
    (tmp_path / "client.secret").write_text("in a file\n")
    assert secret() == "in a file"
    variable = {"client_secret_file": None, "client_secret_variable": "TEST_OIDC_SECRET"}
    with pytest.raises(ParameterError, match="TEST_OIDC_SECRET is not set"):
        secret(**variable)
    monkeypatch.setenv("TEST_OIDC_SECRET", "in a variable")
    assert secret(**variable) == "in a variable"
    assert secret(client_secret_file=None) is None


def test_the_check_of_a_configuration_asks_the_provider(tmp_path: Path, provider: Provider) -> None:
    (tmp_path / "client.secret").write_text(SECRET)
    configured(tmp_path, sign_in=sign_in_settings(provider))
    done = discreet("serve", "config.yaml", "--check", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"People would sign in through {provider.url}, which can be reached" in done.out
    provider.failing = True
    done = discreet("serve", "config.yaml", "--check", cwd=tmp_path)
    assert done.code != 0
    assert "answers with status 500" in done.err


def test_people_are_listed_with_the_names_that_are_charged(
    office: RunningService, provider: Provider
) -> None:
    sign_in(office)
    declared = sign_in_settings(provider, subjects={ADA["sub"]: {}, "later": {"town": "curator"}})
    configured(office.folder, sign_in=declared)
    done = discreet("token", "people", "--json", cwd=office.folder)
    people = {one.pop("subject"): one for one in json.loads(done.out)["people"]}
    assert people[ADA["sub"]]["name"] == name_of(provider)
    assert (people[ADA["sub"]]["display"], people[ADA["sub"]]["roles"]) == ("Ada Lovelace", {})
    assert people["later"]["name"] == name_of(provider, "later")
    assert (people["later"]["roles"], people["later"]["latest"]) == ({"town": "curator"}, None)
    table = discreet("token", "people", cwd=office.folder).out
    assert "may not sign in" in table
    assert "curator of town" in table
    done = discreet("token", "revoke", name_of(provider), cwd=office.folder)
    assert done.out == f"{name_of(provider)}: revoked.\n"
