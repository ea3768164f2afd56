"""Options of a job, in groups: what it writes, how it runs, and who may check and sign it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet.pipeline._stages import OnProgress, OnStage
    from discreet.report.statement.documents import About


ATTACK_RECORDS = 20_000
"""Number of made-up records that a plan is attacked on by default."""


@dataclass(frozen=True, slots=True)
class KeyEscrow:
    """File in which the key of a release is kept, encrypted, for an auditor.

    Parameters
    ----------
    path : path
        File for the encrypted key: it must not exist yet, and must be outside of the release's folder.
    passphrase : str, optional
        Passphrase of at least 12 characters that encrypts the key. Exactly one of `passphrase` and
        `recipient` must be given.
    recipient : path, optional
        PEM file with the auditor's X25519 public key; only the matching private key decrypts the file.

    Privacy
    -------
    The key removes the noise from every published cell, so it is never written in the clear.

    Reference
    ---------
    ``docs/howto/verify-a-release.md``.

    Examples
    --------
    >>> KeyEscrow("key.enc", passphrase="correct horse battery staple").path
    'key.enc'
    """

    path: str | os.PathLike[str]
    passphrase: str | None = field(default=None, repr=False)
    recipient: str | os.PathLike[str] | None = None


@dataclass(frozen=True, slots=True)
class Signing:
    """Private key that signs the hashes of a published folder.

    Parameters
    ----------
    key : path
        PEM file with an Ed25519 private key.
    password : str, optional
        Password of the PEM file; None if it is not encrypted.

    Privacy
    -------
    A signature says who published a folder, and nothing about its rows.

    Reference
    ---------
    ``docs/howto/verify-a-release.md``.

    Examples
    --------
    >>> Signing("curator.pem").key
    'curator.pem'
    """

    key: str | os.PathLike[str]
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Output:
    """What a job writes beside its result, and whether in place of an earlier one.

    Parameters
    ----------
    replace : bool
        Whether an earlier publication at the same place may be replaced.
    about : About or mapping, optional
        Texts ``curator``, ``purpose``, ``contact``, ``license`` and ``supersedes``, published as they are.
    escrow : KeyEscrow, optional
        File in which the key of a release is kept, encrypted, for an auditor. None: the key is forgotten. A
        model is not replayed from a key, so it takes none.
    signing : Signing, optional
        Ed25519 private key that signs the hashes. None: they are not signed.

    Privacy
    -------
    Changes no cell of what is published.

    Reference
    ---------
    ``docs/reference/cli.md``.

    Examples
    --------
    >>> Output(replace=True).replace
    True
    """

    replace: bool = False
    about: About | Mapping[str, str | None] | None = None
    escrow: KeyEscrow | None = None
    signing: Signing | None = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Facts about one run of a job that change no cell of its result.

    Parameters
    ----------
    tuned : bool
        Whether the amount of noise, or a parameter of a model, was chosen by looking at private rows. The
        statement says so.
    attack_records : int
        Number of made-up records that the plan of a release is attacked on before anything is charged; fewer
        are faster and reveal only larger mistakes. A model is not attacked.
    command : str
        Command line that runs the job again, for the internal report and the audit log.
    accept_risk : str, optional
        Reason for which a table is released though attacks on made-up people are above their thresholds; the
        statement holds it as it is. None: such a release stops before it is charged.
    public_sample : path, URL or frame, optional
        Public table of the same columns, which attackers may know: the risk is measured on people like its
        rows too. None: on people made up from the schema alone.
    new_ledger : bool
        Whether a table that is known to another ledger may be charged to this one all the same; ledger and
        statement then say so.
    spark : SparkOptions, optional
        Workers of Spark that read, draw and write parts of a table; then ``data.parquet`` is a folder of
        files. None: one process, unless the table is in Spark. A model takes none.
    on_stage : callable, optional
        Called with each stage when it is done.
    on_progress : callable, optional
        Called with the name of the running stage and the share of it that is done, from 0 to 1.

    Privacy
    -------
    Nothing here is computed from rows of the table; counts of the public sample are published.

    Reference
    ---------
    ``docs/reference/cli.md``.

    Examples
    --------
    >>> RunOptions(accept_risk="All people consented; see protocol 12.").accept_risk
    'All people consented; see protocol 12.'
    """

    tuned: bool = False
    attack_records: int = ATTACK_RECORDS
    command: str = ""
    accept_risk: str | None = None
    public_sample: Any = None
    new_ledger: bool = False
    spark: SparkOptions | None = None
    on_stage: OnStage | None = None
    on_progress: OnProgress | None = None


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where the workers of Spark are that draw a release, and whether they go on with an earlier one.

    Parameters
    ----------
    master : str, optional
        Address of the cluster, such as ``spark://host:7077`` or ``local[2]``; None for Spark's own setting.
    session : SparkSession, optional
        Session that is used as it is; None: the active one, or one that is started.
    resume : bool
        Whether to finish the release to the same folder that was interrupted after its charge. The other
        arguments must be those of the interrupted run; nothing is charged again.

    Privacy
    -------
    Changes no bit of what is published: a release on Spark is that of one process under the same key.

    Reference
    ---------
    ``docs/howto/release-with-spark.md``.

    Examples
    --------
    >>> SparkOptions(master="local[2]").resume
    False
    """

    master: str | None = None
    session: Any = None
    resume: bool = False
