"""The private database as a service: one process, one table, one ledger, many analysts.

Reading order: :mod:`~discreet.server.config` what an operator writes; :mod:`~discreet.server.api.requests` what
goes over the wire; :mod:`~discreet.server.access` tokens, sessions and the stop switch;
:mod:`~discreet.server.audit_log` the audit trail; :mod:`~discreet.server.errors` how an error becomes an
answer; :mod:`~discreet.server.training` models; :mod:`~discreet.server.service` the one way to ask, which
routes and pages share; :mod:`~discreet.server.workers` who takes what waits to it;
:mod:`~discreet.server.middleware` everything that happens before and after a route;
:mod:`~discreet.server.api.routes`, :mod:`~discreet.server.reference` and ``pages`` what can be fetched;
:mod:`~discreet.server.monitoring` logs and metrics; :mod:`~discreet.server.app` and
:mod:`~discreet.server.run` the whole, which :mod:`~discreet.server.preflight` checks before it starts and
:mod:`~discreet.server.health` asks whether it answers.

This package by itself imports nothing: :mod:`~discreet.client.database` works without the server's packages.
"""
