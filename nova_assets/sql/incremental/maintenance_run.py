"""One execution of a task that maintains the result of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from nova_assets.errors import NotSupported
from nova_assets.model.channel import Channel
from nova_assets.model.modes_view import View
from nova_assets.model.registered_definition import Replacement
from nova_assets.model.schema import Field, Schema
from nova_assets.model.schema_evolution import schema_after_delta
from nova_assets.model.task import Context, LastExecution
from nova_assets.sql.incremental.accumulation import StoredAccumulation
from nova_assets.sql.incremental.build_operators import SourceTable
from nova_assets.sql.incremental.confirmation import QueryExecution
from nova_assets.sql.incremental.frozen_condition import FROZEN_PARTITION, FrozenCondition, find_frozen_condition
from nova_assets.sql.incremental.maintained_query import MaintainedQuery, QueryAnalysis
from nova_assets.sql.incremental.maintenance import Maintenance, with_columns
from nova_assets.sql.incremental.maintenance_choice import (
    CostCorrections,
    MaintenanceChoice,
    ResultState,
    choose_strategy,
)
from nova_assets.sql.incremental.maintenance_cost import MaintenanceCost
from nova_assets.sql.incremental.maintenance_sql import RESULT
from nova_assets.sql.incremental.operator_sql import StatementTooLarge, quote_column
from nova_assets.sql.incremental.result_channel import (
    MaintenancePlan,
    check_channel,
    key_error,
    reason_without_operators,
)
from nova_assets.sql.incremental.result_delta import added_up_difference, select_delta, select_keyed_difference
from nova_assets.sql.incremental.result_record import HiddenColumns, ResultRecord, find_hidden_columns
from nova_assets.sql.query.spark_query import INNER_QUERY_ALIAS


class MaintenanceRun:
    """Brings the stored result of a query up to date.

    Args:
        views: dataset -> its view.
        load_stored: loads the stored rows, with hidden columns if they are given.
    """

    def __init__(
        self, query: MaintainedQuery, ctx: Context, views: Mapping[str, View], load_stored: Callable[..., Any]
    ) -> None:
        self.query = query
        self.ctx = ctx
        self.views = views
        self.load_stored = load_stored
        self.target = self._find_target()
        if query.scope is not None:
            query.scope.check_session(ctx)
        self.values = query.values(ctx.partition, ctx.started, ctx.params)
        schemas = {d: v.schema or ctx.schema_of(v.all) for d, v in views.items()}
        sources = {d: SourceTable(schema, ctx.channels[d].merge.key) for d, schema in schemas.items()}
        self.execution = QueryExecution(query, ctx, views, sources, self.values)

    def compute_output(self) -> Any:
        """The delta of the result, or its replacement."""
        schema = self.schema  # raises an error if Spark derives other columns than nova
        if not self._is_partition:
            models = [self.ctx.channels[d].merge for d in self.query.datasets]
            check_channel(self.target, schema, self.query.text.name, models, self.ctx.partition, lambda: self.plan)
        if self._frozen_condition is not None:
            operators = self.execution.unconfirmed_plan.operators
            self._frozen_condition.check(self.ctx, self.target, schema.names, operators)
        choice = self._choose()
        if choice.strategy != "no change":
            self._check_is_incremental()
        try:
            output = self._output(choice)
        except StatementTooLarge:
            choice = self._computed_as_whole("Spark would plan the changes for longer than the whole query")
            output = self._output(choice)
        if output is None:
            choice = self._computed_as_whole(f"channel {self.target.name} lacks rows of the earlier result")
            self.ctx.log.warning("the whole query is computed: %s", choice.reason)
            output = self._output(choice)
        self.ctx.log.info("strategy %r: %s", choice.strategy, choice.reason)
        is_whole = choice.strategy == "comparison" or (choice.strategy == "replacement" and not self._is_partition)
        if is_whole and self._has_dropped_partitions():
            self.ctx.log.warning("rows of %s that came from dropped partitions are deleted (R19)", self.target.name)
        self.ctx.report["maintenance"] = choice.as_json() | self._corrections.as_json() | self._frozen_report(choice)
        until = "" if self._frozen_condition is None else self._frozen_condition.until.isoformat()
        record = replace(self._record, hidden=self._hidden_after(choice), frozen_until=until)
        record.with_stored_columns(self._stored_schema).report(self.ctx)
        return output

    def _computed_as_whole(self, reason: str) -> MaintenanceChoice:
        return MaintenanceChoice("replacement" if self._is_partition else "comparison", reason)

    def _output(self, choice: MaintenanceChoice) -> Any | None:
        """What the task returns; None if the stored rows do not fit the changes."""
        if choice.strategy == "no change":
            return self.ctx.frame([], self.schema)
        if choice.strategy == "changes" and self._maintenance is not None:
            return self._maintenance.compute_delta(self._load_with_hidden)
        self._check_key()
        if choice.strategy == "first rows":
            return Replacement(self._with_partition_columns()) if self._is_partition else self.rows_to_store
        if choice.strategy == "replacement":
            return Replacement(self._with_partition_columns())
        return self._compare(choice.reason)

    def _check_is_incremental(self) -> None:
        """Raise SqlError if changes are required, and Spark does not confirm the operators that compute them."""
        reason = reason_without_operators(self.plan) if self.query.is_incremental else None
        if reason and self.analysis.plan is not None:  # an input without rows tells nothing
            raise self.query.text.error(
                f"refresh is incremental, and no change of the result can be computed: {reason}",
                None,
                expected='refresh="auto" or refresh="full"',
                next="write REFRESH AUTO before the query; executions then compute the whole query",
            )

    def _choose(self) -> MaintenanceChoice:
        """How this execution brings the result up to date."""
        ctx, target, views, port = self.ctx, self.target, self.views.values(), self.query.output_port
        if self._frozen is not None and self._is_partition and self._frozen.holds_for_partition:
            return FROZEN_PARTITION

        def may_replace() -> bool:  # the result keeps rows that came from dropped partitions (R19)
            keeps_rows = not self._is_partition and target.name not in ctx.next_schemas
            return ctx.may_replace(port) and not (keeps_rows and self._has_dropped_partitions())

        state = ResultState(
            channel=target.name,
            has_deletions=target.merge.has_deletions,
            is_partition=self._is_partition,
            reason_for_base=ctx.reason_for_base(port),
            is_backfill=ctx.is_backfill,
            has_run=all(view.has_run for view in views),
            reason_without_change=next((v.reason_without_change for v in views if v.reason_without_change), ""),
            is_changed=any(view.is_changed for view in views),
            is_redefined=any(view.has_new_definition for view in views),
            has_frozen_rows=self.query.frozen is not None,
            reason_without_operators=lambda: reason_without_operators(self.plan),
            has_stored_rows=lambda: self._has_stored_rows,
            reason_to_distrust=lambda: self._record.reason_to_compare(
                self._last_execution,
                ctx.cursors,
                {d: v.list_partitions("old") for d, v in self.views.items()} if self._is_partition else {},
                target.merge,
                partial(ctx.is_written_by_others, port),
            ),
            may_replace=may_replace,
            estimate=self._estimate,
            nets_to_nothing=lambda: self._maintenance is not None and self._maintenance.nets_to_nothing(),
        )
        return choose_strategy(state, prefers_changes=self.query.prefers_changes)

    def _estimate(self) -> MaintenanceCost | None:
        cost = None if self._maintenance is None else self._maintenance.estimate(self.query.readers)
        return None if cost is None else self._corrections.correct(cost)

    @cached_property
    def _corrections(self) -> CostCorrections:
        return CostCorrections.after(self._last_execution, self.target.name)

    # the query

    @property
    def _is_partition(self) -> bool:
        """Whether the result is one partition of a dataset."""
        return self.query.scope is not None

    @cached_property
    def stored(self) -> Any:
        """The stored rows: in this process if they are few."""
        return self.load_stored()

    def _load_with_hidden(self, hidden: Sequence[Field]) -> Any:
        """The stored rows with hidden columns."""
        return self.load_stored(hidden) if hidden else self.stored

    @cached_property
    def analysis(self) -> QueryAnalysis:
        """Analysis of the query, which Spark repeats only for other columns, settings or values of variables."""
        analyses = self.query.analyses
        key = (*self.execution.sources.items(), self._record.settings, self._record.query)
        if key not in analyses:
            schema = self.ctx.schema_of(self.execution.rows_now)
            self.query.check_columns(schema)
            analyses[key] = QueryAnalysis(schema)
        return analyses[key]

    @property
    def schema(self) -> Schema:
        """Columns of the result, without those partition columns that are the same in all rows."""
        return self.analysis.schema

    @cached_property
    def plan(self) -> MaintenancePlan:
        if self.analysis.plan is None:
            self.analysis.plan = self.execution.plan(self.schema)
        unknown = MaintenancePlan(None, "Spark cannot confirm over empty inputs how nova understands the query")
        return self.analysis.plan or unknown

    @cached_property
    def _maintenance(self) -> Maintenance | None:
        if self.plan.operators is None:
            return None
        stored = self._stored_hidden
        return Maintenance(
            self.ctx,
            self.plan.operators,
            self.views,
            self.target,
            self.schema,
            self.values,
            self._accumulation(self._new_token if stored is None else stored.token),
            stored is not None and stored.is_complete,
            self._frozen,
        )

    @cached_property
    def _last_execution(self) -> LastExecution:
        return self.ctx.last_execution()

    # hidden columns

    def _accumulation(self, token: str) -> StoredAccumulation | None:
        return self.plan.stored_accumulation(self.target, self.schema, token)

    @property
    def _new_token(self) -> str:
        return self.ctx.execution_id[:16]

    @cached_property
    def _stored_hidden(self) -> HiddenColumns | None:
        """The hidden columns of the stored rows; None if they have none for this query."""
        hidden = self._last_hidden
        if hidden is None or self.plan.accumulation is None:
            return None
        return hidden if hidden.accumulators == self.plan.accumulation.fingerprint else None

    @property
    def _last_hidden(self) -> HiddenColumns | None:
        """The hidden columns that the last execution recorded."""
        return find_hidden_columns(self._last_execution.reports, self.target.name)

    def _hidden_after(self, choice: MaintenanceChoice) -> HiddenColumns | None:
        """The hidden columns of the stored rows after this execution.

        A comparison leaves rows as they are that are equal to the new ones. Their hidden columns may be outdated, so
        no later execution may read them.
        """
        if choice.strategy == "no change":
            return self._last_hidden
        if self.plan.accumulation is None:
            return None
        fingerprint = self.plan.accumulation.fingerprint
        if choice.strategy in ("first rows", "replacement"):
            return HiddenColumns(fingerprint, fingerprint, is_complete=True)
        if choice.strategy == "comparison" or self._stored_hidden is None:
            return HiddenColumns(fingerprint, self._new_token, is_complete=False)
        return self._stored_hidden

    @cached_property
    def rows_to_store(self) -> Any:
        """Frame of the whole result with its hidden columns. Frozen rows are the stored ones."""
        rows = self._computed_rows_to_store
        if self._frozen is None:
            return rows
        stored = with_columns(self.ctx, self.stored, self.schema)
        return self._frozen.keep_stored(self.ctx, rows, stored, self.schema.names)

    @property
    def _computed_rows_to_store(self) -> Any:
        known = self.plan.accumulation
        accumulation = None if known is None else self._accumulation(known.fingerprint)
        if accumulation is None or not accumulation.hidden:
            return self.execution.rows_now
        return self.execution.rows_with_hidden(accumulation)

    @cached_property
    def _record(self) -> ResultRecord:
        partitions = {d: v.list_partitions("all") for d, v in self.views.items()} if self._is_partition else {}
        return ResultRecord.of_execution(self.ctx, self.query, self.target, self.values, partitions)

    @property
    def _stored_schema(self) -> Schema:
        """Columns of the channel after this execution."""
        name, ctx = self.target.name, self.ctx
        present = ctx.next_schemas.get(name) or ctx.schemas.get(name)
        return schema_after_delta(present, self.schema, ctx.pins.get(name, 0))

    def _find_target(self) -> Channel:
        query, channels = self.query, self.ctx.channels
        private = [port for port in (*query.datasets, query.output_port) if port not in channels]
        if private:
            raise NotSupported(
                f"{query.text.name} maintains a channel from channels",
                found=f"port {private[0]!r} has no channel",
                expected="a channel on each port",
                next=f"bind the port to a channel: nova.bind(..., channels={{{private[0]!r}: ...}})",
            )
        return channels[query.output_port]

    def _has_dropped_partitions(self) -> bool:
        return any(view.has_dropped_partitions for view in self.views.values())

    # frozen rows

    @cached_property
    def _has_stored_rows(self) -> bool:
        has_version = bool(self.ctx.pins.get(self.target.name))
        return has_version and _has_rows(self.ctx, "SELECT 1 FROM {rows} LIMIT 1", self.stored)

    @cached_property
    def _frozen(self) -> FrozenCondition | None:
        """The rows that stay as they are; None if there are none. Without stored rows, all rows are made."""
        return self._frozen_condition if self._frozen_condition is not None and self._has_stored_rows else None

    @cached_property
    def _frozen_condition(self) -> FrozenCondition | None:
        if self.query.frozen is None:
            return None
        assert self.ctx.started is not None
        return find_frozen_condition(self.query, self.values, self.ctx.started, self._last_execution, self.target.name)

    def _without_frozen(self, rows: Any) -> Any:
        return rows if self._frozen is None else self._frozen.leave_out(self.ctx, rows, self.schema.names)

    def _frozen_report(self, choice: MaintenanceChoice) -> dict[str, Any]:
        """What is recorded about frozen rows. Only few changes of frozen rows are counted."""
        if self._frozen is None:
            return {}
        is_counted = choice.strategy == "changes" and self._maintenance is not None
        changes = self._maintenance.frozen_changes if is_counted and self._maintenance is not None else None
        if changes:
            self.ctx.log.warning("%d changes of frozen rows of %s are left out", changes, self.target.name)
        return {"frozen_changes": changes}

    # the whole result

    def _with_partition_columns(self) -> Any:
        """The rows of the query, with the partition columns of a dataset."""
        types = {} if self.query.scope is None else self.query.scope.partition_column_types
        if not types:
            return self.rows_to_store
        named = ", ".join(f"CAST(:partition_{c} AS {t}) AS {quote_column(c)}" for c, t in types.items())
        values = {f"partition_{c}": self.values[f"partition_{c}"] for c in types}
        select = f"SELECT {INNER_QUERY_ALIAS}.*, {named} FROM {{rows}} AS {INNER_QUERY_ALIAS}"
        return self.ctx.query(select, values, {"rows": self.rows_to_store})

    def _compare(self, reason: str) -> Any:
        """The difference between the result and the stored rows."""
        ctx, target, schema = self.ctx, self.target, self.schema
        if not target.merge.has_deletions:
            raise NotSupported(
                f"the rows of channel {target.name!r} have no key by which they can be compared with the result",
                found=reason,
                next="maintain the query in a new channel",
            )
        frames = {"rows_now": self.execution.rows_now, "stored": with_columns(ctx, self.stored, schema)}
        frames = {name: self._without_frozen(frame) for name, frame in frames.items()}
        if target.merge.key:
            difference = select_keyed_difference("{rows_now}", "{stored}", schema.names, target.merge.key)
            return ctx.query(difference, {}, frames)
        change = added_up_difference("{rows_now}", "{stored}", schema.names)
        select = select_delta(target.merge, {name: name for name in schema.names})
        return ctx.query(f"WITH {RESULT} AS ({change}) {select}", {}, frames)

    def _check_key(self) -> None:
        """Check that the key identifies the rows, where this does not follow from the query."""
        if not self.target.merge.key or self.plan.operators is not None:
            return
        key = ", ".join(map(quote_column, self.target.merge.key))
        repeated = f"SELECT 1 FROM {{rows}} GROUP BY {key} HAVING COUNT(*) > 1 LIMIT 1"
        if _has_rows(self.ctx, repeated, self._without_frozen(self.execution.rows_now)):
            raise key_error(self.query.text.name, self.target, self.plan)


def _has_rows(ctx: Context, sql: str, rows: Any) -> bool:
    return bool(ctx.query(sql, {}, {"rows": rows}).collect())
