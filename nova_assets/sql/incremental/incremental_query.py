"""Queries whose result is maintained: the function of a task made by ``nova.incremental``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, MergeModel, Upsert
from nova_assets.model.modes_view import View
from nova_assets.model.schema import Schema
from nova_assets.model.task import Context
from nova_assets.model.value_comparison import can_be_key
from nova_assets.sql.incremental import repeatability
from nova_assets.sql.incremental.build_operators import NotMaintainable, SourceTable, build_operators
from nova_assets.sql.incremental.confirmation import has_equal_plan, regenerate
from nova_assets.sql.incremental.maintenance_sql import (
    DatasetChange,
    MaintenanceSql,
    added_up_difference,
    select_growth,
    select_keyed_delta,
)
from nova_assets.sql.incremental.operators import Operator
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
        operators: the operators of the query; None if the query is computed before and after each change.
        reason: why there are no operators; empty if there are.
    """

    operators: Operator | None
    reason: str = ""


class IncrementalQuery:
    """Function of a task that maintains the result of a query.

    Args:
        text: the query.
        output_port: port of the channel that holds the result.

    Raises:
        SqlError: the query cannot be parsed, or can give other rows each time it is computed over the same data.
    """

    def __init__(self, text: SqlText, output_port: str) -> None:
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
            if scan.mode in ("new", "old"):
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

    def __call__(self, ctx: Context, **views: View) -> Any:
        target = self._target(ctx)
        with convert_spark_rejections(self.text):
            rows_now = self._rows(ctx, views, "all")
            schema = ctx.schema_of(rows_now)
            plan = self._plan(ctx, views, rows_now)
            self._check_target(target, plan, schema)
            has_run = {name: view.has_run for name, view in views.items()}
            if not any(has_run.values()):
                self._check_target_empty(ctx, target)
                return rows_now
            if not all(has_run.values()):
                raise _new_input_error(target, [name for name, has in has_run.items() if not has])
            if not any(view.is_changed for view in views.values()):
                return ctx.query("SELECT * FROM {rows_now} WHERE FALSE", {}, {"rows_now": rows_now})
            if plan.operators is None:
                return self._compare(ctx, target, rows_now, self._rows(ctx, views, "old"), schema)
            return self._maintain(ctx, target, plan.operators, views, schema)

    # the plan

    def _plan(self, ctx: Context, views: Mapping[str, View], rows_now: Any) -> MaintenancePlan:
        sources = {d: SourceTable(ctx.schema_of(views[d].all), ctx.channels[d].merge.key) for d in self.datasets}
        cache_key = tuple((d, s.schema, s.key) for d, s in sources.items())
        if cache_key not in self._plans:
            self._plans[cache_key] = self._make_plan(ctx, views, sources, rows_now)
        plan = self._plans[cache_key]
        if plan.operators is None:
            ctx.log.info("the query is computed before and after the change: %s", plan.reason)
        return plan

    def _make_plan(
        self, ctx: Context, views: Mapping[str, View], sources: Mapping[str, SourceTable], rows_now: Any
    ) -> MaintenancePlan:
        with _repeatability_errors(self.text):
            query = self._resolve(sources)
            try:
                operators = build_operators(query, sources)
            except NotMaintainable as error:
                repeatability.check_without_operators(self.tree)
                return MaintenancePlan(None, error.reason)
            frame_names = {d: _frame_name("all", n) for n, d in enumerate(self.datasets)}
            regenerated_rows = ctx.query(
                regenerate(query, frame_names), {}, {f: views[d].all for d, f in frame_names.items()}
            )
            if not has_equal_plan(ctx, rows_now, regenerated_rows):
                repeatability.check_without_operators(self.tree)
                return MaintenancePlan(None, "Spark does not confirm that nova understands the query")
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

    def _rows(self, ctx: Context, views: Mapping[str, View], mode: str) -> Any:
        """Frame of the query over the rows before (``old``) or after (``all``) the change."""
        values = {name: ctx.params[name] for name in self.runnable.variables}
        frames = {self.runnable.frame_by_scan[s.number]: getattr(views[s.dataset], mode) for s in self.scans}
        return ctx.query(self.runnable.sql, values, frames)

    def _compare(self, ctx: Context, target: Channel, rows_now: Any, rows_before: Any, schema: Schema) -> Any:
        change = added_up_difference("{rows_now}", "{rows_before}", schema.names, target.merge.key)
        select = select_keyed_delta({name: name for name in schema.names}, target.merge.key)
        return ctx.query(
            f"WITH nova_result AS ({change}) {select}", {}, {"rows_now": rows_now, "rows_before": rows_before}
        )

    def _maintain(
        self, ctx: Context, target: Channel, operators: Operator, views: Mapping[str, View], schema: Schema
    ) -> Any:
        frames, changes = dict[str, Any](), dict[str, DatasetChange]()
        for n, dataset in enumerate(self.datasets):
            view, merge = views[dataset], ctx.channels[dataset].merge
            frame_by_role = {"all": view.all}
            if view.is_changed:
                frame_by_role |= {"old": view.old} | _changed_rows(view, merge)
            frames |= {_frame_name(role, n): frame for role, frame in frame_by_role.items()}
            changes[dataset] = DatasetChange(
                all_frame=_frame_name("all", n),
                old_frame=_frame_name("old", n),
                removed_frame=None if isinstance(merge, Append) else _frame_name("removed", n),
                added_frame=_frame_name("added", n),
                is_changed=view.is_changed,
            )
        maintenance = MaintenanceSql(operators, changes)
        names = dict(zip(operators.columns, schema.names, strict=True))
        select = (
            select_keyed_delta(names, [k.lower() for k in target.merge.key])
            if isinstance(target.merge, Upsert)
            else select_growth(names)
        )
        sql = maintenance.statement(select)
        return ctx.query(sql, {}, {name: f for name, f in frames.items() if f"{{{name}}}" in sql})

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

    def _check_target_empty(self, ctx: Context, target: Channel) -> None:
        """The first execution writes the whole result, beside which the channel must not hold other rows."""
        head = ctx.pins.get(target.name, 0)
        if head and not ctx.partition:
            raise NotSupported(
                f"channel {target.name!r} holds data that {self.text.name} has not written",
                found=f"head {head}, and no cursor of the binding",
                expected="an empty channel for the first execution",
                next="maintain the query in a new channel",
            )

    def _check_target(self, target: Channel, plan: MaintenancePlan, schema: Schema) -> None:
        for field in schema.fields:
            if not can_be_key(field.type):
                raise NotSupported(
                    f"{self.text.name}: column {field.name!r} of the result is a map, which Spark cannot compare",
                    expected="map_entries(...) of the map",
                )
        merge = target.merge
        if isinstance(merge, Append) and plan.operators is not None and plan.operators.is_monotone:
            return
        if not isinstance(merge, Upsert) or merge.order_by:
            keys = _key_suggestions(plan)
            raise DefinitionError(
                f"channel {target.name!r} cannot hold the result of {self.text.name}: rows of the result change",
                found=f"merge={merge!r}",
                expected=f"nova.Upsert(key=[...]) without order_by{keys}",
            )
        lower = {k.lower() for k in merge.key}
        if plan.operators is not None and not any(key <= lower for key in plan.operators.unique_keys):
            raise DefinitionError(
                f"the key of channel {target.name!r} does not identify the rows of {self.text.name}",
                found=f"key {', '.join(merge.key)}",
                expected=f"a key that follows from the query{_key_suggestions(plan)}",
                next="GROUP BY the key, SELECT DISTINCT, or select the keys of all joined channels",
            )


