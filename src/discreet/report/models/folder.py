"""The folder of a model that leaves the house."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.errors import DiscreetError
from discreet.report._json import read_json
from discreet.report.folder import SIGNATURE, STATEMENT, SUMS, read_bytes, write_sums
from discreet.report.models.card import model_card
from discreet.report.models.statement import KIND

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.report.models.statement import ModelStatement

MODEL, CARD = "model.npz", "model-card.md"
REQUIRED = (MODEL, STATEMENT, CARD, SUMS)
OPTIONAL = (SIGNATURE,)


def write_model_folder(folder: Path, statement: ModelStatement) -> None:
    """Write everything that goes with the model: statement, card and hashes.

    Parameters
    ----------
    folder : Path
        Holds the model that ``statement.files`` speaks of.
    statement : ModelStatement
        What is promised.

    Privacy
    -------
    Adds nothing to what the statement and the model say.
    """
    (folder / STATEMENT).write_bytes(statement.to_json().encode("utf-8"))
    (folder / CARD).write_bytes(model_card(statement).encode("utf-8"))
    write_sums(folder)


def holds_model(folder: Path) -> bool:
    """Say whether a folder claims to be that of a model: by its statement, or else by its files."""
    try:
        content = read_json(read_bytes(folder / STATEMENT), STATEMENT)
        return isinstance(content, dict) and content.get("kind") == KIND
    except DiscreetError:
        return (folder / MODEL).exists()
