"""What an expression comes to, computed here: on the values of partition columns and of a scope's variables.

Nothing is read. What hangs on data is ``UNKNOWN``, and logic goes on around it as around a null (three-valued, with a
fourth): ``day = '2022-03-31' AND pieces > 3`` is false on another day whatever the data says. What a person wrote about
partitions alone and cannot be computed is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from sqlglot import exp

from nova_assets.sql.computing import CannotCompute
from nova_assets.sql.functions import made
from nova_assets.sql.text import Text
from nova_assets.sql.values import UNKNOWN, Function, Key, Value, Values


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression that can be computed.

    Args:
        of: gives its value for those of its columns and variables.
        keys: which these are.
        by_data: whether it also hangs on data.
    """

    of: Function
    keys: frozenset[Key]
    by_data: bool = False
    by_source: Mapping[str, tuple[Key, ...]] = field(init=False, compare=False, repr=False)
    """The columns and variables, by what they are of."""

    def __post_init__(self) -> None:
        found: dict[str, tuple[Key, ...]] = {}
        for key in sorted(self.keys):
            found[key[0]] = (*found.get(key[0], ()), key)
        object.__setattr__(self, "by_source", found)


class Calculator:
    """Makes functions of expressions.

    Args:
        text: the query, for errors.
        known: which key a column is kept under; None where only data tells it.
        zone: in which moments are told apart by day and hour.
    """

    def __init__(self, text: Text, known: Callable[[exp.Column], Key | None], zone: tzinfo = UTC) -> None:
        self.text = text
        self.known = known
        self.zone = zone

    def computed(self, node: exp.Expr) -> Computed:
        """How an expression is computed.

        Raises:
            SqlError: it is about partitions, and cannot be.
        """
        seen = _Seen(set())
        try:
            function = self._function(node, seen)
        except CannotCompute:  # it has no column at all
            seen.data = True
            return Computed(_unknown, frozenset(), True)
        return Computed(function, frozenset(seen.keys), seen.data)

    def _function(self, node: exp.Expr, seen: _Seen) -> Function:
        if isinstance(node, exp.Column | exp.Placeholder):
            return self._named(node, seen)
        inner = _Seen(set())
        try:
            function = made(node, lambda part: self._function(part, inner), self.zone)
        except CannotCompute as error:
            self._refuse_or_pass_on(node, error)
            seen.data = True
            return _unknown
        seen.keys |= inner.keys
        seen.data = seen.data or inner.data
        return self._told(function, node)

    def _named(self, node: exp.Expr, seen: _Seen) -> Function:
        key = ("", node.name) if isinstance(node, exp.Placeholder) else self.known(node)  # type: ignore[arg-type]
        if key is None:
            seen.data = True
            return _unknown
        seen.keys.add(key)
        return lambda values: values[key]

    def _refuse_or_pass_on(self, node: exp.Expr, error: CannotCompute) -> None:
        """What cannot be computed is unknown where data has a say in it anyway, or where it is a condition about no
        partition; by itself it is whatever it is a part of that decides."""
        about, by_data = self._columns(node)
        if by_data:
            return
        if about:
            raise self.text.error(
                f"{error.why}, so which partitions are read does not follow from the query",
                error.node,
                expected="=, <>, <, <=, >, >=, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT, and arithmetic on dates",
                next="say it by a variable of the scope; or read all there is, FROM WHOLE(...)",
            ) from None
        if not isinstance(node, exp.Predicate):
            raise error

    def _columns(self, node: exp.Expr) -> tuple[bool, bool]:
        """Whether an expression has partition columns, and columns of data. A subquery's own are not its business."""
        found = [self.known(c) for c in _outer_columns(node)]
        return any(key is not None and key[0] for key in found), None in found

    def _told(self, function: Function, node: exp.Expr) -> Function:
        """The same, but what fails is said with its place."""
        text = self.text

        def told(values: Values) -> Value:
            try:
                return function(values)
            except (ValueError, ArithmeticError, TypeError) as error:
                raise text.error(f"{node.sql('spark')} has no value: {error}", node, of_values=True) from None

        return told


@dataclass(slots=True)
class _Seen:
    """What an expression has been seen to hang on."""

    keys: set[Key]
    data: bool = False


def _unknown(values: Values) -> Value:
    return UNKNOWN


def _outer_columns(node: exp.Expr) -> Iterator[exp.Column]:
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(part, exp.Column):
            yield part
