"""Programs as SQL: one expression for an engine to sum, with sub-selects for repeated values.

Every operation becomes one function that DuckDB, PostgreSQL and Spark have under the same name and
compute with the same bits. Constants are written as quoted decimals that are cast, which all three read
to the nearest double. A value that is used several times and is not trivial becomes a *step*: a column
of a sub-select, named by a digest of how it is computed. So the SQL is as long as the program, whatever
was nested in the text, and no expression is deeper than an engine allows.

:class:`SqlText` writes the trees. sqlglot writes any tree for any database, and takes longer for it than an
engine takes for the sums of a small table. Trees here have thirty kinds of node, which DuckDB, PostgreSQL and
Spark spell alike but for the names of types; a kind that is not listed here is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from sqlglot import exp

from discreet.query.curation import is_double

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.query.language._program import Kind, Operation, Program

Tree: TypeAlias = Any  # sqlglot's base class goes by two names in the versions that we accept
ColumnTree: TypeAlias = Callable[[str], Tree]

_CHEAP = 6  # operations that are rather repeated than made a step
_DEEPEST = 30  # operations inside one another before a step is made; DuckDB allows 1000, nested parsers less
_OPERATORS: dict[Kind, Any] = {
    "add": exp.Add, "subtract": exp.Sub, "multiply": exp.Mul, "divide": exp.Div,
    "less": exp.LT, "less_equal": exp.LTE, "equal": exp.EQ, "not_equal": exp.NEQ,
    "every": exp.And, "some": exp.Or,
}  # fmt: skip
_TYPES = {kind: exp.DataType(this=exp.DataType.Type[kind]) for kind in ("DOUBLE", "BIGINT")}
"""Trees of types, which all casts share: nothing looks for what is above one."""
_COMPARISONS = (exp.LT, exp.LTE, exp.EQ, exp.NEQ)
_OPEN = (exp.Binary, exp.Neg, exp.In, exp.Not)  # what is put in parentheses inside something else
_FUNCTIONS: dict[Kind, str] = {
    "sqrt": "SQRT", "floor": "FLOOR", "absolute": "ABS", "least": "LEAST", "greatest": "GREATEST",
}  # fmt: skip


FROM = "from_" if "from_" in exp.Select.arg_types else "from"
"""Argument name of FROM in a SELECT tree, which differs between versions of sqlglot."""
_SYMBOLS: dict[type, str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "<>",
    exp.And: "AND", exp.Or: "OR",
}  # fmt: skip
_LONGEST_REPEATED = 100  # characters
_CLAUSES = (FROM, "group", "offset")


class Stepwise(exp.Expression):
    """A tree and the steps that it refers to; :func:`hoist` makes plain SQL of a SELECT that holds some."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True}


@dataclass(frozen=True, slots=True)
class _Shape:
    """Form of a value in SQL: its number of operations, their depth, and whether it is a step."""

    size: int
    depth: int
    step: bool


def write(program: Program, place: int, column: ColumnTree, finish: Callable[[Tree], Tree]) -> Tree:
    """Return a value of a program as an SQL tree.

    Parameters
    ----------
    program : Program
        Operations that compute the value.
    place : int
        Place of the value in the program.
    column : callable
        Function from the declared name of a column to the tree of its exact curated cells.
    finish : callable
        Function that is applied to the tree of the value.

    Returns
    -------
    sqlglot expression
        Tree of the value; a :class:`Stepwise` if there are steps.
    """
    writer = _Writer(program, place, column)
    tree = finish(writer.value(place))
    steps = writer.steps()
    return Stepwise(this=tree, expressions=steps) if steps else tree


def hoist(select: exp.Select, *, fence: bool = False) -> exp.Select:
    """Compute the steps of a SELECT in sub-selects below it.

    Parameters
    ----------
    select : sqlglot Select
        Over one table, whose columns it names without qualifying them.
    fence : bool, default False
        Whether to keep the engine from merging the sub-selects again, as PostgreSQL does; each value
        would then be computed as often as it is used.

    Returns
    -------
    sqlglot Select
        The same one if nothing in it has steps.
    """
    if not _has_steps(select):
        return select
    select = select.copy()
    steps: dict[str, Tree] = {}
    for node in list(select.find_all(Stepwise)):
        for step in node.expressions:
            # Expressions that share a step may write it differently; the first way has its steps before it.
            steps.setdefault(step.alias, step.this)
        node.replace(node.this)
    used = {alias: _names(tree) for alias, tree in steps.items()}
    levels: dict[str, int] = {}
    for alias in steps:  # an expression lists a step after those that it needs
        levels[alias] = 1 + max((levels[name] for name in used[alias] if name in levels), default=0)
    clause = select.args[FROM]
    source, needed = clause.this, _names(select)
    for level in range(1, max(levels.values()) + 1):
        later = needed.union(*(used[alias] for alias in steps if levels[alias] > level))
        passed = [exp.column(name) for name in sorted(later) if levels.get(name, 0) < level]
        computed = [_alias(tree, alias) for alias, tree in steps.items() if levels[alias] == level]
        inner = exp.Select(expressions=[*passed, *computed])
        inner.set(FROM, exp.From(this=source))
        source = (inner.offset(0, copy=False) if fence else inner).subquery(f"steps_{level}", copy=False)
    clause.set("this", source)
    return select


