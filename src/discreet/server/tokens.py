"""Orders about tokens, as a curator gives them on a page, over HTTP or at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.server.access import AccessBook, Scope
    from discreet.server.trail import Trail


class TokenDesk:
    """Makes, replaces and revokes tokens, and writes that down.

    Parameters
    ----------
    access : AccessBook
        Where they are kept.
    trail : Trail
        Where it is written down.
    ledger : callable
        Returns the ledger, for limits of somebody's own; called only if one is given.
    gaussian_share : float
        Part of epsilon that such limits keep for Gaussian noise.
    """

    def __init__(
        self, access: AccessBook, trail: Trail, ledger: Callable[[], Ledger], *, gaussian_share: float
    ) -> None:
        self._access = access
        self._trail = trail
        self._ledger = ledger
        self._gaussian_share = gaussian_share

    def create(self, by: str, name: str, scope: Scope, *, days: float, limit: Promise | None = None) -> str:
        """Make a token, with a limit of its bearer's own if one is given, and return it: shown once."""
        token = self._access.create(name, scope, days=days)
        try:
            if limit is not None:
                self._ledger().set_owner_limit(name, limit, gaussian_share=self._gaussian_share)
            self._trail.write("token created", who=by, name=name, scope=scope)
        except BaseException:
            self._access.revoke(name)
            raise
        return token

    def rotate(self, by: str, name: str) -> str:
        """Replace somebody's token, and return the new one: shown once."""
        now = self._access.now()
        if any(token.name == name and token.state(now) == "valid" for token in self._access.tokens()):
            # Before: if it cannot be written, the old one stays valid and no new one is lost.
            self._trail.write("token rotated", who=by, name=name)
        return self._access.rotate(name)

    def revoke(self, by: str, name: str) -> int:
        """Revoke somebody's tokens, from now on; return how many were valid."""
        count = self._access.revoke(name)
        self._trail.write("token revoked", who=by, name=name)
        return count

    def listed(self) -> list[dict[str, Any]]:
        """Return what is known of all tokens; the tokens themselves are known to nobody."""
        now = self._access.now()
        return [
            {
                "id": token.id,
                "name": token.name,
                "scope": token.scope,
                "created": token.created,
                "expires": token.expires,
                "state": token.state(now),
            }
            for token in self._access.tokens()
        ]
