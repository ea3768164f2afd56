"""The private database as an HTTP service for many analysts.

``config`` reads the operator's file; ``app`` checks it, builds the application and runs it. ``middleware``
authenticates, limits and counts every request; ``api`` has the routes for programs, ``pages`` those for
browsers. Both call ``service``, all operations without HTTP, which works on a ``dataset``: table, ledger and
database, summarized by ``accounting``. ``access`` stores tokens, sessions and the stop switch, which
``credentials`` manages; ``audit_log`` records events; ``errors`` maps exceptions to responses; ``limits``,
``workers`` and ``training`` hold size and rate limits, threads and models; ``monitoring`` and ``health`` are
for operators.

The package itself imports nothing, so that commands start fast.
"""
