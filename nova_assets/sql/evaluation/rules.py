"""Rules of evaluation, one for each kind of syntax and each function of Spark that is understood.

A rule for syntax names the arguments of the syntax node that it understands. A node that has any other is not
understood: what a parser adds to a node in a new version is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, TypeAlias

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import cast
from nova_assets.sql.evaluation.operand import DATA, NotUnderstood, OnUndecided, Operand, Undecided
from nova_assets.sql.evaluation.values import UNKNOWN, Value, Values
from nova_assets.sql.types.widening import VOID


@dataclass(frozen=True)
class Application:
    """One operator or function, applied to its arguments.

    Args:
        node: where it stands in the query.
        zone: in which timestamps are told apart by day.
        evaluate: gives a part as an operand.
        on_undecided: called with the reason where a value is undecided.
    """

    node: exp.Expr
    zone: tzinfo
    evaluate: Callable[[exp.Expr], Operand]
    on_undecided: OnUndecided

    def operand(self, argument: str = "this") -> Operand:
        """An argument of the syntax node."""
        return self.evaluate(self.node.args[argument])

    def operands(self, argument: str = "expressions") -> list[Operand]:
        """All parts of an argument that is a list."""
        return [self.evaluate(part) for part in self.node.args.get(argument) or ()]

    def computed(self, type_: DataType, function: Callable[..., Value], *operands: Operand) -> Operand:
        """An operand that is null where one of its own is null, and unknown where one is unknown.

        The function raises ``Undecided`` for values that only Spark can judge.
        """

        def value(values: Values) -> Value:
            arguments = [o.value(values) for o in operands]
            if None in arguments:
                return None
            if UNKNOWN in arguments:
                return UNKNOWN
            return self.decided(function, *arguments)

        return Operand(type_, value)

    def decided(self, function: Callable[..., Value], *arguments: Value) -> Value:
        """What a function gives, or what becomes of an undecided value."""
        try:
            return function(*arguments)
        except (Undecided, ArithmeticError, ValueError) as error:  # a date or number that Python does not have
            return self.on_undecided(str(error))

    def as_type(self, operand: Operand, type_: DataType) -> Operand:
        """An operand, cast to a type. Raises NotUnderstood."""
        if operand.type is None:
            return DATA
        if operand.type == type_:
            return operand
        change = cast(operand.type, type_, self.zone)
        if change is None:
            raise self.not_understood()
        return self.computed(type_, change, operand)

    def implicit(self, operand: Operand, type_: DataType, *accepted: str) -> Operand:
        """An argument of a function, as the type that the function takes.

        Args:
            accepted: names of other types that all versions of Spark cast to it.
        """
        if operand.type is None:
            return DATA
        if operand.type == VOID or operand.type == type_ or operand.type.name in accepted:
            return self.as_type(operand, type_)
        raise self.not_understood()

    def not_understood(self, reason: str = "") -> NotUnderstood:
        return NotUnderstood(self.node, reason or f"{described(self.node)} is not evaluated on partitions")


SyntaxRule: TypeAlias = Callable[[Application], Operand]

FunctionRule: TypeAlias = Callable[..., Operand]
"""Takes the application, and the operand of each argument."""


@dataclass(frozen=True)
class _Syntax:
    rule: SyntaxRule
    arguments: frozenset[str]


@dataclass(frozen=True)
class _Function:
    rule: FunctionRule
    least: int
    most: int | None


_SYNTAX: dict[type[exp.Expr], _Syntax] = {}
_FUNCTIONS: dict[str, _Function] = {}


def syntax(*kinds: type[exp.Expr], arguments: str) -> Callable[[SyntaxRule], SyntaxRule]:
    """Register the rule of some syntax nodes.

    Args:
        kinds: exactly these classes, and no subclass.
        arguments: names of the arguments that the rule understands, divided by spaces.
    """

    def register(rule: SyntaxRule) -> SyntaxRule:
        for kind in kinds:
            _SYNTAX[kind] = _Syntax(rule, frozenset(arguments.split()))
        return rule

    return register


def function(names: str, least: int, most: int | None = -1) -> Callable[[FunctionRule], FunctionRule]:
    """Register the rule of a function of Spark.

    Args:
        names: all of its names, divided by spaces.
        least, most: how many arguments it takes. Without ``most`` it takes just ``least``, with None any number.
    """

    def register(rule: FunctionRule) -> FunctionRule:
        for name in names.split():
            _FUNCTIONS[name] = _Function(rule, least, least if most == -1 else most)
        return rule

    return register


def evaluated_functions() -> Mapping[str, tuple[int, int | None]]:
    """Name of each function that is evaluated -> the least and greatest number of its arguments."""
    return {name: (f.least, f.most) for name, f in sorted(_FUNCTIONS.items())}


def apply(application: Application) -> Operand:
    """Evaluate one operator or function by its rule. Raises NotUnderstood."""
    node = application.node
    if type(node) is exp.Anonymous:
        return _apply_function(application, node)
    known = _SYNTAX.get(type(node))
    if known is None:
        raise application.not_understood()
    for name, argument in node.args.items():
        if name not in known.arguments and argument not in (None, False, []):
            raise application.not_understood(f"{described(node)} has {name}, which is not evaluated on partitions")
    return known.rule(application)


def _apply_function(application: Application, node: exp.Anonymous) -> Operand:
    known = _FUNCTIONS.get(node.name.lower())
    arguments: list[Any] = node.expressions
    if known is None or any(
        v not in (None, False, []) for k, v in node.args.items() if k not in ("this", "expressions")
    ):
        raise application.not_understood()
    if len(arguments) < known.least or (known.most is not None and len(arguments) > known.most):
        raise application.not_understood()
    return known.rule(application, *map(application.evaluate, arguments))


def described(node: exp.Expr) -> str:
    """An expression as an error names it."""
    if isinstance(node, exp.Anonymous):
        return f"{node.name}(...)"
    if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
        return "what a subquery gives"
    return node.sql("spark")
