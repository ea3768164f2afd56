"""Files of questions: one on each line, or SQL statements that end with a semicolon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.errors import ParameterError, SourceError
from discreet.query.language.lexer import tokenize

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

_MOST_QUESTIONS = 1000  # each has its preview made before the first is paid
_MOST_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class WrittenQuestion:
    """A question of a file, with the line on which it begins.

    Attributes
    ----------
    line : int
        Number of its first line, from 1 on.
    text : str
        Text of the question, without comments and without its semicolon.
    """

    line: int
    text: str


def read_questions(path: str | os.PathLike[str]) -> tuple[WrittenQuestion, ...]:
    """Return the questions of a file.

    Parameters
    ----------
    path : path
        Text file in UTF-8 with questions, as :func:`split_questions` reads it.

    Raises
    ------
    SourceError
        The file cannot be read, or is no text.
    ParameterError
        The file holds no question, or more than 1,000.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as problem:
        raise SourceError(
            f"The file of questions {str(path)!r} cannot be read ({problem.strerror}). Check its name."
        ) from None
    return decode_questions(content, str(path))


def decode_questions(content: bytes, name: str) -> tuple[WrittenQuestion, ...]:
    """Return the questions of the content of a file, which messages call by the given name."""
    try:
        text = content.decode("utf-8-sig") if len(content) <= _MOST_BYTES else None
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text:
        raise SourceError(
            f"The file of questions {name!r} must be a text in UTF-8 of at most 8 MiB, and is not. Save it "
            "as UTF-8."
        )
    questions = tuple(split_questions(text))
    if not 1 <= len(questions) <= _MOST_QUESTIONS:
        raise ParameterError(
            f"The file of questions {name!r} must hold from 1 to {_MOST_QUESTIONS:,} questions, and holds "
            f"{len(questions):,}. Write one on each line, or end each with a semicolon."
        )
    return questions


def split_questions(text: str) -> Iterator[WrittenQuestion]:
    """Yield the questions of a text, without comments.

    Parameters
    ----------
    text : str
        Questions that end with a semicolon, over as many lines as they need. Without a semicolon in the
        whole text, each line is a question. ``-- comments`` and ``/* comments */`` are left out; quoted
        texts may hold any of these signs.
    """
    tokens = tokenize(text)
    for comment in (token for token in reversed(tokens) if token.is_comment):
        blank = "".join("\n" if sign == "\n" else " " for sign in comment.text)
        text = text[: comment.start] + blank + text[comment.end :]
    ends = [token.start for token in tokens if token.text == ";"]
    if not ends:
        # A quote that runs over several lines is left open on the first, and refused there.
        ends = [place for place, sign in enumerate(text) if sign == "\n"]
    start = 0
    for end in (*ends, len(text)):
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            yield WrittenQuestion(text.count("\n", 0, first) + 1, piece.strip())
        start = end + 1