def _changed_rows(view: View, merge: MergeModel) -> dict[str, Any]:
    """Frames of the rows that a change adds and removes, by role."""
    if isinstance(merge, Append):
        return {"added": view.new}
    return {"removed": view.before, "added": view.after} if merge.has_key else {"removed": view.old, "added": view.all}


def _frame_name(mode: str, number: int) -> str:
    return f"nova_frame_{mode}_{number}"


def _key_suggestions(plan: MaintenancePlan) -> str:
    keys = sorted(", ".join(sorted(k)) for k in plan.operators.unique_keys if k) if plan.operators is not None else []
    return f": {' or '.join(keys)}" if keys else ""


def _new_input_error(target: Channel, new_inputs: Sequence[str]) -> NotSupported:
    return NotSupported(
        f"channel {target.name!r} was written before the query read {', '.join(new_inputs)}",
        expected="a query that reads the same channels in each execution",
        next="maintain the changed query in a new channel, under a new name of the binding",
    )


@contextmanager
def _repeatability_errors(text: SqlText) -> Iterator[None]:
    """Context manager that raises NotRepeatable as SqlError with its place in the query."""
    try:
        yield
    except repeatability.NotRepeatable as error:
        message = f"{error.reason}, so the result cannot be maintained"
        raise text.error(message, error.node, expected=error.advice) from None
