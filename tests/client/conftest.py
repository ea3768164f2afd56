"""The services that the tests of the server start, for those of the client."""

from tests.server.conftest import certificate, service, shared_service, start

__all__ = ["certificate", "service", "shared_service", "start"]
