"""Queries whose result is maintained: the function of a task made by ``nova.incremental``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlglot import exp

from nova_assets.errors import DefinitionError, NotSupported, QueryRefused
from nova_assets.model.channel import Channel
from nova_assets.model.edge import Consumes
from nova_assets.model.merge import Append, MergeModel, Multiset, Upsert
from nova_assets.model.modes_view import View
from nova_assets.model.partitions import partition_values
from nova_assets.model.replacement import Replacement
from nova_assets.model.schema import Schema
from nova_assets.model.task import Context
from nova_assets.model.value_comparison import can_be_key
from nova_assets.sql.incremental import repeatability
from nova_assets.sql.incremental.build_operators import SourceTable, build_operators
from nova_assets.sql.incremental.confirmation import compare_plans, has_equal_columns, regenerate
from nova_assets.sql.incremental.delta_sql import (
    RESULT,
    added_up_difference,
    select_delta,
    select_keyed_difference,
)
from nova_assets.sql.incremental.maintenance import STORED_ROWS, Maintenance, frame_name, with_columns
from nova_assets.sql.incremental.maintenance_choice import MaintenanceChoice, ResultState, choose_strategy
from nova_assets.sql.incremental.maintenance_sql import DatasetChange, MaintenanceSql
from nova_assets.sql.incremental.operator_sql import quote_column
from nova_assets.sql.incremental.operators import NotMaintainable, Operator
from nova_assets.sql.incremental.result_record import ResultRecord
from nova_assets.sql.incremental.unique_keys import exact_unique_key
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.resolved_query import Query, mark_calls, resolve_query
from nova_assets.sql.query.scans import mark_scans
from nova_assets.sql.query.spark_confirmation import convert_spark_rejections
from nova_assets.sql.query.spark_query import make_runnable_without_schemas
from nova_assets.sql.text import SqlText


@dataclass(frozen=True)
class MaintenancePlan:
    """How the result of a query is maintained.

    Args:
        operators: the operators of the query; None if the whole query is computed, and compared with the stored rows.
        reason: why there are no operators; empty if there are.
    """

    operators: Operator | None
    reason: str = ""


class IncrementalQuery:
    """Function of a task that maintains the result of a query.

    Args:
        text: the query.
        output_port: port of the channel that holds the result.
        prefers_changes: whether changes are computed unless they are estimated to be several times as expensive as a
            replacement of the result.
        readers: known readers of the result's changes.
        check_columns: raises an error if the columns that Spark derives are not those that nova derived.

    Raises:
        SqlError: the query cannot be parsed, or depends on more than its data, such as a clock.
    """

    def __init__(
        self,
        text: SqlText,
        output_port: str,
        *,
        prefers_changes: bool = True,
        readers: int = 0,
        check_columns: Callable[[Schema], None] = lambda schema: None,
    ) -> None:
        self.check_columns = check_columns
        self.prefers_changes = prefers_changes
        self.readers = readers
        self.text = text
        self.output_port = output_port
        tree = parse_statement(text)
        if not isinstance(tree, exp.Query):
            raise text.error(
                "is not a query", tree, expected="SELECT ...", next="write INSERT in nova.datasets(folder)"
            )
        if calls := mark_calls(text, tree):
            raise text.error(
                f"{calls[0].function}(...) is a table function, which this task cannot call",
                calls[0].call_span,
                expected="channels in FROM",
            )
        self.tree = tree
        self.scans = mark_scans(text, tree)
        for scan in self.scans:
            if scan.mode != "all":
                raise text.error(
                    f"{scan.mode.upper()}({scan.dataset}) in a query whose changes nova derives",
                    scan.span,
                    expected=scan.dataset,
                )
        self.datasets = tuple(dict.fromkeys(s.dataset for s in self.scans))
        self.runnable = make_runnable_without_schemas(text, tree, self.scans)
        with _repeatability_errors(text):
            repeatability.check_query(tree)
        self._plans: dict[tuple[object, ...], MaintenancePlan] = {}

    def input_edges(self, channel: Channel | None = None) -> tuple[Consumes, ...]:
        """Input edges of the task: the changes of each dataset, and the stored rows of the output port.

        Args:
            channel: channel of the output port, if the edge names it.
        """
        return (
            *(Consumes(d, "changes", d, by_name=True) for d in self.datasets),
            Consumes(self.output_port, "all", STORED_ROWS, channel),
        )

    def __call__(self, ctx: Context, **inputs: Any) -> Any:
        target, stored = self._target(ctx), inputs.pop(STORED_ROWS)
        views: Mapping[str, View] = inputs
        with convert_spark_rejections(self.text):
            rows_now = self._rows_now(ctx, views)
            schema = ctx.schema_of(rows_now)
            self.check_columns(schema)
            plan = self._plan(ctx, views, rows_now, schema)
            self._check_target(ctx, target, plan, schema)
            maintenance = None
            if plan.operators is not None:
                maintenance = Maintenance(ctx, plan.operators, views, target, schema)
            record = ResultRecord.of_execution(ctx, self.tree, target, self.datasets)
            choice = self._choose(ctx, target, plan, views, stored, maintenance, record)
            if choice.strategy == "first rows":
                self._check_key(ctx, target, plan, rows_now)
                delta = rows_now
            elif choice.strategy == "no change":
                delta = ctx.query("SELECT * FROM {rows_now} WHERE FALSE", {}, {"rows_now": rows_now})
            elif choice.strategy == "replacement":
                self._check_key(ctx, target, plan, rows_now)
                delta = Replacement(rows_now)
            elif choice.strategy == "comparison" or maintenance is None:
                delta = self._compare(ctx, target, plan, rows_now, stored, schema, choice.reason)
            else:
                delta = maintenance.compute_delta(stored)
                if delta is None:
                    choice = MaintenanceChoice("comparison", f"channel {target.name} lacks rows of the earlier result")
                    ctx.log.warning("the whole query is computed: %s", choice.reason)
                    delta = self._compare(ctx, target, plan, rows_now, stored, schema, choice.reason)
            ctx.log.info("strategy %r: %s", choice.strategy, choice.reason)
            if choice.strategy == "comparison" and any(view.has_dropped_partitions for view in views.values()):
                ctx.log.warning("rows of %s that came from dropped partitions are deleted (R19)", target.name)
            ctx.report["maintenance"] = choice.as_json()
            record.report(ctx)
            return delta

    def _choose(
        self,
        ctx: Context,
        target: Channel,
        plan: MaintenancePlan,
        views: Mapping[str, View],
        stored: Any,
        maintenance: Maintenance | None,
        record: ResultRecord,
    ) -> MaintenanceChoice:
        """How this execution brings the result up to date."""

        def may_replace() -> bool:  # the result keeps rows that came from dropped partitions (R19)
            return ctx.may_replace(self.output_port) and not any(v.has_dropped_partitions for v in views.values())

        state = ResultState(
            channel=target.name,
            has_deletions=target.merge.has_deletions,
            needs_base=ctx.needs_base(self.output_port),
            is_backfill=ctx.is_backfill,
            has_run=all(view.has_run for view in views.values()),
            is_changed=bool(self.runnable.variables) or any(view.is_changed for view in views.values()),
            is_redefined=any(view.has_new_definition for view in views.values()),
            reason_without_operators=reason_without_operators(plan, target.merge),
            has_stored_rows=lambda: (
                bool(ctx.pins.get(target.name)) and _has_rows(ctx, "SELECT 1 FROM {rows} LIMIT 1", stored)
            ),
            reason_to_distrust=lambda: record.reason_to_compare(
                ctx.last_reports(), ctx.cursors, target.merge, partial(ctx.is_written_by_others, self.output_port)
            ),
            may_replace=may_replace,
            estimate=lambda: None if maintenance is None else maintenance.estimate(self.readers),
        )
        return choose_strategy(state, prefers_changes=self.prefers_changes)

    # the plan

    def unconfirmed_plan(self, sources: Mapping[str, SourceTable]) -> MaintenancePlan:
        """The plan of the query, as far as it is known without Spark.

        Args:
            sources: dataset -> its schema and key.
        """
        try:
            return MaintenancePlan(build_operators(self._resolve(sources), sources))
        except NotMaintainable as error:
            return MaintenancePlan(None, error.reason)

    def _plan(self, ctx: Context, views: Mapping[str, View], rows_now: Any, schema: Schema) -> MaintenancePlan:
        sources = {d: SourceTable(ctx.schema_of(views[d].all), ctx.channels[d].merge.key) for d in self.datasets}
        cache_key = tuple((d, s.schema, s.key) for d, s in sources.items())
        if cache_key in self._plans:
            return self._plans[cache_key]
        plan: MaintenancePlan | None = self.unconfirmed_plan(sources)
        if plan is not None and plan.operators is not None:
            plan = self._confirm(ctx, views, self._resolve(sources), plan.operators, rows_now, schema)
        if plan is None:
            return MaintenancePlan(None, "Spark cannot confirm over empty inputs how nova understands the query")
        self._plans[cache_key] = plan
        return plan

    def _confirm(
        self, ctx: Context, views: Mapping[str, View], query: Query, operators: Operator, rows_now: Any, schema: Schema
    ) -> MaintenancePlan | None:
        """The plan with these operators, if Spark confirms them; None if Spark cannot judge now."""
        frame_by_dataset = {d: frame_name("all", n) for n, d in enumerate(self.datasets)}
        frames = {f: views[d].all for d, f in frame_by_dataset.items()}
        changes = {d: DatasetChange(f, f, None, f, is_changed=False) for d, f in frame_by_dataset.items()}
        try:
            regenerated_rows = ctx.query(regenerate(query, frame_by_dataset), {}, frames)
            rows_by_operators = ctx.query(MaintenanceSql(operators, changes).rows_statement(), {}, frames)
        except QueryRefused:
            return MaintenancePlan(None, "Spark does not accept the query as nova writes it")
        verdict = compare_plans(ctx, rows_now, regenerated_rows)
        if verdict is None:
            return None
        if not verdict:
            return MaintenancePlan(None, "Spark does not confirm how nova understands the query")
        if not has_equal_columns(schema, ctx.schema_of(rows_by_operators)):
            return MaintenancePlan(None, "the columns of the result have other types, or other names")
        return MaintenancePlan(operators)

    def _resolve(self, sources: Mapping[str, SourceTable]) -> Query:
        tree = parse_statement(self.text)
        assert isinstance(tree, exp.Query)
        parameter_types = {}
        for parameter in tree.find_all(exp.Placeholder):  # under a name that no column has
            parameter.set("this", f"nova_parameter_{parameter.name}")
            parameter_types[parameter.name] = "string"
        return resolve_query(self.text, tree, {d: s.schema for d, s in sources.items()}, parameter_types)

    # the result

    def _rows_now(self, ctx: Context, views: Mapping[str, View]) -> Any:
        """Frame of the query as it was written."""
        values = {name: ctx.params[name] for name in self.runnable.variables}
        frames = {self.runnable.frame_by_scan[s.number]: views[s.dataset].all for s in self.scans}
        return ctx.query(self.runnable.sql, values, frames)

    def _compare(
        self,
        ctx: Context,
        target: Channel,
        plan: MaintenancePlan,
        rows_now: Any,
        stored: Any,
        schema: Schema,
        reason: str,
    ) -> Any:
        """The difference between the result and the stored rows."""
        if not target.merge.has_deletions:
            raise NotSupported(
                f"the rows of channel {target.name!r} have no key by which they can be compared with the result",
                found=reason,
                next="maintain the query in a new channel",
            )
        self._check_key(ctx, target, plan, rows_now)
        frames = {"rows_now": rows_now, "stored": with_columns(ctx, stored, schema)}
        if target.merge.key:
            difference = select_keyed_difference("{rows_now}", "{stored}", schema.names, target.merge.key)
            return ctx.query(difference, {}, frames)
        change = added_up_difference("{rows_now}", "{stored}", schema.names)
        select = select_delta(target.merge, {name: name for name in schema.names})
        return ctx.query(f"WITH {RESULT} AS ({change}) {select}", {}, frames)

    def _check_key(self, ctx: Context, target: Channel, plan: MaintenancePlan, rows_now: Any) -> None:
        """Check that the key identifies the rows, where this does not follow from the query."""
        if plan.operators is not None or not target.merge.key:
            return
        key = ", ".join(map(quote_column, target.merge.key))
        repeated = f"SELECT 1 FROM {{rows}} GROUP BY {key} HAVING COUNT(*) > 1 LIMIT 1"
        if _has_rows(ctx, repeated, rows_now):
            raise _key_error(self.text, target, plan)

    def _target(self, ctx: Context) -> Channel:
        private = [port for port in (*self.datasets, self.output_port) if port not in ctx.channels]
        if private:
            raise NotSupported(
                f"{self.text.name} maintains a channel from channels",
                found=f"port {private[0]!r} has no channel",
                expected="a channel on each port",
                next=f"bind the port to a channel: nova.bind(..., channels={{{private[0]!r}: ...}})",
            )
        return ctx.channels[self.output_port]

    def _check_target(self, ctx: Context, target: Channel, plan: MaintenancePlan, schema: Schema) -> None:
        for field in schema.fields:
            if not can_be_key(field.type):
                raise NotSupported(
                    f"{self.text.name}: column {field.name!r} of the result is a map, which Spark cannot compare",
                    expected="map_entries(...) of the map",
                )
        merge = target.merge
        inputs_only_grow = all(isinstance(ctx.channels[d].merge, Append) for d in self.datasets)
        if isinstance(merge, Append) and inputs_only_grow and plan.operators is not None and plan.operators.is_monotone:
            return
        if isinstance(merge, Multiset):
            return self._check_partition(ctx, target)
        if not isinstance(merge, Upsert) or merge.order_by:
            keys = _key_suggestions(plan)
            raise DefinitionError(
                f"channel {target.name!r} cannot hold the result of {self.text.name}: rows of the result change",
                found=f"merge={merge!r}",
                expected=f"nova.Multiset(), or nova.Upsert(key=[...]) without order_by{keys}",
            )
        self._check_partition(ctx, target)
        lower = {k.lower() for k in merge.key}
        if plan.operators is None:
            return
        if rounded := sorted(plan.operators.rounded & lower):
            raise DefinitionError(
                f"key column {rounded[0]!r} of channel {target.name!r} is a rounded number, which can differ each time",
                expected=f"a key of exact values{_key_suggestions(plan)}",
            )
        if not any(key <= lower for key in plan.operators.unique_keys):
            raise _key_error(self.text, target, plan)

    def _check_partition(self, ctx: Context, target: Channel) -> None:
        """Check that an execution of a partition compares its result with rows of this partition only."""
        missing = sorted(partition_values(ctx.partition).keys() - set(target.partition_columns))
        if missing:
            raise NotSupported(
                f"{self.text.name} runs per partition, and channel {target.name!r} is not partitioned by {missing[0]}",
                expected=f"a channel partitioned by {', '.join(partition_values(ctx.partition))}, or a binding without "
                "partitions",
            )


def _key_error(text: SqlText, target: Channel, plan: MaintenancePlan) -> DefinitionError:
    return DefinitionError(
        f"the key of channel {target.name!r} does not identify the rows of {text.name}",
        found=f"key {', '.join(target.merge.key)}",
        expected=f"a key that follows from the query{_key_suggestions(plan)}",
        next="GROUP BY the key, SELECT DISTINCT, or select the keys of all joined channels",
    )


def _has_rows(ctx: Context, sql: str, rows: Any) -> bool:
    return bool(ctx.query(sql, {}, {"rows": rows}).collect())


def reason_without_operators(plan: MaintenancePlan, merge: MergeModel) -> str | None:
    """Why the operators do not give the change of a result with this merge model; None if they do."""
    if plan.operators is None:
        return plan.reason
    if plan.operators.rounded and exact_unique_key(plan.operators) is None:
        return f"{min(plan.operators.rounded)} is rounded, and no key without rounded numbers follows from the query"
    return None


def _key_suggestions(plan: MaintenancePlan) -> str:
    keys = sorted(", ".join(sorted(k)) for k in plan.operators.unique_keys if k) if plan.operators is not None else []
    return f": {' or '.join(keys)}" if keys else ""


@contextmanager
def _repeatability_errors(text: SqlText) -> Iterator[None]:
    """Context manager that raises NotRepeatable as SqlError with its place in the query."""
    try:
        yield
    except repeatability.NotRepeatable as error:
        message = f"{error.reason}, so the result cannot be maintained"
        raise text.error(message, error.node, expected=error.advice) from None
