"""The habit of every record that goes to a file: frozen, complete, and nothing in it that we do not know."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from discreet.errors import ParameterError
from discreet.report._json import read_json, write_json


class Record(BaseModel):
    """A frozen record; unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Document(Record):
    """A record that is published as a file of its own, and read again by those who trust nobody."""

    def to_json(self) -> str:
        """Return the content of ``statement.json``: sorted, indented, the same for equal statements."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read the content of a ``statement.json`` that somebody else may have written.

        Raises
        ------
        ParameterError
            Names the first thing that is not as the JSON Schema says.
        """
        value = read_json(content, "statement.json")
        try:
            return cls.model_validate(value)
        except (ValidationError, RecursionError) as problem:
            first = "nested too deeply"
            if isinstance(problem, ValidationError):
                wrong = problem.errors(include_url=False, include_input=False)[0]
                first = f"{'.'.join(str(part) for part in wrong['loc'])}: {wrong['msg']}"
            raise ParameterError(
                f"statement.json must be a statement of this version, and is not ({first[:200]}). It may "
                "have been changed, or written by a newer version."
            ) from None
