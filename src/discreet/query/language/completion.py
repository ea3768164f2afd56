"""Completion of questions: words of the language, columns, declared values and commands of the prompt."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.query.language.lexer import Token
    from discreet.schema import Column, Schema

AGGREGATES = ("count", "sum", "mean", "median", "quantile", "stddev", "variance", "proportion", "ratio")
"""Words that begin a question and say what is computed of the rows."""
_CLAUSES = ("where", "by", "select", "from", "group by")
_PARAMETERS = ("epsilon=", "delta=", "mu=", "rho=")
_COMPARISONS = ("=", "<>", "!=")


def complete(line: str, schema: "Schema", commands: "Sequence[str]" = ()) -> tuple[int, list[str]]:
    """Return where the last word of an unfinished question begins, and what may stand in its place.

    Parameters
    ----------
    line : str
        Text from the beginning of the question to the cursor.
    schema : Schema
        Schema whose released columns and declared values are offered.
    commands : sequence of str
        Commands of the prompt, each with its first sign.

    Privacy
    -------
    Follows from the schema alone: values are offered whether or not a row has them.
    """
    from discreet.query.language.lexer import tokenize

    if line.lstrip().startswith("\\"):
        return _complete_command(line, commands)
    tokens = tokenize(line)
    start, opened = _find_open_quote(line, tokens)
    before = [token for token in tokens if token.end <= start and token.text not in "'\""]
    if opened == "'":
        column = _compared_column(before, schema)
        return start, _select_matching(line[start:], _write_values(column))
    if opened == '"':
        return start, _select_matching(line[start:], [_quote(column.name) for column in schema.released])
    if tokens and tokens[-1].end == len(line) and tokens[-1].kind in ("name", "value"):
        return len(line), []  # behind a closed quote no word begins
    if tokens and tokens[-1].end == len(line) and tokens[-1].kind == "word":
        start, before = tokens[-1].start, tokens[:-1]
    typed = line[start:]
    column = _compared_column(before, schema)
    if column is not None and column.is_category:
        return start, _select_matching(typed, _write_values(column))
    return start, _complete_word(typed, before, schema)


def _complete_command(line: str, commands: "Sequence[str]") -> tuple[int, list[str]]:
    """Return the completion of a command of the prompt, or of the names in its argument."""
    start = max(line.rfind(" "), line.rfind("\t")) + 1
    if not line[:start].strip():
        return start, _select_matching(line[start:], commands)
    known = _PARAMETERS if line.split()[0] == "\\privacy" else ()
    return start, _select_matching(line[start:], known)


def _complete_word(typed: str, before: "Sequence[Token]", schema: "Schema") -> list[str]:
    """Return columns and words that begin with what was typed; in capitals if that is."""
    from discreet.query.language.lexer import write_name
    from discreet.query.language.vocabulary import FUNCTIONS, KEYWORDS

    columns = [write_name(column.name) for column in schema.released]
    grouped = any(token.word == "BY" and token.depth == 0 for token in before)
    words: list[str] = (
        [] if grouped else [*_CLAUSES, *(word.lower() for word in sorted(KEYWORDS | FUNCTIONS))]
    )
    clauses = {token.word for token in before if token.depth == 0} & {"WHERE", "BY", "FROM"}
    follows = not before or before[0].word == "SELECT" or (before[-1].text == "," and before[-1].depth == 0)
    if follows and not clauses:
        words = [*AGGREGATES, *words]
    if typed and typed.isupper():
        words = [word.upper() for word in words]
    matching = _select_matching(typed, [*dict.fromkeys((*columns, *words))])
    # A name that needs quotes is offered to who types it without them, once there is a letter of it.
    quoted = [one for one in columns if typed and one[0] == '"' and _select_matching(typed, [one[1:]])]
    return [*quoted, *matching]


def _find_open_quote(line: str, tokens: "Sequence[Token]") -> tuple[int, str]:
    """Return the place and sign of a quote that is not closed; the end of the line without one."""
    for token in tokens:
        if token.text in ("'", '"'):
            return token.start, token.text
    return len(line), ""


def _compared_column(before: "Sequence[Token]", schema: "Schema") -> "Column | None":
    """Return the column whose value comes next, after ``=``, ``<>`` or in the list of an IN; or None."""
    tokens = list(before)
    if tokens and tokens[-1].text in ("(", ","):
        # A list: back over its values to the IN before it.
        while tokens and tokens[-1].text != "(" and (tokens[-1].text == "," or tokens[-1].kind == "value"):
            tokens.pop()
        if len(tokens) < 2 or tokens[-1].text != "(" or tokens[-2].word != "IN":
            return None
        tokens = tokens[:-2]
        if tokens and tokens[-1].word == "NOT":
            tokens.pop()
    elif tokens and tokens[-1].text in _COMPARISONS:
        tokens.pop()
    else:
        return None
    if not tokens or not tokens[-1].is_name:
        return None
    name = tokens[-1].name.casefold()
    return next((column for column in schema.released if column.name.casefold() == name), None)


def _write_values(column: "Column | None") -> list[str]:
    """Return the declared values of a category as they are written in a question."""
    if column is None or not column.is_category:
        return []
    return [
        "'{}'".format(level.replace("'", "''")) if isinstance(level, str) else str(level).upper()
        for level in column.levels
        if level is not None
    ]


def _quote(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _select_matching(typed: str, candidates: "Iterable[str]") -> list[str]:
    """Return the candidates that begin with what was typed, in any case."""
    return [one for one in candidates if one.casefold().startswith(typed.casefold())]
