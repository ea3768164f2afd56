"""The command line: all commands, and how an error becomes a sentence and an exit code."""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import warnings
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import typer

from discreet.cli.console import EXIT_SCHEMA, Ended, describe_unexpected, write_out
from discreet.cli.summary import EXIT_RISK
from discreet.lazy_names import DeferredModules, HiddenModule

EXIT_OTHER, EXIT_BROKEN, EXIT_BUDGET = 1, 3, 4
_USAGE, _INTERRUPTED, _TERMINATED = 2, 130, 143  # how typer, Ctrl-C and `kill` end a process

HELP = """Let others learn from a table without exposing the people in it.

Exit codes: 0 ok; 1 any other error, with a message; 2 the schema is missing, incomplete or wrong (if it is
missing, a draft is written), or `check` found a problem; 3 an attack broke a promise, and nothing was
published; 4 the budget does not allow it; 5 attackers would gain too much, and nothing was charged or
published.
"""

COMMANDS = (
    *("init", "check", "plan", "release", "audit", "query", "learn", "report", "verify", "serve"),
    *("service", "token", "ledger", "audit-log", "demo"),
)
"""Names of all commands, in the order of the help; each has a module of its name."""


def _print_version(requested: bool) -> None:
    """Print the name and the installed version, and end the program."""
    if requested:
        from importlib.metadata import version

        write_out(f"discreet {version('discreet')}\n")
        raise typer.Exit


def _global_options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Take the options that stand before a command; each acts in its own callback."""


def build_app(*names: str) -> typer.Typer:
    """Return the command line with some of its commands; with all of them if none is named.

    Building all of them takes a tenth of a query, of which each process runs one.
    """
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback(help=HELP)(_global_options)
    for name in names or COMMANDS:
        module = import_module(f"discreet.cli.{name.replace('-', '_')}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(cls=getattr(module, "Command", None))(getattr(module, name))
    return app


def _keep_freed_memory() -> None:
    """Let the allocator keep up to 128 MB of freed memory, where the system's has that setting.

    Otherwise it gives the memory of each large array back, and the system clears it for the next one.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # systems without mallopt
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        allocator.mallopt(_MMAP_THRESHOLD, _KEPT_BYTES // 4)


def _use_one_blas_thread() -> None:
    """Let a BLAS that is loaded later start no threads, unless the environment says how many.

    All learners and attacks compute on one. The others would only spin while they wait, from the moment
    numpy and scipy are loaded: a tenth of a second for each, which is a fifth of a verification.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _forbid_core_files() -> None:
    """Switch core files off, where the system has them: the image of a crash would hold rows and keys."""
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt in the GNU C library
_KEPT_BYTES = 1 << 27
_UNUSED = (
    *("numpy.f2py", "numpy.testing", "numpy.ma", "numpy.random", "scipy.stats", "scipy.linalg"),
    *("discreet.audit._members", "discreet.report.verify._answers", "discreet.report.verify._model"),
    *("discreet.report.pages._learning", "discreet.report.pages._model", "discreet.report.pages._quality"),
)
"""Modules that others import, and that most commands never use: half a second for those of scipy."""


def run() -> None:
    """Run the command line as a process of its own, which ends without freeing its objects one by one.

    Freeing them takes a sixth of a query, and the system frees the memory with the process. Functions that
    are registered for the end are called; if threads are left to wait for, the interpreter ends as usual.
    """
    code = 0
    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    if not all(one.daemon for one in others):
        raise SystemExit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # the command has said so, where it could
            stream.flush()
    os._exit(code)


def main() -> None:
    """Run the command line; errors of ours become a sentence and an exit code."""
    _forbid_core_files()
    _keep_freed_memory()
    _use_one_blas_thread()
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    # A command makes many objects that stay: collecting after every 700 of them takes a tenth of a short one,
    # and after every 20,000 of them still a twentieth of a plan.
    gc.set_threshold(200_000, 20, 20)
    # A service uses all of these, from several threads, before which a module must be loaded.
    if "serve" not in sys.argv:
        sys.meta_path[:0] = [DeferredModules(*_UNUSED), HiddenModule("pandas", "sklearn.utils.fixes")]
    warnings.showwarning = _show_warning
    try:
        try:
            build_app(*(name for name in sys.argv[1:2] if name in COMMANDS))()
        finally:
            write_out("")  # a closed pipe shows here, and not while the interpreter ends
    except SystemExit as end:
        if end.code in (_INTERRUPTED, _TERMINATED):
            print_error(
                "Stopped. A release is written completely or not at all; a charge that was already "
                "made remains."
            )
        # Typer ends wrong usage with 2, which means something else here; our own 2 does not come this way.
        raise SystemExit(EXIT_OTHER if end.code == _USAGE else end.code) from None
    except Ended as end:
        raise SystemExit(end.code) from None
    except Exception as problem:
        # Any error at all: a traceback on the screen could quote rows.
        raise SystemExit(_report_error(problem)) from None


def _report_error(problem: Exception) -> int:
    """Print the error as a sentence, and return the exit code."""
    from discreet.errors import BudgetExceeded, DiscreetError, RiskTooHigh, SchemaError, SelfAttackFailed

    sentence = str(problem) if isinstance(problem, DiscreetError) else describe_unexpected(problem)
    print_error(sentence)
    codes = {
        SchemaError: EXIT_SCHEMA,
        SelfAttackFailed: EXIT_BROKEN,
        BudgetExceeded: EXIT_BUDGET,
        RiskTooHigh: EXIT_RISK,
    }
    code = next((code for kind, code in codes.items() if isinstance(problem, kind)), EXIT_OTHER)
    if "--json" in sys.argv:
        error: dict[str, Any] = {"kind": type(problem).__name__, "message": sentence, "exit": code}
        if isinstance(problem, RiskTooHigh):
            error["risk"] = problem.risk.to_dict()
        write_out(json.dumps({"error": error}, indent=2) + "\n")
    return code


def print_error(sentence: str) -> None:
    """Print a sentence to standard error, beside the output for programs."""
    from discreet.formatting import printable

    typer.echo(f"discreet: {printable(sentence)}", err=True)


def _exit_on_sigterm(_number: int, _frame: FrameType | None) -> None:
    # SystemExit unwinds the stack, so that incomplete folders are removed.
    sys.exit(_TERMINATED)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    from discreet.errors import DiscreetWarning

    if issubclass(category, DiscreetWarning):
        print_error(f"warning: {message}")
