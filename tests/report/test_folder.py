from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from discreet import Column, GaussianRelease, Schema
from discreet.errors import ParameterError, SourceError
from discreet.noise_law import law_from_dict
from discreet.release.readable import readable_columns, write_readable
from discreet.report.folder.folder import (
    CROISSANT,
    DATA,
    PACKAGE,
    READABLE,
    SIGNATURE,
    SUMS,
    is_signed_by,
    read_bytes,
    read_statement,
    read_sums,
    sign,
    signing_key,
    write_public,
)
from discreet.report.statement.documents import About
from discreet.report.verify import verify
from tests.report.published import METHODS, publish

if TYPE_CHECKING:
    from pathlib import Path

names = pytest.mark.parametrize("name", METHODS)
ODD = Schema(
    columns=[
        Column("größe, in cm", lower=0, upper=250),
        Column('said "yes"', values=("a/b", "ü", "other,"), required=False),
        Column("a b%20/c?#", type="integer", lower=0, upper=3, role="public"),
    ],
)
ODD_ROWS = {
    "größe, in cm": np.array([150.0, 180.0, 200.0, 3.0]),
    'said "yes"': np.array(["a/b", None, "ü", "x"], dtype=object),
    "a b%20/c?#": np.array([0, 1, 2, 3]),
}


def key_pair(password: bytes | None = None) -> tuple[bytes, bytes]:
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    sealed = NoEncryption() if password is None else BestAvailableEncryption(password)
    return (
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed),
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd") / "public"
    about = About(curator="A census", license="https://creativecommons.org/licenses/by/4.0/")
    publish(folder, GaussianRelease(scale=9, schema=ODD), ODD_ROWS, about=about)
    return folder


def test_the_same_table_and_statement_give_the_same_bytes(odd: Path, tmp_path: Path) -> None:
    (tmp_path / DATA).write_bytes((odd / DATA).read_bytes())
    plan = GaussianRelease(scale=9, schema=ODD).plan(ODD, 4)
    write_readable(tmp_path / DATA, tmp_path / READABLE, readable_columns(plan))
    write_public(tmp_path, read_statement(odd))
    assert {entry.name for entry in tmp_path.iterdir()} == {entry.name for entry in odd.iterdir()}
    for entry in odd.iterdir():
        assert (tmp_path / entry.name).read_bytes() == entry.read_bytes(), entry.name


@pytest.mark.slow
def test_sha256sum_accepts_the_hashes_and_they_cover_everything_else(odd: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", "--strict", SUMS], cwd=odd, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(read_sums((odd / SUMS).read_bytes())) == {entry.name for entry in odd.iterdir()} - {SUMS}


def test_an_odd_table_is_verified(odd: Path) -> None:
    found = verify(odd)
    assert found.ok, found


@pytest.mark.parametrize(
    "content",
    [
        b"0" * 64 + b"  ../statement.json\n",
        b"0" * 64 + b"  /etc/passwd\n",
        b"0" * 63 + b"  data.parquet\n",
        b"0" * 64 + b"  a\n" + b"0" * 64 + b"  a\n",
        b"\xff\n",
        b"0" * 64 + b"  .hidden\n",
    ],
)
def test_hashes_of_anything_but_plain_names_are_refused(content: bytes) -> None:
    with pytest.raises(ParameterError, match="one line for each file"):
        read_sums(content)


@names
def test_the_data_package_describes_both_files_of_every_method(name: str, tmp_path: Path) -> None:
    method = METHODS[name]()
    statement = publish(tmp_path / "public", method)
    package = json.loads((tmp_path / "public" / PACKAGE).read_text(encoding="utf-8"))
    readable, data, *_ = package["resources"]
    for resource in package["resources"]:
        assert resource["hash"] == f"sha256:{statement.files[resource['path']]}"
    assert method.schema is not None
    plan = method.plan(method.schema, 100)
    fields = zip(data["schema"]["fields"], readable["schema"]["fields"], plan.columns, strict=True)
    for field, shown, summary in fields:
        column = plan.schema.column(summary.column)
        assert field["name"] == shown["name"] == column.name
        assert law_from_dict(field["privacy"]["law"]) == summary.law
        assert field["privacy"]["law_in_words"] == summary.law.words()
        floor = None if summary.floor is None else summary.floor.error
        assert field["privacy"].get("floor", {}).get("error") == floor
        assert field["privacy"].get("epsilon") == summary.epsilon
        limits = shown["constraints"]
        if column.is_category:
            assert limits["enum"] == [level for level in column.levels if level is not None]
        else:
            assert (limits["minimum"], limits["maximum"]) == column.range
            assert "minimum" not in field["constraints"]  # noise may leave the range


CROISSANT_CHECK = """
import json, sys
import mlcroissant
dataset = mlcroissant.Dataset(jsonld=sys.argv[1])
assert not dataset.metadata.ctx.issues.errors, dataset.metadata.ctx.issues.errors
assert not dataset.metadata.ctx.issues.warnings, dataset.metadata.ctx.issues.warnings
print(len(list(dataset.records("rows"))), len(list(dataset.records("readable"))))
"""


@pytest.mark.slow
def test_mlcroissant_accepts_the_metadata_and_reads_the_rows_with_it(odd: Path) -> None:
    pytest.importorskip("mlcroissant", reason="the reference implementation is part of the dev extra")
    # In a process of its own: its dependencies warn on import, and here warnings are errors.
    done = subprocess.run(
        [sys.executable, "-c", CROISSANT_CHECK, str(odd / CROISSANT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4", "4"]


def test_a_signed_folder_is_verified_with_the_public_key(odd: Path, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    publish(folder, GaussianRelease(scale=9, schema=ODD), ODD_ROWS)
    private, public = key_pair(b"open sesame")
    with pytest.raises(ParameterError, match="password"):
        signing_key(private)
    sign(folder, signing_key(private, "open sesame"))
    assert is_signed_by(folder, public)
    found = verify(folder, public_key=public)
    assert found.ok
    assert ("signature", "passed") in [(check.name, check.verdict) for check in found.checks]
    assert verify(folder).ok


@pytest.mark.parametrize("forge", ["sums", "signature", "none", "other key"])
def test_a_signature_that_is_not_of_these_hashes_by_this_key_is_found(forge: str, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    publish(folder, GaussianRelease(scale=9, schema=ODD), ODD_ROWS)
    private, public = key_pair()
    sign(folder, signing_key(private))
    if forge == "sums":
        write_public(folder, read_statement(folder).model_copy(update={"not_protected": []}))
    elif forge == "signature":
        (folder / SIGNATURE).write_bytes(bytes(64))
    elif forge == "none":
        (folder / SIGNATURE).unlink()
    else:
        other = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
        public = other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert "signature" in {check.name for check in verify(folder, public_key=public).failures}


def test_keys_of_another_kind_are_refused(odd: Path) -> None:
    with pytest.raises(ParameterError, match="PEM"):
        signing_key(b"not a key")
    with pytest.raises(ParameterError, match="PEM"):
        is_signed_by(odd, b"not a key")


def test_only_plain_files_of_a_reasonable_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    assert read_bytes(tmp_path / "plain", 5) == b"12345"
    for name, most in (("plain", 4), ("link", 5), ("nothing", 5), (".", 5)):
        with pytest.raises(SourceError, match=r"must (be|have at most)"):
            read_bytes(tmp_path / name, most)
