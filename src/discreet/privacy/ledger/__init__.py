"""The books of a data set: every charge, kept where no crash, copy or race can lose it.

Reading order: :mod:`~discreet.privacy.ledger.book` has the :class:`Ledger` that people use;
:mod:`~discreet.privacy.ledger.chain` the hash chain over its record;
:mod:`~discreet.privacy.ledger.proof` the replay behind ``check``;
:mod:`~discreet.privacy.ledger.store` what a database must do for it;
:mod:`~discreet.privacy.ledger.sqlite` and :mod:`~discreet.privacy.ledger.postgres` the two that do, with
their idle connections in :mod:`~discreet.privacy.ledger.pool`.
"""

from __future__ import annotations

from discreet.privacy.ledger.book import Ledger

__all__ = ["Ledger"]
