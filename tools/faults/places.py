"""Places of a file at which a fault can be planted: in bodies of functions, outside texts and annotations.

Also the beginnings of functions, where a call can stand that tells which tests reach a function.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tools.faults.fault import Fault

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*"}
_SET_OPERATORS: dict[type[ast.operator], str] = {ast.BitAnd: "|", ast.BitOr: "&"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fault goes.

    Args:
        start: offset of the original text, in bytes of the file.
        end: the offset after it.
        is_statement: the original is a statement that is left out, and not an expression that is replaced.
    """

    fault: Fault
    start: int
    end: int
    is_statement: bool


def find_places(file: str, source: bytes) -> list[Place]:
    """All places of a file, in the order of the text."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    places = []
    for place in sorted(_Finder(file, source).places, key=lambda p: (p.start, p.end, p.fault.kind)):
        fault = place.fault
        key = (fault.function, fault.kind, fault.original, fault.mutated)
        places.append(replace(place, fault=replace(fault, nth=seen[key])))
        seen[key] += 1
    return places


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the body of a function begins, after its docstring.

    Args:
        offset: of the first statement, in bytes of the file.
        indent: of the statement, in spaces.
    """

    function: str
    offset: int
    indent: int


def find_beginnings(source: bytes) -> list[Beginning]:
    """The beginnings of all functions in which a fault can be planted."""
    return _Finder("", source).beginnings


class _Finder:
    def __init__(self, file: str, source: bytes) -> None:
        self._file = file
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.places: list[Place] = []
        self.beginnings: list[Beginning] = []
        self._visit_definitions(ast.parse(source), ())

    def _visit_definitions(self, node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                self._visit_definitions(child, (*names, child.name))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                self._visit_function(child, (*names, child.name))
            elif isinstance(child, ast.If) and "TYPE_CHECKING" not in ast.unparse(child.test):
                self._visit_definitions(child, names)

    def _visit_function(self, function: ast.FunctionDef | ast.AsyncFunctionDef, names: tuple[str, ...]) -> None:
        if function.name == "__repr__":
            return
        has_docstring = ast.get_docstring(function, clean=False) is not None
        if body := function.body[has_docstring:]:
            beginning = self._beginning(body[0], names)
            if not self._source[beginning.offset - beginning.indent : beginning.offset].strip():  # not behind a colon
                self.beginnings.append(beginning)
        for statement in function.body:
            self._visit(statement, names)

    def _beginning(self, first: ast.stmt, names: tuple[str, ...]) -> Beginning:
        decorators = getattr(first, "decorator_list", [])
        line = min([first.lineno, *(decorator.lineno for decorator in decorators)])
        return Beginning(".".join(names), self._starts[line - 1] + first.col_offset, first.col_offset)

    def _visit(self, node: ast.AST, names: tuple[str, ...]) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._visit_function(node, (*names, node.name))
            return
        if isinstance(node, ast.ClassDef):
            self._visit_definitions(node, (*names, node.name))
            return
        if isinstance(node, ast.JoinedStr | ast.Match | ast.arguments):  # no exact offsets; patterns; defaults
            return
        for kind, start, end, mutated, is_statement in self._changes(node):
            original, line = self._source[start:end].decode(), self._source.count(b"\n", 0, start) + 1
            fault = Fault(self._file, ".".join(names), kind, original, mutated, line=line)
            self.places.append(Place(fault, start, end, is_statement))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self._visit(child, names)

    def _changes(self, node: ast.AST) -> Iterator[tuple[str, int, int, str, bool]]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
            yield "call left out", *self._span(node), "", True
        elif isinstance(node, ast.Raise):
            yield "raise left out", *self._span(node), "", True
        elif isinstance(node, ast.AugAssign):
            yield "assignment left out", *self._span(node), "", True
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            yield "condition negated", *self._span(node.test), f"not ({self._text(node.test)})", False
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            if not isinstance(node.value, ast.Constant | ast.Compare | ast.BoolOp):
                yield "result dropped", *self._span(node.value), "None", False
        elif isinstance(node, ast.comprehension):
            for condition in node.ifs:
                yield "filter dropped", *self._span(condition), "True", False
        elif isinstance(node, ast.expr):
            for kind, mutated in self._changed_expression(node):
                yield kind, *self._span(node), mutated, False

    def _changed_expression(self, node: ast.expr) -> Iterator[tuple[str, str]]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARISONS:
                yield "comparison", self._joined(left, _COMPARISONS[type(operator)], right)
            case ast.BoolOp(op=operator, values=values):
                word = " or " if isinstance(operator, ast.And) else " and "
                yield "and/or", word.join(f"({self._text(value)})" for value in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield "not dropped", self._text(operand)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
                yield "arithmetic", self._joined(left, _ARITHMETIC[type(operator)], right)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _SET_OPERATORS:
                yield "set operator", self._joined(left, _SET_OPERATORS[type(operator)], right)
            case ast.Constant(value=bool(value)):
                yield "constant", repr(not value)
            case ast.Constant(value=int(value)):
                yield "constant", repr(value + 1)
            case ast.Call(keywords=keywords):
                for keyword in keywords:
                    if keyword.arg is not None:
                        yield "argument dropped", self._without_argument(node, keyword)

    def _without_argument(self, call: ast.expr, keyword: ast.keyword) -> str:
        start, end = self._span(call)
        first, last = self._span(keyword)
        before, after = self._source[start:first].decode(), self._source[last:end].decode()
        return before + (after.lstrip()[1:] if after.lstrip().startswith(",") else after)

    def _joined(self, left: ast.expr, operator: str, right: ast.expr) -> str:
        return f"({self._text(left)}) {operator} ({self._text(right)})"

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _span(self, node: Any) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
