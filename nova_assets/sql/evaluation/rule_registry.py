"""Registry of evaluation rules: one rule for each supported syntax node and Spark function.

A syntax rule declares the node arguments that it supports. A node with any other argument is not evaluated, so
arguments added by a new version of the parser are never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, TypeAlias

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import (
    DATE,
    INT,
    MAX_TEXT_LENGTH,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    make_cast,
)
from nova_assets.sql.evaluation.operand import (
    DATA_DEPENDENT,
    UNKNOWN,
    NotUnderstood,
    OnUndecided,
    Operand,
    Undecided,
    Value,
    Values,
)
from nova_assets.sql.types.widening import VOID

_PARAMETER_KINDS: Mapping[str, tuple[DataType, frozenset[str]]] = {
    "text": (STRING, frozenset("tinyint smallint int bigint boolean date timestamp decimal".split())),
    "name": (STRING, frozenset()),
    "int": (INT, frozenset(("tinyint", "smallint"))),
    "date": (DATE, frozenset(("string", "timestamp", "timestamp_ntz"))),
    "timestamp": (TIMESTAMP, frozenset(("string", "date"))),
}
"""Kind of parameter -> its type, and the other types that all versions of Spark cast to it implicitly."""


@dataclass(frozen=True)
class RuleContext:
    """One operator or function, applied to its arguments.

    Args:
        node: the syntax node.
        zone: time zone in which timestamps are converted to days.
        compile_part: compiles a part into an operand.
        on_undecided: called with the reason if a value is undecided.
        on_zone_used: called if the value depends on the zone.
    """

    node: exp.Expr
    zone: tzinfo
    compile_part: Callable[[exp.Expr], Operand]
    on_undecided: OnUndecided
    on_zone_used: Callable[[], None] = lambda: None

    def operand(self, argument: str = "this") -> Operand:
        """The compiled argument of the syntax node."""
        return self.compile_part(self.node.args[argument])

    def operands(self, *arguments: str) -> list[Operand]:
        """The compiled arguments of the syntax node, without those that are missing. Lists are flattened."""
        parts = (self.node.args.get(name) for name in arguments)
        return [
            self.compile_part(element)
            for part in parts
            if part is not None
            for element in (part if isinstance(part, list) else [part])
        ]

    def null_propagating_operand(self, type_: DataType, function: Callable[..., Value], *operands: Operand) -> Operand:
        """An operand that is null if one of its arguments is null, and unknown if one is unknown.

        The function raises ``Undecided`` for values that only Spark can decide.
        """

        def value(values: Values) -> Value:
            arguments = [o.value(values) for o in operands]
            if None in arguments:
                return None
            if UNKNOWN in arguments:
                return UNKNOWN
            return self.call_catching_undecided(function, *arguments)

        return Operand(type_, value)

    def call_catching_undecided(self, function: Callable[..., Value], *arguments: Value) -> Value:
        """The function's result, or the result of ``on_undecided`` if the value is undecided."""
        try:
            result = function(*arguments)
            if isinstance(result, str):
                check_text_length(len(result))
            return result
        except (ArithmeticError, ValueError) as error:  # undecided, or out of Python's range of dates or numbers
            return self.on_undecided(str(error))

    def cast_operand(self, operand: Operand, type_: DataType) -> Operand:
        """An operand, cast to a type. Raises NotUnderstood."""
        if operand.type is None:
            return DATA_DEPENDENT
        if operand.type == type_:
            return operand
        if TIMESTAMP in (operand.type, type_):
            self.on_zone_used()
        cast_value = make_cast(operand.type, type_, self.zone)
        if cast_value is None:
            raise self.not_understood()
        return self.null_propagating_operand(type_, cast_value, operand)

    def cast_argument(self, operand: Operand, kind: str) -> Operand:
        """A function argument, implicitly cast to the type of a kind of parameter. Raises NotUnderstood."""
        if kind == "clock" and operand.type == TIMESTAMP_NTZ:
            return operand
        if kind in ("clock", "local"):
            return self.cast_operand(self.cast_argument(operand, "timestamp"), TIMESTAMP_NTZ)
        type_, castable_types = _PARAMETER_KINDS[kind]
        if operand.type is None or operand.type in (VOID, type_) or operand.type.name in castable_types:
            return self.cast_operand(operand, type_)
        raise self.not_understood()

    def not_understood(self, reason: str = "") -> NotUnderstood:
        return NotUnderstood(self.node, reason or f"{describe_node(self.node)} is not evaluated on partitions")


def check_text_length(length: int) -> None:
    """Raise Undecided for a very long text."""
    if length > MAX_TEXT_LENGTH:
        raise Undecided(f"a text of more than {MAX_TEXT_LENGTH} characters")


SyntaxRule: TypeAlias = Callable[[RuleContext], Operand]

FunctionRule: TypeAlias = Callable[..., Operand]
"""Receives the context of the rule and the compiled arguments."""


@dataclass(frozen=True)
class _SyntaxEntry:
    rule: SyntaxRule
    arguments: frozenset[str]


