"""The client of a service: a private table behind HTTP, queried like one on this machine.

Reading order: :mod:`~discreet.client.transport` sends requests with retries;
:mod:`~discreet.client.responses` checks what comes back; :mod:`~discreet.client.results` the values a caller
gets; :mod:`~discreet.client.database` the table itself. Nothing here imports the service or its packages.
"""
