"""Variables of local days and hours in a query.

The header is evaluated in the time zone of ``TIMESERIES``, and the query in UTC. So the query may compare such
variables, but the header has to compute each value that depends on the zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.repeatability import function_names
from nova_assets.sql.query.resolved_query import Query
from nova_assets.sql.statement.header import StatementHeader, variables_used_by
from nova_assets.sql.statement.timeseries import TimeSeries
from nova_assets.sql.text import SqlText
from nova_assets.sql.types.type_nodes import data_type_of_node

TIMESTAMP = "timestamp"

_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)
_CHOICES = frozenset({"coalesce", "greatest", "ifnull", "least", "max", "min", "nvl"})
"""Functions whose value is one of their arguments."""

_SECONDS_OF_UNIT = {"HOUR": 3600, "HOURS": 3600, "MINUTE": 60, "MINUTES": 60, "SECOND": 1, "SECONDS": 1}
"""Seconds of the units of intervals that are equally long in all zones and on all days, up to a day."""

_SECONDS_OF_DAY = 86_400
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def check_local_times(query: Query, load_typed_tree: Callable[[], exp.Query], header: StatementHeader) -> None:
    """Check that variables of local days and hours mean the same in a query as in its header.

    Args:
        load_typed_tree: returns the syntax tree of the query, with the types of its expressions.

    Raises:
        SqlError: a part of the query would be computed in UTC, or its type is not known.
    """
    series = {g.name: g.tz for g in header.generators if isinstance(g, TimeSeries)}
    zone = next((tz for tz in series.values() if tz != "UTC"), None)
    if zone is None:
        return
    local = {*series, *(name for name, value in header.lets if series.keys() & variables_used_by(header, value))}
    check = _LocalTimeCheck(query.text, zone)
    for variable in load_typed_tree().find_all(exp.Placeholder):
        if variable.name in local and isinstance(variable.parent, exp.Cast):
            check.check_variable(variable.parent)


class _LocalTimeCheck:
    def __init__(self, text: SqlText, zone: str) -> None:
        self.text = text
        self.zone = zone

    def check_variable(self, node: exp.Expr) -> None:
        """Check the expressions around a variable."""
        while not isinstance(parent := node.parent, exp.Query | exp.Alias | exp.Where | exp.Connector | None):
            if isinstance(parent, _COMPARISONS):
                return self._check_comparison(node, [o for o in _operands(parent) if o is not node])
            is_timestamp = _has_type(node, TIMESTAMP)
            if is_timestamp and isinstance(parent, exp.Sub) and _has_type(_other_side(parent, node), TIMESTAMP):
                return None  # the time between two moments
            if is_timestamp and not (_is_choice(parent) or _adds_fixed_interval(parent, node)):
                raise self._error(parent)
            if not is_timestamp and _has_type(parent, TIMESTAMP):
                raise self._error(parent)
            node = parent
        return None

    def _check_comparison(self, node: exp.Expr, others: Iterable[exp.Expr]) -> None:
        for other in others:
            type_ = _type_of(other)
            if type_ is None or (type_.name == TIMESTAMP) != _has_type(node, TIMESTAMP):
                kind = "a value of an unknown type" if type_ is None else type_.name
                raise self._error(node, f" where it is compared with {other.sql('spark')} ({kind})")
            if converted := next(_converted_timestamps(other), None):
                raise self._error(converted)

    def _error(self, node: exp.Expr, where: str = "") -> Exception:
        written = _written(node)
        return self.text.error(
            f"{written} depends on the time zone{where}: the query is computed in UTC, and TIMESERIES has "
            f"tz => '{self.zone}'",
            node,
            expected="comparisons of timestamps with variables that the header computes",
            next="in the header, LET until = t + INTERVAL 1 DAY; in the query, at >= :t AND at < :until",
        )


def _operands(comparison: exp.Expr) -> Iterator[exp.Expr]:
    """The values that a comparison compares. A subquery stands for its output column."""
    for part in comparison.iter_expressions():
        inner = part.unnest() if isinstance(part, exp.Subquery) else part
        yield inner.selects[0] if isinstance(inner, exp.Query) and inner.selects else part


def _is_choice(node: exp.Expr) -> bool:
    return isinstance(node, exp.Paren) or (isinstance(node, exp.Func) and bool(function_names(node) & _CHOICES))


def _other_side(node: exp.Binary, side: exp.Expr) -> exp.Expr:
    other: exp.Expr = node.expression if node.this is side else node.this
    return other


def _adds_fixed_interval(node: exp.Expr, side: exp.Expr) -> bool:
    if not isinstance(node, exp.Add | exp.Sub):
        return False
    other = _other_side(node, side).unnest()
    if not isinstance(other, exp.Interval):
        return False
    amount = other.this.this if isinstance(other.this, exp.Neg) else other.this
    seconds = _SECONDS_OF_UNIT.get(other.text("unit").upper())
    if seconds is None or not isinstance(amount, exp.Literal) or not _NUMBER.fullmatch(amount.name):
        return False
    # Spark counts 24 hours as a day of the calendar, whose length depends on the zone.
    return abs(float(amount.name)) * seconds < _SECONDS_OF_DAY


def _converted_timestamps(node: exp.Expr) -> Iterator[exp.Expr]:
    """Parts of an expression whose values are computed from timestamps and are no timestamps, such as days."""
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        is_function = isinstance(part, exp.Func | exp.Cast) and not isinstance(part, exp.Count)
        if (
            is_function
            and not _has_type(part, TIMESTAMP)
            and any(_has_type(p, TIMESTAMP) for p in part.iter_expressions())
        ):
            yield part


def _type_of(node: exp.Expr) -> DataType | None:
    return None if node.type is None else data_type_of_node(node.type)


def _has_type(node: exp.Expr | None, name: str) -> bool:
    type_ = None if node is None else _type_of(node)
    return type_ is not None and type_.name == name


def _written(node: exp.Expr) -> str:
    """The expression as it was written, without the types of variables."""
    plain = node.transform(lambda n: n.this if isinstance(n, exp.Cast) and isinstance(n.this, exp.Placeholder) else n)
    return plain.sql("spark")
