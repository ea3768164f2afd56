"""``discreet verify``: check a published folder without the private table."""

import contextlib
import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from discreet.cli.console import Console
from discreet.cli.options import PASSPHRASE, TABLE, Json, SparkMaster, open_existing_ledger, passphrase_for


def verify(
    folder: Annotated[Path, typer.Argument(help="A public folder, or the folder that holds it.")],
    key: Annotated[
        Path | None,
        typer.Option(
            help="For auditors: the sealed key that the curator kept; with --source. Its passphrase is "
            f"asked for or taken from {PASSPHRASE}."
        ),
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(help="The X25519 private key (PEM) that the key is sealed for.")
    ] = None,
    source: Annotated[str | None, typer.Option(help=f"The original table; with --key. {TABLE}")] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="The curator's Ed25519 public key (PEM), to check the signature.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(help="The ledger that was charged, to check what the statement says about it."),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark", help="Read the parts of a table on the workers of Spark, which must see FOLDER."
        ),
    ] = False,
    spark_master: SparkMaster = None,
    json: Json = False,
) -> None:
    """Check every number of a release. The file must be consistent with its statement; exit 0 or 1."""
    from discreet.errors import ParameterError
    from discreet.report.folder.folder import read_bytes
    from discreet.report.folder.keys import unseal_key
    from discreet.report.verify import verify as check
    from discreet.tables.spark import open_session

    if spark_master is not None and not spark:
        raise ParameterError("--spark-master is for --spark, which was not given. Add it, or leave it out.")
    table: Any = source
    if source is not None:
        from discreet.pipeline.sources import resolve_source

        table = resolve_source(source)
    unsealed = None
    if key is not None:
        pem = None if private_key is None else read_bytes(private_key)
        unsealed = unseal_key(
            key, passphrase=None if pem else passphrase_for(key, kept=False), private_key=pem
        )
    context = contextlib.nullcontext() if ledger is None else open_existing_ledger(ledger)
    with context as opened_ledger, Console(as_json=json) as console:
        result = check(
            folder,
            key=unsealed,
            source=table,
            public_key=None if public_key is None else read_bytes(public_key),
            ledger=opened_ledger,
            spark=functools.partial(open_session, spark_master) if spark else None,
            progress=lambda name: console.progress(name, 0.0),
        )
        console.close()
        console.json(result.to_dict())
        console.table(
            "",
            ("check", "verdict", "why"),
            (
                (one.name, one.verdict.upper() if one.verdict == "failed" else one.verdict, one.detail)
                for one in result.checks
            ),
            left=3,
        )
        failed = len(result.failures)
        console.line(
            f"{result.folder}: "
            + (f"{failed} of {len(result.checks)} checks FAILED." if failed else "nothing failed.")
        )
    if not result.ok:
        raise typer.Exit(1)
