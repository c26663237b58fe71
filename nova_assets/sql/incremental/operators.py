"""Operators of a maintenance plan: the steps of a query. Each step turns changes of its inputs into changes of its
output.

Every operator has named output columns. Expressions refer to the columns of the operator's input by these names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from sqlglot import exp

from nova_assets.model.schema import DataType

JoinKind: TypeAlias = Literal["inner", "left", "right", "full", "left semi", "left anti"]
SetKind: TypeAlias = Literal["union", "intersect", "except", "intersect all", "except all"]
Columns: TypeAlias = Mapping[str, DataType | None]
"""Column name -> its type; None if the type is not known without Spark."""

Outputs: TypeAlias = tuple[tuple[str, exp.Expr], ...]
"""Output columns of an operator: name, and the expression that computes it."""


class NotMaintainable(Exception):
    """The query has a part that no operator represents, so its result is compared with the stored rows.

    Args:
        reason: what the part is, such as ``a subquery in an expression``.
        node: the part.
    """

    def __init__(self, reason: str, node: exp.Expr) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


@dataclass(frozen=True, eq=False)
class Operator:
    """A step of a query.

    Args:
        columns: the output columns, in order.
        unique_keys: sets of output columns. No two rows have equal values in all columns of such a set.
        row_numbers: output column with ``ROW_NUMBER()`` -> output columns by which its window is partitioned.
        rounded: output columns that may differ in the last digits each time they are computed, such as a sum of
            floating-point numbers.
        group_columns: output columns with the group keys of the grouped operator below, from which a row depends on
            rows with equal keys only; empty if there is none, or if a key is no output column.
        unstable: an expression whose value depends on the order in which Spark reads rows with equal group keys; None
            if there is none. Then the rows of each group belong together: some of them may not be mixed with others
            that were computed at another time.

    Attributes:
        passes_rows_on: whether each row of the output is made from one row of an input, whatever the other rows are.
    """

    passes_rows_on: ClassVar[bool] = False

    columns: Columns
    unique_keys: frozenset[frozenset[str]] = field(kw_only=True, default=frozenset())
    row_numbers: Mapping[str, frozenset[str]] = field(kw_only=True, default_factory=dict)
    rounded: frozenset[str] = field(kw_only=True, default=frozenset())
    group_columns: tuple[str, ...] = field(kw_only=True, default=())
    unstable: exp.Expr | None = field(kw_only=True, default=None)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    @property
    def keys_by_input(self) -> tuple[tuple[exp.Expr, ...], ...]:
        """For each input, the expressions by which rows belong together: rows with other values do not matter for them.
        Without expressions, all rows belong together.
        """
        return ((),) * len(self.inputs)

    @property
    def is_monotone(self) -> bool:
        """Whether the output only grows if the datasets only grow."""
        return all(o.passes_rows_on or isinstance(o, Scan) or _is_inner_join(o) for o in walk(self))


@dataclass(frozen=True, eq=False)
class Scan(Operator):
    """The rows of a dataset."""

    dataset: str


@dataclass(frozen=True, eq=False)
class OneInput(Operator):
    """An operator with one input."""

    input: Operator

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Projection(OneInput):
    """Computes columns from each row. An expression may be a generator such as ``explode(a)``."""

    passes_rows_on = True
    outputs: Outputs


@dataclass(frozen=True, eq=False)
class Filter(OneInput):
    """Keeps the rows for which a condition is true."""

    passes_rows_on = True
    condition: exp.Expr


@dataclass(frozen=True, eq=False)
class LateralView(OneInput):
    """Adds to each row the rows that a generator makes from it (``LATERAL VIEW``)."""

    passes_rows_on = True
    view: exp.Lateral


@dataclass(frozen=True, eq=False)
class GroupedOperator(OneInput):
    """An operator for which rows with equal group keys belong together, and rows of other groups do not matter.

    Args:
        group_keys: expressions over the input. Without any, all rows form one group.
        outputs: the output columns.
    """

    group_keys: tuple[exp.Expr, ...]
    outputs: Outputs

    @property
    def keys_by_input(self) -> tuple[tuple[exp.Expr, ...], ...]:
        return (self.group_keys,)


@dataclass(frozen=True, eq=False)
class Aggregation(GroupedOperator):
    """One row for each group (``GROUP BY``), if the group fulfils ``having``.

    Args:
        adds_floats: whether changes of floating-point numbers may be added to stored sums, which then drift.
    """

    having: exp.Expr | None = None
    adds_floats: bool = False


@dataclass(frozen=True, eq=False)
class Windowed(GroupedOperator):
    """Window functions. ``group_keys`` are the expressions by which every window is partitioned."""


@dataclass(frozen=True, eq=False)
class Distinct(OneInput):
    """Each different row once."""

    @property
    def keys_by_input(self) -> tuple[tuple[exp.Expr, ...], ...]:
        return (tuple(map(column_of, self.columns)),)


@dataclass(frozen=True, eq=False)
class TwoInputs(Operator):
    """An operator with two inputs."""

    left: Operator
    right: Operator

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Join(TwoInputs):
    """Pairs of rows that fulfil a condition, or one side's rows that have, or do not have, a partner.

    Args:
        condition: None for a cross join.
        equal_keys: pairs of expressions of equal type, one over each side. Rows are partners only if all pairs are
            equal.
    """

    kind: JoinKind
    condition: exp.Expr | None
    equal_keys: tuple[tuple[exp.Expr, exp.Expr], ...] = ()

    @property
    def keys_by_input(self) -> tuple[tuple[exp.Expr, ...], ...]:
        return tuple(tuple(pair[side] for pair in self.equal_keys) for side in (0, 1))

    def is_linear_in(self, side: int) -> bool:
        """Whether each row of a side is joined by itself, whatever the other rows of this side are.

        A left join, for example, keeps a row of the left side if no row of the right side matches. So the rows of the
        right side do not count by themselves.

        Args:
            side: 0 for the left side, 1 for the right side.
        """
        if self.kind in ("inner", "full"):
            return self.kind == "inner"
        return side == (1 if self.kind == "right" else 0)


@dataclass(frozen=True, eq=False)
class UnionAll(TwoInputs):
    """The rows of both inputs, by position of the columns."""

    passes_rows_on = True


@dataclass(frozen=True, eq=False)
class SetOperation(TwoInputs):
    """``UNION``, ``INTERSECT`` or ``EXCEPT``, by position of the columns.

    Args:
        has_equal_types: whether both inputs have the same, known types.
    """

    kind: SetKind
    has_equal_types: bool

    @property
    def keys_by_input(self) -> tuple[tuple[exp.Expr, ...], ...]:
        return tuple(tuple(map(column_of, i.columns)) if self.has_equal_types else () for i in self.inputs)


def column_of(name: str) -> exp.Column:
    """Reference to an operator's column."""
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _is_inner_join(operator: Operator) -> bool:
    return isinstance(operator, Join) and operator.kind == "inner"


def walk(operator: Operator) -> Iterator[Operator]:
    """The operator and all operators below it, inputs first. An operator that is used twice comes once."""
    visited: set[int] = set()

    def visit(one: Operator) -> Iterator[Operator]:
        if id(one) in visited:
            return
        visited.add(id(one))
        for below in one.inputs:
            yield from visit(below)
        yield one

    return visit(operator)
