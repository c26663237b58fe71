"""One maintenance of a stored result: its delta, computed by the query's operators from the changes of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, MergeModel, Multiset
from nova_assets.model.modes_view import View
from nova_assets.model.schema import DELETED, Field, Schema
from nova_assets.model.task import Context
from nova_assets.sql.incremental.accumulated_delta import (
    accumulated_rows,
    add_changed_groups,
    select_accumulated_delta,
)
from nova_assets.sql.incremental.accumulation import StoredAccumulation
from nova_assets.sql.incremental.dataset_change import (
    ComputedRelation,
    DatasetChange,
    add_up,
    column_bounds,
    columns_with_true,
    frame_name,
    has_single_rows,
    is_exact,
    net_change,
)
from nova_assets.sql.incremental.frozen_condition import FrozenCondition
from nova_assets.sql.incremental.maintenance_cost import MaintenanceCost, estimate_from_row_counts
from nova_assets.sql.incremental.maintenance_sql import RESULT, MaintenanceSql
from nova_assets.sql.incremental.operator_sql import FROZEN, KEY, WEIGHT, quote_column, sum_weights, used_values
from nova_assets.sql.incremental.operators import Operator, Scan, column_of, walk
from nova_assets.sql.incremental.result_delta import (
    add_result,
    add_result_by_group,
    add_result_by_key,
    select_delta,
    select_delta_once,
    select_missing_rows,
)
from nova_assets.sql.incremental.unique_keys import exact_unique_key

STORED_ROWS = "stored_rows"
"""Name of the input with the rows that the channel of the result holds."""


@dataclass(eq=False)
class Maintenance:
    """Computes the delta of a result.

    Args:
        views: dataset -> its view.
        target: channel of the result.
        schema: columns of the result.
        values: values of the query's variables.
        accumulation: the accumulation that the stored rows are; None if they are none.
        is_accumulated: whether the stored rows have the hidden columns of the accumulation.
        frozen: the rows of the result that stay as they are; None if there are none.

    Attributes:
        frozen_changes: number of computed changes of frozen rows, which are left out. Only few changes are counted.
    """

    ctx: Context
    operators: Operator
    views: Mapping[str, View]
    target: Channel
    schema: Schema
    values: Mapping[str, Any]
    accumulation: StoredAccumulation | None
    is_accumulated: bool
    frozen: FrozenCondition | None
    frozen_changes: int = field(default=0, init=False)
    _frames: dict[str, Callable[[], Any]] = field(default_factory=dict, init=False)
    _netted_changes: dict[str, pa.Table | None] = field(default_factory=dict, init=False)

    @cached_property
    def _used_columns(self) -> dict[str, tuple[str, ...]]:
        return {o.dataset: tuple(o.columns) for o in walk(self.operators) if isinstance(o, Scan)}

    @cached_property
    def has_small_changes(self) -> bool:
        return all(view.has_small_change for view in self.views.values())

    def estimate(self, readers: int) -> MaintenanceCost | None:
        """Estimated cost; None if the sizes of the inputs are not known.

        Args:
            readers: number of readers of the result's changes.
        """
        return estimate_from_row_counts(
            self.operators,
            self.ctx.row_counts,
            {name: self.ctx.channels[name].merge for name in self.views},
            STORED_ROWS,
            is_change_small=self.has_small_changes,
            readers=readers,
            accumulation=None if self.accumulation is None else self.accumulation.accumulation,
            is_accumulated=self.is_accumulated,
        )

    def nets_to_nothing(self) -> bool:
        """Whether the changes of all columns that the query uses add up to nothing, as far as this process can tell."""
        netted = (self._netted_change(d) for d in self._used_columns if self.views[d].is_changed)
        return all(change is not None and not change.num_rows for change in netted)

    def compute_delta(self, load_stored: Callable[[Sequence[Field]], Any]) -> Any | None:
        """The delta that follows from the changes of the datasets; None if the stored rows do not fit the delta.

        Args:
            load_stored: loads the stored rows with some hidden columns.
        """
        changes = {name: self._add_frames(n, name) for n, name in enumerate(self._used_columns)}
        if not any(change.is_changed for change in changes.values()):
            return self.ctx.frame([], self.schema)
        compute = (self._compute, self._compute_change) if self.has_small_changes else (None, None)
        maintenance = MaintenanceSql(self.operators, changes, *compute)
        accumulation, removes_by_value = self.accumulation, isinstance(self.target.merge, Multiset)
        is_by_stored_rows = bool(self.operators.rounded) or self.operators.unstable is not None
        if accumulation is not None or removes_by_value or is_by_stored_rows:
            hidden = [] if accumulation is None else list(accumulation.hidden.values())
            stored = with_columns(self.ctx, load_stored(hidden), Schema((*self.schema.fields, *hidden)))
            self._frames["stored"] = lambda: stored
        if accumulation is not None:
            return self._add_to_groups(maintenance, accumulation, removes_by_value=removes_by_value)
        names = dict(zip(self.operators.columns, self.schema.names, strict=True))
        is_frozen = self._is_frozen({name: column_of(column) for column, name in names.items()})
        if self.operators.unstable is not None:
            add_result_by_group(maintenance, "stored", names, is_frozen)
            return self._delta_of_result(maintenance, names, select_delta_once(self.target.merge, names))
        if self.operators.rounded:
            key = exact_unique_key(self.operators)
            assert key is not None  # otherwise the whole result is compared
            add_result_by_key(maintenance, sorted(key), "stored", names, is_frozen)
            return self._delta_of_result(maintenance, names, select_delta_once(self.target.merge, names))
        add_result(maintenance, is_frozen)
        if removes_by_value and self._has_missing_rows(maintenance, names):
            return None
        return self._delta_of_result(maintenance, names, select_delta(self.target.merge, names))

    def _is_frozen(self, columns: Mapping[str, exp.Expr]) -> str:
        """Condition for frozen rows; empty if there are none.

        Args:
            columns: column of the result -> expression for it.
        """
        return "" if self.frozen is None else self.frozen.over(columns)

    def _delta_of_result(self, maintenance: MaintenanceSql, names: Mapping[str, str], select: str) -> Any:
        """The delta that follows from the change of the result.

        Args:
            names: column of the change -> name of the channel's column.
            select: SELECT of the delta from ``nova_result``.
        """
        change = self._computed_result(maintenance)
        rows = None if change is None else delta_rows(self.target.merge, names, change)
        if rows is not None:
            return rows
        return self._delta_of_statement(maintenance, maintenance.with_relations(select))

    def _computed_result(self, maintenance: MaintenanceSql) -> pa.Table | None:
        """The change of the result; None if its rows are not in this process."""
        computed = maintenance.computed(RESULT)
        return None if computed is None else self._frames[computed.frame]()

    def _has_missing_rows(self, maintenance: MaintenanceSql, names: Mapping[str, str]) -> bool:
        """Whether the change of the result removes rows that are not stored."""
        change, conditions = self._computed_result(maintenance), list[str]()
        if change is not None:
            removed = change.filter(pc.field(WEIGHT) < 0)
            if not removed.num_rows:
                return False
            bounds = column_bounds(removed.select(list(names)))
            conditions = [
                maintenance.is_within(f"stored.{quote_column(names[column])}", b) for column, b in bounds.items()
            ]
        missing = maintenance.with_relations(select_missing_rows(names, "stored", conditions))
        return bool(self._query(missing, maintenance.values).collect())

    def _add_to_groups(
        self, maintenance: MaintenanceSql, accumulation: StoredAccumulation, *, removes_by_value: bool
    ) -> Any:
        """The delta that adds the changes to the stored groups."""
        by_key = {c: column_of(f"{KEY}{n}") for n, c in enumerate(accumulation.accumulation.key_columns)}
        values = by_key | accumulation.accumulation.values_of_keys(by_key)
        is_frozen = self._is_frozen({accumulation.fields[c].name: value for c, value in values.items()})
        groups = add_changed_groups(maintenance, accumulation, "stored", is_frozen)
        computed = maintenance.computed(groups)
        if computed is not None and "nova_again" not in computed.columns_with_true:
            rows = self._frames[computed.frame]()
            return accumulated_rows(accumulation, rows, removes_by_value=removes_by_value)
        sql = select_accumulated_delta(maintenance, accumulation, groups, removes_by_value=removes_by_value)
        return self._delta_of_statement(maintenance, sql)

    def _add_frames(self, number: int, dataset: str) -> DatasetChange:
        """Add the frames of a dataset."""
        view, merge, columns = self.views[dataset], self.ctx.channels[dataset].merge, self._used_columns[dataset]
        frame_by_role: dict[str, Callable[[], Any]] = {"all": lambda: view.all}
        if view.is_changed:
            frame_by_role |= {"old": lambda: view.old} | _changed_rows(view, merge, columns)
        netted = self._netted_change(dataset)
        if netted is not None:
            frame_by_role["netted"] = lambda: netted
        self._frames |= {frame_name(role, number): load for role, load in frame_by_role.items()}
        return DatasetChange(
            all_frame=frame_name("all", number),
            old_frame=frame_name("old", number),
            removed_frame=None if isinstance(merge, Append) else frame_name("removed", number),
            added_frame=frame_name("added", number),
            is_changed=view.is_changed if netted is None else netted.num_rows > 0,
            netted_frame=None if netted is None else frame_name("netted", number),
            has_single_rows=isinstance(merge, Append) if netted is None else has_single_rows(netted),
            bounds={} if netted is None else {c.lower(): b for c, b in column_bounds(netted).items()},
        )

    def _netted_change(self, dataset: str) -> pa.Table | None:
        """The change of the used columns of a dataset, added up; None if its rows are not in this process, or if only
        Spark can add it up.
        """
        if dataset not in self._netted_changes:
            columns = self._used_columns[dataset]
            change = _rows_of_change(self.views[dataset], self.ctx.channels[dataset].merge, columns)
            self._netted_changes[dataset] = None if change is None else net_change(*change, columns)
        return self._netted_changes[dataset]

    def _query(self, sql: str, values: Mapping[str, Any]) -> Any:
        """Frame of a statement over those frames and values that it names."""
        return self.ctx.query(sql, self._values_of(sql, values), self._frames_of(sql))

    def _compute_rows(self, sql: str, values: Mapping[str, Any]) -> pa.Table | None:
        """Rows of a statement, computed now; None if they are too many."""
        return self.ctx.compute(sql, self._values_of(sql, values), self._frames_of(sql))

    def _values_of(self, sql: str, values: Mapping[str, Any]) -> dict[str, Any]:
        frozen_values = {} if self.frozen is None else self.frozen.values
        return used_values(sql, {**self.values, **frozen_values, **values})

    def _frames_of(self, sql: str) -> dict[str, Any]:
        return {name: load() for name, load in self._frames.items() if f"{{{name}}}" in sql}

    def _compute(self, sql: str, values: Mapping[str, Any]) -> ComputedRelation | None:
        """Compute a relation now, and add it to the frames; None if its rows are too many."""
        rows = self._compute_rows(sql, values)
        return None if rows is None else self._keep(rows)

    def _compute_change(self, sql: str, values: Mapping[str, Any]) -> ComputedRelation | None:
        """Compute a change now, add it up, and add it to the frames; None if its rows are too many."""
        change = self._compute_rows(sql, values)
        if change is None:
            return None
        if all(map(is_exact, change.schema.types)):
            return self._keep(add_up(change))
        columns = [name for name in change.column_names if name != WEIGHT]
        added_up = self.ctx.compute(sum_weights(columns, "SELECT * FROM {change}"), {}, {"change": change})
        return None if added_up is None else self._keep(added_up)

    def _keep(self, rows: pa.Table) -> ComputedRelation:
        """Add computed rows to the frames. Frozen rows are left out, and counted."""
        if FROZEN in rows.column_names:
            kept = rows.filter(pc.invert(rows.column(FROZEN))).drop_columns([FROZEN])
            self.frozen_changes += rows.num_rows - kept.num_rows
            rows = kept
        name = frame_name("computed", len(self._frames))
        self._frames[name] = lambda: rows
        keys = [column for column in rows.column_names if column.startswith(KEY)]
        return ComputedRelation(name, column_bounds(rows.select(keys)), columns_with_true(rows))

    def _delta_of_statement(self, maintenance: MaintenanceSql, sql: str) -> Any:
        """The delta of a statement, with its rows in this process if they are few. They are written without a Spark
        job."""
        rows = self._compute_rows(sql, maintenance.values) if maintenance.has_few_rows else None
        return self._query(sql, maintenance.values) if rows is None else rows


def with_columns(ctx: Context, frame: Any, schema: Schema) -> Any:
    """The frame with null in the columns that it lacks."""
    existing = {name.lower() for name in ctx.schema_of(frame).names}
    if all(f.name.lower() in existing for f in schema.fields):
        return frame
    columns = ", ".join(
        quote_column(f.name) if f.name.lower() in existing else f"CAST(NULL AS {f.type}) AS {quote_column(f.name)}"
        for f in schema.fields
    )
    return ctx.query(f"SELECT {columns} FROM {{frame}}", {}, {"frame": frame})


def _rows_of_change(view: View, merge: MergeModel, columns: Collection[str]) -> tuple[pa.Table, pa.Table] | None:
    """The changed rows before and after the change of a dataset; None if they are not in this process."""
    if not (view.is_changed and view.has_small_change and merge.has_deletions):
        return None
    before, after = view.rows("before", columns), view.rows("after", columns)
    return (before, after) if isinstance(before, pa.Table) and isinstance(after, pa.Table) else None


def _changed_rows(view: View, merge: MergeModel, columns: Collection[str]) -> dict[str, Callable[[], Any]]:
    """Functions that load the rows that a change adds and removes, by role."""
    if isinstance(merge, Append):
        return {"added": lambda: view.new}
    if merge.has_deletions:
        return {"removed": lambda: view.rows("before", columns), "added": lambda: view.rows("after", columns)}
    return {"removed": lambda: view.old, "added": lambda: view.all}


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
