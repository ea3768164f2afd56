"""``discreet ledger backup`` and ``restore``: a copy, and no way back in what was spent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from discreet.ledger import Ledger
from discreet.privacy import PureDP
from tests.cli.run import discreet

if TYPE_CHECKING:
    from pathlib import Path

TENTH = PureDP(epsilon=0.1)


def charged(path: Path | str, times: int) -> tuple[int, str]:
    with Ledger.open(path, limit=PureDP(epsilon=1)) as ledger:
        for _ in range(times):
            ledger.charge(TENTH)
        ledger.secret()
        return ledger.head


def test_a_ledger_is_backed_up_and_put_back(tmp_path: Path) -> None:
    rows, digest = charged(tmp_path / "a.ledger", 3)
    done = discreet("ledger", "backup", "a.ledger", "--out", "copy", cwd=tmp_path)
    assert done.code == 0
    assert f"Head: {rows}:{digest}" in done.out
    assert "copy.version-key" in done.out
    found = json.loads(discreet("ledger", "backup", "a.ledger", "--out", "b", "--json", cwd=tmp_path).out)
    assert (found["rows"], found["head"]) == (rows, digest)
    for path in tmp_path.glob("a.ledger*"):
        path.unlink()
    back = discreet(
        "ledger", "restore", "copy", "--to", "a.ledger", "--head", f"{rows}:{digest}", cwd=tmp_path
    )
    assert back.code == 0
    assert f"{rows} rows, intact" in back.out
    with Ledger.open(tmp_path / "a.ledger") as ledger:
        assert ledger.head == (rows, digest)
        assert ledger.secret() == (tmp_path / "copy.version-key").read_bytes()
        ledger.check()


def test_going_back_is_refused_in_words(tmp_path: Path) -> None:
    charged(tmp_path / "a.ledger", 3)
    assert discreet("ledger", "backup", "a.ledger", "--out", "copy", cwd=tmp_path).code == 0
    rows, digest = charged(tmp_path / "a.ledger", 2)
    refused = discreet("ledger", "restore", "copy", "--to", "a.ledger", cwd=tmp_path)
    assert refused.code == 1
    assert "rows 5 to 6" in " ".join(refused.err.split())
    head = f"{rows}:{digest}"
    refused = discreet("ledger", "restore", "copy", "--to", "new.ledger", "--head", head, cwd=tmp_path)
    assert refused.code == 1
    assert "rows 5 to 6" in " ".join(refused.err.split())
    for wrong in (digest, f"x:{digest}", "4:", f"-4:{digest}"):
        refused = discreet("ledger", "restore", "copy", "--to", "new.ledger", f"--head={wrong}", cwd=tmp_path)
        assert refused.code == 1
        assert "ROW:HASH" in refused.err
    assert not (tmp_path / "new.ledger").exists()
    assert charged(tmp_path / "a.ledger", 0) == (rows, digest)


def test_what_is_not_there_is_neither_made_nor_backed_up(tmp_path: Path) -> None:
    assert discreet("ledger", "backup", "no.ledger", "--out", "copy", cwd=tmp_path).code == 1
    assert discreet("ledger", "restore", "no.ledger", "--to", "a.ledger", cwd=tmp_path).code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_on_a_server_goes_to_a_file_and_back_without_its_password(
    tmp_path: Path, postgres_url: str
) -> None:
    url = f"{postgres_url}#survey"
    head = charged(url, 3)
    done = discreet("ledger", "backup", url, "--out", "copy", "--json", cwd=tmp_path)
    assert done.code == 0
    moved = discreet("ledger", "restore", "copy", "--to", f"{postgres_url}#moved", cwd=tmp_path)
    assert moved.code == 0
    assert "correct-horse" not in done.out + moved.out
    with Ledger.open(f"{postgres_url}#moved") as ledger:
        assert ledger.head == head
        ledger.check()
