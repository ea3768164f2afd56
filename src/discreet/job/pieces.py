"""A typed question in pieces: words, signs and quoted texts, with how deep in parentheses each stands.

Cutting a question at its words is all that happens here and in ``select``; what stands between the cuts is
read by the expression language, and no text of an analyst is ever joined to another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Text in quotes is one piece: a value or a name may hold any word. A quote that is never closed is a
# piece by itself; a comment that is never closed takes all that follows.
_PIECES = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*(?:.*?\*/|.*)|[A-Za-z_]\w*|\s+|.""", re.DOTALL
)
_LONGEST_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a text.

    Attributes
    ----------
    text : str
        As typed.
    start, end : int
        Where it stands.
    depth : int
        How many parentheses it stands in; a parenthesis itself as deep as what is around it.
    """

    text: str
    start: int
    end: int
    depth: int

    @property
    def word(self) -> str:
        """It in capitals; a text in quotes is no word."""
        return "" if self.text[0] in "'\"" else self.text.upper()

    @property
    def is_comment(self) -> bool:
        """Whether it is for readers alone."""
        return self.text.startswith(("--", "/*"))

    @property
    def is_name(self) -> bool:
        """Whether it may name a column or a table: a word, or anything in double quotes."""
        return self.text.isidentifier() or (self.text[0] == '"' and len(self.text) > 1)

    @property
    def name(self) -> str:
        """What it names."""
        return self.text[1:-1].replace('""', '"') if self.text[0] == '"' else self.text


def pieces_of(text: str) -> list[Piece]:
    """Cut a text into pieces, blanks left out."""
    pieces, depth = [], 0
    for match in _PIECES.finditer(text):
        piece = match[0]
        if piece.isspace():
            continue
        depth -= piece == ")"
        pieces.append(Piece(piece, match.start(), match.end(), depth))
        depth += piece == "("
    return pieces


def listed(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Cut pieces at the commas that stand outside of parentheses."""
    part: list[Piece] = []
    for piece in pieces:
        if piece.text == "," and piece.depth == 0:
            yield part
            part = []
        else:
            part.append(piece)
    yield part


def typed(pieces: Sequence[Piece]) -> str:
    """Return what was typed from the first of some pieces to the last, on one line."""
    words: list[str] = []
    end = pieces[0].start if pieces else 0
    for piece in pieces:
        words.append(piece.text if piece.start == end else f" {piece.text}")
        end = piece.end
    return "".join(words)


def shown(text: str) -> str:
    """Quote what was typed: short, and nothing that a screen could not show."""
    visible = "".join(sign if sign.isprintable() else "?" for sign in text)
    return visible if len(visible) <= _LONGEST_SHOWN else f"{visible[: _LONGEST_SHOWN - 3]}..."
