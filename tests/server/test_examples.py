"""The files beside the service in ``examples/service`` as nginx and Prometheus take them, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.server.processes import served
from tests.servers import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples/service"
_LONG = 120.0
SLOW_BODY = b"POST /v1/datasets/town/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 16000\r\n\r\n"


def program(name: str, package: str) -> str:
    """Return the path of a program, or skip the test and say so."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is {MARK}: it is not installed (Debian: {package})")
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def adapted(name: str, changes: dict[str, str]) -> str:
    """Return the text of an example in which each of some places occurs and is replaced."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def background(command: list[str], folder: Path, is_up: Callable[[], bool]) -> Iterator[None]:
    """Run a program until the end of the block, from when it is up."""
    log = folder / "program.log"
    with log.open("wb") as told, subprocess.Popen(command, stdout=told, stderr=told) as running:
        try:
            end = time.monotonic() + _LONG
            while not is_up():
                assert running.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            running.terminate()
            running.wait(_LONG)


@contextlib.contextmanager
def proxied(folder: Path, certificate: tuple[Path, Path], service: int) -> Iterator[int]:
    """Run the shipped proxy in front of a service; yields its port."""
    nginx, port = program("nginx", "nginx-light"), free_port()
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = adapted(
        "nginx.conf",
        {
            "worker_processes auto;": "worker_processes 1;",  # a machine with one processor
            "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "/etc/nginx/fullchain.pem": str(certificate[0]),
            "/etc/nginx/privkey.pem": str(certificate[1]),
            "/var/log/nginx/discreet.log": str(folder / "access.log"),
            "http://127.0.0.1:8000": f"http://127.0.0.1:{service}",
            "http {": f"http {{ {temporary}",
        },
    )
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    user = "user root;" if os.geteuid() == 0 else ""  # the only one who may enter the folders of a test
    globally = f"daemon off; pid {folder}/nginx.pid; {user}"
    command = [nginx, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"),
               "-g", globally]  # fmt: skip
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr

    def is_up() -> bool:
        with contextlib.suppress(OSError), connect(port):
            return True
        return False

    with background(command, folder, is_up):
        yield port


def connect(port: int, *, tls: bool = True, timeout: float = _LONG) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    if not tls:
        return client
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # after its handshake the server sends nothing unasked
    return context.wrap_socket(client)


def least_seconds_of_health(port: int) -> float:
    """Return the shortest time in which a new connection was answered, of some."""
    least = _LONG
    for _ in range(20):
        begun = time.monotonic()
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.get(f"https://127.0.0.1:{port}/health", verify=False, timeout=2)
            assert answer.status_code == 200
            least = min(least, time.monotonic() - begun)
    return least


@contextlib.contextmanager
def attacked(port: int, count: int, sent: bytes, *, tls: bool) -> Iterator[None]:
    """Hold so many connections on which something was sent, or all that there are; replace closed ones."""
    full, over = threading.Event(), threading.Event()
    clients: dict[int, socket.socket] = {}
    waiting = select.poll()

    def hold() -> None:
        while not over.is_set():
            for handle, _ in waiting.poll(0):
                waiting.unregister(handle)
                clients.pop(handle).close()
            if len(clients) >= count:
                full.set()
                time.sleep(0.01)
                continue
            try:
                client = connect(port, tls=tls, timeout=2)
                client.sendall(sent)
            except OSError:
                full.set()  # no further one is accepted
            else:
                clients[client.fileno()] = client
                waiting.register(client, select.POLLIN | select.POLLHUP)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    try:
        assert full.wait(_LONG), "the connections cannot be opened"
        yield
    finally:
        over.set()
        thread.join(_LONG)
        for client in clients.values():
            client.close()


@pytest.mark.parametrize(
    ("sent", "tls"), [(b"", False), (b"GET /health HTTP/1.1\r\nX-Slow: ", True)], ids=["half-open", "headers"]
)
def test_the_proxy_answers_others_while_1100_connections_send_no_request(
    tmp_path: Path, certificate: tuple[Path, Path], sent: bytes, tls: bool
) -> None:
    with (
        served(tmp_path, behind_proxy=True) as service,
        proxied(tmp_path, certificate, service.port) as port,
        attacked(port, 1100, sent, tls=tls),
    ):
        assert least_seconds_of_health(port) < 1


def test_the_proxy_gives_a_client_10_seconds_and_an_address_128_requests(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with (
        served(tmp_path, behind_proxy=True) as service,
        proxied(tmp_path, certificate, service.port) as port,
    ):
        url = f"https://127.0.0.1:{port}"
        for sent in (b"GET /health HTTP/1.1\r\nX-Slow: ", SLOW_BODY):
            begun = time.monotonic()
            with connect(port) as client:
                client.sendall(sent)
                while client.recv(4096):
                    pass
            assert 10 <= time.monotonic() - begun < 45  # nginx alone gives 60
        end, status = time.monotonic() + _LONG, 0
        with contextlib.ExitStack() as held:
            clients: list[socket.socket] = []
            while status != 429:
                assert time.monotonic() < end, "more than 128 requests of one address are served"
                for client in clients:
                    client.sendall(b" ")  # within the time between two parts of a body
                if len(clients) < 128:
                    clients.append(held.enter_context(connect(port)))
                    clients[-1].sendall(SLOW_BODY)
                else:
                    status = httpx.get(f"{url}/health", verify=False, timeout=_LONG).status_code
        while httpx.get(f"{url}/health", verify=False, timeout=_LONG).status_code != 200:
            assert time.monotonic() < end
        assert httpx.get(f"{url}/metrics", verify=False).status_code == 403


def test_prometheus_takes_the_rules_and_scrapes_the_service(tmp_path: Path) -> None:
    prometheus, promtool = (program(name, "prometheus") for name in ("prometheus", "promtool"))
    with served(tmp_path, behind_proxy=True) as service:
        (token,) = service._create([("prometheus", "operator")], "*")
        (tmp_path / "discreet.token").write_text(token)
        changes = {
            "/etc/prometheus/discreet.token": str(tmp_path / "discreet.token"),
            "127.0.0.1:8000": f"127.0.0.1:{service.port}",
            "scrape_configs:": "global: {scrape_interval: 1s, evaluation_interval: 1s}\nscrape_configs:",
        }
        (tmp_path / "prometheus.yml").write_text(adapted("prometheus.yml", changes))
        shutil.copy(EXAMPLES / "discreet.rules.yml", tmp_path)
        for command in (["config", "prometheus.yml"], ["rules", "discreet.rules.yml"]):
            subprocess.run([promtool, "check", *command], cwd=tmp_path, check=True, capture_output=True)
        url = f"http://127.0.0.1:{free_port()}"
        command = [prometheus, f"--config.file={tmp_path}/prometheus.yml",
                   f"--storage.tsdb.path={tmp_path}/metrics",
                   f"--web.listen-address={url.removeprefix('http://')}"]  # fmt: skip

        def asked(path: str, **query: str) -> Any:
            return json.loads(httpx.get(f"{url}/api/v1/{path}", params=query, timeout=_LONG).text)["data"]

        def is_scraped() -> bool:
            with contextlib.suppress(httpx.TransportError, json.JSONDecodeError):
                found = asked("query", query="discreet_ready")["result"]
                return [float(one["value"][1]) for one in found] == [1.0]
            return False

        with background(command, tmp_path, is_scraped):
            (up,) = asked("query", query='up{job="discreet"}')["result"]
            assert up["value"][1] == "1"
            rules = [rule for group in asked("rules")["groups"] for rule in group["rules"]]
            assert rules
            assert [alert for alert in asked("alerts")["alerts"] if alert["state"] == "firing"] == []
