"""Queries as SQL: ``SELECT sex, AVG(age) FROM people WHERE age > 40 GROUP BY sex``.

A SELECT of statistics over one table is split into the parts of a query. Everything else of SQL is refused
by the name of the first construct in the text. The parts that can be read make up the nearest statement that
is in the language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from discreet.query.language._statistic import IN_SQL, StatisticText, read_arguments
from discreet.query.language.lexer import Token, read_whole, shorten, source_text, split_list, tokenize
from discreet.query.language.vocabulary import refused_aggregate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

ANY_TABLE = "data"
"""Name after FROM where the statement has no plain one: there is one table, whatever it is called."""
_ENDINGS = {
    "HAVING": "a choice among groups",
    **dict.fromkeys(("OFFSET", "FETCH"), "a choice of groups other than LIMIT"),
    **dict.fromkeys(("WINDOW", "QUALIFY"), "a window"),
    "FOR": "a lock",
    **dict.fromkeys(("UNION", "INTERSECT", "EXCEPT"), "a second query"),
    "SELECT": "a sub-query",
}
_SECOND = ("UNION", "INTERSECT", "EXCEPT", "SELECT", ";")
_ORDER = ("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "LIMIT")
_JOINS = "JOIN INNER LEFT RIGHT FULL CROSS NATURAL ASOF POSITIONAL SEMI ANTI LATERAL"
_INSTEAD = {
    **dict.fromkeys(("TOTAL", "COUNTIF", "COUNT_IF", "SUMIF"), "SUM"),
    **{f"{word}_CONT": f"{word}_DISC" for word in ("QUANTILE", "PERCENTILE")},
}
WORDS = frozenset((*_ENDINGS, "FROM", "WHERE", "GROUP", "BY", "ORDER", "LIMIT"))
"""Words that end a part of a query where they stand outside of quotes and parentheses."""

ONE_QUESTION = (
    "A question is SELECT COUNT(*), SUM(x), AVG(x), STDDEV(x) or MEDIAN(x) FROM a table, then WHERE, GROUP "
    "BY, ORDER BY and LIMIT."
)
_COMPUTE = "Ask for the aggregate alone, and compute with the answer."
_CLOSE = "Close it; a quote inside quotes is written twice."


@dataclass(frozen=True, slots=True)
class SelectRefusal:
    """First construct of a statement that is refused, and the nearest queries.

    Attributes
    ----------
    construct : str
        Name of the construct, with what was typed of it.
    nearest : tuple of str
        Statements that ask for nearly the same, the nearest first; they may still not fit the schema.
    otherwise : str
        Hint for the case that none of them can be read.
    """

    construct: str
    nearest: tuple[str, ...]
    otherwise: str


@dataclass(frozen=True, slots=True)
class SelectParts:
    """Parts of a SELECT, as typed; only those before the first refused construct.

    Attributes
    ----------
    statistics : tuple of StatisticText
        Statistics after SELECT, by their SQL words.
    clauses : mapping of str to str
        Text after WHERE, GROUP BY (as "BY"), ORDER BY (as "ORDER") and LIMIT, for those that are there. What
        GROUP BY and ORDER BY call by its position after SELECT, or by a name that AS gives, is written out.
    refused : SelectRefusal or None
        First construct that is refused; None if all is read.
    """

    statistics: tuple[StatisticText, ...]
    clauses: Mapping[str, str]
    refused: SelectRefusal | None


def split_select(text: str, columns: Collection[str]) -> SelectParts:
    """Return the parts of a SELECT, with the first construct that is refused.

    Parameters
    ----------
    text : str
        Statement as it was typed.
    columns : collection of str
        Casefolded names of the columns that may be keys.
    """
    return _Reader(text, columns).cut()


@dataclass(slots=True)
class _Kept:
    """Parts of a statement that can be read, and their places in the text."""

    statistics: list[tuple[int, StatisticText]] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    table: str = ANY_TABLE
    keys: list[tuple[int, str]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    endings: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)

    def written(self, statistics: Sequence[StatisticText]) -> str:
        """Return a statement of these statistics with the clauses that can be read."""
        columns = ", ".join(one.written() for one in statistics)
        words = f"SELECT {columns} FROM {self.table}"  # noqa: S608, for people: no engine sees it
        if self.where:
            words += f" WHERE {self.where}"
        words += f" GROUP BY {', '.join(self.groups)}" if self.groups else ""
        for word, shown in (("ORDER", "ORDER BY"), ("LIMIT", "LIMIT")):
            words += f" {shown} {self.endings[word]}" if word in self.endings else ""
        return words


class _Reader:
    def __init__(self, text: str, columns: Collection[str]) -> None:
        self._text = text
        self._columns = columns
        self._kept = _Kept()
        self._first: tuple[int, str, str] | None = None
        self._hopeless = False
        self._groups: list[list[Token]] = []

    def cut(self) -> SelectParts:
        """Return the parts of the SELECT, with its first refusal; parts after the refusal are left out."""
        pieces = self._check_balance(tokenize(self._text))
        if not self._hopeless:
            self._read(self._skip_to_select(pieces))
        kept, end = self._kept, len(self._text) + 1 if self._first is None else self._first[0]
        seen = {part for part, place in kept.places.items() if place < end}
        clauses = {**kept.endings}
        if kept.where is not None and "where" in seen:
            clauses["WHERE"] = kept.where
        if kept.groups and "groups" in seen:
            clauses["BY"] = ", ".join(kept.groups)
        return SelectParts(
            statistics=tuple(one for place, one in kept.statistics if place < end),
            clauses={word: text for word, text in clauses.items() if word in ("WHERE", "BY") or word in seen},
            refused=self._refusal(),
        )

    def _read(self, pieces: list[Token]) -> None:
        """Read clause by clause, after those whose items others may name."""
        segments = _segments(pieces)
        items = [
            _split_alias(part)
            for head, body in segments
            if head.word == "SELECT"
            for part in split_list(body)
        ]
        for head, body in segments:
            if head.word == "GROUP":
                self._groups += [self._group_key(part, items) for part in split_list(body[1:])]
        for head, body in segments:
            if not self._take(head, body):
                break
        self._check_whole()

    def _refuse(self, place: int, construct: str, otherwise: str = ONE_QUESTION) -> None:
        """Keep a refusal if it is the first in the text, in whatever order refusals come up."""
        if self._first is None or place < self._first[0]:
            self._first = (place, construct, otherwise)

    def _refusal(self) -> SelectRefusal | None:
        """Return the first refusal with the nearest queries that are allowed; None if there is none."""
        if self._first is None:
            return None
        _, construct, otherwise = self._first
        nearest = []
        kept = self._kept
        if not self._hopeless:
            loose = [key for _, key in _loose(kept)]
            statistics = [one for _, one in kept.statistics]
            if loose and not statistics:
                # A column by itself: its mean if it is a number, else how many rows have each value.
                nearest.append(kept.written([StatisticText("AVG", (loose[0],))]))
            kept.groups.extend(loose)
            nearest.append(kept.written(statistics or [StatisticText("COUNT", ())]))
        return SelectRefusal(construct, tuple(nearest), otherwise)

    def _check_balance(self, pieces: list[Token]) -> list[Token]:
        """Return the tokens without comments; refuses open quotes and unbalanced parentheses."""
        opened: list[int] = []
        for piece in pieces:
            if piece.is_comment:
                self._refuse(piece.start, "a comment", "Leave it out.")
            elif piece.text in ("'", '"'):
                self._refuse(piece.start, "a quote that is not closed", _CLOSE)
                self._hopeless = True
            elif piece.text == "(":
                opened.append(piece.start)
            elif piece.text == ")" and not opened:
                self._refuse(piece.start, "a ) without its (", "Leave it out.")
                self._hopeless = True
            elif piece.text == ")":
                opened.pop()
        if opened:
            self._refuse(opened[-1], "a ( that is not closed", "Close it.")
            self._hopeless = True
        return [piece for piece in pieces if not piece.is_comment]

    def _skip_to_select(self, pieces: list[Token]) -> list[Token]:
        """Return the tokens from the statement's last SELECT on; refuses what stands before it."""
        first = pieces[0]
        if first.word == "SELECT":
            return pieces
        kind = "a common table expression" if first.word == "WITH" else "a statement"
        self._refuse(first.start, f"{kind}, {first.word}")
        last = next((i for i, p in enumerate(pieces) if p.word == "SELECT" and p.depth == 0), None)
        self._hopeless |= last is None
        return [] if last is None else pieces[last:]

    def _take(self, head: Token, body: list[Token]) -> bool:
        """Read one clause; return False if nothing after it belongs to the same query."""
        word, kept = head.word, self._kept
        if word in _ENDINGS and (word != "SELECT" or "SELECT" in kept.places):
            self._refuse(head.start, f"{_ENDINGS[word]}, {word}")
            return word not in _SECOND
        if word == ";":
            self._refuse(head.start, "the sign ; (a second statement)", "Leave it out.")
            return False
        if word in kept.places:
            self._refuse(head.start, f"a second {word}", "Join conditions with AND, groups by commas.")
            return True
        later = [other for other in _ORDER[_ORDER.index(word) + 1 :] if other in kept.places]
        if later:
            self._refuse(head.start, f"{word} after {later[0]}")
        kept.places[word] = head.start
        read = {
            "SELECT": self._select,
            "FROM": self._from,
            "WHERE": self._where,
            "GROUP": self._group,
            "ORDER": self._order,
            "LIMIT": self._limit,
        }
        read[word](head, body)
        return True

    def _check_whole(self) -> None:
        kept, end = self._kept, len(self._text)
        if "FROM" not in kept.places:
            self._refuse(end, "no FROM")
        for place, key in _loose(kept):
            self._refuse(place, f"a column that is not in GROUP BY, {shorten(key)}")
        if not kept.statistics and self._first is None:
            self._refuse(end, "no statistic, such as COUNT(*) or AVG(x)")

    def _where(self, head: Token, body: list[Token]) -> None:
        if not body:
            self._refuse(head.start, "nothing after WHERE", "Write a condition: WHERE age > 40.")
            self._hopeless = True
            return
        filtered = self._kept.where
        self._kept.where = f"({filtered}) AND ({source_text(body)})" if filtered else source_text(body)
        self._kept.places["where"] = head.start

    def _group(self, head: Token, body: list[Token]) -> None:
        if len(body) < 2 or body[0].word != "BY":
            self._refuse(head.start, "GROUP without BY and a column", "Write GROUP BY and names of columns.")
            return
        self._kept.groups[:0] = [source_text(part) for part in self._groups]
        self._kept.places["groups"] = head.start

    def _group_key(self, part: list[Token], items: Sequence[tuple[list[Token], str | None]]) -> list[Token]:
        """Return a key of GROUP BY; a position after SELECT, or a name there, is replaced by what it is."""
        if len(part) != 1 or part[0].name.casefold() in self._columns:
            return part
        place, name = read_whole(part[0].text), part[0].name.casefold()
        if place is None:
            named = [item for item, alias in items if alias is not None and alias.casefold() == name]
        else:
            named = [item for item, _ in items[place - 1 : place] if place]
        return named[0] if named and read_sql_item(named[0]) is None else part

    def _order(self, head: Token, body: list[Token]) -> None:
        if len(body) < 2 or body[0].word != "BY":
            self._refuse(head.start, "ORDER without BY", "Write ORDER BY and a statistic or a column.")
            return
        self._kept.endings["ORDER"] = ", ".join(self._order_key(part) for part in split_list(body[1:]))

    def _order_key(self, part: list[Token]) -> str:
        """Return an item of ORDER BY; its position after SELECT, or its name, is replaced by what it is."""
        end = part[-1:] if part and part[-1].word in ("ASC", "DESC") else []
        named, kept = part[: len(part) - len(end)], self._kept
        text = source_text(named)
        if len(named) == 1:
            position = (read_whole(text) or 0) - 1
            if 0 <= position < len(kept.listed):
                text = kept.listed[position]
            elif named[0].is_name:
                text = kept.aliases.get(named[0].name.casefold(), text)
        return " ".join(filter(None, (text, source_text(end))))

    def _limit(self, head: Token, body: list[Token]) -> None:
        if len(body) != 1:
            self._refuse(head.start, "LIMIT without a number", "Write a whole number of groups: LIMIT 10.")
            return
        self._kept.endings["LIMIT"] = body[0].text

    def _from(self, head: Token, body: list[Token]) -> None:
        """Read FROM: a single plain name of a table, whatever it is; refuses everything else."""
        one_table = f"There is one table, whatever it is called: write FROM {ANY_TABLE}."
        if not body:
            self._refuse(head.start, "nothing after FROM", one_table)
            return
        first, after = body[0], body[1] if len(body) > 1 else None
        plain = first.text.isidentifier() and first.text.isascii()
        if plain and after is None:
            self._kept.table = first.text
            return
        if first.text == "(":
            self._refuse(first.start, "a sub-query as a table", one_table)
        elif not plain:
            self._refuse(first.start, f"a table that is not a plain name, {shorten(first.text)}", one_table)
        elif after is None or after.text == "(":
            self._refuse(first.start, f"a function as a table, {shorten(first.text)}", one_table)
        elif after.text == ".":
            self._refuse(after.start, f"a table of a schema, {shorten(source_text(body))}", one_table)
            named = body[2].text if len(body) > 2 else ""
            self._kept.table = named if named.isidentifier() and named.isascii() else ANY_TABLE
        else:
            self._kept.table = first.text
            name = after if after.word != "AS" else body[-1]
            if after.word in _JOINS.split():
                construct = f"a join, {after.word}{'' if after.word == 'JOIN' else ' JOIN'}"
            elif after.text == ",":
                construct = f"a second table, {shorten(source_text(body[2:]))}"
            elif name.is_name and len(body) <= 3:
                construct = f"another name for the table, {shorten(name.text)}"
            else:
                construct = f"something after the table, {shorten(after.text)}"
            self._refuse(after.start, construct, one_table)

    def _select(self, head: Token, body: list[Token]) -> None:
        if body and body[0].word in ("DISTINCT", "ALL"):
            self._refuse(body[0].start, f"a choice of rows, {body[0].word}")
            body = body[1:]
        for part in split_list(body):
            if part:
                self._item(*_split_alias(part))
            else:
                self._refuse(head.end, "an empty place after SELECT")

    def _item(self, part: list[Token], alias: str | None) -> None:
        """Read one item after SELECT: a statistic, or a column to group by."""
        top = [piece for piece in part if piece.depth == 0]
        first, text = top[0], shorten(source_text(part))
        self._kept.listed.append(source_text(part))
        if alias is not None:
            self._kept.aliases[alias.casefold()] = source_text(part)
        called = len(top) > 2 and top[1].text == "(" and first.text.isidentifier()
        known = first.is_name and first.name.casefold() in self._columns
        statistic = read_sql_item(part)
        if statistic is not None:
            self._kept.statistics.append((first.start, statistic))
        elif called and first.word in IN_SQL:
            self._kept.statistics.append((first.start, read_arguments(first.word, _inside(part))))
            self._after(top[3], part)
        elif known and (len(top) == 1 or (called and len(top) == 3)):
            self._kept.keys.append((first.start, source_text(part)))
        elif self._is_grouped(part):
            pass  # an expression that is in GROUP BY
        elif first.text == "*" and len(top) == 1:
            self._refuse(first.start, "whole rows, *")
        elif called and first.word in _INSTEAD:
            self._refuse(first.start, f"an aggregate that does not exist here, {text}")
            instead = [first._replace(text=_INSTEAD[first.word]), *part[1:]]
            nearest = read_sql_item(instead) or read_arguments(_INSTEAD[first.word], _inside(part))
            self._kept.statistics.append((first.end, nearest))
        elif called and (
            refused := refused_aggregate(first.word, shorten(source_text(_inside(part))) or "x")
        ):
            otherwise = refused.hint if first.word in ("MIN", "MAX") else ONE_QUESTION
            self._refuse(first.start, f"an aggregate that does not exist here, {text}", otherwise)
            self._hopeless = True  # No other statistic is suggested instead.
        elif any(piece.word in IN_SQL for piece in part):
            self._refuse(first.start, f"something around an aggregate, {text}", _COMPUTE)
            self._hopeless = True
        else:
            self._refuse(first.start, f"something that is not an aggregate, {text}")

    def _is_grouped(self, part: Sequence[Token]) -> bool:
        """Return whether an item is a key of GROUP BY in the same words, its edges left out or the same."""
        own = _lower_tokens(part)
        keys = map(_lower_tokens, self._groups)
        return any(key == own or key[: len(own) + 1] == (*own, "(") for key in keys)

    def _after(self, piece: Token, part: list[Token]) -> None:
        """Refuse what follows an aggregate: a window, a FILTER, or anything else."""
        if piece.word == "OVER":
            self._refuse(piece.start, "a window, OVER")
        elif piece.word == "FILTER":
            self._refuse(piece.start, "a choice of rows, FILTER")
            condition = _inside([p for p in part if p.start > piece.start])
            if condition and condition[0].word == "WHERE":
                self._kept.where = source_text(condition[1:])
        else:
            self._refuse(piece.start, f"something after an aggregate, {shorten(piece.text)}", _COMPUTE)
            words = [one.word or one.text for one in part if one.start >= piece.start]
            place, first = self._kept.statistics[-1]
            if words[:2] == ["/", "COUNT"] and first.word == "SUM":
                self._kept.statistics[-1] = (place, first._replace(word="AVG"))


