"""Keys of a block that was written (R11): never null, and at most one deletion and one live row each.

Rows that share a key are rare, so they are looked for in the key columns alone, and resolved only where there are any.
Everything here is Arrow and Python; for what is too large or needs the user's own functions, ``write`` asks Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.errors import BadKey
from nova_assets.model.equality import canonical
from nova_assets.model.merge import COMBINERS, Keyed, MergeModel
from nova_assets.model.schema import DELETED
from nova_assets.model.value_order import order_of

Row = dict[str, Any]

EXAMPLES = 3

_PLACE, _GONE, _ALL = "__nova_place", "__nova_gone", "__nova_all"

_ALL_DIGITS = Context(prec=80)
"""Python's own context rounds to 28 digits; a decimal of a channel has up to 38."""


def _sum(values: Sequence[Any]) -> Any:
    return reduce(lambda a, b: _ALL_DIGITS.add(a, b) if isinstance(a, Decimal) else a + b, values)


_COMBINE: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "sum": _sum,
    "min": lambda values: min(values, key=order_of),
    "max": lambda values: max(values, key=order_of),
    "bool_and": all,
    "bool_or": any,
}


@dataclass(frozen=True, slots=True)
class Repeats:
    """Keys that occur oftener than a block may hold them.

    Args:
        rows: the places of their rows; None where only Spark knows them.
        count: how many rows they are.
        live_keys, live_rows: keys with several live rows, and how many these are.
        examples: some of these.
    """

    rows: pa.Array | None
    count: int
    live_keys: int
    live_rows: int
    examples: tuple[Row, ...]

    def __bool__(self) -> bool:
        return self.count > 0


def repeats(table: pa.Table, model: MergeModel) -> Repeats:
    """Look for keys that occur too often.

    Args:
        table: the key columns, and ``_deleted`` in a delta.
    """
    key = list(model.key)
    plain = _comparable(table, key)
    if plain.group_by(key).aggregate([]).num_rows == table.num_rows:  # the common case, at a third of the cost
        return Repeats(None, 0, 0, 0, ())
    groups = _grouped(plain, key)
    gone, rows = groups.column(_GONE), groups.column(_ALL)
    live = pc.subtract(rows, gone)
    twice = pc.or_(pc.greater(live, 1), pc.greater(gone, 1))
    if model.kind == "upsert" and not model.order_by:  # where a live row decides whole, and a deletion says nothing
        twice = pc.or_(twice, pc.and_(pc.greater(live, 0), pc.greater(gone, 0)))
    wrong = groups.filter(twice)
    places = pc.list_flatten(wrong.column(_PLACE).combine_chunks())
    several = groups.filter(pc.greater(live, 1)).column(_PLACE)
    live_rows = pc.sum(live.filter(pc.greater(live, 1))).as_py() or 0
    first = [several[i].as_py()[0] for i in range(min(EXAMPLES, len(several)))]
    examples = table.select(key).take(pa.array(first, pa.int64())).to_pylist()
    return Repeats(places, len(places), len(several), live_rows, tuple(examples))


def resolved(rows: Sequence[Row], model: MergeModel, where: str) -> list[Row]:
    """Rows of keys that occur too often, reduced to what a block may hold.

    A key keeps one deletion. Of several live rows the greatest by ``order_by`` stays; what a ``Keyed`` model combines
    is combined over all of them, as it would be had they come one by one.

    Raises:
        BadKey: several rows are the greatest, and differ in what has to be decided.
    """
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        by_key.setdefault(repr(canonical([row[c] for c in model.key])), []).append(row)
    kept: list[Row] = []
    open_: list[Row] = []
    open_rows = 0
    for same in by_key.values():
        gone = [r for r in same if r.get(DELETED)]
        live = [r for r in same if not r.get(DELETED)]
        best = _greatest(live, model)
        if len(_told_apart(best, model)) > 1:
            open_.append({c: best[0][c] for c in model.key})
            open_rows += len(best)
        if gone and not (live and model.kind == "upsert" and not model.order_by):
            kept.append(gone[0])
        if best:
            kept.append({**best[-1], **_combined(live, model)})
    if open_:
        raise undecided(where, model, len(open_), open_rows, open_[:EXAMPLES])
    return kept


