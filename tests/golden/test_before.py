"""What was published and charged before the source tree was rebuilt is accepted by the code of today."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from discreet import Ledger, load_model, load_release, verify
from discreet.errors import NotALedger
from discreet.privacy import ZCDP
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


@pytest.mark.parametrize("name", RELEASES)
def test_release_published_before_is_verified_and_loaded(before: Path, name: str) -> None:
    checked = verify(before / "releases" / name)
    assert checked.ok, checked.failures
    assert load_release(before / "releases" / name) is not None


@pytest.mark.parametrize("name", publication_cases.MODELS)
def test_model_published_before_is_verified_and_loaded(before: Path, name: str) -> None:
    checked = verify(before / "models" / name)
    assert checked.ok, checked.failures
    assert load_model(before / "models" / name) is not None


def test_ledger_written_before_is_refused_and_not_changed(before: Path, tmp_path: Path) -> None:
    for path in before.glob("charged.ledger*"):
        shutil.copy(path, tmp_path / path.name)
    bytes_before = (tmp_path / "charged.ledger").read_bytes()
    with pytest.raises(NotALedger, match="a ledger of format 1, whose limits this version"):
        Ledger.open(tmp_path / "charged.ledger", limit=ZCDP(rho=2.0))
    done = command("ledger", "export", "charged.ledger", cwd=tmp_path)
    assert done.code != 0
    assert "format 1" in done.err
    assert (tmp_path / "charged.ledger").read_bytes() == bytes_before
