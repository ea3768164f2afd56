"""The table that published answers give, made again without rows and without a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.release.synthetic.method import SyntheticRelease
from discreet.release.synthetic.public import PublicRows
from discreet.release.synthetic.questions import RecordedSums

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.release.synthetic.columns import SyntheticTable


def regenerate(
    method: SyntheticRelease, document: Mapping[str, Any], public: Mapping[str, AnyArray] | Path | None = None
) -> SyntheticTable:
    """Return the table that published answers give: every question must follow from the answers before it.

    Parameters
    ----------
    method, document, public
        As for :func:`repeat_release`.
    """
    return repeat_release(method, document, public)[1]


def repeat_release(
    method: SyntheticRelease, document: Mapping[str, Any], public: Mapping[str, AnyArray] | Path | None = None
) -> tuple[SyntheticRelease, SyntheticTable]:
    """Return the method and the table that published answers give, without rows and without a key.

    Every question must follow from the answers before it, or is refused.

    Parameters
    ----------
    method : SyntheticRelease
        Method with the parameters of the release; its promise is replaced by the recorded one.
    document : mapping
        Content of ``tables.json``, as ``tables_`` has it.
    public : mapping of str to array, or Path, optional
        Columns of the published table, encoded, or its file, of which those declared public are kept; None
        where there are none.
    """
    sums = RecordedSums(document)
    again = SyntheticRelease(
        sums.promise,  # type: ignore[arg-type]
        schema=sums.schema,
        target=method.target,
        cells=method.cells,
        n_records=method.n_records,
        draw=method.draw,
        shares=method.shares,
        anyway=True,
        keep_public=method.keep_public,
    )
    names = [column.name for column in sums.schema.released if column.role == "public"]
    kept = None
    if isinstance(public, Mapping) and names:
        kept = PublicRows.from_columns({name: public[name] for name in names})
    elif public is not None and names:
        kept = PublicRows.from_source(public, sums.schema, names)
    made = again.release_database(sums, public=kept)
    if not sums.is_used_up:
        raise ParameterError("The record must have no answers but those that the release asks for.")
    return again, made
