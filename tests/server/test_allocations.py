"""A curator gives, raises and lowers limits of analysts and groups; the limit of the data set stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from discreet import connect
from discreet.cli.main import build_app
from discreet.errors import DiscreetError, SourceError
from discreet.ledger import Ledger
from discreet.ledger.audit_log import AuditLog
from discreet.privacy import GaussianDP
from discreet.server.access import AccessStore
from discreet.server.config import Config
from discreet.server.dataset import load_schema, open_ledger
from tests.cli.run import discreet
from tests.server.conftest import SCHEMA, configured, lines_of
from tests.server.markup import Visitor

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.server.conftest import RunningService

ALLOCATIONS = "/v1/datasets/town/curator/allocations"
KINDS = ("token created", "token revoked")
SMALL = {"kind": "gaussian-dp", "mu": 0.1}
BUDGET = "/v1/datasets/town/budget"


def count(over: int, mu: float = 0.1) -> dict[str, Any]:
    return {"kind": "count", "where": f"age > {over}", "privacy": {"kind": "gaussian-dp", "mu": mu}}


def order(client: httpx.Client, **given: Any) -> dict[str, Any]:
    answer = client.post(ALLOCATIONS, json=given)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def limit(client: httpx.Client, name: str, mu: float, kind: str = "analyst") -> dict[str, Any]:
    return order(client, action="limit", kind=kind, name=name, limit={"kind": "gaussian-dp", "mu": mu})


def test_a_limit_is_raised_while_the_service_runs_and_is_on_record(service: RunningService) -> None:
    curator = service.client("cura")
    total = service.client("ana").get(BUDGET).json()["total"]["limit"]
    limit(curator, "ana", 0.1)
    assert service.ask(count(30)).status_code == 200
    refused = service.ask(count(40))
    assert refused.status_code == 409
    assert service.client("ana").get(BUDGET).json()["available"]["whose"] == "own"
    limit(curator, "ana", 0.2)
    assert service.ask(count(40)).status_code == 200
    limit(curator, "ana", 0.12)
    assert service.ask(count(50)).status_code == 409
    budget = service.client("ana").get(BUDGET).json()
    assert budget["own"]["left"]["rho"] == 0
    limit(curator, "ana", 0.05)
    spent = service.ask(count(60)).json()["error"]
    assert spent["hint"].endswith("Not even a noisier answer would fit. A curator can raise this limit.")
    assert budget["total"]["limit"] == total
    service.backend.dataset.ledger.check()
    lines = [line for line in lines_of(service.whole.audit_log.path) if line["event"] == "limit set"]
    assert [(line["who"], line["name"], line["kind"]) for line in lines] == [("cura", "ana", "analyst")] * 4
    kinds = [row.content["type"] for row in records_of(service)]
    assert kinds.count("owner limit") == 4


def records_of(service: RunningService) -> list[Any]:
    with service.backend.dataset.ledger._store.read() as transaction:
        return list(transaction.record())


def test_members_share_the_limit_of_their_group_and_see_what_is_left(service: RunningService) -> None:
    curator = service.client("cura")
    limit(curator, "office", 0.1, "group")
    order(curator, action="group", name="ana", group="office")
    found = order(curator, action="group", name="ben", group="office")
    assert [(one["name"], one["members"]) for one in found["groups"]] == [("office", ["ana", "ben"])]
    assert service.ask(count(30)).status_code == 200
    refused = service.ask(count(40), "ben")
    assert refused.status_code == 409
    assert "group office" in refused.text
    budget = service.client("ben").get(BUDGET).json()
    assert budget["group"]["name"] == "office"
    assert budget["available"]["whose"] == "group"
    assert budget["available"]["left"]["rho"] == pytest.approx(0, abs=1e-9)
    with connect(service.url, service.tokens["ben"]) as whole:
        (entry,) = whole.datasets()
        for shown in (whole["town"].budget(), entry.budget):
            assert shown.group is not None
            assert shown.available is not None
            assert (shown.group.name, shown.available.whose) == ("office", "group")
            assert shown.group.left == shown.available.left == budget["group"]["left"]
            assert shown.people is None
            assert shown.composition == whole["town"].composition == budget["composition"]
            line = next(line for line in str(shown).splitlines() if line.startswith("Group office"))
            assert line.startswith("Group office (used up first): 100")
    order(curator, action="group", name="ben", group=None)
    assert service.ask(count(40), "ben").status_code == 200
    with connect(service.url, service.tokens["ben"]) as whole:
        assert whole["town"].budget().group is None
    assert service.client("ben").get(BUDGET).json()["group"] is None
    groups = [
        (line["name"], line["group"])
        for line in lines_of(service.whole.audit_log.path)
        if line["event"] == "group set"
    ]
    assert groups == [("ana", "office"), ("ben", "office"), ("ben", None)]


def test_the_price_of_a_first_question_is_that_of_the_smallest_budget(service: RunningService) -> None:
    curator = service.client("cura")
    limit(curator, "ana", 0.4)
    limit(curator, "office", 0.2, "group")
    order(curator, action="group", name="ana", group="office")
    preview = service.client("ana").post("/v1/datasets/town/preview", json=count(30)).json()
    assert (preview["more"], preview["remaining"]["nearer"]) == (4, "own")
    assert preview["remaining"]["takes"]["share"] == pytest.approx(0.25, rel=0.01)
    visitor = Visitor(service)
    page = visitor.get("/datasets/town")
    assert "100.0\u00a0% of your group's budget is left" in page.text
    asked = {"source": "sql", "sql": "count where age > 30", "exact": "mu", "amount": "0.1"}
    priced = visitor.read(visitor.send(page, "/datasets/town/ask", do="price", **asked))
    assert "costs 25.0\u00a0% of your group's budget" in priced.one(id="price").text
    answer = visitor.client.post(
        "/datasets/town/ask", data=visitor.fill(priced, "/datasets/town/ask", do="ask")
    )
    shown = visitor.get(answer.headers["location"])
    assert shown.text.count("75.0\u00a0% of your group's budget is left") == 2


def test_a_limit_above_that_of_the_data_set_allows_no_more(service: RunningService) -> None:
    limit(service.client("cura"), "ana", 1e6)
    assert service.client("ana").get(BUDGET).json()["available"]["whose"] == "total"
    assert service.ask(count(30, mu=50.0)).status_code == 409


def test_only_a_curator_changes_allocations_and_wrong_orders_change_nothing(service: RunningService) -> None:
    given = {"action": "limit", "kind": "analyst", "name": "ana", "limit": None}
    assert service.client("ana").post(ALLOCATIONS, json=given).status_code == 403
    assert service.client("ana").get(ALLOCATIONS).status_code == 403
    assert service.client(None).post(ALLOCATIONS, json=given).status_code == 401
    curator = service.client("cura")
    rows = service.backend.dataset.ledger.head
    for wrong in (
        given | {"name": "total"},
        given | {"kind": "table"},
        given | {"limit": {"kind": "gaussian-dp", "mu": -1}},
        {"action": "group", "name": "ana"},
        {"action": "group", "name": "ana", "group": ""},
    ):
        assert curator.post(ALLOCATIONS, json=wrong).status_code in (400, 422)
    assert service.backend.dataset.ledger.head == rows


def test_tokens_for_several_names_are_created_together_or_not_at_all(service: RunningService) -> None:
    curator = service.client("cura")
    many = "/v1/datasets/town/curator/tokens/many"
    answer = curator.post(
        many, json={"names": ["n1", "n2", "n3"], "limit": {"kind": "gaussian-dp", "mu": 0.1}}
    )
    assert answer.status_code == 200
    made = answer.json()["tokens"]
    assert list(made) == ["n1", "n2", "n3"]
    assert len(set(made.values())) == 3
    service.tokens |= made
    assert service.ask(count(30), "n2").status_code == 200
    assert service.ask(count(40), "n2").status_code == 409
    for names in (["n4", "n1"], ["n5", "n5"], ["n6", " "], []):
        assert curator.post(many, json={"names": names}).status_code in (400, 409, 422)
    valid = {token["name"] for token in service.backend.tokens() if token["state"] == "valid"}
    assert valid == {"ana", "ben", "cura", "n1", "n2", "n3"}


def access_of(service: RunningService, *names: str) -> list[Any]:
    backend = service.backend
    limits = [backend.dataset.accounting.account(name)["limit"] for name in names]
    return [backend.access.grants(), len(backend.tokens()), limits]


def full_disk(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def refused_store(*_: object, **__: object) -> None:
    raise SourceError("access must be a file that can be written, and is not.")


@pytest.mark.parametrize(
    ("where", "name", "error"),
    [
        (AuditLog, "write_all", full_disk),
        (Ledger, "set_owner_limit", refused_store),
        (AccessStore, "create_all", refused_store),
    ],
)
def test_tokens_that_fail_change_no_role_no_limit_and_no_token(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, error: Any
) -> None:
    backend, tokens = service.backend, service.whole.tokens
    backend.grant("test", "kim", "analyst")  # has a role without a token here
    backend.allocations.set_limit("test", "analyst", "kim", GaussianDP(mu=0.3))
    before = access_of(service, "kim", "new")
    order: dict[str, Any] = {"at": "town", "dataset": "town", "role": "curator", "limit": GaussianDP(mu=0.1)}
    with monkeypatch.context() as patch:
        patch.setattr(where, name, error)
        with pytest.raises(DiscreetError):
            tokens.create_all("cura", ["kim", "new"], days=1, **order)
    assert access_of(service, "kim", "new") == before
    # A creation that is on record and took no effect is followed by a line that says so.
    lines = [(line["event"], line.get("name")) for line in lines_of(service.whole.audit_log.path)]
    created, revoked = (sorted(lines.count((kind, who)) for who in ("kim", "new")) for kind in KINDS)
    assert created == revoked


def test_a_name_that_is_refused_among_others_changes_nothing_for_them(service: RunningService) -> None:
    backend = service.backend
    backend.grant("test", "kim", "curator")
    before = access_of(service, "kim", "new")
    order = {"names": ["kim", "new", "ana"], "role": "analyst", "limit": {"kind": "gaussian-dp", "mu": 0.1}}
    refused = service.client("cura").post("/v1/datasets/town/curator/tokens/many", json=order)
    assert refused.status_code == 422
    assert "'ana' has a valid token already" in refused.text
    assert access_of(service, "kim", "new") == before
    assert lines_of(service.whole.audit_log.path)[-1]["event"] == "granted"


def test_the_command_line_changes_limits_and_groups(service: RunningService) -> None:
    config = configured(service.folder)
    run = CliRunner().invoke

    def command(*words: str) -> str:
        done = run(build_app(), ["token", *words, "--config", str(config)])
        assert done.exit_code == 0, done.output
        return str(done.output)

    assert "mu" in command("limit", "office", "--group", "--mu", "0.1")
    assert "in the group office" in command("group", "ana", "office")
    assert service.ask(count(30)).status_code == 200
    assert service.ask(count(40)).status_code == 409
    assert "in no group" in command("group", "ana")
    assert service.ask(count(40)).status_code == 200
    lines = command("create", "x1", "x2").splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["x1", "x2"]
    assert command("create", "x3").startswith("dsc_")
    entry = Config.load(config).datasets["town"]
    with open_ledger(entry, load_schema(entry)) as ledger:
        assert ledger.groups() == {"office": []}
        ledger.check()


def test_a_limit_at_one_of_several_data_sets_about_the_same_people_says_that_it_counts_for_all(
    tmp_path: Path,
) -> None:
    table = {"table": "town.csv", "schema": "plain.schema.yaml"}
    configured(
        tmp_path,
        people={"residents": {"ledger": "residents.ledger", "limit": {"rho": 10.0}}},
        datasets={
            "north": table | {"people": "residents"},
            "south": table | {"people": "residents"},
            "west": table | {"ledger": "west.ledger", "limit": {"rho": 1}},
        },
    )
    (tmp_path / "plain.schema.yaml").write_text(replace(SCHEMA, dataset=None).to_yaml())
    limited = discreet("token", "limit", "ana", "--rho", "1", "--dataset", "north", cwd=tmp_path)
    assert limited.out == "ana: rho = 1 (replace-one, person) at north, south.\n", limited.err
    grouped = discreet("token", "group", "ana", "office", "--dataset", "south", cwd=tmp_path)
    assert grouped.out == "ana: in the group office at north, south.\n", grouped.err
    alone = discreet("token", "limit", "ana", "--rho", "1", "--dataset", "west", cwd=tmp_path)
    assert alone.out == "ana: rho = 1 (replace-one, person) at west.\n", alone.err
