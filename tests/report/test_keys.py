from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from discreet.errors import ParameterError, SourceError
from discreet.noise import Stream
from discreet.report.folder import keys
from discreet.report.folder.keys import seal_key, unseal_key

if TYPE_CHECKING:
    from pathlib import Path

KEY = bytes(range(32))
WORDS = "correct horse battery staple"
AUDITOR = X25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
PUBLIC = AUDITOR.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
PRIVATE = AUDITOR.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
LOCKED = AUDITOR.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))


@pytest.fixture(autouse=True)
def _little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_WORK", {"n": 1 << 10, "r": 8, "p": 1})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "release.key"


def test_a_passphrase_opens_what_it_sealed(path: Path) -> None:
    seal_key(path, KEY, passphrase=WORDS)
    assert unseal_key(path, passphrase=WORDS) == KEY
    assert Stream(unseal_key(path, passphrase=WORDS)).commitment == json.loads(path.read_text())["commitment"]


def test_the_recipient_alone_opens_what_was_sealed_for_them(path: Path) -> None:
    seal_key(path, KEY, recipient=PUBLIC)
    assert unseal_key(path, private_key=PRIVATE) == KEY
    assert unseal_key(path, private_key=LOCKED, password=b"word") == KEY
    other = X25519PrivateKey.from_private_bytes(bytes(range(2, 34)))
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ParameterError, match="another private key"):
        unseal_key(path, private_key=pem)
    with pytest.raises(ParameterError, match="with its password"):
        unseal_key(path, private_key=LOCKED)


@pytest.mark.parametrize("how", [{"passphrase": WORDS}, {"recipient": PUBLIC}])
def test_the_file_is_for_its_owner_alone_is_never_overwritten_and_shows_nothing_of_the_key(
    how: dict[str, str], path: Path
) -> None:
    seal_key(path, KEY, **how)  # type: ignore[arg-type]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_bytes()
    assert KEY not in text
    assert KEY.hex().encode() not in text
    with pytest.raises(SourceError, match="never overwritten"):
        seal_key(path, bytes(32), **how)  # type: ignore[arg-type]
    assert path.read_bytes() == text


def test_the_same_key_is_sealed_differently_each_time(tmp_path: Path) -> None:
    sealed = []
    for name in ("a", "b"):
        seal_key(tmp_path / name, KEY, passphrase=WORDS)
        values = json.loads((tmp_path / name).read_text())
        sealed.append((values["sealed"], values["parameters"]["salt"], values["parameters"]["nonce"]))
    assert all(one != other for one, other in zip(*sealed, strict=True))


def test_a_wrong_passphrase_is_named_as_such(path: Path) -> None:
    seal_key(path, KEY, passphrase=WORDS)
    with pytest.raises(ParameterError, match="passphrase is wrong, or the file was changed"):
        unseal_key(path, passphrase=WORDS + "!")
    with pytest.raises(ParameterError, match="sealed under a passphrase"):
        unseal_key(path, private_key=PRIVATE)


@pytest.mark.parametrize("name", ["commitment", "sealed", "nonce", "salt"])
def test_a_changed_file_does_not_open(name: str, path: Path) -> None:
    seal_key(path, KEY, passphrase=WORDS)
    values = json.loads(path.read_text())
    holder = values if name in values else values["parameters"]
    holder[name] = ("0" if holder[name][0] != "0" else "1") + holder[name][1:]
    path.write_text(json.dumps(values))
    with pytest.raises(ParameterError, match="does not open"):
        unseal_key(path, passphrase=WORDS)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "else"},
        {"version": 2},
        {"method": "none"},
        {"parameters": {}},
        {"parameters": {"n": 1 << 40, "r": 8, "p": 1, "salt": "0" * 64, "nonce": "0" * 24}},
        {"parameters": {"n": True, "r": 8, "p": 1, "salt": "0" * 64, "nonce": "0" * 24}},
        {"sealed": "zz"},
        {"extra": 1},
    ],
)
def test_what_is_no_key_file_or_asks_for_endless_work_is_refused(
    change: dict[str, object], path: Path
) -> None:
    seal_key(path, KEY, passphrase=WORDS)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ParameterError, match="must be a sealed key of discreet"):
        unseal_key(path, passphrase=WORDS)


def test_work_that_scrypt_refuses_and_a_point_that_nobody_draws_are_refused(tmp_path: Path) -> None:
    seal_key(tmp_path / "a", KEY, passphrase=WORDS)
    values = json.loads((tmp_path / "a").read_text())
    values["parameters"]["n"] = 1000  # no power of two
    (tmp_path / "a").write_text(json.dumps(values))
    with pytest.raises(ParameterError, match="amount of work"):
        unseal_key(tmp_path / "a", passphrase=WORDS)
    seal_key(tmp_path / "b", KEY, recipient=PUBLIC)
    values = json.loads((tmp_path / "b").read_text())
    values["parameters"]["ephemeral"] = "0" * 64
    (tmp_path / "b").write_text(json.dumps(values))
    with pytest.raises(ParameterError, match="was changed"):
        unseal_key(tmp_path / "b", private_key=PRIVATE)


def test_wrong_arguments_are_refused_before_anything_is_written(path: Path) -> None:
    signing = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    pem = signing.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for words, arguments in {
        "32 bytes": {"key": b"short", "passphrase": WORDS},
        "exactly one": {"key": KEY},
        "at least 12": {"key": KEY, "passphrase": "short"},
        "X25519 public key": {"key": KEY, "recipient": pem},
    }.items():
        with pytest.raises(ParameterError, match=words):
            seal_key(path, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="exactly one"):
        seal_key(path, KEY, passphrase=WORDS, recipient=PUBLIC)
    assert not path.exists()
    with pytest.raises(SourceError, match="cannot be written"):
        seal_key(path / "deeper", KEY, recipient=PUBLIC)
