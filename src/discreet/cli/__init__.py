"""The command line: one module for each command, which imports heavy packages only when it runs."""

from discreet.cli.main import build_app, main

__all__ = ["build_app", "main"]
