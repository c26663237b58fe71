"""Data checks that many channels need, under ``nova.checks``.

    checks = [nova.checks.not_null(totals, "shop"), nova.checks.expression(totals, "amount >= 0", blocking=False)]
    nova.Workflowette("shop_totals", [add_up], checks=checks)

A check of single rows looks at the rows that the execution writes, because the other rows were checked before. Removed
rows are left out. If a check fails, ``nova check-failures CHANNEL`` shows the rows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from typing import Any

from nova_assets.errors import DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.channel import Channel
from nova_assets.model.data_check import Check, CheckResult
from nova_assets.model.edge import Consumes, all, new
from nova_assets.model.names import check_name
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.schema import DELETED


@check_argument_types("nova.checks.not_null")
def not_null(port: Channel | str, *columns: str, name: str | None = None, blocking: bool = True) -> Check:
    """Check that columns have values. It looks at changed rows.

    Args:
        port: channel under test, or its port.
        columns: one or more columns. A row fails if one of them is null.
        name: name of the check; ``not_null_COLUMNS`` by default.
        blocking: whether a failure prevents the commit. Otherwise it is only reported.

    Raises:
        DefinitionError: no column is given, or the schema of the channel has no such column.
    """
    _check_columns("not_null", port, columns)

    def find_nulls(changed: Any) -> Any:
        is_null = changed[_quoted(columns[0])].isNull()
        for column in columns[1:]:
            is_null = is_null | changed[_quoted(column)].isNull()
        return _present(changed).where(is_null)

    return _build(name or _name("not_null", columns), find_nulls, [new(port, as_="changed")], blocking)


@check_argument_types("nova.checks.unique")
def unique(port: Channel | str, *columns: str, name: str | None = None, blocking: bool = True) -> Check:
    """Check that no two rows have the same values in these columns. It looks at the values of changed rows, in all rows
    of the channel (or of the partition, if the binding is executed per partition).

    Rows with a null in one of the columns are left out, as in SQL.

    Args:
        port, name, blocking: as for ``not_null``.
        columns: one or more columns.

    Raises:
        DefinitionError: as for ``not_null``.
    """
    _check_columns("unique", port, columns)
    names = list(columns)

    def find_repeated(changed: Any, rows: Any) -> Any:
        values = _present(changed).select(*map(_quoted, names)).distinct()
        candidates = rows.join(values, names, "left_semi")
        count = _free_name(names)
        counted = candidates.groupBy(*map(_quoted, names)).count().toDF(*names, count)
        return rows.join(counted.where(counted[count] > 1), names, "left_semi")

    edges = [new(port, as_="changed"), all(port, as_="rows")]
    return _build(name or _name("unique", columns), find_repeated, edges, blocking)


@check_argument_types("nova.checks.accepted_values")
def accepted_values(
    port: Channel | str, column: str, values: Collection[Any], *, name: str | None = None, blocking: bool = True
) -> Check:
    """Check that a column has only these values, or null. It looks at changed rows.

    Args:
        port, name, blocking: as for ``not_null``.
        values: one or more values of the column's type.

    Raises:
        DefinitionError: ``values`` is empty or contains None, or the schema of the channel has no such column.
    """
    _check_columns("accepted_values", port, [column])
    accepted = list(values) if not isinstance(values, str) else [values]
    if not accepted or None in accepted:
        raise DefinitionError(
            "nova.checks.accepted_values got no usable values",
            found=repr(accepted),
            expected="one or more values, none of them None",
            next="list the values; nova.checks.not_null is the check for nulls",
        )

    def find_others(changed: Any) -> Any:
        return _present(changed).where(~changed[_quoted(column)].isin(accepted))

    check_name_ = name or _name("accepted_values", [column])
    return _build(check_name_, find_others, [new(port, as_="changed")], blocking)


@check_argument_types("nova.checks.relationships")
def relationships(
    port: Channel | str,
    column: str,
    to: Channel | str,
    to_column: str | None = None,
    *,
    name: str | None = None,
    blocking: bool = True,
) -> Check:
    """Check that each value of a column exists in a column of another channel. It looks at changed rows of the channel
    under test, and at all rows of the other channel.

    Rows whose column is null are left out. Rows that lose their partner because the other channel changes are not
    noticed: the check runs when the channel under test is written.

    Args:
        port, name, blocking: as for ``not_null``.
        to: the other channel, or its port.
        to_column: its column; the same name by default.

    Raises:
        DefinitionError: the schema of a channel has no such column.
    """
    _check_columns("relationships", port, [column])
    _check_columns("relationships", to, [to_column or column])

    def find_unmatched(changed: Any, partners: Any) -> Any:
        known = partners.select(_quoted(to_column or column)).toDF(column)
        return _present(changed).where(changed[_quoted(column)].isNotNull()).join(known, [column], "left_anti")

    edges = [new(port, as_="changed"), all(to, as_="partners")]
    return _build(name or _name("relationships", [column]), find_unmatched, edges, blocking)


@check_argument_types("nova.checks.expression")
def expression(port: Channel | str, condition: str, *, name: str | None = None, blocking: bool = True) -> Check:
    """Check that a condition in Spark SQL is not false for any row, as ``CHECK`` in SQL. It looks at changed rows.

    A row for which the condition is null passes. Spark parses the condition when the check runs.

    Args:
        port, name, blocking: as for ``not_null``; the name is ``expression`` by default.
        condition: such as ``amount >= 0``.

    Raises:
        DefinitionError: the condition is empty.
    """
    if not condition.strip():
        raise DefinitionError(
            "nova.checks.expression got an empty condition", expected="Spark SQL such as 'amount >= 0'"
        )

    def find_violations(changed: Any) -> Any:
        holds = _free_name(changed.columns)
        judged = _present(changed).selectExpr("*", f"(\n{condition}\n) AS {holds}")
        return judged.where(~judged[holds]).drop(holds)

    return _build(name or "expression", find_violations, [new(port, as_="changed")], blocking)


@check_argument_types("nova.checks.row_count_between")
def row_count_between(
    port: Channel | str, least: int, most: int | None = None, *, name: str | None = None, blocking: bool = True
) -> Check:
    """Check the number of rows that the channel (or the partition) has after the commit.

    Args:
        port, name, blocking: as for ``not_null``; the name is ``row_count`` by default.
        least: smallest number of rows.
        most: largest number of rows; no limit by default.

    Raises:
        DefinitionError: ``most`` is below ``least``, or ``least`` is below 0.
    """
    if least < 0 or (most is not None and most < least):
        raise DefinitionError(
            "nova.checks.row_count_between got limits that no count can meet",
            found=f"least={least}, most={most}",
            expected="0 <= least <= most",
        )
    expected = f"{least:,} or more" if most is None else f"{least:,} to {most:,}"

    def count(rows: Any) -> CheckResult:
        found = rows.count()
        is_within = least <= found and (most is None or found <= most)
        return CheckResult(is_within, f"{found:,} rows; expected {expected}", {"rows": found})

    return _build(name or "row_count", count, [all(port, as_="rows")], blocking)


@check_argument_types("nova.checks.freshness")
def freshness(
    port: Channel | str, column: str, within: str, *, name: str | None = None, blocking: bool = True
) -> Check:
    """Check that the newest time in a column is at most so long ago. It looks at all rows of the channel (or of the
    partition), when the channel is written. ``fresh_within`` of a channel tells that nothing is written at all.

    Args:
        port, name, blocking: as for ``not_null``.
        column: column of timestamps or dates. A date counts as its midnight, in the time zone of the session.
        within: longest age, such as ``"25h"`` or ``"10 minutes"``.

    Raises:
        DefinitionError: ``within`` is no period, or the schema of the channel has no such column.
    """
    _check_columns("freshness", port, [column])
    seconds = period_seconds(within)
    if seconds is None:
        raise DefinitionError(
            "nova.checks.freshness got an unusable period", found=repr(within), expected=EXPECTED_PERIOD
        )

    def find_newest(rows: Any) -> CheckResult:
        newest = rows.select(_quoted(column)).toDF("time").agg({"time": "max"}).toDF("newest")
        limit = f"newest >= timestamp_seconds({int(time.time()) - seconds})"
        [row] = newest.selectExpr("CAST(newest AS STRING) AS text", f"{limit} AS is_fresh").collect()
        found = f"no row has a {column}" if row["text"] is None else f"the newest {column} is {row['text']}"
        return CheckResult(bool(row["is_fresh"]), f"{found}; expected one within {within}")

    return _build(name or _name("freshness", [column]), find_newest, [all(port, as_="rows")], blocking)


def _build(name: str, function: Callable[..., Any], consumes: list[Consumes], blocking: bool) -> Check:
    return Check(check_name(name, "a check"), function, tuple(consumes), blocking)


def _name(kind: str, columns: Collection[str]) -> str:
    return "_".join([kind, *(re.sub(r"\W", "_", c, flags=re.ASCII) for c in columns)])


def _free_name(taken: Collection[str]) -> str:
    """Name of a column that is not taken."""
    used = {t.lower() for t in taken}
    name = "nova_value"
    while name in used:
        name += "_"
    return name


def _quoted(column: str) -> str:
    """Name of a column as Spark's expressions take it."""
    return "`" + column.replace("`", "``") + "`"


def _present(changed: Any) -> Any:
    """Changed rows without removed ones."""
    if DELETED not in changed.columns:
        return changed
    return changed.where(changed[DELETED].isNull() | ~changed[DELETED])


def _check_columns(check: str, port: Channel | str, columns: Collection[str]) -> None:
    if not columns:
        raise DefinitionError(f"nova.checks.{check} got no column", expected="the names of one or more columns")
    if isinstance(port, str) or port.schema is None:
        return
    known = port.schema.names
    for column in columns:
        if column.lower() not in {k.lower() for k in known}:
            raise DefinitionError(
                f"nova.checks.{check}: channel {port.name!r} has no such column",
                found=column,
                expected=f"one of {', '.join(known)}",
            )
