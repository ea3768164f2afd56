"""What was published and charged before the source tree was rebuilt is accepted by the code of today."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from discreet import Ledger, load_model, load_release, verify
from discreet.privacy import ZCDP, GaussianDP
from tests.golden import publication_cases
from tests.golden._entry_points import command

RELEASES = [name.replace(" ", "-") for name in publication_cases.RELEASES]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with everything that was written then; tests do not change it."""
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(Path(__file__).with_name("before.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder / "before"


def assert_verified(folder: Path) -> None:
    """Assert that every check passes but those of texts for people, since rewritten or rounded otherwise."""
    assert {check.name for check in verify(folder).failures} <= {"derived files", "model card", "wording"}


@pytest.mark.parametrize("name", RELEASES)
def test_release_published_before_is_verified_and_loaded(before: Path, name: str) -> None:
    assert_verified(before / "releases" / name)
    assert load_release(before / "releases" / name) is not None


@pytest.mark.parametrize("name", publication_cases.MODELS)
def test_model_published_before_is_verified_and_loaded(before: Path, name: str) -> None:
    assert_verified(before / "models" / name)
    assert load_model(before / "models" / name) is not None


def test_ledger_written_before_is_checked_charged_and_exported(before: Path, tmp_path: Path) -> None:
    for path in before.glob("charged.ledger*"):
        shutil.copy(path, tmp_path / path.name)
    rows, digest = json.loads((before / "head.json").read_text())
    with Ledger.open(tmp_path / "charged.ledger", limit=ZCDP(rho=2.0)) as ledger:
        assert ledger.head == (rows, digest)
        ledger.check()
        assert sorted(ledger.owners()) == ["ana", "ben"]
        assert ledger.spent().charges == 6
        receipt = ledger.charge(GaussianDP(mu=0.1), owner="ana", what="after")
        ledger.check(receipt)
        assert ledger.head[0] > rows
    done = command("ledger", "export", "charged.ledger", cwd=tmp_path)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 7


def test_release_before_is_in_the_ledger_of_then(before: Path, tmp_path: Path) -> None:
    for path in before.glob("golden-2026.ledger*"):
        shutil.copy(path, tmp_path / path.name)
    statement = before / "releases" / "gaussian" / "statement.json"
    done = command("ledger", "check", "golden-2026.ledger", "--receipt", str(statement), cwd=tmp_path)
    assert done.code == 0, done.err
