"""The command line: one module for each command, which imports heavy packages only when it runs."""

from discreet.cli.main import app, main

__all__ = ["app", "main"]
