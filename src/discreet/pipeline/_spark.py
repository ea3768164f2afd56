"""Releases on Spark as a job: where the workers are, what is resumed, and questions of a synthetic table."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.pipeline._output import INTERNAL, PUBLIC, RESUME, WORK
from discreet.release.spark import PartitionedTable
from discreet.report.folder.folder import DATA
from discreet.tables.spark import is_spark_source, open_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet.ledger import Ledger
    from discreet.pipeline._output import ReleaseKey
    from discreet.pipeline.options import KeyEscrow, SparkOptions
    from discreet.query.database import Database
    from discreet.release import Publication, ReleaseMethod
    from discreet.release.base import Watch
    from discreet.schema import Schema


def open_parts(source: Any, schema: Schema, internal: Path, spark: SparkOptions) -> PartitionedTable:
    """Return the table as the workers of Spark read it, with its private folder in an internal one."""
    return PartitionedTable(source, schema, internal / WORK, session=spark.session, master=spark.master)


def check_answers_alone(spark: SparkOptions, escrow: KeyEscrow | None) -> None:
    """Refuse what a synthetic release from answers of Spark has not: one key, and one charge to resume."""
    for name, given in (("resume (--resume)", spark.resume), ("escrow (--keep-key)", escrow is not None)):
        if given:
            raise ParameterError(
                f"{name} must be left out where Spark answers the questions of a synthetic release: each is "
                "charged and answered by itself. Release the table without Spark, or leave it out."
            )


@contextlib.contextmanager
def open_database(
    source: Any, schema: Schema, ledger: Ledger | None, spark: SparkOptions
) -> Iterator[Database]:
    """Yield a database in Spark that answers the questions of a synthetic release.

    Parameters
    ----------
    source : path, Spark data frame or spark:// URL
        Table; of a path, Parquet files that all workers see.
    schema : Schema
        Declaration of the columns.
    ledger : Ledger or None
        Ledger that is charged; None: nothing is counted.
    spark : SparkOptions
        Cluster or session that answers the questions.
    """
    from discreet.query.database import Database  # loaded here, since other releases ask no questions

    if not is_spark_source(source):
        session = open_session(spark.master) if spark.session is None else spark.session
        source = session.read.parquet(str(source))
    database = Database(source, schema=schema, ledger=ledger)
    try:
        yield database
    finally:
        database.close()


def publish_parts(
    method: ReleaseMethod,
    parts: PartitionedTable,
    draft: Path,
    key: ReleaseKey,
    *,
    watch: Watch,
    resume: bool,
) -> Publication:
    """Charge once and draw on the workers; a record in the draft says how to go on after a kill.

    Parameters
    ----------
    method : ReleaseMethod
        Method of the release, with its ledger.
    parts : PartitionedTable
        Table whose cells were checked.
    draft : Path
        Folder in which the release is built.
    key : ReleaseKey
        Key of the release, which is stored before the charge, and taken from the record to resume.
    watch : callable
        As for :meth:`ReleaseMethod.publish_parts`.
    resume : bool
        Whether the draft has the record of an earlier run.

    Privacy
    -------
    The record holds the key, in a file that only its owner can read, until the release is complete: whoever
    has it and the release has the true rows. It is written before the charge, which is named by key, plan and
    rows and not made twice, so that no moment is left in which the table is paid for and cannot be drawn.
    """
    facts = {
        "source": parts.digest,
        "schema": parts.schema.digest,
        "method, with its parameters,": method.plan_digest(parts.n_rows),
    }
    record = draft / INTERNAL / RESUME
    if resume:
        key.resume(record, facts)
    else:
        key.store(record, facts)
    try:
        return method.publish_parts(parts, draft / PUBLIC / DATA, stream=key.stream(), watch=watch)
    except BaseException:
        # Also when interrupted. A release that was not paid for has nothing to resume.
        if not resume and not parts.is_paid:
            record.unlink()
        raise