def resolves_in_python(model: MergeModel) -> bool:
    """Whether ``resolved`` can do it: functions of the user's are functions of Spark columns."""
    return not isinstance(model, Keyed) or all(f in COMBINERS for _, f in model.combine)


def null_key(where: str, column: str, rows: int, example: Row | None) -> BadKey:
    return BadKey(
        f"{where}: key column {column!r} is null in {rows} rows",
        found=_shown([example]) if example else f"{rows} nulls",
        expected="a value in every row: the key says which row is meant",
        next="fill the key, or leave these rows out",
        column=column,
        rows=rows,
    )


def undecided(where: str, model: MergeModel, keys: int, rows: int, examples: Iterable[Row]) -> BadKey:
    shown = list(examples)
    if model.order_by:
        why = f"{', '.join(model.order_by)} is the same in them"
        way = "drop all but one of them, or add a column to order_by"
    else:
        why = "the model names no order_by"
        way = "drop all but one of them, or declare the channel with order_by="
    of = "one key" if keys == 1 else f"{keys} keys"
    return BadKey(
        f"{where} was given {rows} live rows of {of} in one block, and {why}",
        found=_shown(shown),
        expected="one live row per key in a block",
        next=way,
        keys=keys,
        rows=rows,
        examples=shown,
    )


def _shown(rows: Iterable[Row | None]) -> str:
    found = []
    for row in rows:
        text = ", ".join(f"{c} = {v!r}" for c, v in (row or {}).items())
        found.append(text if len(text) <= 160 else text[:157] + "...")
    return "; ".join(found) + ", for example"


def _grouped(table: pa.Table, key: list[str]) -> pa.Table:
    """Each key with the places of its rows, how many they are, and how many of them are deletions."""
    gone = table.column(DELETED) if DELETED in table.column_names else pa.repeat(pa.scalar(False), table.num_rows)
    table = table.select(key).append_column(_GONE, pc.cast(gone, pa.int64()))
    table = table.append_column(_PLACE, pa.array(range(table.num_rows), pa.int64()))
    found = table.group_by(key).aggregate([(_GONE, "sum"), (_PLACE, "list"), ([], "count_all")])
    renamed = {f"{_GONE}_sum": _GONE, f"{_PLACE}_list": _PLACE, "count_all": _ALL}
    return found.rename_columns([renamed.get(n, n) for n in found.column_names])


def _comparable(table: pa.Table, key: list[str]) -> pa.Table:
    """Nested keys as text, by which Arrow can group."""
    for name in key:
        index = table.schema.get_field_index(name)
        if pa.types.is_nested(table.schema.field(index).type):
            table = table.set_column(
                index, name, pa.array([repr(canonical(v)) for v in table.column(index).to_pylist()])
            )
    return table


def _greatest(rows: Sequence[Row], model: MergeModel) -> list[Row]:
    if not model.order_by:
        return list(rows)
    ranked = [(tuple(order_of(r[c]) for c in model.order_by), r) for r in rows]
    top = max((rank for rank, _ in ranked), default=())
    return [r for rank, r in ranked if rank == top]


def _told_apart(rows: Sequence[Row], model: MergeModel) -> set[str]:
    """The rows, without what is combined, as far as they differ."""
    combined = dict(model.combine) if isinstance(model, Keyed) else {}
    return {repr(canonical({c: v for c, v in r.items() if c not in combined})) for r in rows}


def _combined(live: Sequence[Row], model: MergeModel) -> Row:
    found = {}
    for column, function in model.combine if isinstance(model, Keyed) else ():
        values = [r[column] for r in live if r[column] is not None]
        found[column] = _COMBINE[function](values) if values else None
    return found
