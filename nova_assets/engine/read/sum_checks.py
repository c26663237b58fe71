"""Sums of single keys, computed only if the bounds of files do not prove that they fit (``model/sum_bounds``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from nova_assets.formats.python_values import to_python_rows
from nova_assets.model.block import Block
from nova_assets.model.merge import Keyed
from nova_assets.model.partition_values import canonical_value
from nova_assets.model.reads import DeltaChain, Read, Snapshot
from nova_assets.model.schema import DELETED, DataType, Schema
from nova_assets.model.sum_bounds import is_in_type_range, sum_overflow_error

Rows = list[dict[str, Any]]


def check_sums_fit(
    error_label: str,
    staged_delta: Block,
    older_blocks: Sequence[Block],
    sum_types: Mapping[str, DataType],
    read_rows: Callable[[Read, pa.Table | None], pa.Table],
) -> None:
    """Reject a delta that makes a sum exceed the type of its column, in total or over the deltas after some version.

    Args:
        error_label: name of the block in errors.
        staged_delta: delta to check.
        older_blocks: deltas below it, latest first, then their base if there is one.
        sum_types: types of the summed columns.
        read_rows: returns the rows of a read; the second argument restricts them to some keys.

    Raises:
        SumOverflow: with key, column and value.
    """
    if any(b.has_own_merge for b in older_blocks) and len(sum_types) > 1:  # each column may end at another block
        for column, type_ in sum_types.items():
            check_sums_fit(error_label, staged_delta, older_blocks, {column: type_}, read_rows)
        return
    key = list(staged_delta.merge.key)
    columns = [*key, *sum_types, DELETED]
    schema = staged_delta.manifest.schema
    own = read_rows(_build_block_read(staged_delta, schema), None).select(columns)
    totals: dict[str, dict[str, Fraction]] = {}
    keys: dict[str, dict[str, Any]] = {}
    undeleted_keys = _add_to_totals(to_python_rows(own), key, sum_types, totals, keys, None)
    for block in older_blocks:
        _check_totals_fit(error_label, totals, keys, sum_types)
        if not undeleted_keys:
            return
        rows = to_python_rows(read_rows(_build_block_read(block, schema), own.select(key)))
        left = _add_to_totals(rows, key, sum_types, totals, keys, undeleted_keys)
        if block.kind == "delta" and not any(_is_summed(block, c) for c in sum_types):  # its rows replace older values
            left -= {_canonical_key(row, key) for row in rows}
        undeleted_keys = left
    _check_totals_fit(error_label, totals, keys, sum_types)


def _is_summed(block: Block, column: str) -> bool:
    """Whether the merge model of a block adds the values of a column to the older values."""
    return isinstance(block.merge, Keyed) and dict(block.merge.combine).get(column) == "sum"


def _canonical_key(row: Mapping[str, Any], key_columns: Sequence[str]) -> str:
    return repr(canonical_value([row[k] for k in key_columns]))


def _add_to_totals(
    rows: Rows,
    key_columns: Sequence[str],
    sum_types: Mapping[str, DataType],
    totals_by_key: dict[str, dict[str, Fraction]],
    key_values: dict[str, dict[str, Any]],
    candidate_keys: set[str] | None,
) -> set[str]:
    """Add the live rows of some keys to their totals. Returns the keys without a deletion, whose older rows count,
    too."""
    deleted = set()
    keys_in_rows = set()
    for row in rows:
        canonical_key = _canonical_key(row, key_columns)
        keys_in_rows.add(canonical_key)
        if candidate_keys is not None and canonical_key not in candidate_keys:
            continue
        if row.get(DELETED):
            deleted.add(canonical_key)
            continue
        key_values.setdefault(canonical_key, {k: row[k] for k in key_columns})
        sums = totals_by_key.setdefault(canonical_key, dict.fromkeys(sum_types, Fraction(0)))
        for column in sum_types:
            if row[column] is not None:
                sums[column] += Fraction(row[column])
    return (keys_in_rows if candidate_keys is None else candidate_keys) - deleted


def _check_totals_fit(
    error_label: str,
    totals_by_key: Mapping[str, Mapping[str, Fraction]],
    key_values: Mapping[str, Mapping[str, Any]],
    sum_types: Mapping[str, DataType],
) -> None:
    for name, sums in totals_by_key.items():
        for column, value in sums.items():
            if not is_in_type_range(value, sum_types[column]):
                raise sum_overflow_error(error_label, column, sum_types[column], key_values[name], value)


def _build_block_read(block: Block, schema: Schema) -> Read:
    if block.kind == "base":
        return Snapshot(block.channel, block.hi, (block,), (), schema, block.merge)
    return DeltaChain(block.channel, block.lo, block.hi, (block,), schema, block.merge)
