"""The condition of frozen rows in one execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlglot import exp

from nova_assets.errors import NotSupported
from nova_assets.model.channel import Channel
from nova_assets.model.schema import parse_type
from nova_assets.model.task import Context, LastExecution
from nova_assets.sql.incremental.frozen_rows import FrozenRows
from nova_assets.sql.incremental.maintained_query import MaintainedQuery
from nova_assets.sql.incremental.maintenance_choice import MaintenanceChoice
from nova_assets.sql.incremental.operator_sql import output_list, used_values
from nova_assets.sql.incremental.operators import Operator, column_of
from nova_assets.sql.incremental.result_record import find_frozen_until
from nova_assets.sql.query.spark_confirmation import check_session_is_utc


@dataclass(frozen=True)
class FrozenCondition:
    """Which rows of a result are frozen in one execution.

    The condition filters the change of the result, not the inputs: rows that are not frozen would lose their partners
    in joins and windows.

    Args:
        until: time of the execution, or of an earlier one if the clock went back.
        partition_types: partition column that is the same in all rows -> its Spark type. Its value is a parameter.
        partition_values: values of these parameters.
    """

    rows: FrozenRows
    until: datetime
    partition_types: Mapping[str, str] = field(default_factory=dict)
    partition_values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Values of the condition's parameters."""
        return {**self.rows.values_at(self.until), **self.partition_values}

    def over(self, columns: Mapping[str, exp.Expr]) -> str:
        """SQL that is true for frozen rows, and false for all others.

        Args:
            columns: column of the result -> expression for it.
        """
        constants = {
            name.lower(): exp.cast(exp.Placeholder(this=f"partition_{name}"), type_, dialect="spark")
            for name, type_ in self.partition_types.items()
        }
        return self.rows.is_true({name.lower(): e for name, e in columns.items()} | constants)

    @property
    def holds_for_partition(self) -> bool:
        """Whether all rows of the partition are frozen."""
        values = {
            name.lower(): (self.partition_values[f"partition_{name}"], parse_type(type_))
            for name, type_ in self.partition_types.items()
        }
        return self.rows.holds_for_all(values, self.until)

    def leave_out(self, ctx: Context, rows: Any, names: Sequence[str]) -> Any:
        """The rows of a frame that are not frozen.

        Args:
            names: columns of the result.
        """
        return self._query(ctx, f"SELECT * FROM {{rows}} WHERE NOT {self._of_columns(names)}", {"rows": rows})

    def keep_stored(self, ctx: Context, rows: Any, stored: Any, names: Sequence[str]) -> Any:
        """The rows of a frame that are not frozen, and the stored rows that are. Columns that are not stored are null.

        Args:
            names: columns of the result.
        """
        columns = output_list((n, column_of(n) if n in names else exp.null()) for n in ctx.schema_of(rows).names)
        is_frozen = self._of_columns(names)
        kept = f"SELECT {columns} FROM {{stored}} WHERE {is_frozen}"
        sql = f"SELECT * FROM {{rows}} WHERE NOT {is_frozen} UNION ALL {kept}"
        return self._query(ctx, sql, {"rows": rows, "stored": stored})

    def check(self, ctx: Context, channel: Channel, names: Sequence[str], operators: Operator | None) -> None:
        """Check that the condition fits the result, its channel and the session.

        Args:
            names: columns of the result, without the partition columns.
            operators: the last operator of the query; None if nova has no rules for the query.

        Raises:
            SqlError: the result lacks a column of the condition, or the column is computed from several rows.
            NotSupported: a frozen row can have the key of a row that is not frozen, or nova has no rules for the query.
            SettingsError: the condition depends on the time, and the time zone of the session is not UTC.
        """
        if self.rows.depends_on_time:
            check_session_is_utc(ctx, f"FROZEN {self.rows.written} depends on the time")
        self.rows.check_columns([*names, *self.partition_types])
        if operators is None:
            raise self.rows.text.error(
                "FROZEN WHERE in a query for which nova has no rules",
                self.rows.condition,
                expected="a query that nova plan shows with its steps",
            )
        self.rows.check_operators(operators, dict(zip(operators.columns, names, strict=True)))
        key = {k.lower() for k in (*channel.merge.key, *self.partition_types)}
        others = sorted(self.rows.columns - key)
        if channel.merge.key and others:
            raise NotSupported(
                f"the frozen rows of channel {channel.name!r} depend on {others[0]!r}, which is no part of its key",
                found=f"FROZEN {self.rows.written}",
                expected=f"a condition on the key: {', '.join(channel.merge.key)}",
                next="add the column to the key, or maintain the query in a Multiset channel",
            )

    def _of_columns(self, names: Sequence[str]) -> str:
        return self.over({name: column_of(name) for name in names})

    def _query(self, ctx: Context, sql: str, frames: Mapping[str, Any]) -> Any:
        return ctx.query(sql, used_values(sql, self.values), frames)


FROZEN_PARTITION = MaintenanceChoice("no change", "FROZEN WHERE is true for all rows of the partition")
"""Choice for a partition with rows, all of which are frozen."""


def find_frozen_condition(
    query: MaintainedQuery, values: Mapping[str, Any], now: datetime, last: LastExecution, channel: str
) -> FrozenCondition | None:
    """Which rows of a query are frozen at a moment; None if there are no frozen rows.

    Args:
        values: values of the query's variables and partition columns.
        last: the last execution, whose time counts if the clock went back since.
        channel: channel of the result.
    """
    if query.frozen is None:
        return None
    types = {} if query.scope is None else query.scope.partition_column_types
    until = find_frozen_until(last.reports, channel)
    parameters = {f"partition_{c}": values[f"partition_{c}"] for c in types}
    return FrozenCondition(query.frozen, now if until is None else max(now, until), types, parameters)
