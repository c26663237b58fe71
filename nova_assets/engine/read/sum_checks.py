"""Sums of single keys, looked at where the bounds of files do not tell whether they fit (``model/sums``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from nova_assets.model.block import Block
from nova_assets.model.equality import canonical
from nova_assets.model.reads import Chain, Read, Snapshot
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.model.sum_bounds import fits, overflow

Rows = list[dict[str, Any]]


def check_sums(
    where: str,
    staged: Block,
    older: Sequence[Block],
    types: Mapping[str, DataType],
    rows_of: Callable[[Read, pa.Table | None], pa.Table],
) -> None:
    """Refuse a delta with which a sum leaves its column's type: in all, or over the deltas after some version.

    Args:
        staged: the delta.
        older: the deltas that it comes on top of, the latest first, and the base below them, if there is one.
        types: of the summed columns.
        rows_of: the rows of a read, of some keys alone.

    Raises:
        SumOverflow: with key, column and value.
    """
    key = list(staged.merge.key)
    columns = [*key, *types, DELETED]
    schema = staged.manifest.schema
    own = rows_of(_alone(staged, schema), None).select(columns)
    totals: dict[str, dict[str, Fraction]] = {}
    keys: dict[str, dict[str, Any]] = {}
    open_ = _added(own.to_pylist(), key, types, totals, keys, None)
    for block in older:
        _check(where, totals, keys, types)
        if not open_:
            return
        rows = rows_of(_alone(block, schema), own.select(key)).to_pylist()
        open_ = _added(rows, key, types, totals, keys, open_)
    _check(where, totals, keys, types)


def _added(
    rows: Rows,
    key: Sequence[str],
    types: Mapping[str, DataType],
    totals: dict[str, dict[str, Fraction]],
    keys: dict[str, dict[str, Any]],
    among: set[str] | None,
) -> set[str]:
    """Add the live rows of some keys to their sums. Gives the keys that no deletion has cut off from what is older."""
    deleted = set()
    here = set()
    for row in rows:
        name = repr(canonical([row[k] for k in key]))
        here.add(name)
        if among is not None and name not in among:
            continue
        if row.get(DELETED):
            deleted.add(name)
            continue
        keys.setdefault(name, {k: row[k] for k in key})
        sums = totals.setdefault(name, dict.fromkeys(types, Fraction(0)))
        for column in types:
            if row[column] is not None:
                sums[column] += Fraction(row[column])
    return (here if among is None else among) - deleted


def _check(
    where: str,
    totals: Mapping[str, Mapping[str, Fraction]],
    keys: Mapping[str, Mapping[str, Any]],
    types: Mapping[str, DataType],
) -> None:
    for name, sums in totals.items():
        for column, value in sums.items():
            if not fits(value, types[column]):
                raise overflow(where, column, types[column], keys[name], value)


def _alone(block: Block, schema: Schema) -> Read:
    if block.kind == "base":
        return Snapshot(block.channel, block.hi, (block,), (), schema, block.merge)
    return Chain(block.channel, block.lo, block.hi, (block,), schema, block.merge)