@dataclass(frozen=True)
class _FunctionEntry:
    rule: FunctionRule
    min_arguments: int
    max_arguments: int | None


_ENTRY_BY_NODE_CLASS: dict[type[exp.Expr], _SyntaxEntry] = {}
_ENTRY_BY_FUNCTION: dict[str, _FunctionEntry] = {}


def syntax_rule(*node_classes: type[exp.Expr], allowed_arguments: str) -> Callable[[SyntaxRule], SyntaxRule]:
    """Decorator that registers the rule of some syntax nodes.

    Args:
        node_classes: exactly these classes, without subclasses.
        allowed_arguments: names of the supported node arguments, separated by spaces.
    """

    def register(rule: SyntaxRule) -> SyntaxRule:
        for kind in node_classes:
            _ENTRY_BY_NODE_CLASS[kind] = _SyntaxEntry(rule, frozenset(allowed_arguments.split()))
        return rule

    return register


def function_rule(
    names: str, min_arguments: int, max_arguments: int | None = -1
) -> Callable[[FunctionRule], FunctionRule]:
    """Decorator that registers the rule of a Spark function.

    Args:
        names: all names of the function, separated by spaces.
        min_arguments, max_arguments: number of arguments. Without ``max_arguments`` the function takes exactly
            ``min_arguments``. None means no upper limit.
    """

    def register(rule: FunctionRule) -> FunctionRule:
        for name in names.split():
            _ENTRY_BY_FUNCTION[name] = _FunctionEntry(
                rule, min_arguments, min_arguments if max_arguments == -1 else max_arguments
            )
        return rule

    return register


def register_function(names: str, parameters: str, result: DataType, compute: Callable[..., Value]) -> None:
    """Register a Spark function that is null if an argument is null.

    Args:
        names: all names of the function, separated by spaces.
        parameters: kind of each parameter, separated by spaces: ``text``, ``int``, ``date``, ``timestamp``, ``name``
            (a text to which nothing is cast), ``local`` (a timestamp, of which the function takes the wall clock in the
            session's zone) or ``clock`` (as ``local``, or a timestamp without a zone). ``?`` marks an optional
            parameter, and ``*`` any number of further ones.
        compute: computes the value from arguments of these types.
    """
    kinds = parameters.split()
    has_more = kinds[-1].endswith("*")

    def rule(context: RuleContext, *operands: Operand) -> Operand:
        filled = kinds + kinds[-1:] * (len(operands) - len(kinds))
        cast = [context.cast_argument(o, kind.rstrip("?*")) for o, kind in zip(operands, filled, strict=False)]
        return context.null_propagating_operand(result, compute, *cast)

    function_rule(names, sum(kind.isalpha() for kind in kinds), None if has_more else len(kinds))(rule)


def register_function_syntax(node_class: type[exp.Expr], arguments: str, function: str, ignored: str = "") -> None:
    """Register syntax that means the same as a call of a function.

    Args:
        arguments: names of the node's arguments, in the order of the function's.
        ignored: names of further arguments of the node, which do not change its meaning.
    """

    def rule(context: RuleContext) -> Operand:
        return apply_function(context, function, *context.operands(*arguments.split()))

    syntax_rule(node_class, allowed_arguments=f"{arguments} {ignored}")(rule)


def argument_counts_by_function() -> Mapping[str, tuple[int, int | None]]:
    """Name of each supported function -> least and greatest number of its arguments."""
    return {name: (f.min_arguments, f.max_arguments) for name, f in sorted(_ENTRY_BY_FUNCTION.items())}


def apply_rule(context: RuleContext) -> Operand:
    """Compile one operator or function by its rule. Raises NotUnderstood."""
    node = context.node
    if type(node) is exp.Anonymous:
        return _apply_function_rule(context, node)
    entry = _ENTRY_BY_NODE_CLASS.get(type(node))
    if entry is None:
        raise context.not_understood()
    for name, argument in node.args.items():
        if name not in entry.arguments and argument not in (None, False, []):
            raise context.not_understood(f"{describe_node(node)} has {name}, which is not evaluated on partitions")
    return entry.rule(context)


def _apply_function_rule(context: RuleContext, node: exp.Anonymous) -> Operand:
    entry = _ENTRY_BY_FUNCTION.get(node.name.lower())
    arguments: list[Any] = node.expressions
    others = (v for k, v in node.args.items() if k not in ("this", "expressions"))
    if entry is None or any(v not in (None, False, []) for v in others) or len(arguments) < entry.min_arguments:
        raise context.not_understood()
    if entry.max_arguments is not None and len(arguments) > entry.max_arguments:
        raise context.not_understood()
    return entry.rule(context, *map(context.compile_part, arguments))


def apply_function(context: RuleContext, name: str, *operands: Operand) -> Operand:
    """Compile a call of a function that the registry has. Raises NotUnderstood."""
    return _ENTRY_BY_FUNCTION[name].rule(context, *operands)


def describe_node(node: exp.Expr) -> str:
    """An expression, as error messages name it."""
    if isinstance(node, exp.Anonymous):
        return f"{node.name}(...)"
    if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
        return "the result of a subquery"
    return node.sql("spark")