def _segments(pieces: Sequence[Token]) -> list[tuple[Token, list[Token]]]:
    """Return the clauses of a statement: keywords outside of quotes and parentheses, with their tokens."""
    parts: list[tuple[Token, list[Token]]] = []
    for i, piece in enumerate(pieces):
        starts = piece.word in _ORDER or piece.word in _ENDINGS or piece.text == ";"
        # The GROUP of WITHIN GROUP (ORDER BY x), which no BY follows, is part of a statistic.
        around = [near.word or near.text for near in pieces[max(i - 1, 0) : i + 2]]
        if piece.depth == 0 and starts and around != ["WITHIN", "GROUP", "("]:
            parts.append((piece, []))
        elif parts:
            parts[-1][1].append(piece)
    return parts


def _inside(pieces: Sequence[Token]) -> list[Token]:
    """Return the tokens inside the first parentheses."""
    start = next((i for i, piece in enumerate(pieces) if piece.text == "("), len(pieces))
    end = next((i for i, p in enumerate(pieces) if i > start and p.text == ")" and p.depth == 0), len(pieces))
    return list(pieces[start + 1 : end])


def _lower_tokens(part: Sequence[Token]) -> tuple[str, ...]:
    return tuple(token.text.casefold() for token in part)


def _split_alias(part: list[Token]) -> tuple[list[Token], str | None]:
    """Return an item without ``AS name``, and the name, by which GROUP BY and ORDER BY may call it."""
    named = len(part) > 2 and part[-2].word == "AS" and part[-2].depth == 0 and part[-1].is_name
    return (part[:-2], part[-1].name) if named else (part, None)


