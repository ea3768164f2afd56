from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import (
    LedgerError,
    ParameterError,
)
from discreet.ledger import Ledger, Rule
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PosteriorOdds, PureDP
from discreet.schema.serialization import write_yaml
from discreet.server.config import Config
from discreet.server.service import Service
from tests.cli.run import discreet
from tests.server.conftest import SCHEMA, configured, settings, write_table

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
access: access.db
audit_log: audit.jsonl
datasets:
  town:
    table: town.csv
    ledger: town.ledger
    limit: {epsilon: 4, delta: 1e-6}
"""


def refused(tmp_path: Path, text: str) -> str:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ParameterError) as caught:
        Config.load(tmp_path / "config.yaml")
    return str(caught.value)


def loaded(tmp_path: Path, text: str) -> Config:
    (tmp_path / "config.yaml").write_text(text)
    return Config.load(tmp_path / "config.yaml")


def test_a_short_file_is_enough_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    found = loaded(tmp_path, TEXT)
    assert found.datasets["town"].table == str(tmp_path / "town.csv")
    assert found.datasets["town"].ledger == str(tmp_path / "town.ledger")
    assert found.access == str(tmp_path / "access.db")
    assert found.audit_log == tmp_path / "audit.jsonl"
    assert (found.slots, found.workers, found.host, found.port) == (1.0, 1, "127.0.0.1", 8000)


def test_urls_and_bundled_tables_stay_as_they_are(tmp_path: Path) -> None:
    text = TEXT.replace("town.csv", "demo:census").replace("town.ledger", "postgresql://host/db#town")
    found = loaded(tmp_path, text)
    assert (found.datasets["town"].table, found.datasets["town"].ledger) == (
        "demo:census",
        "postgresql://host/db#town",
    )


@pytest.mark.parametrize(
    ("limit", "promise"),
    [
        ("{epsilon: 2}", PureDP(epsilon=2)),
        ("{epsilon: 2, delta: 1e-7}", ApproxDP(epsilon=2, delta=1e-7)),
        ("{epsilon: 2, delta: 1e-7, queries: 9}", PosteriorOdds(epsilon=2, delta=1e-7, queries=9)),
        ("{rho: 0.5}", ZCDP(rho=0.5)),
        ("{mu: 0.5}", GaussianDP(mu=0.5)),
    ],
)
def test_a_limit_is_any_promise_in_its_shortest_form(tmp_path: Path, limit: str, promise: Any) -> None:
    found = loaded(tmp_path, TEXT.replace("{epsilon: 4, delta: 1e-6}", limit))
    own = found.datasets["town"].limit
    assert own is not None
    assert own.promise(SCHEMA) == promise


@pytest.mark.parametrize("limit", ["{}", "{epsilon: 1, rho: 1}", "{delta: 1e-6}", "{rho: 1, delta: 1e-6}"])
def test_a_limit_that_is_none_or_two_is_refused_with_the_forms_there_are(tmp_path: Path, limit: str) -> None:
    told = refused(tmp_path, TEXT.replace("{epsilon: 4, delta: 1e-6}", limit))
    assert told.startswith("datasets.town.limit of ")
    assert "{rho: 0.1}" in told


@pytest.mark.parametrize("value", ["0", "-1", "1e400", ".nan"])
def test_a_limit_outside_its_range_is_refused(tmp_path: Path, value: str) -> None:
    assert "limit.rho" in refused(tmp_path, TEXT.replace("{epsilon: 4, delta: 1e-6}", f"{{rho: {value}}}"))


def test_every_missing_key_is_named_at_once_with_what_to_write(tmp_path: Path) -> None:
    lines = refused(tmp_path, "listen: 127.0.0.1:80\n").splitlines()
    assert [line.partition(" ")[0] for line in lines] == [
        "datasets", "access", "audit_log",
    ]  # fmt: skip
    assert all("is required" in line for line in lines)
    lines = refused(tmp_path, "access: a\naudit_log: b\ndatasets: {town: {}}\n").splitlines()
    assert [line.partition(" ")[0] for line in lines] == [
        f"datasets.town.{key}" for key in ("table", "ledger")
    ]
    assert all("is required" in line for line in lines)


@pytest.mark.parametrize(
    ("line", "named", "meant"),
    [
        ("    tabel: x", "datasets.town.tabel", "table"),
        ("limits: {per_minut: 3}", "limits.per_minut", "per_minute"),
        ("tls: {certificat: a, key: b}", "tls.certificat", "certificate"),
        ("    analyst_limit: {epsilonn: 3}", "datasets.town.analyst_limit.epsilonn", "epsilon"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(
    tmp_path: Path, line: str, named: str, meant: str
) -> None:
    told = refused(tmp_path, f"{TEXT}{line}\n")
    assert f"{named} of " in told
    assert f"Did you mean {meant}?" in told


@pytest.mark.parametrize("value", ["0", "false", "null", "-2", "{}", "{sums: 0}", "[1]", ".inf", "on"])
def test_slots_are_never_off_by_accident(tmp_path: Path, value: str) -> None:
    told = refused(tmp_path, f"{TEXT}slots: {value}\n")
    assert told.startswith("slots of ")


def test_slots_are_off_only_by_that_word_and_may_differ_by_kind(tmp_path: Path) -> None:
    assert loaded(tmp_path, TEXT + "slots: off\n").slots is None
    assert loaded(tmp_path, TEXT + "slots: {sums: 0.5, gram: 4}\n").slots == {"sums": 0.5, "gram": 4.0}


def test_tokens_never_travel_in_the_clear_beyond_this_machine(tmp_path: Path) -> None:
    told = refused(tmp_path, TEXT + "listen: 0.0.0.0:8000\n")
    assert "listen of " in told
    assert "behind_proxy: true" in told
    assert loaded(tmp_path, TEXT + "listen: 0.0.0.0:8000\nbehind_proxy: true\n").secure
    assert loaded(tmp_path, TEXT + "listen: 0.0.0.0:443\ntls: {certificate: c.pem, key: k.pem}\n").secure
    assert not loaded(tmp_path, TEXT + "listen: '[::1]:8000'\n").secure


@pytest.mark.parametrize(
    "listen", ["8000", "127.0.0.1", "'127.0.0.1:'", "127.0.0.1:x", "127.0.0.1:70000", "':8'"]
)
def test_an_address_is_a_host_and_a_port(tmp_path: Path, listen: str) -> None:
    assert refused(tmp_path, f"{TEXT}listen: {listen}\n").startswith("listen of ")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://data.example.org", "https://data.example.org"),
        ("https://data.example.org:8443/", "https://data.example.org:8443"),
        ("'https://[2001:db8::1]'", "https://[2001:db8::1]"),
    ],
)
def test_where_others_reach_it_is_a_scheme_and_a_host(tmp_path: Path, given: str, kept: str) -> None:
    assert loaded(tmp_path, f"{TEXT}behind_proxy: true\naddress: {given}\n").address == kept


@pytest.mark.parametrize(
    "address",
    [
        "data.example.org",
        "ftp://data.example.org",
        "https://",
        "https://data.example.org/service",
        "https://data.example.org/?a=b",
        "https://ana@data.example.org",
        "https://data.example.org:0",
        "https://data.example.org:x",
        "'https://[::1'",
        "'https://data example.org'",
        "http://data.example.org",
    ],
)
def test_an_address_that_a_token_must_not_be_sent_to_is_refused(tmp_path: Path, address: str) -> None:
    told = refused(tmp_path, f"{TEXT}behind_proxy: true\naddress: {address}\n")
    assert told.startswith("address of ")
    assert "https://" in told


def test_an_address_without_tls_is_not_said_to_have_it(tmp_path: Path) -> None:
    assert "behind_proxy" in refused(tmp_path, f"{TEXT}address: https://data.example.org\n")
    assert loaded(tmp_path, f"{TEXT}address: http://localhost:8000\n").address == "http://localhost:8000"


@pytest.mark.parametrize("cells", ["0", "-1", "1e5", "4194305"])
def test_the_largest_answer_is_a_whole_number_of_cells(tmp_path: Path, cells: str) -> None:
    assert refused(tmp_path, f"{TEXT}limits: {{cells: {cells}}}\n").startswith("limits.cells of ")
    assert loaded(tmp_path, TEXT).limits.cells == 65_536


# What a limit adds up.


def test_the_rule_is_mixed_or_what_is_said(tmp_path: Path) -> None:
    assert (loaded(tmp_path, TEXT).datasets["town"].rule, loaded(tmp_path, TEXT).datasets["town"].order) == (
        "mixed",
        None,
    )
    assert loaded(tmp_path, TEXT + "    rule: gaussian\n").datasets["town"].rule == "gaussian"
    assert loaded(tmp_path, TEXT + "    order: 33\n").datasets["town"].order == 33
    for wrong in ("both", "1", "true"):
        assert "rule of" in refused(tmp_path, TEXT + f"    rule: {wrong}\n")
    for wrong in ("1", "-3", "high"):
        assert "order of" in refused(tmp_path, TEXT + f"    order: {wrong}\n")
    assert "must go with rule: mixed" in refused(tmp_path, TEXT + "    rule: pure\n    order: 33\n")


def test_a_rule_without_a_limit_that_has_one_is_refused(tmp_path: Path) -> None:
    rho = TEXT.replace("{epsilon: 4, delta: 1e-6}", "{rho: 0.1}") + "    rule: gaussian\n"
    assert "must go with a limit of {epsilon, delta}" in refused(tmp_path, rho)
    assert (
        loaded(tmp_path, rho + "    analyst_limit: {epsilon: 1, delta: 1e-7}\n").datasets["town"].rule
        == "gaussian"
    )


def test_the_rule_is_that_of_every_limit_and_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    write_table(tmp_path)
    whole, own = ApproxDP(epsilon=4, delta=1e-6), ApproxDP(epsilon=1, delta=1e-7)
    said = {"limit": {"epsilon": 4.0, "delta": 1e-6}, "analyst_limit": {"epsilon": 1.0, "delta": 1e-7}}

    def left(rule: Rule, **limits: Any) -> Any:
        with Ledger.open(":memory:", rule=rule, **limits) as ledger:
            return ledger.remaining("x" if "owner_limit" in limits else None)

    backend = Service(Config.from_dict(settings(**said, rule="gaussian"), tmp_path))
    try:
        town = backend.datasets["town"]
        town.create_token("test", "ana")
        town.create_token("test", "bob", limit=ApproxDP(epsilon=2, delta=1e-7))
        found = [town.dataset.ledger.remaining(name) for name in (None, "ana")]
        assert found == [left("gaussian", limit=whole), left("gaussian", owner_limit=own)]
        assert found != [left("mixed", limit=whole), left("mixed", owner_limit=own)]
        assert town.dataset.ledger.remaining("bob") == left(
            "gaussian", owner_limit=ApproxDP(epsilon=2, delta=1e-7)
        )
    finally:
        backend.close()
    for other in ({}, {"rule": "pure"}):
        with pytest.raises(LedgerError, match=r"limit of Ledger.open must be the one fixed.*rule='gaussian'"):
            Service(Config.from_dict(settings(**said, **other), tmp_path))
    # At a terminal too.
    content = {name: value for name, value in settings(**said, rule="gaussian").items() if value is not None}
    (tmp_path / "config.yaml").write_text(write_yaml(content))
    made = discreet("token", "create", "carl", "--epsilon", "2", "--delta", "1e-7", cwd=tmp_path)
    assert made.code == 0, made.err
    with Ledger.open(tmp_path / "town.ledger") as ledger:
        assert ledger.remaining("carl") == left("gaussian", owner_limit=ApproxDP(epsilon=2, delta=1e-7))


def test_a_seed_is_for_tests_that_say_so(tmp_path: Path) -> None:
    assert "can compute the noise" in refused(tmp_path, TEXT + "seed: 1\n")
    assert loaded(tmp_path, TEXT + "seed: 1\ntesting: true\n").seed == 1


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "dataset: [", "just words", "dataset: a\ndataset: b\n"])
def test_what_is_no_mapping_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    assert "config" in refused(tmp_path, text)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="nowhere"):
        Config.load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"dataset": "2024/a"}, "datasets.2024/a of {} must be a name of at most 128 letters, digits, "),
        (
            {"limit": 4},
            "datasets.town.limit of {} must be a mapping of keys to values, was 4. Write {{epsilon: 1}}, ",
        ),
        (
            {"limit": {"epsilon": "4"}},
            "datasets.town.limit.epsilon of {} must be a number, was the text '4'. Write {{eps",
        ),
        (
            {"limit": {"epsilon": -4}},
            "datasets.town.limit.epsilon of {} must be greater than 0, was -4. Write {{epsilon",
        ),
        ({"limits": {"concurrent": 2.5}}, "limits.concurrent of {} must be a whole number, was 2.5. The de"),
        (
            {"tls": "a.pem"},
            "tls of {} must be a mapping of keys to values. Write {{certificate: FILE, key: FILE}}.",
        ),
        ({"listen": 8000}, "listen of {} must be an address and a port, such as 127.0.0.1:8000 or "),
        ({"workers": "2"}, "workers of {} must be a whole number, was the text '2'. The default is 1."),
        ({"behind_proxy": "yes"}, "behind_proxy of {} must be true or false, was the text 'yes'. Leave it"),
        (
            {"version": 2024},
            "datasets.town.version of {} must be text, was 2024. Put it in quotes, or leave it out.",
        ),
        ({"version": ""}, "datasets.town.version of {} must not be empty."),
        ({"session_hours": 0}, "session_hours of {} must be greater than 0, was 0. The default is 8."),
        (
            {"slots": {"sumz": 1.0}},
            "slots of {} must name kinds of questions, and sumz is not one. Did you mean",
        ),
        (
            {"slots": {"everything": 1.0}},
            "slots of {} must name kinds of questions, and everything is not one.",
        ),
        (
            {"rule": "gauss"},
            "datasets.town.rule of {} must be 'mixed', 'gaussian' or 'pure', was the text 'ga",
        ),
        ({"limits": {"cells": 0}}, "limits.cells of {} must be at least 1, was 0. The default is 65536."),
        ({"workers": 1000}, "workers of {} must be at most 256, was 1000. The default is 1."),
        ({"order": 0.5}, "datasets.town.order of {} must be greater than 1, was 0.5. Leave it out."),
        ({"audit_log": 4}, "audit_log of {} must be the path of a file, or a postgresql:// URL. Name a file"),
        ({"jobs": "./access.db"}, "jobs of {} must be a separate file, and is the same as access."),
        (
            {"sign_in": {"issuer": 4}},
            "sign_in.issuer of {} must be text, was 4. Give the address of the prov",
        ),
        ({"spots": 1}, "spots of {} is not a known key. Did you mean slots?"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_was_and_the_way_out(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    path = configured(tmp_path, **changed)
    with pytest.raises(ParameterError) as caught:
        Config.load(path)
    said = str(caught.value)
    assert said.startswith(told.format(path))
    assert "instance of" not in said
    assert said[-1] in ".?"


@pytest.mark.parametrize(
    ("people", "told"),
    [
        (
            None,
            "people.all of {} must be a mapping of keys to values, was left empty. Write ledger: and limit: "
            "below it.",
        ),
        (
            {"ledger": "x.ledger"},
            "people.all.limit of {} is required. Give for instance {{epsilon: 4, delta: ",
        ),
    ],
)
def test_people_who_are_wrong_are_not_told_of_their_data_sets(tmp_path: Path, people: Any, told: str) -> None:
    path = configured(tmp_path)
    content = {"people": {"all": people}, "datasets": {"town": {"table": "town.csv", "people": "all"}}}
    path.write_text(write_yaml({**content, "access": "access.db", "audit_log": "audit.jsonl"}))
    with pytest.raises(ParameterError) as caught:
        Config.load(path)
    assert str(caught.value).startswith(told.format(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], {}])
def test_data_sets_that_are_none_are_asked_for(tmp_path: Path, value: Any) -> None:
    path = configured(tmp_path)
    path.write_text(write_yaml({"datasets": value, "access": "access.db", "audit_log": "audit.jsonl"}))
    with pytest.raises(
        ParameterError, match=r"^datasets of .* must (be a mapping of keys to values|not be empty)"
    ) as caught:
        Config.load(path)
    assert str(caught.value).endswith(". Write a name, and below it table:, ledger: and limit:.")


def test_no_password_is_quoted_from_a_value_that_is_wrong(tmp_path: Path) -> None:
    path = configured(tmp_path, ledger="postgresql://me:secret@host/db#x", table=["postgresql://me:secret@h"])
    with pytest.raises(ParameterError, match=r"datasets\.town\.table of ") as caught:
        Config.load(path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n", "a: 1\na: 2\n", "\tb: 1\n"])
def test_a_configuration_that_is_no_mapping_is_not_taken_for_a_schema(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ParameterError, match="must be YAML, and is not: it must ") as caught:
        Config.load(path)
    assert "schema" not in str(caught.value)
    assert "fields" not in str(caught.value)


def test_a_configuration_in_another_encoding_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes("dataset: Köniz\n".encode("latin-1"))
    with pytest.raises(ParameterError, match=r"must be text in UTF-8, and byte 10 is not\. Save it as UTF-8"):
        Config.load(path)


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("audit_log", "access"),
        ("access", "ledger"),
        ("audit_log", "ledger"),
        ("ledger", "table"),
        ("access", "table"),
    ],
)
def test_no_file_serves_two_purposes(tmp_path: Path, key: str, other: str) -> None:
    names = {"access": "access.db", "ledger": "town.ledger", "table": "town.csv"}
    path = configured(tmp_path, **{key: f"./{names[other]}"})
    place = r"(datasets\.town\.)?"
    with pytest.raises(ParameterError, match=rf"^{place}\w+ of .* is the same as {place}\w+\."):
        Config.load(path)
