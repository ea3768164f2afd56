"""The books of a data set: every charge, kept where no crash, copy or race can lose it.

Reading order: :mod:`~discreet.privacy.ledger.book` has the :class:`Ledger` that people use;
:mod:`~discreet.privacy.ledger.opening` how it is found or made,
:mod:`~discreet.privacy.ledger.charging` what a charge does and
:mod:`~discreet.privacy.ledger.totals` the sums it moves;
:mod:`~discreet.privacy.ledger.entries` how charges are read back,
:mod:`~discreet.privacy.ledger.backup` how a ledger is copied and put back;
:mod:`~discreet.privacy.ledger.chain` the hash chain over its record;
:mod:`~discreet.privacy.ledger.proof` the replay behind ``check``;
:mod:`~discreet.privacy.ledger.session` what a transaction sees and has yet to write;
:mod:`~discreet.privacy.ledger.store` what a database must do for it;
:mod:`~discreet.privacy.ledger.sqlite` and :mod:`~discreet.privacy.ledger.postgres` the two that do, with
their idle connections in :mod:`~discreet.privacy.ledger.pool` and the threads that write through them in
:mod:`~discreet.privacy.ledger.line`.
"""

from __future__ import annotations

from discreet.privacy.ledger.book import Ledger
from discreet.privacy.ledger.entries import Entry

__all__ = ["Entry", "Ledger"]
