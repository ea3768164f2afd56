"""A command that is killed leaves no private cell in any place where it works, whenever that happens."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import threading
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
import yaml

from discreet.audit.risk import LIMITS
from discreet.noise import Stream
from discreet.report.verify import verify
from discreet.server.access import AccessStore
from tests.cli.killing import Killer, killer
from tests.leftovers import Traces
from tests.marked import SCHEMA, marked_people, write_people

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUESTION = "mean(income) by sex"
READY = " at http"
# What may be there after a kill: made by the curator, charged, published, or about to be.
KNOWN = re.compile(
    r"data/(people\.(csv|schema\.yaml)|(marked|service)\.\S+|access\.db.*)|"
    r"cwd/(output\.txt|(\.?(release|model)[^/]*)/(public|internal)/.*)|"
    r"tmp/discreet-private-\w{8}/(curated\.duckdb|.*\.db)"
)


class Place(Killer):
    """A folder with a table, a service to be and what commands leave, and the killer of these."""

    def __init__(self, running: Killer, n_rows: int) -> None:
        super().__init__(running.folder, running.process)
        people = marked_people(n_rows)
        self.traces = Traces(people, SCHEMA)
        data = self.folder / "data"
        data.mkdir()
        write_people(data, people)
        (data / "service.yaml").write_text(yaml.safe_dump(SERVICE))


SERVICE = {
    "datasets": {
        "marked": {
            "table": "people.csv",
            "ledger": "service.ledger",
            "new_ledger": True,  # the other commands charge the usual one
            "limit": {"rho": 10.0},
        }
    },
    "access": "access.db",
    "audit_log": "service.jsonl",
    "listen": "127.0.0.1:0",
    "slots": "off",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all short tests."""
    with killer(tmp_path_factory.mktemp("killed")) as running:
        yield Place(running, 1500)


def command(place: Place, name: str) -> tuple[str, ...]:
    table = str(place.folder / "data" / "people.csv")
    promise = ("--epsilon", "4", "--delta", "1e-6")
    return {
        "release": (
            "release",
            table,
            "--method",
            "gaussian",
            *promise,
            "--out",
            "release",
            "--replace",
            "--attack-records",
            "200",
            "--accept-risk",
            "The rows are made up.",
        ),
        "query": ("query", table, QUESTION, *promise),
        "learn": ("learn", table, "--model", "naive-bayes", *promise, "--out", "model", "--replace"),
        "serve": ("serve", str(place.folder / "data" / "service.yaml")),
    }[name]


def check_left(place: Place) -> None:
    """Look at everything that is left but the table itself."""
    folder = place.folder
    assert place.traces.found_in(folder, but=(folder / "data" / "people.csv",)) == {}
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    assert [name for name in names if not KNOWN.fullmatch(name)] == []


def check_next(place: Place, name: str) -> None:
    """Start it again: it works, and removes what the killed ones left."""
    done = place.run(*command(place, name), until=READY if name == "serve" else None)
    assert name == "serve" or done.status == 0, done.text
    if name != "serve":
        assert list((place.folder / "tmp").iterdir()) == []
        assert list((place.folder / "cwd").glob(f".{'model' if name == 'learn' else name}.*")) == []
    if name == "release":
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("discreet.audit.risk.LIMITS", LIMITS)  # as in the command, not as in other tests
            found = verify(place.folder / "cwd" / "release")
        assert found.ok, str(found)


STAGES = [
    ("release", "discreet.tables.external_sort:RowBuckets._spill"),
    ("release", "discreet.tables.writers:sync_to_disk"),
    ("release", "discreet.pipeline.release:write_report"),
    ("query", "tempfile:mkdtemp"),
    ("query", "discreet.query.engines._duckdb:DuckDBEngine._to_file"),
    ("query", "discreet.query.engines._duckdb:DuckDBEngine._fill"),
    ("query", "discreet.query.engines._duckdb:DuckDBEngine._fetch"),
    ("learn", "discreet.query.engines._duckdb:DuckDBEngine._fetch"),
    ("learn", "discreet.pipeline.model:write_model_folder"),
    ("serve", "discreet.query.engines._duckdb:DuckDBEngine._fill"),
]


@pytest.mark.slow
def test_a_kill_in_any_stage_leaves_no_private_cell(place: Place) -> None:
    for name, stage in STAGES:
        assert place.run(*command(place, name), after=stage).killed, (name, stage)
        check_left(place)
    for name in ("query", "serve"):
        check_next(place, name)
    check_left(place)


@contextlib.contextmanager
def asking(place: Place) -> Iterator[list[int]]:
    """Ask the service that runs, whichever it is, one question after the other; yield the status codes."""
    output, ended, got = place.folder / "cwd" / "output.txt", threading.Event(), list[int]()
    book = AccessStore(place.folder / "data" / "access.db")
    try:
        headers = {"Authorization": f"Bearer {book.create('ana', days=1, grants={'marked': 'analyst'})}"}
    finally:
        book.close()

    def ask() -> None:
        while not ended.wait(0.01):
            found = re.search(r" at (http\S+)\n", output.read_text()) if output.exists() else None
            question = {
                "kind": "count",
                "where": f"points > {len(got)}",
                "privacy": {"kind": "gaussian-dp", "mu": 0.005},
            }
            with contextlib.suppress(httpx.HTTPError):
                if found:
                    answer = httpx.post(
                        f"{found[1]}/v1/datasets/marked/query", json=question, headers=headers, timeout=5
                    )
                    got.append(answer.status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield got
    finally:
        ended.set()
        thread.join()


@pytest.mark.stats
@pytest.mark.parametrize("name", ["release", "query", "learn", "serve"])
def test_a_kill_at_any_moment_leaves_no_private_cell(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    serving, killed = name == "serve", 0
    with contextlib.ExitStack() as stack:
        # The engine writes to its file from 122,880 rows on.
        place = Place(stack.enter_context(killer(tmp_path)), 3000 if name == "release" else 200_000)
        answers = stack.enter_context(asking(place)) if serving else [200]
        whole = place.run(*command(place, name), until=READY if serving else None).seconds
        whole += 3.0 * serving  # it is asked for so long
        for share in ((Stream().words(20) >> np.uint64(11)) * 2.0**-53).tolist():
            killed += place.run(*command(place, name), seconds=share * whole).killed
            check_left(place)
        check_next(place, name)
        check_left(place)
    record_property("killed", f"{name}: {killed} of 20 within {whole:.1f} s, {answers.count(200)} answers")
    assert killed >= 10
    assert 200 in answers


@pytest.mark.slow
def test_a_crash_leaves_no_core_file(place: Place) -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("the system allows no core files")
    done = place.run(
        *command(place, "query"),
        after="discreet.query.engines._duckdb:DuckDBEngine._fill",
        limits={"RLIMIT_CORE": resource.RLIM_INFINITY},
        number=signal.SIGABRT,
    )
    assert os.WIFSIGNALED(done.status)
    assert not os.WCOREDUMP(done.status)
    check_left(place)
