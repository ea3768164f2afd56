"""Record what the product does under fixed seeds and a fixed clock, and compare it with a record.

Run ``python -m tests.golden.fingerprint`` to compare everything with ``tests/golden/fingerprint.json``,
``--write FILE`` to record into a file, ``--compare FILE`` to compare with another record, and name groups to
compute only these. A difference means that noise bits, statements, ledger rows, wire messages, exit codes or
numbers changed. Where that is meant, record anew, and say in the commit which cases changed and why:

    python -m tests.golden.fingerprint --write tests/golden/fingerprint.json
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tests.golden import (
    cli_cases,
    http_cases,
    learner_cases,
    ledger_cases,
    noise_cases,
    publication_cases,
    query_cases,
    release_cases,
)
from tests.golden.publication_cases import applies_here
from tests.postgres import no_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

RECORD = Path(__file__).with_name("fingerprint.json")


@dataclass(frozen=True)
class Group:
    """A function that returns cases, and what it needs.

    Attributes
    ----------
    compute : callable
        Function without arguments that returns a value of JSON for each case.
    slow : bool
        Whether it takes long or starts a process.
    absent : callable or None
        Function that says why the group cannot be computed here, or None if it can.
    """

    compute: Callable[[], dict[str, Any]]
    slow: bool = False
    absent: Callable[[], str | None] | None = None


GROUPS: dict[str, Group] = {
    "samplers": Group(noise_cases.sampler_cases),
    "privacy": Group(noise_cases.privacy_cases),
    "releases": Group(release_cases.release_cases),
    "learners": Group(learner_cases.learner_cases),
    "aggregates on duckdb": Group(query_cases.database_cases),
    "learners on duckdb": Group(query_cases.learner_on_database_cases),
    "aggregates on postgresql": Group(query_cases.postgres_cases, slow=True, absent=no_postgres),
    "ledger": Group(ledger_cases.ledger_cases),
    "model folders": Group(publication_cases.model_folder_cases, slow=True),
    "gaussian folder": Group(lambda: publication_cases.release_folder_cases(("gaussian",))),
    "other release folders": Group(
        lambda: publication_cases.release_folder_cases(
            tuple(name for name in publication_cases.RELEASES if name != "gaussian")
        ),
        slow=True,
    ),
    "responses": Group(http_cases.http_cases, slow=True),
    "flags": Group(cli_cases.flag_cases),
    "commands": Group(cli_cases.command_cases, slow=True),
}


@functools.cache
def computed(name: str) -> dict[str, Any]:
    """Return the cases of a group, computed once in a process: a key must not be spent twice."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="golden-state-") as state:
        warnings.simplefilter("ignore")
        before = os.environ.get("DISCREET_STATE")
        os.environ["DISCREET_STATE"] = state
        try:
            # The last bits of some published figures depend on how many threads share a product.
            with threadpool_limits(1):
                cases = GROUPS[name].compute()
        finally:
            if before is None:
                del os.environ["DISCREET_STATE"]
            else:
                os.environ["DISCREET_STATE"] = before
    return dict(json.loads(json.dumps(cases)))  # tuples and keys as a file has them


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a line for each case that is missing, new or different, of those that this machine can tell.

    Cases that name another machine in brackets are left out: see :mod:`tests.golden.publication_cases`.
    """
    recorded = {case: value for case, value in recorded.items() if applies_here(case)}
    now = {case: value for case, value in now.items() if "[" not in case or case in recorded}
    lines = [f"{case}: was recorded, and is missing" for case in recorded if case not in now]
    lines += [f"{case}: is new; record it" for case in now if case not in recorded]
    lines += [
        f"{case}: was {recorded[case]!r}, is {now[case]!r}"
        for case in recorded
        if case in now and recorded[case] != now[case]
    ]
    return lines


def read_record(path: Path = RECORD) -> dict[str, dict[str, Any]]:
    """Return the recorded cases by group."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main(arguments: Iterable[str] | None = None) -> int:
    """Compute, and write or compare; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="record into this file")
    parser.add_argument("--compare", type=Path, metavar="FILE", default=RECORD, help="compare with this file")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"any of: {', '.join(GROUPS)}")
    options = parser.parse_args(None if arguments is None else list(arguments))
    wanted = options.groups or list(GROUPS)
    record = read_record(options.compare) if options.compare.exists() else {}
    found: dict[str, dict[str, Any]] = {}
    failed = 0
    for name in wanted:
        absent = GROUPS[name].absent
        why = None if absent is None else absent()
        if why is not None:
            print(f"{name}: NOT COMPUTED: {why}", file=sys.stderr)  # noqa: T201
            continue
        found[name] = computed(name)
        lines = [] if options.write else differences(record.get(name, {}), found[name])
        failed += len(lines)
        print(f"{name}: {len(found[name])} cases, {len(lines)} differences")  # noqa: T201
        for line in lines:
            print(f"  {line}")  # noqa: T201
    if options.write:
        kept = read_record(options.write) if options.write.exists() else {}
        kept = {name: cases for name, cases in kept.items() if name in GROUPS and name not in found}
        ordered = {name: (kept | found)[name] for name in GROUPS if name in kept | found}
        options.write.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
