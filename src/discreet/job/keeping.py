"""The key of a release: discarded, unless the curator keeps it sealed; and the key that signs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from discreet.errors import ParameterError, SourceError
from discreet.noise import Stream
from discreet.report.folder.folder import read_bytes
from discreet.report.folder.keys import SHORTEST_PASSPHRASE, recipient_key, seal_key

if TYPE_CHECKING:
    import os

    Place = str | os.PathLike[str]


class Keeper:
    """Makes the key of a release; keeps it sealed, if asked to, once the release is done.

    Parameters
    ----------
    path : Path or None
        None: the key is forgotten.
    passphrase : str or None
        Opens it.
    recipient : bytes or None
        Or else the owner of this X25519 public key does.
    """

    def __init__(
        self, path: Path | None = None, passphrase: str | None = None, recipient: bytes | None = None
    ) -> None:
        self.path = path
        self._passphrase = passphrase
        self._recipient = recipient
        # Drawn from a stream of the operating system's, so that randomness still enters in one place.
        self._key = Stream().words(4).tobytes()
        self._sealed = False

    @classmethod
    def of(
        cls, path: Place | None, passphrase: str | None, recipient: Place | None, *, release: Path
    ) -> Keeper:
        """Check, before anything is paid, that the key can be kept as asked, and not in the `release`."""
        if path is None:
            if passphrase is not None or recipient is not None:
                raise ParameterError(
                    "passphrase and recipient are for a key that is kept, and keep_key was not given. Give "
                    "--keep-key FILE, or leave them out."
                )
            return cls()
        place = Path(path).absolute()
        if (passphrase is None) == (recipient is None):
            raise ParameterError(
                "keep_key needs exactly one of passphrase and recipient: whoever has the key can remove the "
                "noise, so it is never written in the clear."
            )
        if passphrase is not None and len(passphrase) < SHORTEST_PASSPHRASE:
            raise ParameterError(
                f"passphrase must have at least {SHORTEST_PASSPHRASE} characters, had {len(passphrase)}. "
                "Take several words."
            )
        if place.exists() or not place.parent.is_dir():
            raise SourceError(
                f"keep_key must be a file that does not exist, in a folder that does; {str(place)!r} is not. "
                "A key is never overwritten."
            )
        if place.resolve().is_relative_to(release.resolve()):
            raise SourceError(
                f"keep_key must be outside of the release, and {str(place)!r} is in it: whoever gets the "
                "folder would get the key, and replacing the folder would remove it. Choose another place."
            )
        if recipient is None:
            return cls(place, passphrase)
        pem = read_bytes(Path(recipient))
        recipient_key(pem)
        return cls(place, recipient=pem)

    def stream(self) -> Stream:
        """Return the stream that the release is drawn from."""
        return Stream(self._key)

    def keep(self) -> None:
        """Seal the key, if it is to be kept."""
        if self.path is not None:
            seal_key(self.path, self._key, passphrase=self._passphrase, recipient=self._recipient)
            self._sealed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # The key of a release that did not come about opens nothing.
        if kind is not None and self._sealed and self.path is not None:
            self.path.unlink(missing_ok=True)
