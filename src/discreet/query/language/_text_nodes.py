"""Nodes of texts, which only a key of groups may be: a CASE or COALESCE of texts and categories.

Each is a list of conditions with their texts, of which the first that is true decides: so the texts that a
row can have are known, and the text of a row is found by conditions alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from discreet.query.language._normal_form import junction, member
from discreet.query.language.nodes import Condition, Member, Node, write_level


class Decisions(NamedTuple):
    """Texts of the first condition that is true, and otherwise; None stands for unknown."""

    branches: list[tuple[Condition, str | None]]
    otherwise: str | None


class TextNode(Node):
    """A part that is a text for every row, or unknown."""

    def decisions(self) -> Decisions:
        """Return the conditions that decide which text a row has."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class TextConstant(TextNode):
    """A text written in the expression; None for NULL."""

    value: str | None

    def _write(self) -> str:
        return "NULL" if self.value is None else write_level(self.value)

    def _can_be_unknown(self) -> bool:
        return self.value is None

    def decisions(self) -> Decisions:
        """Return the text."""
        return Decisions([], self.value)


@dataclass(frozen=True, eq=False)
class TextColumn(TextNode):
    """A category of texts, by the test for none of its levels."""

    test: Member

    def _write(self) -> str:
        return self.test.written_name

    def _can_be_unknown(self) -> bool:
        return None in self.test.levels

    def decisions(self) -> Decisions:
        """Return a branch for every level but the last, which is what is left; NULL if it may be missing."""
        test, codes = self.test, self.test.known_codes
        branches: list[tuple[Condition, str | None]] = [
            (member(Member(test.name, test.levels, (code,), test.missing)), str(test.levels[code]))
            for code in codes
        ]
        return Decisions(branches, None) if self.nullable else Decisions(branches[:-1], branches[-1][1])


@dataclass(frozen=True, eq=False)
class TextCase(TextNode):
    """The text of the first condition that is true."""

    cases: tuple[tuple[Condition, TextNode], ...]
    default: TextNode

    def _write(self) -> str:
        whens = " ".join(f"WHEN {condition.text} THEN {value.text}" for condition, value in self.cases)
        return f"CASE {whens} ELSE {self.default.text} END"

    def _can_be_unknown(self) -> bool:
        return self.default.nullable or any(value.nullable for _, value in self.cases)

    def decisions(self) -> Decisions:
        """Return the branches of all cases, each under the condition of its own."""
        last = self.default.decisions()
        spliced = [one for condition, value in self.cases for one in _splice(condition, value.decisions())]
        return Decisions([*spliced, *last.branches], last.otherwise)


@dataclass(frozen=True, eq=False)
class TextCoalesce(TextNode):
    """The first of several texts that is known."""

    items: tuple[TextNode, ...]

    def _write(self) -> str:
        return f"COALESCE({', '.join(item.text for item in self.items)})"

    def _can_be_unknown(self) -> bool:
        return all(item.nullable for item in self.items)

    def decisions(self) -> Decisions:
        """Return the branches of the first text, with those of the next where it is unknown."""
        branches, otherwise = self.items[0].decisions()
        for item in self.items[1:]:
            later = item.decisions()
            branches = [
                one
                for c, text in branches
                for one in ([(c, text)] if text is not None else _splice(c, later))
            ]
            if otherwise is None:
                branches, otherwise = [*branches, *later.branches], later.otherwise
        return Decisions(branches, otherwise)


def _splice(condition: Condition, inner: Decisions) -> list[tuple[Condition, str | None]]:
    """Return the branches of a choice that is made where a condition is true."""
    joined = [(junction("AND", [condition, c]), text) for c, text in inner.branches]
    return [*joined, (condition, inner.otherwise)]
