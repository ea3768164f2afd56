"""``python -m discreet``: the command line."""

from discreet.cli.main import run

if __name__ == "__main__":
    run()
