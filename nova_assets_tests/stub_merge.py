"""Merge models over lists of rows: a plain reference implementation for the stub engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nova_assets.errors import BadKey, UnrepresentableChange
from nova_assets.model.function_reference import FunctionRef
from nova_assets.model.merge import Custom, Keyed, MergeModel
from nova_assets.model.schema import DELETED

Row = dict[str, Any]


Change = tuple[Row | None, Row | None]
"""What a delta does to one key: a deletion, then a live row; either may be absent."""


COMBINERS = {
    "sum": lambda a, b: a + b,
    "min": min,
    "max": max,
    "bool_and": lambda a, b: a and b,
    "bool_or": lambda a, b: a or b,
}


def changes_of(model: MergeModel, rows: Sequence[Row]) -> dict[tuple[Any, ...], Change]:
    """A delta's rows by key. Raises BadKey for a null key or two live rows that nothing decides between."""
    found: dict[tuple[Any, ...], Change] = {}
    for row in rows:
        row = {**row, DELETED: bool(row.get(DELETED))}
        key = key_of_row(model, row)
        if any(part is None for part in key):
            raise BadKey("a key is null", found=key)
        deletion, live = found.get(key, (None, None))
        if row[DELETED]:
            found[key] = (row, live)
        elif live is None:
            found[key] = (deletion, row)
        elif model.order_by and order_of_row(model, live) != order_of_row(model, row):
            found[key] = (deletion, compose(model, (None, live), (None, row))[1])
        else:
            raise BadKey("several live rows of one key", found=key)
    if model.kind == "upsert" and not model.order_by:
        return {k: (None, live) if live is not None else (d, None) for k, (d, live) in found.items()}
    return found


def compose(model: MergeModel, first: Change, then: Change) -> Change:
    """Two changes of one key, one after the other."""
    if model.kind == "upsert" and not model.order_by:
        return then
    if then[0] is not None or first[1] is None or then[1] is None:
        deletion = then[0] or first[0]
        return (deletion, then[1] if then[0] is not None or then[1] is not None else first[1])
    later = then[1] if not model.order_by or order_of_row(model, then[1]) >= order_of_row(model, first[1]) else first[1]
    row = dict(later)
    for column, function in model.combine if isinstance(model, Keyed) else ():
        a, b = first[1][column], then[1][column]
        row[column] = b if a is None else a if b is None else COMBINERS[function](a, b)
    return (first[0], row)


def compose_changes(
    model: MergeModel, first: Mapping[tuple[Any, ...], Change], then: Mapping[tuple[Any, ...], Change]
) -> dict[tuple[Any, ...], Change]:
    return {**first, **{k: compose(model, first[k], c) if k in first else c for k, c in then.items()}}


def rows_of_changes(changes: Mapping[tuple[Any, ...], Change]) -> list[Row]:
    rows = []
    for deletion, live in changes.values():
        rows += [{**deletion, DELETED: True}] if deletion is not None else []
        rows += [{**live, DELETED: False}] if live is not None else []
    return rows


def diff(model: MergeModel, channel: str, old: list[Row], new: list[Row]) -> list[Row]:
    if isinstance(model, Custom):
        rows: list[Row] = FunctionRef.parse(model.diff_ref).load()(old, new)
        return rows
    if not model.key:
        lost = multiset_difference(old, new)
        if lost:
            raise UnrepresentableChange(
                f"channel {channel!r} lost {len(lost)} rows", channel=channel, dropped=len(lost)
            )
        return multiset_difference(new, old)
    before, after = ({key_of_row(model, r): without_deleted_mark(r) for r in rows} for rows in (old, new))
    found = [{**r, DELETED: True} for k, r in before.items() if k not in after]
    for k, r in after.items():
        if before.get(k) != r:
            loses = k in before and bool(model.order_by) and order_of_row(model, r) < order_of_row(model, before[k])
            found += [{**before[k], DELETED: True}] if k in before and (isinstance(model, Keyed) or loses) else []
            found.append({**r, DELETED: False})
    return found


def without_deleted_mark(row: Row) -> Row:
    return {c: v for c, v in row.items() if c != DELETED}


def multiset_difference(rows: Sequence[Row], other: Sequence[Row]) -> list[Row]:
    left = [json.dumps(r, sort_keys=True) for r in other]
    kept = []
    for row in rows:
        text = json.dumps(row, sort_keys=True)
        if text in left:
            left.remove(text)
        else:
            kept.append(row)
    return kept


def key_of_row(model: MergeModel, row: Row) -> tuple[Any, ...]:
    return tuple(row.get(c) for c in model.key)


def order_of_row(model: MergeModel, row: Row) -> tuple[Any, ...]:
    return tuple((row[c] is not None, row[c]) for c in model.order_by)


def sorted_live_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows without ``_deleted``, sorted: how a test compares snapshots."""
    return sorted((without_deleted_mark(r) for r in rows), key=lambda r: json.dumps(r, sort_keys=True))
