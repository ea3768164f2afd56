"""The words of the language, and what is said about words and signs that it does not have.

All sentences are constants: what an analyst reads depends on the text and on the public schema alone.
"""

from __future__ import annotations

import re

from discreet.errors import ExpressionRefused
from discreet.schema.dialect import nearest

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_CHARACTERS = 4096
MOST_NODES = 400
MOST_DEPTH = 40
MOST_ITEMS = 64

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
FUNCTIONS = frozenset(("ABS", "SQRT", "LN", "EXP", "FLOOR", "POWER", "LEAST", "GREATEST"))

_ROW = "An expression speaks of one row alone: write a condition such as age < 40."
_SUMMED = "Leave it out: the database sums the expression over all rows itself."
_COLUMNS = "An expression may depend on the columns of its row alone."
_LISTED = "Compare a category with its declared values: ward IN ('surgery', 'medicine')."
_MISSING = "A missing cell holds a declared value: write CASE WHEN x IS NULL THEN 0 ELSE x END."
_NUMBER = "Columns are numbers or declared categories already; a condition counts as 0 or 1."
_DATE = "Compare a column of dates with a day in quotes: admitted < '2024-01-31'."
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
    ("a date function", _DATE,
     "DATE TIME TIMESTAMP INTERVAL EXTRACT DATE_PART DATE_DIFF DATEDIFF DATE_TRUNC YEAR MONTH DAY AGE"),
    ("a replacement of missing cells", _MISSING, "COALESCE NVL IFNULL NULLIF ISNULL"),
    ("a choice that is not CASE WHEN", _CHOICE, "IF IIF DECODE CHOOSE SWITCH"),
    ("an alias", "Write the expression alone, without a name.", "AS"),
    ("a comparison for missing cells", "No cell is NULL here: write a = b or a <> b.", "DISTINCT"),
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
    "MOD": "Write x - 10 * FLOOR(x / 10).",
    "DIV": "Write FLOOR(x / 10).",
    "LOG": "Write LN(x), the natural logarithm.",
    "LOG10": "Write LN(x) / 2.302585092994046.",
    "LOG2": "Write LN(x) / 0.6931471805599453.",
    "POW": "Write POWER(x, 2).",
    "CEIL": "Write -FLOOR(-x).",
    "CEILING": "Write -FLOOR(-x).",
    "ROUND": "Write FLOOR(x + 0.5).",
    "TRUNC": "Write FLOOR(x).",
    "SIGN": "Write (x > 0) - (x < 0).",
    "CBRT": "Write EXP(LN(GREATEST(x, 1)) / 3).",
}
_OPERATORS = ("MOD", "DIV")
_TAKEN = KEYWORDS | FUNCTIONS
_SIGNS: dict[str, tuple[str, str]] = {
    "%": ("the sign % (remainder)", "Write x - 10 * FLOOR(x / 10)."),
    "|": ("the sign | (concatenation, bits)", "Join conditions with OR."),
    "&": ("the sign & (bits)", "Join conditions with AND."),
    "^": ("the sign ^ (power, bits)", "Write POWER(x, 2)."),
    "~": ("the sign ~ (bits, text matching)", "Write NOT before a condition."),
    ":": ("the sign : (cast, parameter)", _NUMBER),
    ";": ("the sign ; (a second statement)", "Write one expression."),
    "@": ("the sign @", "Write ABS(x) for a number without its sign."),
    "$": ("the sign $ (parameter)", "Write the number itself."),
    "?": ("the sign ? (parameter)", "Write the number itself."),
    "#": ("the sign #", "Leave it out."),
    "\\": ("the sign \\", "Leave it out; a quote inside quotes is written twice."),
    "[": ("the sign [ (list)", "Lists stand in parentheses after IN: x IN (1, 2)."),
    "]": ("the sign ] (list)", "Lists stand in parentheses after IN: x IN (1, 2)."),
    "{": ("the sign { (structure)", "Lists stand in parentheses after IN: x IN (1, 2)."),
    "}": ("the sign } (structure)", "Lists stand in parentheses after IN: x IN (1, 2)."),
    "`": ("the sign `", "Names of columns stand as they are, or in double quotes if they hold signs."),
    "!": ("the sign !", "Write <> for unequal, NOT before a condition."),
    ".": ("the sign . (qualified name)", "Write the name of a column alone."),
}
_WORDS = {word: (construct, hint) for construct, hint, words in _FAMILIES for word in words.split()}


def refused_sign(sign: str) -> ExpressionRefused:
    """Return what is raised for a character outside the language."""
    if sign in _SIGNS:
        return ExpressionRefused(*_SIGNS[sign])
    return ExpressionRefused(
        "a character outside printable ASCII",
        "Names of columns that hold others stand in double quotes, declared values in single quotes.",
    )


def refused_function(name: str) -> ExpressionRefused:
    """Return what is raised for a function that the language does not have."""
    word = name.upper()
    if word in _WORDS:
        construct, hint = _WORDS[word]
        return ExpressionRefused(f"{construct}, {_quoted(word)}", hint)
    close = nearest(word, FUNCTIONS)
    listed = f"There are {', '.join(sorted(FUNCTIONS))}."
    hint = _INSTEAD.get(word) or (f"Did you mean {close}? {listed}" if close else listed)
    return ExpressionRefused(f"the function {_quoted(word)}", hint)


def refused_word(name: str, columns: tuple[str, ...]) -> ExpressionRefused:
    """Return what is raised for a word that is neither of the language nor a column."""
    word = name.upper()
    if word in _SYNTAX.split():
        construct, hint = _WORDS[word]
        return ExpressionRefused(f"{construct}, {word}", hint)
    if word in _OPERATORS:
        return ExpressionRefused(f"the operator {word}", _INSTEAD[word])
    if word in FUNCTIONS:
        return ExpressionRefused(f"{word} without its argument", f"Write {word}(x).")
    close = nearest(name, columns)
    there = ", ".join(map(write_name, columns))
    hint = f"Did you mean {write_name(close)}?" if close else f"There are {there}."
    return ExpressionRefused(f"the unknown column {_quoted(name)}", hint)


def _quoted(word: str) -> str:
    return word if len(word) <= 64 else f"{word[:61]}..."


def write_name(name: str) -> str:
    """Write the name of a column: as it is if that is a word of its own, else in double quotes."""
    return name if is_plain(name) else '"{}"'.format(name.replace('"', '""'))


def is_plain(name: str) -> bool:
    """Say whether a name can be written without quotes."""
    return bool(_PLAIN_NAME.fullmatch(name)) and name.upper() not in _TAKEN
