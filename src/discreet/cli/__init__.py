"""The command line: one module for each command. Heavy rooms are imported by the commands that need them."""

from discreet.cli.main import app, main

__all__ = ["app", "main"]
