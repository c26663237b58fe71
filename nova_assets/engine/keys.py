"""Keys of what is about to become a block (R11): never null, and at most one deletion and one live row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from nova_assets.engine.values import order_of
from nova_assets.errors import BadKey, NotSupported
from nova_assets.model.merge import Keyed, MergeModel
from nova_assets.model.schema import DELETED

Row = dict[str, Any]

_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "min": min,
    "max": max,
    "bool_and": lambda a, b: a and b,
    "bool_or": lambda a, b: a or b,
}


def refuse_null_keys(channel: str, key: str, nulls: int) -> None:
    """Raises BadKey if there are any."""
    if nulls:
        raise BadKey(
            f"channel {channel!r}: key column {key!r} is null in {nulls} rows",
            found=f"{nulls} nulls",
            expected="a value in every row (R11)",
            next="fill the key, or leave these rows out",
            channel=channel,
            column=key,
            rows=nulls,
        )


def repeated(table: pa.Table, key: Sequence[str]) -> pa.Array:
    """Which rows have a key that another row has, too."""
    frame = table.select(list(key)).to_pandas()
    nested = [c for c in key if pa.types.is_nested(table.schema.field(c).type)]
    for c in nested:
        frame[c] = frame[c].map(repr)
    return pa.array(frame.duplicated(keep=False).to_numpy())


def resolve(table: pa.Table, model: MergeModel, channel: str) -> pa.Table:
    """The table with each key's rows reduced to what a block may hold, as the model says; the same table when there is
    nothing to do.

    Raises:
        BadKey: several live rows of one key that nothing decides between.
    """
    again = repeated(table, model.key)
    if not again.true_count:
        return table
    import pyarrow.compute as pc

    groups: dict[str, list[Row]] = {}
    for row in table.filter(again).to_pylist():
        groups.setdefault(repr([row[c] for c in model.key]), []).append(row)
    kept = [row for rows in groups.values() for row in _resolved(rows, model, channel)]
    return pa.concat_tables([table.filter(pc.invert(again)), pa.Table.from_pylist(kept, schema=table.schema)])


def _resolved(rows: Sequence[Row], model: MergeModel, channel: str) -> list[Row]:
    gone = [r for r in rows if r.get(DELETED)]
    live = [r for r in rows if not r.get(DELETED)]
    distinct = {repr(r): r for r in live}
    if len(live) > 1 and not model.order_by:
        raise _undecided(channel, model, live)
    winner = _greatest(list(distinct.values()), model, channel) if live else None
    if winner is not None and isinstance(model, Keyed) and len(live) > 1:
        winner = {**winner, **{c: _combine(f, [r[c] for r in live], channel) for c, f in model.combine}}
    drop_deletion = winner is not None and model.kind == "upsert" and not model.order_by
    return [*([] if drop_deletion else gone[:1]), *([winner] if winner is not None else [])]


def _greatest(rows: Sequence[Row], model: MergeModel, channel: str) -> Row:
    ranks = [tuple(order_of(r[c]) for c in model.order_by) for r in rows]
    best = [r for r, rank in zip(rows, ranks, strict=True) if rank == max(ranks)]
    plain = {
        repr({c: v for c, v in r.items() if not isinstance(model, Keyed) or c not in dict(model.combine)}) for r in best
    }
    if len(plain) > 1:
        raise _undecided(channel, model, best)
    return best[-1]


def _combine(function: str, values: Sequence[Any], channel: str) -> Any:
    if function not in _COMBINE:
        raise NotSupported(
            f"channel {channel!r}: rows of one key in one delta are combined by {function}, which needs Spark",
            next="insert a Spark DataFrame, or one row per key",
        )
    there = [v for v in values if v is not None]
    so_far = there[0] if there else None
    for value in there[1:]:
        so_far = _COMBINE[function](so_far, value)
    return so_far


def _undecided(channel: str, model: MergeModel, rows: Sequence[Row]) -> BadKey:
    key = {c: rows[0][c] for c in model.key}
    way = f"{', '.join(model.order_by)} is the same in them" if model.order_by else "the model names no order_by"
    return BadKey(
        f"channel {channel!r} was given {len(rows)} live rows of one key in one block, and {way}",
        found=f"key {key}, for example",
        expected="one live row per key (R11)",
        next="drop the duplicates, or declare the channel with order_by=",
        channel=channel,
        key=key,
        rows=len(rows),
    )
