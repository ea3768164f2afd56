"""The client of a service: private tables behind HTTP, queried like those on this machine.

Reading order: :mod:`~discreet.client.transport` sends requests with retries;
:mod:`~discreet.client.responses` checks what comes back; :mod:`~discreet.client.database` is a table,
:mod:`~discreet.client.jobs` its long queries and models, :mod:`~discreet.client.saved` the saved queries, and
:mod:`~discreet.client.service` the service that has it.
Results are those of :mod:`discreet.query`. Nothing here imports the service or its packages.
"""

from discreet.client.database import RemoteDatabase
from discreet.client.jobs import Job, JobStatus, ModelResult
from discreet.client.saved import SavedQuestion
from discreet.client.service import Client, DatasetInfo, connect

__all__ = [
    "Client",
    "DatasetInfo",
    "Job",
    "JobStatus",
    "ModelResult",
    "RemoteDatabase",
    "SavedQuestion",
    "connect",
]
