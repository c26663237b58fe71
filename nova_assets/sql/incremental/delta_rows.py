"""The delta of a channel from the change of a query's result, if the rows of this change are in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from nova_assets.model.merge import MergeModel, Multiset
from nova_assets.model.schema import DELETED
from nova_assets.sql.incremental.netted_change import is_exact
from nova_assets.sql.incremental.operator_sql import WEIGHT


def delta_rows(merge: MergeModel, names: Mapping[str, str], change: pa.Table) -> pa.Table | None:
    """The rows that ``delta_sql.select_delta`` selects; None if only Spark can tell.

    Args:
        merge: merge model of the channel.
        names: column of the change -> name of the channel's column.
        change: the change of the result, added up: each different row once, with its weight.
    """
    weights = change.column(WEIGHT).to_numpy()
    rows = change.select(list(names)).rename_columns(list(names.values()))
    everything = np.arange(len(weights))
    if isinstance(merge, Multiset):
        return _with_flag(rows, np.repeat(everything, np.abs(weights)), weights)
    added = np.repeat(everything, np.maximum(weights, 0))
    if merge.key:
        removed = _indices_without_successor(rows, merge.key, weights)
        return None if removed is None else _with_flag(rows, np.concatenate([added, removed]), weights)
    return None if (weights < 0).any() else rows.take(pa.array(added))


def _with_flag(rows: pa.Table, indices: np.ndarray, weights: np.ndarray) -> pa.Table:
    """Some rows, with the flag that tells which of them are removed."""
    return rows.take(pa.array(indices)).append_column(DELETED, pa.array(weights[indices] < 0))


def _indices_without_successor(rows: pa.Table, key: Sequence[str], weights: np.ndarray) -> np.ndarray | None:
    """Indices of removed rows whose key no added row has; None if the keys cannot be compared here."""
    spelled = {name.lower(): name for name in rows.column_names}
    columns = [spelled[k.lower()] for k in key]
    keys = rows.select(columns).rename_columns([f"key_{n}" for n in range(len(columns))])
    if not all(map(is_exact, keys.schema.types)):
        return None
    if any(column.null_count for column in keys.columns):
        return None  # no key of a channel is null, and writing reports it
    removed = keys.append_column("index", pa.array(np.arange(len(weights)))).filter(pa.array(weights < 0))
    left = removed.join(keys.filter(pa.array(weights > 0)), keys.column_names, join_type="left anti")
    return np.sort(left.column("index").to_numpy())
