"""The habit of every record that goes to a file: frozen, complete, and nothing in it that we do not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record; unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
