"""The HTTP API for programs: ``requests``, ``responses``, ``routes`` under ``/v1``, and ``openapi``."""
