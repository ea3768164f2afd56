"""A throwaway PostgreSQL server for tests: started on demand, gone afterwards.

The server listens on the loopback address at a free port, asks for a password (so tests can check
that passwords never reach a message), keeps its files in a temporary folder, and has ``fsync`` on.
Each process of a parallel test run starts its own. Binaries are looked for on ``PATH`` and where
Debian keeps them; ``DISCREET_TEST_POSTGRES_BIN`` names another folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import cannot_start

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "curator"
PASSWORD = "correct-horse"
_NEEDED = ("initdb", "postgres")

# The shell stops the server when its standard input closes, which also happens when the test
# process is killed: no server outlives its tests. What it has not written need not be: its folder is removed.
_WATCH = '"$@" & server=$!; read -r _; kill -QUIT $server 2>/dev/null; wait $server'


# Ends the sessions that a test left open, and drops whatever it made.
_EMPTY = """
DO $$ DECLARE name text; BEGIN
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
    FOR name IN SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    LOOP EXECUTE format('DROP SCHEMA %I CASCADE', name); END LOOP;
    CREATE SCHEMA public;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$
"""


class PostgresServer:
    """A running server, which makes and drops databases."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._made = 0
        self._empty: list[str] = []

    def url(self, database: str) -> str:
        """Where a client finds `database`."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL of an empty database, and empty it again: making and dropping takes longer."""
        import psycopg

        if self._empty:
            name = self._empty.pop()
        else:
            self._made += 1
            name = f"test_{self._made}"
            with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
        yield self.url(name)
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            connection.execute(_EMPTY)
        self._empty.append(name)


def find_binaries() -> Path | None:
    """Return the folder that holds ``initdb`` and ``postgres``, or None."""
    named = os.environ.get("DISCREET_TEST_POSTGRES_BIN")
    on_path = shutil.which("initdb")
    folders = [Path(named)] if named else []
    folders += [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in _NEEDED):
            return folder
    return None


def no_postgres() -> str | None:
    """Say why a server cannot be started, if it cannot."""
    if find_binaries() is None:
        return "found no initdb and postgres (install postgresql)"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (install discreet[postgres])"
    if os.geteuid() == 0 and _unprivileged_account() is None:
        return "running as root, with no account to hand the server to"
    return None


@contextlib.contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Start a server in a temporary folder; stop it and remove the folder at the end.

    Where it cannot, the test that asked for it is skipped with the reason, or fails: see tests/servers.py.
    """
    binaries, why = find_binaries(), no_postgres()
    if binaries is None or why is not None:
        cannot_start("PostgreSQL", why or "found no binaries")
    with tempfile.TemporaryDirectory(prefix="discreet-pg-", ignore_cleanup_errors=True) as folder:
        yield from _serve(binaries, Path(folder))


def _serve(binaries: Path, folder: Path) -> Iterator[PostgresServer]:
    data, log, password = folder / "data", folder / "server.log", folder / "password"
    password.write_text(PASSWORD + "\n")
    account = _unprivileged_account()
    if account is not None:
        for path in (folder, password):
            os.chown(path, account.pw_uid, account.pw_gid)
    who = None if account is None else account.pw_uid
    group = None if account is None else account.pw_gid
    environment = {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "")}
    made = subprocess.run(
        [str(binaries / "initdb"), "-D", str(data), "-U", USER, "-A", "scram-sha-256",
         "-E", "UTF8", f"--pwfile={password}", "--no-sync", "--no-instructions"],
        capture_output=True, text=True, cwd=folder, env=environment, user=who, group=group,
    )  # fmt: skip
    if made.returncode:
        raise RuntimeError(f"initdb failed:\n{made.stdout}\n{made.stderr}")
    for _ in range(5):  # another process may take the port between our look and our use
        port = _free_port()
        settings = {
            "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "",
            "fsync": "on", "shared_buffers": "16MB", "max_connections": 100,
        }  # fmt: skip
        flags = [flag for key, value in settings.items() for flag in ("-c", f"{key}={value}")]
        command = [str(binaries / "postgres"), "-D", str(data), *flags]
        with log.open("ab") as sink:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCH, "sh", *command],
                stdin=subprocess.PIPE, stdout=sink, stderr=sink, start_new_session=True,
                cwd=folder, env=environment, user=who, group=group,
            )  # fmt: skip
        try:
            if _answers(port, log):
                yield PostgresServer(port)
                return
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)
    raise RuntimeError(f"the PostgreSQL server did not start:\n{log.read_text(errors='replace')}")


def _unprivileged_account() -> pwd.struct_passwd | None:
    """Whom to run the server as: PostgreSQL refuses to run as root."""
    if os.geteuid() == 0:
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int, log: Path, seconds: float = 30.0) -> bool:
    """Wait for our own server: its log says ready, and the port takes a client."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        said = log.read_text(errors="replace")
        if "could not bind" in said.rpartition("starting PostgreSQL")[2]:
            return False
        if "ready to accept connections" in said:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
        time.sleep(0.02)
    return False