def _has_steps(tree: Tree) -> bool:
    """Return whether a tree has steps, faster than by sqlglot's own walk."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if type(node) is Stepwise:
            return True
        for value in node.args.values():
            if type(value) is list:
                waiting += value
            elif hasattr(value, "args"):
                waiting.append(value)
    return False


def _names(tree: Tree) -> set[str]:
    return {column.name for column in tree.find_all(exp.Column)}


class _Writer:
    def __init__(self, program: Program, place: int, column: ColumnTree) -> None:
        """Decide which operations below `place` are written in place, and which become steps with a name."""
        self._operations = program.operations
        self._column = column
        self._uses = self._count_uses(place)
        self._shapes: dict[int, _Shape] = {}
        self._aliases: dict[int, str] = {}
        if self._is_simple():
            return
        for at in self._uses:
            self._lay_out(at, final=at == place)
        if any(shape.step for shape in self._shapes.values()):
            for at in self._uses:
                self._name(at)

    def _is_simple(self) -> bool:
        """Return whether there are no steps: nothing that has inputs is repeated, and little is nested."""
        return len(self._uses) <= _DEEPEST and all(
            uses == 1 or not self._operations[at].inputs for at, uses in self._uses.items()
        )

    def steps(self) -> list[Tree]:
        """Return the steps with their names, each after those that it needs."""
        return [_alias(self._inline(at), self._aliases[at]) for at in self._uses if self._is_step(at)]

    def value(self, at: int) -> Tree:
        """Return the tree of a value, or the name of its step."""
        if self._is_step(at):
            return exp.column(self._aliases[at])
        return self._inline(at)

    def _is_step(self, at: int) -> bool:
        return bool(self._shapes) and self._shapes[at].step

    def _count_uses(self, place: int) -> dict[int, int]:
        """Return how often each needed value would be written, in program order."""
        uses = {place: 1}
        for at in range(place, -1, -1):
            if at in uses:
                operation = self._operations[at]
                for used in operation.inputs:
                    uses[used] = uses.get(used, 0) + _times(operation)
        return dict(sorted(uses.items()))

    def _lay_out(self, at: int, *, final: bool) -> None:
        """Decide whether a value is written inline or as a step: repeated and not cheap, or too deep."""
        operation = self._operations[at]
        inputs = [self._shapes[used] for used in operation.inputs]
        size = 1 + _times(operation) * sum(shape.size for shape in inputs)
        depth = 1 + max((shape.depth for shape in inputs), default=0)
        repeated = self._uses[at] > 1 and size > _CHEAP
        step = (repeated or depth > _DEEPEST) and not final
        self._shapes[at] = _Shape(1, 0, True) if step else _Shape(size, depth, False)

    def _name(self, at: int) -> None:
        """Name a value by how it is computed, so that expressions can share it."""
        operation = self._operations[at]
        parts = (operation.kind, operation.detail, [self._aliases[used] for used in operation.inputs])
        self._aliases[at] = "s_" + hashlib.blake2b(repr(parts).encode(), digest_size=10).hexdigest()

    def _inline(self, at: int) -> Tree:
        """Return the tree of one operation, with its inputs inline or as names of steps."""
        operation = self._operations[at]
        kind = operation.kind
        if kind == "constant":
            return double(operation.detail[0])
        if kind == "truth":
            return exp.Boolean(this=bool(operation.detail[0]))
        if kind == "column":
            tree = self._column_tree(operation)
            return tree if is_double(tree.name) else _cast(tree, "DOUBLE")
        if kind == "member":
            codes = [_integer(code) for code in operation.detail[1]]
            return exp.In(this=self._column_tree(operation), expressions=codes)
        if kind == "lookup":
            return self._lookup(operation)
        if kind == "ladder":
            return self._ladder(operation)
        # Without parentheses round a comparison in AND and OR, which takes DuckDB less time to read.
        plain = _COMPARISONS if kind in ("every", "some") else ()
        inputs = [self._operand(used, plain) for used in operation.inputs]
        if kind == "negate":
            return exp.Neg(this=inputs[0])
        if kind == "opposite":
            return exp.Not(this=inputs[0])
        if kind == "select":
            return exp.Case(ifs=[exp.If(this=inputs[0], true=inputs[1])], default=inputs[2])
        if kind in _FUNCTIONS:
            called = exp.Anonymous(this=_FUNCTIONS[kind], expressions=inputs)
            return _cast(called, "DOUBLE") if kind == "floor" else called  # Spark gives an integer
        joined = inputs[0]
        for right in inputs[1:]:
            # Typed, not safe: sqlglot writes the bare operator for every engine.
            how = {"typed": True, "safe": False} if kind == "divide" else {}
            joined = _OPERATORS[kind](this=joined, expression=right, **how)
        return joined

    def _operand(self, at: int, plain: tuple[type, ...] = ()) -> Tree:
        """Return the tree of a value, in parentheses unless it is of a plain kind."""
        tree = self.value(at)
        return exp.Paren(this=tree) if isinstance(tree, _OPEN) and type(tree) not in plain else tree

    def _column_tree(self, operation: Operation) -> Tree:
        return self._column(str(operation.detail[0]))

    def _lookup(self, operation: Operation) -> Tree:
        """Return a CASE from the codes of a column to their values."""
        *first, last = operation.detail[1]
        ifs = [
            exp.If(
                this=exp.EQ(this=self._column_tree(operation), expression=_integer(code)), true=double(value)
            )
            for code, value in enumerate(first)
        ]
        return exp.Case(ifs=ifs, default=double(last))

    def _ladder(self, operation: Operation) -> Tree:
        """Find the rung by halving: engines look at the conditions one after the other."""
        thresholds, values = operation.detail

        def between(first: int, last: int) -> Tree:
            if first == last:
                return double(values[first])
            middle = (first + last) // 2
            below = exp.LT(this=self._operand(operation.inputs[0]), expression=double(thresholds[middle]))
            chosen = exp.If(this=below, true=between(first, middle))
            return exp.Case(ifs=[chosen], default=between(middle + 1, last))

        return between(0, len(thresholds))


def _times(operation: Operation) -> int:
    """Return how often an operation writes its inputs."""
    return len(operation.detail[0]) if operation.kind == "ladder" else 1


def double(value: Any) -> Tree:
    """Return a number as the double that every engine reads."""
    return _cast(exp.Literal(this=repr(float(value)), is_string=True), "DOUBLE")


def _integer(value: Any) -> Tree:
    return exp.Literal.number(int(value))


def bigint(tree: Tree) -> Tree:
    """Return a whole number cast to a 64-bit integer."""
    return _cast(tree, "BIGINT")


def _cast(tree: Tree, kind: str) -> Tree:
    return exp.Cast(this=tree, to=_TYPES[kind])


def _alias(tree: Tree, name: str) -> Tree:
    return exp.Alias(this=tree, alias=exp.to_identifier(name))


class SqlText:
    """Writer of SQL text for one engine.

    Parameters
    ----------
    types : mapping of str to str
        Names of types in the engine, where they differ from the usual ones.
    exponents : bool
        Whether the engine reads a number with an exponent as the double nearest to it, so that no cast
        from text is needed, and none of a column that is compared with it.
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
            **dict.fromkeys(_SYMBOLS, self._operators),
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
        while (symbol := _SYMBOLS.get(type(tree))) is not None:
            left, right = tree.args["this"], tree.args["expression"]
            if self._exponents and type(tree) in _COMPARISONS:
                left, right = _drop_cast(left, right), _drop_cast(right, left)
            chain.append(f" {symbol} {self.write(right)}")
            tree = left
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


def _drop_cast(tree: Tree, other: Tree) -> Tree:
    """Return a column without its cast to a double where it is compared with one, which casts it anyway."""
    if type(tree) is not exp.Cast or type(tree.args["this"]) is not exp.Column:
        return tree
    number = type(other) is exp.Cast and type(other.args["this"]) is exp.Literal
    doubles = number and tree.args["to"] is other.args["to"] is _TYPES["DOUBLE"]
    return tree.args["this"] if doubles else tree


def _identifier(tree: Tree) -> str:
    name: str = tree.args["this"]
    return '"{}"'.format(name.replace('"', '""')) if tree.args.get("quoted") else name


def _literal(tree: Tree) -> str:
    text: str = tree.args["this"]
    return "'{}'".format(text.replace("'", "''")) if tree.args.get("is_string") else text
