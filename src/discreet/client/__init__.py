"""The client of a service: a private table behind HTTP, queried like one on this machine.

Reading order: :mod:`~discreet.client.transport` sends requests with retries;
:mod:`~discreet.client.responses` checks what comes back; :mod:`~discreet.client.database` is the table.
Results are those of :mod:`discreet.query`. Nothing here imports the service or its packages.
"""

from discreet.client.database import RemoteDatabase

__all__ = ["RemoteDatabase"]
