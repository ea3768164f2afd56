"""What the pages and examples for operators say is what the service knows."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from starlette.routing import compile_path
from typer.main import get_command

from discreet.cli.main import build_app
from discreet.server import connections, monitoring, pages
from discreet.server.api import routes
from discreet.server.config import Config, Limits, Tls
from discreet.server.dataset_config import DatasetConfig, Limit
from discreet.server.errors import STATUS
from discreet.server.sign_in import Identity, SignInConfig
from tests.cli.run import discreet
from tests.docs.test_tutorial import run

if TYPE_CHECKING:
    from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto" / "run-the-service.md"
SIGN_IN = HOWTO.with_name("sign-in.md")
TUTORIAL = ROOT / "docs" / "tutorial" / "first-service.md"
EXAMPLES = ROOT / "examples" / "service"
PAGES = (HOWTO, TUTORIAL)


def blocks(page: Path, *kinds: str) -> list[tuple[str, str]]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [(kind, text) for kind, text in found if not kinds or kind in kinds]


def keys(model: type[BaseModel]) -> set[str]:
    return {item.alias or name for name, item in model.model_fields.items()}


# The configuration.


def test_the_table_of_keys_has_every_key_and_no_other() -> None:
    tables = re.findall(r"^\| key \|.*?\n\n", HOWTO.read_text(), re.MULTILINE | re.DOTALL)
    rows = [line.split("|")[1:-1] for table in tables for line in table.strip().splitlines()[2:]]
    named = {name for first, *_ in rows for name in re.findall(r"`(\w+)`", first)}
    assert named == keys(Config) | keys(DatasetConfig) - {"name", "people_limit"}
    said = {name: cells for cells in rows for name in re.findall(r"`(\w+)`", cells[0])}
    for key, model in (("limits", Limits), ("tls", Tls)):
        inner = re.search(r"`\{(.*?)\}`", said[key][1])
        assert inner is not None
        assert set(inner.group(1).split(", ")) == keys(model)
    assert set(re.findall(r"\w+", "".join(re.findall(r"`(\{.*?\})`", said["limit"][1])))) == keys(Limit)


def test_the_defaults_in_the_table_are_the_defaults() -> None:
    text = HOWTO.read_text()
    least = Config.from_dict({**_least(), "listen": "127.0.0.1:8000"}, Path("/"))
    for key in ("workers", "slots", "session_hours"):
        (shown,) = re.findall(rf"^\| `{key}` \|.*\| (.+?) \|$", text, re.MULTILINE)
        assert float(shown) == getattr(least, key)
    (shown,) = re.findall(r"^\| `limits` \|.*\| (.+?) \|$", text, re.MULTILINE)
    known = list(least.limits.model_dump().values())
    assert [float(part) for part in shown.split(", ")] == known
    assert f"| `{Config.model_fields['listen'].default}` |" in text


def _least() -> dict[str, Any]:
    return {
        "datasets": {"d": {"table": "t.csv", "ledger": "l", "limit": {"rho": 0.1}}},
        "access": "a", "audit_log": "j",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["config.yaml", "postgres.yaml", "compose-config.yaml"])
def test_the_example_configurations_are_right(name: str) -> None:
    found = Config.load(EXAMPLES / name)
    assert found.secure
    assert found.seed is None
    assert found.slots is not None
    assert all(entry.analyst_limit is not None for entry in found.datasets.values())


def test_the_compose_file_fits_the_files_that_it_names() -> None:
    found = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    service, proxy, database = (found["services"][name] for name in ("discreet", "proxy", "database"))
    config = Config.load(EXAMPLES / "compose-config.yaml")
    assert (EXAMPLES / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    # The proxy reaches the service on 127.0.0.1, and the port that is published is the proxy's.
    # The service is what ends and starts again, so the network is not its own: the proxy would be cut off.
    assert service["network_mode"] == "service:proxy"
    assert "network_mode" not in proxy
    nginx = (EXAMPLES / "nginx.conf").read_text()
    assert f"proxy_pass http://{config.listen};" in nginx
    assert [port.split(":")[1] for port in proxy["ports"]] == re.findall(r"listen (\d+) ssl", nginx)
    for mount in proxy["volumes"]:
        source, target = mount.split(":")[:2]
        assert target in nginx or (EXAMPLES / source).is_file()
    user = database["environment"]["POSTGRES_USER"]
    place = f"postgresql://{user}@database/{database['environment']['POSTGRES_DB']}#"
    addresses = [str(config.access), *(str(entry.ledger) for entry in config.datasets.values())]
    assert all(address.startswith(place) for address in addresses)
    mounted = [mount.split(":")[1] for mount in service["volumes"]]
    image = (EXAMPLES / "Containerfile").read_text()
    assert [place for place in mounted if place.startswith("/var")] == re.findall(r'"(/var/[^"]+)"', image)
    assert set(found["networks"]) == set(proxy["networks"])
    assert int(service["stop_grace_period"].removesuffix("s")) > config.limits.seconds + 5
    assert database["networks"] == ["inside"]
    assert found["networks"]["inside"]["internal"] is True
    named = {mount.split(":")[0] for one in found["services"].values() for mount in one["volumes"]}
    assert set(found["volumes"]) == {name for name in named if not name.startswith(".")}


def test_prometheus_in_the_compose_file_reaches_the_service_and_has_its_files() -> None:
    found = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    scraper = found["prometheus"]
    told = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())
    (job,) = told["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [Config.load(EXAMPLES / "compose-config.yaml").listen]
    assert scraper["network_mode"] == found["discreet"]["network_mode"]  # where this address is the service
    mounts = {target: source for source, target, *_ in (one.split(":") for one in scraper["volumes"])}
    folder = PurePosixPath("/etc/prometheus")
    assert f"--config.file={folder / 'prometheus.yml'}" in scraper["command"]
    assert all((EXAMPLES / mounts[str(folder / name)]).is_file() for name in told["rule_files"])
    assert mounts[str(folder / "prometheus.yml")] == "./prometheus.yml"
    assert job["authorization"]["credentials_file"] in mounts
    assert "--web.listen-address=127.0.0.1:9090" in scraper["command"]  # not open to others


def test_the_proxy_limits_what_the_service_leaves_to_it() -> None:
    proxy = (EXAMPLES / "nginx.conf").read_text()
    limits = Config.load(EXAMPLES / "config.yaml").limits
    assert re.findall(r"limit_conn addresses +(\d+);", proxy) == [str(limits.connections_per_address)]
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout"):
        assert re.findall(rf"{name} +(\d+)s;", proxy) == [f"{connections.HEADER_SECONDS:.0f}"]
    (files,) = re.findall(r"worker_rlimit_nofile (\d+);", proxy)
    (held,) = re.findall(r"worker_connections (\d+);", proxy)
    assert int(files) >= 2 * int(held) >= 2 * limits.connections


def test_an_example_with_a_wrong_key_would_be_found(tmp_path: Path) -> None:
    wrong = (EXAMPLES / "config.yaml").read_text().replace("audit_log:", "audit-log:")
    (tmp_path / "config.yaml").write_text(wrong)
    with pytest.raises(ValueError, match="Did you mean audit_log"):
        Config.load(tmp_path / "config.yaml")


# Commands, addresses, numbers.


def commands() -> list[tuple[str, list[str]]]:
    """Return every command line of ours in pages and examples, without redirections."""
    lines = [
        (page.name, line) for page in PAGES for _, text in blocks(page, "sh") for line in text.splitlines()
    ]
    unit = (EXAMPLES / "discreet.service").read_text()
    lines += [("discreet.service", found) for found in re.findall(r"^ExecStart\w*=(.+)$", unit, re.MULTILINE)]
    told = (EXAMPLES / "prometheus.yml").read_text()
    lines += [("prometheus.yml", found) for found in re.findall(r"(discreet token .+)$", told, re.MULTILINE)]
    ours = []
    for place, line in lines:
        program, *arguments = shlex.split(line.partition(" > ")[0])
        if Path(program).name == "discreet":
            ours.append((place, arguments))
    image = (EXAMPLES / "Containerfile").read_text()
    started, (program, *asked) = (
        json.loads(re.findall(rf"^{indent}CMD (\[.+\])$", image, re.MULTILINE)[-1]) for indent in ("", " +")
    )
    assert program == "discreet"
    return [*ours, ("Containerfile", started), ("health check", asked)]


@pytest.mark.parametrize(("place", "arguments"), commands(), ids=lambda part: str(part)[:40])
def test_every_command_exists_with_its_options(place: str, arguments: list[str]) -> None:
    command: Any = get_command(build_app())
    rest = list(arguments)
    while hasattr(command, "commands"):
        assert rest[0] in command.commands, place
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {part for part in rest if part.startswith("--")} <= known, place


def test_there_are_commands_of_every_sort() -> None:
    assert {arguments[0] for _, arguments in commands()} == {
        "init", "serve", "service", "token", "ledger", "audit-log",
    }  # fmt: skip
    assert {place for place, _ in commands()} == {
        "run-the-service.md", "first-service.md", "discreet.service", "prometheus.yml", "Containerfile",
        "health check",
    }  # fmt: skip


def test_the_page_about_signing_in_has_every_key_and_a_configuration_that_is_valid() -> None:
    (table,) = re.findall(r"^\| of `sign_in` \|.*?\n\n", SIGN_IN.read_text(), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == keys(SignInConfig)
    ((_, text),) = blocks(SIGN_IN, "yaml")
    config = Config.from_dict(yaml.safe_load(text), ROOT)
    assert config.sign_in is not None
    assert config.sign_in.roles(Identity(config.sign_in.issuer, "x", "", ("data-office",))) == {
        "*": "operator"
    }


def test_every_address_that_is_named_is_answered() -> None:
    known = {route.path for route in routes.api_routes()}
    service: Any = SimpleNamespace(config=SimpleNamespace(sign_in=None))
    known |= {route.path for route in pages.router(service).routes}  # type: ignore[attr-defined]
    patterns = [compile_path(path)[0] for path in known]
    texts = [page.read_text() for page in (*PAGES, *sorted(EXAMPLES.iterdir()))]
    named = {
        path
        for text in texts
        for path in re.findall(r"/v1(?:/[\w-]+)+|(?<!\w)/(?:metrics|ready|health)\b", text)
    }
    assert {
        "/v1/datasets/patients-2026/curator/stop",
        "/metrics",
        "/ready",
    } <= named
    assert {path for path in named if not any(one.match(path) for one in patterns)} == set()


def test_every_metric_and_code_that_is_named_exists() -> None:
    source = Path(monitoring.__file__).read_text()
    rules = yaml.safe_load((EXAMPLES / "discreet.rules.yml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for text in (HOWTO.read_text(), *expressions) for name in re.findall(r"discreet_\w+", text)}
    known = {f"{name}_total" for name in re.findall(r'"(discreet_(?:requests|refusals|answers))"', source)}
    known |= {
        f"discreet_{name}" for name in ("spent", "left", "used", "stopped", "ready", "audit_log_intact")
    }
    assert known == named
    assert 'f"discreet_{key}"' in source
    codes = {
        code
        for text in expressions
        for found in re.findall(r'code=~?"(.+?)"', text)
        for code in found.split("|")
    }
    assert codes
    assert codes <= set(STATUS)


# Around the service.


def test_the_unit_runs_the_service_as_nobody_else_and_keeps_what_the_configuration_names() -> None:
    unit = configparser.RawConfigParser(strict=False, delimiters="=")
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(EXAMPLES / "discreet.service")
    service = unit["Service"]
    assert service["User"] == "discreet"
    assert service["ExecStartPre"] == service["ExecStart"] + " --check"
    config = Config.load(EXAMPLES / "config.yaml")
    state, logs = Path("/var/lib") / service["StateDirectory"], Path("/var/log") / service["LogsDirectory"]
    assert {Path(config.access).parent, *(Path(one.ledger).parent for one in config.datasets.values())} == {
        state
    }
    assert Path(config.audit_log).parent == logs
    assert f"DISCREET_STATE={state}/" in (EXAMPLES / "discreet.service").read_text()
    # A database that is away for a while must not end the service for good.
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert int(service["TimeoutStopSec"]) > config.limits.seconds + 5
    assert (service["LimitCORE"], service["ProtectSystem"], service["UMask"]) == ("0", "strict", "0077")


def test_the_image_has_the_extras_no_root_and_the_same_places() -> None:
    text = (EXAMPLES / "Containerfile").read_text()
    extras = re.findall(r'"/src\[(.+?)\]"', text)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    copied = {part for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for part in line.split()[:-1]}
    assert all((ROOT / part).exists() for part in copied)
    assert {"pyproject.toml", "src", project["readme"], *project["license-files"]} == copied
    (user,) = re.findall(r"^USER (\d+)$", text, re.MULTILINE)
    assert int(user) >= 1000
    assert f"DISCREET_STATE={Path(Config.load(EXAMPLES / 'config.yaml').access).parent}/" in text
    assert json.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[0]) == ["discreet"]
    # Whatever the configuration says about TLS and the port: the health check reads the same one.
    said = dict(commands())
    assert said["health check"] == [*said["Containerfile"], "--ready"]
    config = Config.load(EXAMPLES / "config.yaml")
    volumes = json.loads(re.findall(r"^VOLUME (.+)$", text, re.MULTILINE)[0])
    assert {str(Path(config.access).parent), str(Path(config.audit_log).parent)} == set(volumes)


def test_the_proxy_and_the_scraper_fit_the_service() -> None:
    proxy = (EXAMPLES / "nginx.conf").read_text()
    config = Config.load(EXAMPLES / "config.yaml")
    assert f"proxy_pass http://{config.listen};" in proxy
    (seconds,) = re.findall(r"proxy_read_timeout\s+(\d+)s;", proxy)
    assert int(seconds) > config.limits.seconds
    assert config.limits.body_bytes == 2**20
    assert "client_max_body_size 1m;" in proxy
    assert "proxy_set_header Host $host;" in proxy
    (job,) = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [config.listen]
    assert job["authorization"]["type"] == "Bearer"


# The tutorial.


@pytest.mark.slow
def test_every_step_of_the_tutorial_works(tmp_path: Path) -> None:
    said: list[str] = []
    service: subprocess.Popen[str] | None = None
    address = ""
    try:
        for kind, text in blocks(TUTORIAL, "yaml", "sh", "python"):
            if kind == "yaml":
                # Any port that is free, and short slots: 8000 may be taken, and nobody waits here.
                (tmp_path / "config.yaml").write_text(text + "listen: 127.0.0.1:0\nslots: 0.05\n")
            elif kind == "python":
                code = text.replace("http://127.0.0.1:8000", address)
                said.append(run([sys.executable, "-W", "error", "-c", code], tmp_path))
            else:
                for line in text.splitlines():
                    shown, _, kept = line.partition(" > ")
                    program, *arguments = shlex.split(shown)
                    if program == "pip":
                        continue
                    if arguments == ["serve", "config.yaml"]:
                        main = [sys.executable, "-c", "from discreet.cli import main; main()"]
                        service = subprocess.Popen(
                            [*main, *arguments],
                            cwd=tmp_path,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL,
                            text=True,
                        )
                        assert service.stdout is not None
                        first = service.stdout.readline()
                        address = first.split()[-1]
                        shown_there = next(text for kind, text in blocks(TUTORIAL, "text"))
                        assert first.replace(address, "http://127.0.0.1:8000") == shown_there
                        continue
                    done = discreet(*arguments, cwd=tmp_path)
                    assert done.code == 0, (line, done.err)
                    if kept:
                        (tmp_path / kept).write_text(done.out)
                    else:
                        said.append(done.out)
    finally:
        if service is not None:
            service.terminate()
            assert service.wait(60) in (0, -15, 143)
            if service.stdout is not None:
                service.stdout.close()
    checked, asked, attacked, ledger = said
    assert "valid. The service would answer questions about uci-adult" in checked
    price, count, again = asked.splitlines()
    assert "0.1" in price
    value, margin = re.fullmatch(r"(\d+) ± (\d+)", count).groups()  # type: ignore[union-attr]
    assert margin == "20"
    assert 6900 < int(value) < 7300
    assert again == "True True"
    used, income, intact = attacked.splitlines()
    assert used == "1 []"
    assert re.match(r"income: guessed right for 76\.\d% of people; 76\.\d% without any answer", income)
    assert intact == "True"
    assert "1 charge." in ledger
    # Without its ledger the service does not start again.
    for file in tmp_path.glob("census.ledger*"):
        file.unlink()
    done = discreet("serve", "config.yaml", cwd=tmp_path)
    assert done.code == 1
    assert "paid for an answer, and is not" in done.err
    assert not (tmp_path / "census.ledger").exists()
