"""Marks of incremental tables: the values of the incremental column up to which rows are read."""

from __future__ import annotations

import time

from nova_assets.model.channel import Channel
from nova_assets.model.period import period_seconds_or_zero
from nova_assets.sources.postgres.table import ReadableTable, check_definition, open_table, table_of

SETTLE_WAIT_SECONDS = 10.0
"""How long a refresh waits for running transactions, which may have inserted rows below the newest mark."""

_SETTLE_POLL_SECONDS = 0.05


def settled_mark(channel: Channel, after: str | None) -> tuple[str | None, bool]:
    """Newest mark up to which all rows are visible, or will never be.

    A transaction that still runs may have inserted a row with a smaller number than rows that are visible already. So
    the newest mark counts once all transactions have ended that were running when the mark was read.

    Args:
        after: the mark of the last refresh; None for the first.

    Returns:
        The mark, None without new rows; and whether the transactions have ended in time.
    """
    table = table_of(channel)
    with open_table(channel.name, table) as readable:
        check_definition(channel, readable)
        mark, next_transaction = _newest_mark(readable, after)
        if mark is None:
            return None, True
        if _have_transactions_ended(readable, next_transaction):
            return mark, True
        return None, False


def _newest_mark(readable: ReadableTable, after: str | None) -> tuple[str | None, int]:
    """The largest value above the earlier mark, and the number of the next transaction at that moment."""
    from psycopg import sql

    from nova_assets.sources.postgres.queries import raw_sql

    table = readable.table
    assert table.incremental is not None
    column = readable.column(table.incremental, "incremental")
    name, type_ = sql.Identifier(column.name), raw_sql(column.source_type)
    conditions: list[sql.Composable] = []
    if after is not None:
        conditions.append(sql.SQL("{} > {}::{}").format(name, sql.Literal(after), type_))
    if table.settle is not None:
        is_date = column.source_type == "date"
        conditions.append(
            sql.SQL("{} {} ({} - {} * interval '1 second')::{}").format(
                name,
                sql.SQL("<" if is_date else "<="),
                sql.SQL("(now() AT TIME ZONE 'UTC')" if is_date else "now()"),
                sql.Literal(period_seconds_or_zero(table.settle) or 0),
                type_,
            )
        )
    where = sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("TRUE")
    readable.connection.execute("SET TimeZone = 'UTC'")
    readable.connection.execute("SET DateStyle = 'ISO, YMD'")
    query = sql.SQL("SELECT (SELECT max({})::text FROM {} WHERE {}), txid_snapshot_xmax(txid_current_snapshot())")
    mark, next_transaction = readable.fetch(query.format(name, readable.relation, where))[0]
    return mark, int(next_transaction)


def _have_transactions_ended(readable: ReadableTable, next_transaction: int) -> bool:
    """Whether all transactions before this number end within the time that a refresh waits."""
    from psycopg import sql

    deadline = time.monotonic() + SETTLE_WAIT_SECONDS
    while True:
        oldest = readable.fetch(sql.SQL("SELECT txid_snapshot_xmin(txid_current_snapshot())"))[0][0]
        if oldest >= next_transaction:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_SETTLE_POLL_SECONDS)
