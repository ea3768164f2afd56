"""The ledger of a data set: every charge, stored so that no crash, copy or race can lose it.

``_ledger`` has the public class :class:`Ledger`, ``_reading`` the part of it that reads, and ``_opening``
creates and opens it; ``backup`` makes copies of it and restores them. ``_charges`` has the operations that
write to it, under the limits of ``_caps``, which ``_allocations`` changes for owners and groups; ``_account``
says what they leave. ``records`` defines the rows of its record and reads charges back from them;
``_verification`` replays the record for ``Ledger.check``. ``transaction`` buffers what one transaction reads
and writes; ``_store`` is the interface to a database, and ``_sqlite`` (with ``_connections``)
and ``postgres`` implement it. ``audit_log`` is the hash-chained log of events that is kept beside a ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.lazy_names import load_on_use

if TYPE_CHECKING:
    from discreet.ledger._account import Account
    from discreet.ledger._caps import Caps, Rule
    from discreet.ledger._ledger import Ledger
    from discreet.ledger.records import Entry

__all__ = ["Account", "Caps", "Entry", "Ledger", "Rule"]

__getattr__ = load_on_use(
    __name__,
    {"_account": ["Account"], "_caps": ["Caps", "Rule"], "_ledger": ["Ledger"], "records": ["Entry"]},
)
