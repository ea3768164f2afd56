"""The private database as a service: one process, one table, one ledger, many analysts.

Reading order: :mod:`~discreet.server.config` what an operator writes; :mod:`~discreet.server.api` what
programs send and get; :mod:`~discreet.server.access` tokens, sessions and the stop switch;
:mod:`~discreet.server.audit_log` the audit log; :mod:`~discreet.server.errors` how an error becomes a
response; :mod:`~discreet.server.training` models; :mod:`~discreet.server.service` all operations, which
routes and pages share; :mod:`~discreet.server.workers` the threads that run them;
:mod:`~discreet.server.middleware` authentication, limits and headers around every route;
:mod:`~discreet.server.pages` what browsers see; :mod:`~discreet.server.monitoring` logs and metrics;
:mod:`~discreet.server.app` the whole, checked and run; :mod:`~discreet.server.health` whether it answers.

This package by itself imports nothing.
"""
