"""SQL text of the trees that this package builds.

sqlglot writes any tree for any database, and takes longer for it than an engine takes for the sums of a
small table. Trees here have thirty kinds of node, which DuckDB, PostgreSQL and Spark spell alike but for the
names of types; a kind that is not listed here is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from discreet.query.language._sql import FROM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlglot.expressions import Expr as Tree

_OPERATORS: dict[type, str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "<>",
    exp.And: "AND", exp.Or: "OR",
}  # fmt: skip
_LONGEST_REPEATED = 100  # characters
_CLAUSES = (FROM, "group", "offset")


class SqlText:
    """Writer of SQL text for one engine.

    Parameters
    ----------
    types : mapping of str to str
        Names of types in the engine, where they differ from the usual ones.
    exponents : bool
        Whether the engine reads a number with an exponent as the double nearest to it, so that no cast
        from text is needed.
    clamps : bool
        Whether the engine clamps a number to two others faster by CASE than by LEAST and GREATEST.

    Privacy
    -------
    Trees are made of the layout and of parsed expressions; names of columns are those of the curated table,
    and only numbers are quoted: no text of an analyst is in the SQL.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> half = exp.Cast(this=exp.column("c0"), to=exp.DataType.build("DOUBLE")) / exp.Literal.number(2)
    >>> SqlText({"DOUBLE": "DOUBLE PRECISION"}).write(half)
    'CAST(c0 AS DOUBLE PRECISION) / 2'
    """

    def __init__(self, types: Mapping[str, str], *, exponents: bool = False, clamps: bool = False) -> None:
        """Keep the names of types, and how numbers are written."""
        self._types = types
        self._exponents = exponents
        self._clamps = clamps
        self._writers: dict[type, Callable[[Tree], str]] = {
            **dict.fromkeys(_OPERATORS, self._operators),
            exp.Column: lambda tree: self.write(tree.args["this"]),
            exp.Identifier: _identifier,
            exp.Literal: _literal,
            exp.Boolean: lambda tree: "TRUE" if tree.args["this"] else "FALSE",
            exp.Star: lambda _: "*",
            exp.Paren: lambda tree: f"({self.write(tree.args['this'])})",
            exp.Neg: self._negative,
            exp.Not: lambda tree: f"NOT {self.write(tree.args['this'])}",
            exp.Cast: self._cast,
            exp.DataType: self._type,
            exp.DataTypeParam: lambda tree: self.write(tree.args["this"]),
            exp.Case: self._case,
            exp.In: lambda tree: (
                f"{self.write(tree.args['this'])} IN ({self._list(tree.args['expressions'])})"
            ),
            exp.Anonymous: self._function,
            exp.Sum: lambda tree: f"SUM({self.write(tree.args['this'])})",
            exp.Count: lambda tree: f"COUNT({self.write(tree.args['this'])})",
            exp.Distinct: lambda tree: f"DISTINCT {self._list(tree.args['expressions'])}",
            exp.Coalesce: lambda tree: (
                f"COALESCE({self._list([tree.args['this'], *tree.args['expressions']])})"
            ),
            exp.Tuple: lambda tree: f"({self._list(tree.args['expressions'])})",
            exp.Alias: lambda tree: f"{self.write(tree.args['this'])} AS {self.write(tree.args['alias'])}",
            exp.Table: self._table,
            exp.Subquery: lambda tree: (
                f"({self.write(tree.args['this'])}) AS {self.write(tree.args['alias'])}"
            ),
            exp.TableAlias: lambda tree: self.write(tree.args["this"]),
            exp.Select: self._select,
            exp.From: lambda tree: f" FROM {self.write(tree.args['this'])}",
            exp.Group: self._group,
            exp.GroupingSets: lambda tree: f"GROUPING SETS ({self._list(tree.args['expressions'])})",
            exp.Offset: lambda tree: f" OFFSET {self.write(tree.args['expression'])}",
        }

    def write(self, tree: Tree) -> str:
        """Return the text of a tree."""
        return self._writers[type(tree)](tree)

    def _list(self, trees: list[Tree]) -> str:
        return ", ".join([self.write(tree) for tree in trees])

    def _operators(self, tree: Tree) -> str:
        """Return a chain of operators, without recursion; trees already have their parentheses."""
        chain: list[str] = []
        while (symbol := _OPERATORS.get(type(tree))) is not None:
            chain.append(f" {symbol} {self.write(tree.args['expression'])}")
            tree = tree.args["this"]
        return self.write(tree) + "".join(reversed(chain))

    def _negative(self, tree: Tree) -> str:
        text = self.write(tree.args["this"])
        return f"- {text}" if text.startswith("-") else f"-{text}"  # two in a row begin a comment

    def _cast(self, tree: Tree) -> str:
        this, to = tree.args["this"], tree.args["to"]
        if self._exponents and type(this) is exp.Literal and this.args.get("is_string"):
            number: str = this.args["this"]
            if to.args["this"] is exp.DataType.Type.DOUBLE and "n" not in number:  # neither inf nor nan
                written = number if "e" in number else f"{number}e0"
                return f"({written})" if number.startswith("-") else written
        return f"CAST({self.write(this)} AS {self.write(to)})"

    def _type(self, tree: Tree) -> str:
        name = tree.args["this"].value
        parameters = tree.args.get("expressions")
        return f"{self._types.get(name, name)}{f'({self._list(parameters)})' if parameters else ''}"

    def _case(self, tree: Tree) -> str:
        whens = "".join(
            [
                f" WHEN {self.write(one.args['this'])} THEN {self.write(one.args['true'])}"
                for one in tree.args["ifs"]
            ]
        )
        return f"CASE{whens} ELSE {self.write(tree.args['default'])} END"

    def _function(self, tree: Tree) -> str:
        """Return the call of a function, or where that is faster the CASE of a clamp."""
        name, arguments = tree.args["this"], tree.args["expressions"]
        inner = arguments[0] if arguments else None
        if not self._clamps or name != "LEAST" or type(inner) is not exp.Anonymous:
            return f"{name}({self._list(arguments)})"
        cell, *lower = map(self.write, inner.args["expressions"])
        upper = self._list(arguments[1:])
        # Written three times: a long text, which may hold other clamps, would explode.
        if inner.args["this"] != "GREATEST" or len(lower) != 1 or len(cell) > _LONGEST_REPEATED:
            return f"LEAST({inner.args['this']}({', '.join([cell, *lower])}), {upper})"
        below, above = f"{cell} < {lower[0]} THEN {lower[0]}", f"{cell} > {upper} THEN {upper}"
        return f"CASE WHEN {below} WHEN {above} ELSE {cell} END"

    def _table(self, tree: Tree) -> str:
        schema = tree.args.get("db")
        return (
            f"{self.write(schema)}.{self.write(tree.args['this'])}"
            if schema
            else self.write(tree.args["this"])
        )

    def _select(self, tree: Tree) -> str:
        clauses = {name: self.write(clause) for name, clause in tree.args.items() if name != "expressions"}
        ordered = "".join([clauses.pop(name) for name in _CLAUSES if name in clauses])
        assert not clauses, "a clause that would be left out changes the query"
        return f"SELECT {self._list(tree.args['expressions'])}{ordered}"

    def _group(self, tree: Tree) -> str:
        by = [*tree.args.get("expressions", ()), *tree.args.get("grouping_sets", ())]
        return f" GROUP BY {self._list(by)}"


def _identifier(tree: Tree) -> str:
    name: str = tree.args["this"]
    return '"{}"'.format(name.replace('"', '""')) if tree.args.get("quoted") else name


def _literal(tree: Tree) -> str:
    text: str = tree.args["this"]
    return "'{}'".format(text.replace("'", "''")) if tree.args.get("is_string") else text
