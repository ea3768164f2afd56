"""Words of the language, and words and signs of SQL that it refuses, with a hint for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.arguments import nearest
from discreet.errors import ExpressionRefused
from discreet.query.language._hints import SIGNS

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYWORDS = frozenset(
    (
        "AND",
        "OR",
        "NOT",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "BETWEEN",
        "IN",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
    )
)
RESERVED = frozenset(("ABS", "SQRT", "LN", "EXP", "FLOOR", "POWER", "LEAST", "GREATEST", "COALESCE"))
DATE_FIELDS = ("YEAR", "QUARTER", "MONTH", "DAY", "ISODOW")
# A column may well be called year: these are functions only where a parenthesis follows.
CALLED = {
    "CEIL": "CEIL", "CEILING": "CEIL", "ROUND": "ROUND", "MOD": "MOD", "NULLIF": "NULLIF",
    "DATE_TRUNC": "DATE_TRUNC", **{field: field for field in DATE_FIELDS},
}  # fmt: skip
FUNCTIONS = RESERVED | set(CALLED) | {"EXTRACT"}
MARK = "F_"
"""Prefix of the names under which functions are handed to sqlglot, which knows none by such a name."""

_ROW = "An expression speaks of one row alone: write a condition such as age < 40."
_SUMMED = "An expression speaks of one row: ask for it by itself, then write its number."
_COLUMNS = "An expression may depend on the columns of its row alone."
_LISTED = "Compare a category with its declared values: ward IN ('surgery', 'medicine')."
_MISSING = "Write COALESCE(x, 0), or CASE WHEN x = 99 THEN NULL ELSE x END."
_NUMBER = "Columns are numbers or declared categories already; a condition counts as 0 or 1."
_DATE = "Compare a column of dates with a day in quotes: admitted < '2024-01-31'."
_BETWEEN_DATES = "Write discharged - admitted for the days from one date to another."
LATER = "Write admitted + 30 for a date 30 days later."
_WEEKDAY = "Write ISODOW(admitted): Monday is 1, Sunday is 7."
FIELD = "Write YEAR, QUARTER, MONTH, DAY or ISODOW, as in YEAR(admitted) or EXTRACT(YEAR FROM admitted)."
_CHOICE = "Write CASE WHEN condition THEN number ELSE number END."

_FAMILIES: tuple[tuple[str, str, str], ...] = (
    ("a sub-query", _ROW,
     "SELECT EXISTS WITH RECURSIVE UNION INTERSECT EXCEPT FROM WHERE HAVING GROUP ORDER LIMIT OFFSET VALUES "
     "TABLE JOIN LATERAL UNNEST ANY ALL SOME"),
    ("an aggregate", _SUMMED,
     "SUM COUNT AVG MEAN MEDIAN STDDEV STDDEV_POP STDDEV_SAMP VARIANCE VAR_POP VAR_SAMP QUANTILE MODE "
     "FIRST LAST ARRAY_AGG STRING_AGG LIST GROUP_CONCAT COLLECT_LIST BOOL_AND BOOL_OR CORR ENTROPY FILTER"),
    ("the aggregate MIN or MAX", "LEAST and GREATEST compare numbers of one row.", "MIN MAX"),
    ("a window", _ROW,
     "OVER PARTITION WINDOW LAG LEAD ROW_NUMBER RANK DENSE_RANK NTILE FIRST_VALUE LAST_VALUE NTH_VALUE"),
    ("a volatile function", _COLUMNS,
     "RANDOM RAND UUID GEN_RANDOM_UUID NOW CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME "
     "LOCALTIMESTAMP NEXTVAL CURRVAL SETSEED TODAY CLOCK_TIMESTAMP SLEEP PG_SLEEP TXID_CURRENT "
     "CURRENT_USER SESSION_USER USER CURRENT_SETTING GETENV QUERY VERSION"),
    ("a function that can fail", _COLUMNS, "ERROR RAISE_ERROR ASSERT_TRUE"),
    ("a cast", _NUMBER, "CAST TRY_CAST CONVERT SAFE_CAST TRY"),
    ("text matching", _LISTED,
     "LIKE ILIKE SIMILAR REGEXP RLIKE GLOB ESCAPE REGEXP_MATCHES REGEXP_REPLACE LEVENSHTEIN REPEAT CONCAT "
     "SUBSTR SUBSTRING LENGTH LOWER UPPER TRIM CONTAINS STARTS_WITH POSITION REPLACE HASH MD5 COLLATE"),
    ("a date function", _DATE, "DATE TIME TIMESTAMP TO_DATE STRPTIME MAKE_DATE"),
    ("a date function", _BETWEEN_DATES, "DATE_DIFF DATEDIFF AGE DATE_SUB"),
    ("a date function", LATER, "DATE_ADD DATEADD ADD_MONTHS INTERVAL"),
    ("a day of the week that engines count differently", _WEEKDAY, "DAYOFWEEK WEEKDAY DOW DAYOFWEEK_ISO"),
    ("a date function", FIELD, "DATE_PART DATEPART DAYOFMONTH DAYOFYEAR DOY WEEK WEEKOFYEAR HOUR MINUTE"),
    ("a replacement of missing cells", _MISSING, "NVL IFNULL ISNULL"),
    ("a choice that is not CASE WHEN", _CHOICE, "IF IIF DECODE CHOOSE SWITCH"),
    ("an alias", "Write the expression alone, without a name.", "AS"),
    ("a comparison for missing cells", "Write a = b OR (a IS NULL AND b IS NULL).", "DISTINCT"),
    ("a BETWEEN of either order", "Write x BETWEEN LEAST(a, b) AND GREATEST(a, b).", "SYMMETRIC"),
    ("a statement", "An expression asks for a value and does nothing else.",
     "COPY DROP ATTACH DETACH PRAGMA INSERT UPDATE DELETE CREATE ALTER SET CALL LOAD INSTALL EXPORT IMPORT "
     "GRANT TRUNCATE VACUUM EXECUTE PREPARE DO BEGIN COMMIT"),
    ("an exclusive or", "Write a <> b for two conditions.", "XOR"),
)  # fmt: skip
# Words of SQL that stand without parentheses. The other words above may well be meant as names of columns.
_SYNTAX = (
    "SELECT EXISTS WITH RECURSIVE UNION INTERSECT EXCEPT FROM WHERE HAVING GROUP ORDER LIMIT OFFSET VALUES "
    "JOIN LATERAL ANY ALL SOME FILTER OVER PARTITION CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP "
    "CURRENT_USER SESSION_USER LIKE ILIKE SIMILAR REGEXP RLIKE GLOB ESCAPE COLLATE DATE TIMESTAMP INTERVAL "
    "AS DISTINCT SYMMETRIC COPY DROP ATTACH DETACH PRAGMA INSERT UPDATE DELETE CREATE ALTER SET CALL LOAD "
    "INSTALL EXPORT IMPORT GRANT TRUNCATE VACUUM EXECUTE PREPARE XOR"
)
_INSTEAD: dict[str, str] = {
    "MOD": "Write MOD(x, 10).",
    "DIV": "Write FLOOR(x / 10).",
    "LOG": "Write LN(x), the natural logarithm.",
    "LOG10": "Write LN(x) / 2.302585092994046.",
    "LOG2": "Write LN(x) / 0.6931471805599453.",
    "POW": "Write POWER(x, 2).",
    "TRUNC": "Write FLOOR(x).",
    "SIGN": "Write (x > 0) - (x < 0).",
    "CBRT": "Write EXP(LN(GREATEST(x, 1)) / 3).",
}
_OPERATORS = ("MOD", "DIV")
_EXAMPLES = {
    "MOD": "MOD(x, 10)", "NULLIF": "NULLIF(x, 99)", "EXTRACT": "EXTRACT(YEAR FROM admitted)",
    "DATE_TRUNC": "DATE_TRUNC('month', admitted)", **{field: f"{field}(admitted)" for field in DATE_FIELDS},
}  # fmt: skip
TAKEN = KEYWORDS | RESERVED
NAMED = FUNCTIONS | {*_SYNTAX.split(), *_OPERATORS}  # words that are refused by their own names
_SIGNS: dict[str, tuple[str, str]] = {
    "|": ("the sign | (concatenation, bits)", "Join conditions with OR."),
    "&": ("the sign & (bits)", "Join conditions with AND."),
    "^": ("the sign ^ (power, bits)", "Write POWER(x, 2)."),
    "~": ("the sign ~ (bits, text matching)", "Write NOT before a condition."),
    ":": ("the sign : (cast, parameter)", _NUMBER),
    ";": ("the sign ; (a second statement)", "Ask one question at a time."),
    "@": ("the sign @", "Write ABS(x) for a number without its sign."),
    "$": ("the sign $ (parameter)", "Write the number itself."),
    "?": (
        "the sign ?",
        "Leave it out. Write questions as COUNT WHERE age > 40, with the numbers themselves.",
    ),
    "#": ("the sign #", "Leave it out."),
    "\\": ("the sign \\", "Leave it out; a quote inside quotes is written twice."),
    "[": ("the sign [ (list)", "Lists stand in parentheses after IN: x IN (1, 2)."),
    "]": ("the sign ] (list)", "Lists stand in parentheses after IN: x IN (1, 2)."),
    "{": ("the sign { (structure)", "Lists stand in parentheses after IN: x IN (1, 2)."),
    "}": ("the sign } (structure)", "Lists stand in parentheses after IN: x IN (1, 2)."),
    "`": ("the sign `", "Names of columns stand as they are, or in double quotes if they hold signs."),
    "!": ("the sign !", "Write <> for unequal, NOT before a condition."),
    ".": ("the sign . (qualified name)", "Write the name of a column alone."),
    **SIGNS,
}
_EXTREMES = {"MAX": ("0.99", "high"), "MIN": ("0.01", "low")}
_WORDS = {word: (construct, hint) for construct, hint, words in _FAMILIES for word in words.split()}


def refused_sign(sign: str) -> ExpressionRefused:
    """Return the error for a character outside the language."""
    if sign in _SIGNS:
        return ExpressionRefused(*_SIGNS[sign])
    return ExpressionRefused(
        "a character that the language does not have",
        "Names of columns that hold others stand in double quotes, declared values in single quotes.",
    )


def refused_function(name: str) -> ExpressionRefused:
    """Return the error for a function that the language does not have."""
    word = name.upper()
    if word in _WORDS:
        construct, hint = _WORDS[word]
        return ExpressionRefused(f"{construct}, {_shorten_word(word)}", hint)
    close = nearest(word, FUNCTIONS)
    listed = f"There are {', '.join(sorted(FUNCTIONS))}."
    hint = _INSTEAD.get(word) or (f"Did you mean {close}? {listed}" if close else listed)
    return ExpressionRefused(f"the function {_shorten_word(word)}", hint)


_MOST_NAMED = 20  # columns that an error lists


def refused_word(name: str, columns: Mapping[str, str]) -> ExpressionRefused:
    """Return the error for a word that is neither of the language nor a column.

    Parameters
    ----------
    name : str
        Word as it was typed.
    columns : mapping of str to str
        Names of the columns, and how each is written in the language.
    """
    word = name.upper()
    if word in _SYNTAX.split():
        construct, hint = _WORDS[word]
        return ExpressionRefused(f"{construct}, {word}", hint)
    if word in _OPERATORS:
        return ExpressionRefused(f"the operator {word}", _INSTEAD[word])
    close = nearest(name, tuple(columns))
    if word in RESERVED or (word in FUNCTIONS and close is None):
        example = _EXAMPLES.get(word, f"{word}(x)")
        return ExpressionRefused(f"{word} without its argument", f"Write {example}.")
    written = list(columns.values())
    more = f" and {len(written) - _MOST_NAMED} more" if len(written) > _MOST_NAMED else ""
    hint = (
        f"Did you mean {columns[close]}?" if close else f"There are {', '.join(written[:_MOST_NAMED])}{more}."
    )
    shown = _shorten_word(name)
    return ExpressionRefused(f"the unknown column {shown}", hint, f"Unknown column {shown}.")


def refused_aggregate(name: str, argument: str = "x") -> ExpressionRefused | None:
    """Return the error for an aggregate that no query has, such as MAX; None for another word.

    Parameters
    ----------
    name : str
        Word before the parentheses, in any case.
    argument : str
        What stands in the parentheses, which the hint repeats.
    """
    word = name.upper()
    if not _WORDS.get(word, ("",))[0].startswith(("an aggregate", "the aggregate")):
        return None
    hint = "Use COUNT, SUM, MEAN, VARIANCE, STDDEV, RATIO, MEDIAN or QUANTILE."
    if word in _EXTREMES:
        level, end = _EXTREMES[word]
        hint = (
            f"It would be the value of one row. QUANTILE({argument}, {level}) is a {end} value that hardly "
            "depends on one row."
        )
    return ExpressionRefused(f"an aggregate, {word}", hint, f"There is no {word}.")


def _shorten_word(word: str) -> str:
    return word if len(word) <= 64 else f"{word[:61]}..."