def read_sql_item(part: Sequence[Token]) -> StatisticText | None:
    """Return the statistic that an item after SELECT is; None if it is none, or has something after it."""
    top = [piece for piece in part if piece.depth == 0]
    words = [piece.word or piece.text for piece in top]
    if len(words) < 3 or words[0] not in IN_SQL or words[1:3] != ["(", ")"]:
        return None
    inside = _inside(part)
    if words[0] == "PERCENTILE_DISC":
        ordered = _inside(part[len(inside) + 3 :])
        if words[3:] != ["WITHIN", "GROUP", "(", ")"] or [p.word for p in ordered[:2]] != ["ORDER", "BY"]:
            return read_arguments(words[0], inside)
        return StatisticText(words[0], (source_text(inside), source_text(ordered[2:])))
    if words == ["SUM", "(", ")", "/", "SUM", "(", ")"]:
        second = _inside([piece for piece in part if piece.start > top[3].start])
        if not inside or not second:
            return None
        return StatisticText("RATIO", (source_text(inside), source_text(second)))
    return read_arguments(words[0], inside) if len(words) == 3 else None


def _split_key(key: str) -> tuple[str, str]:
    """Return the name of a group key without case, and its edges as they were typed."""
    pieces = tokenize(key)
    return pieces[0].name.casefold() if pieces else "", "".join(piece.text for piece in pieces[1:])


def _loose(kept: _Kept) -> list[tuple[int, str]]:
    """Return the columns after SELECT that are not in GROUP BY, its edges left out or the same."""
    groups = {_split_key(group) for group in kept.groups}
    groups |= {(name, "") for name, _ in groups}
    return [(place, key) for place, key in kept.keys if _split_key(key) not in groups]
