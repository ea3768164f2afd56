"""Keys of releases, kept for an auditor: sealed under a passphrase or for a public key.

With the key the noise can be removed. It is therefore never written in the clear.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from discreet.errors import ParameterError, SourceError
from discreet.file_system import NO_FOLLOW
from discreet.noise import Stream
from discreet.noise.stream import KEY_BYTES
from discreet.report.folder.folder import read_bytes
from discreet.report.statement.documents import read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

SHORTEST_PASSPHRASE = 12
_KIND, _VERSION = "discreet-key", 1
_WORK: Final = {"n": 1 << 17, "r": 8, "p": 1}
_MOST_WORK: Final = {"n": 1 << 20, "r": 16, "p": 4}
_FIELDS = {"kind", "version", "commitment", "method", "parameters", "sealed"}
_LARGEST = 1 << 16


def seal_key(
    path: Path, key: bytes, *, passphrase: str | None = None, recipient: bytes | None = None
) -> None:
    """Write a key to a file that only a passphrase or one private key opens.

    Parameters
    ----------
    path : Path
        File to write, which must not exist; its mode is 0600.
    key : bytes
        Key of the stream of the release, 32 bytes.
    passphrase : str, optional
        Passphrase of at least 12 characters; exactly one of `passphrase` and `recipient` is given.
    recipient : bytes, optional
        X25519 public key of the recipient in PEM.

    Privacy
    -------
    Anyone who opens the file can remove the noise of that one release. The commitment in it is public anyway.

    Reference
    ---------
    scrypt (RFC 7914) or X25519 with HKDF-SHA-256 (RFC 7748, RFC 5869), then ChaCha20-Poly1305 (RFC 8439).
    """
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise ParameterError(f"key of seal_key must be {KEY_BYTES} bytes. Give the one of the release.")
    if (passphrase is None) == (recipient is None):
        raise ParameterError("seal_key needs exactly one of passphrase and recipient, to open the key again.")
    stream = Stream()
    parameters: dict[str, Any]
    if passphrase is not None:
        if len(passphrase) < SHORTEST_PASSPHRASE:
            raise ParameterError(
                f"passphrase of seal_key must have at least {SHORTEST_PASSPHRASE} characters, had "
                f"{len(passphrase)}. Take several words."
            )
        method, salt = "passphrase", stream.words(4).tobytes()
        parameters = {"salt": salt.hex(), **_WORK}
        secret = _from_passphrase(passphrase, parameters)
    else:
        assert recipient is not None
        method = "recipient"
        mine = X25519PrivateKey.from_private_bytes(stream.words(4).tobytes())
        theirs = recipient_key(recipient)
        parameters = {"ephemeral": _raw_bytes(mine.public_key()).hex(), "recipient": _raw_bytes(theirs).hex()}
        secret = _from_exchange(mine.exchange(theirs), parameters)
    parameters["nonce"] = stream.words(2).tobytes()[:12].hex()
    header = {
        "kind": _KIND,
        "version": _VERSION,
        "commitment": hashlib.sha256(key).hexdigest(),
        "method": method,
        "parameters": parameters,
    }
    sealed = ChaCha20Poly1305(secret).encrypt(
        bytes.fromhex(parameters["nonce"]), key, _associated_data(header)
    )
    _write_once(path, write_json({**header, "sealed": sealed.hex()}).encode())


def recipient_key(pem: bytes) -> X25519PublicKey:
    """Return the X25519 public key in a PEM text."""
    try:
        key = load_pem_public_key(pem)
    except ValueError:
        key = None
    if not isinstance(key, X25519PublicKey):
        raise ParameterError("recipient of seal_key must be an X25519 public key in PEM, and is not.")
    return key


def unseal_key(
    path: Path,
    *,
    passphrase: str | None = None,
    private_key: bytes | None = None,
    password: bytes | None = None,
) -> bytes:
    """Return the key in a file that :func:`seal_key` wrote.

    Parameters
    ----------
    path : Path
        Key file that :func:`seal_key` wrote.
    passphrase : str, optional
        Passphrase, if the key was sealed under one.
    private_key : bytes, optional
        X25519 private key of the recipient in PEM, if the key was sealed for one.
    password : bytes, optional
        Password of the private key, if it has one.

    Returns
    -------
    bytes
        The key, for ``Stream(key)``.

    Raises
    ------
    ParameterError
        If the passphrase or the private key does not open it, or the file was changed.
    """
    values = _check_values(read_json(read_bytes(path, _LARGEST), f"The key file {path.name}"), path.name)
    parameters, needed = values["parameters"], values["method"]
    if needed == "passphrase":
        if passphrase is None:
            raise ParameterError(f"The key in {path.name} is sealed under a passphrase, and none was given.")
        secret = _from_passphrase(passphrase, parameters)
    else:
        if private_key is None:
            raise ParameterError(
                f"The key in {path.name} is sealed for the owner of a private key, and none was given."
            )
        mine = _load_private_key(private_key, password)
        if _raw_bytes(mine.public_key()).hex() != parameters["recipient"]:
            raise ParameterError(
                f"The key in {path.name} is sealed for another private key than the one given."
            )
        secret = _from_exchange(_exchange(mine, parameters["ephemeral"], path.name), parameters)
    header = {name: value for name, value in values.items() if name != "sealed"}
    try:
        nonce, sealed = bytes.fromhex(parameters["nonce"]), bytes.fromhex(values["sealed"])
        key = ChaCha20Poly1305(secret).decrypt(nonce, sealed, _associated_data(header))
    except InvalidTag:
        raise ParameterError(
            f"The key in {path.name} does not open: the {needed.replace('recipient', 'private key')} is "
            "wrong, or the file was changed. Try again, or ask for the file again."
        ) from None
    if hashlib.sha256(key).hexdigest() != values["commitment"]:
        raise ParameterError(f"The key in {path.name} must fit its commitment, and does not.")
    return key


def _check_values(values: Any, called: str) -> dict[str, Any]:
    """Return the values of a key file; raise if fields, sizes or the amount of work are not ours."""
    wanted = {
        "passphrase": {"salt": 64, "nonce": 24, **_MOST_WORK},
        "recipient": {"ephemeral": 64, "recipient": 64, "nonce": 24},
    }
    fine = isinstance(values, dict) and set(values) == _FIELDS and values["kind"] == _KIND
    if fine and values["version"] == _VERSION and values["method"] in wanted:
        parameters, limits = values["parameters"], wanted[values["method"]]
        fine = isinstance(parameters, dict) and set(parameters) == set(limits)
        fine = fine and all(
            isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= limits[name]
            if name in _MOST_WORK
            else _is_hex(value, limits[name])
            for name, value in parameters.items()
        )
        fine = fine and _is_hex(values["sealed"], 2 * (KEY_BYTES + 16)) and _is_hex(values["commitment"], 64)
    else:
        fine = False
    if not fine:
        raise ParameterError(
            f"The file {called} must be a sealed key of discreet, version {_VERSION}, and is something else."
        )
    checked: dict[str, Any] = values
    return checked


def _is_hex(value: Any, length: int) -> bool:
    return isinstance(value, str) and len(value) == length and set(value) <= set("0123456789abcdef")


def _from_passphrase(passphrase: str, parameters: dict[str, Any]) -> bytes:
    salt = bytes.fromhex(parameters["salt"])
    try:
        scrypt = Scrypt(salt=salt, length=32, n=parameters["n"], r=parameters["r"], p=parameters["p"])
        return scrypt.derive(passphrase.encode("utf-8"))
    except (ValueError, MemoryError):
        raise ParameterError(
            "A sealed key must ask for an amount of work that can be done, and this one does not. Ask for "
            "the file again."
        ) from None


def _exchange(mine: X25519PrivateKey, ephemeral: str, called: str) -> bytes:
    try:
        return mine.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(ephemeral)))
    except ValueError:  # a point of small order, which no honest sender draws
        raise ParameterError(f"The file {called} was changed, and cannot be opened any more.") from None


def _from_exchange(shared: bytes, parameters: dict[str, Any]) -> bytes:
    salt = bytes.fromhex(parameters["ephemeral"] + parameters["recipient"])
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=b"discreet key 1").derive(shared)


def _associated_data(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii")


def _raw_bytes(key: X25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _load_private_key(pem: bytes, password: bytes | None) -> X25519PrivateKey:
    try:
        key = load_pem_private_key(pem, password)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, X25519PrivateKey):
        raise ParameterError(
            "private_key of unseal_key must be an X25519 private key in PEM, with its password if it has one."
        )
    return key


def _write_once(path: Path, content: bytes) -> None:
    """Write a new file for its owner alone, and flush it to disk; an existing file is never replaced."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o600)
        with open(handle, "wb") as file:  # noqa: PTH123 - a handle, not a path
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise SourceError(
            f"The key file {str(path)!r} exists already, and a key is never overwritten. Choose another name."
        ) from None
    except OSError as problem:
        raise SourceError(
            f"The key file {str(path)!r} cannot be written ({problem.strerror}). Choose another folder."
        ) from None
