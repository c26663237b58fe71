"""Forecast of a maintained query: how its next execution brings the result up to date. Spark is not needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from nova_assets.catalog.catalog import Catalog
from nova_assets.execution.input_view import count_rows, has_new_definition, is_small_change, list_partitions
from nova_assets.execution.task_context import (
    has_dropped_partitions,
    last_execution,
    may_replace_output,
    must_replace_output,
)
from nova_assets.model import reads
from nova_assets.model.binding import Binding
from nova_assets.model.reads import PrivatePortRead, Snapshot
from nova_assets.model.schema import Schema
from nova_assets.model.task import LastExecution
from nova_assets.plan.required_base import reason_for_base
from nova_assets.plan.run_plan import Input, RunPlan, Step
from nova_assets.sql.incremental.build_operators import SourceTable
from nova_assets.sql.incremental.frozen_condition import FROZEN_PARTITION, find_frozen_condition
from nova_assets.sql.incremental.incremental_task import IncrementalQuery
from nova_assets.sql.incremental.layout_advice import LayoutAdvice, advise_layouts
from nova_assets.sql.incremental.maintenance import STORED_ROWS
from nova_assets.sql.incremental.maintenance_choice import (
    CostCorrections,
    MaintenanceChoice,
    ResultState,
    choose_strategy,
)
from nova_assets.sql.incremental.maintenance_cost import MaintenanceCost, estimate_from_row_counts
from nova_assets.sql.incremental.operator_text import OperatorLine, describe_operators
from nova_assets.sql.incremental.operators import Operator
from nova_assets.sql.incremental.result_channel import MaintenancePlan, reason_without_operators
from nova_assets.sql.incremental.result_record import (
    ResultRecord,
    find_hidden_columns,
    fingerprint_columns,
    fingerprint_query,
)


@dataclass(frozen=True)
class EarlierMaintenance:
    """What an earlier execution recorded.

    Args:
        number: sequence number that the result got.
        seconds: wall time of the task.
        cpu_seconds: CPU time of the task; None if it is not known.
        strategy: how the execution brought the result up to date.
        estimated_cpu_seconds: strategy -> estimated seconds of CPU; empty if the cost did not decide.
    """

    number: int | None
    at: datetime
    seconds: float
    cpu_seconds: float | None
    strategy: str
    reason: str
    estimated_cpu_seconds: Mapping[str, float]


@dataclass(frozen=True)
class MaintenanceForecast:
    """How the next execution of a task brings its result up to date.

    Args:
        channel: channel of the result.
        operators: the steps of the query; None if there are none for a part of the query.
        choice: the strategy, if Spark confirms how nova understands the query.
        earlier: earlier executions that wrote to the channel, latest first.
        advice: layouts of inputs by which this execution would cost less.
    """

    task: str
    channel: str
    operators: Operator | None
    choice: MaintenanceChoice
    earlier: tuple[EarlierMaintenance, ...]
    advice: tuple[LayoutAdvice, ...] = ()

    @property
    def steps(self) -> list[OperatorLine]:
        return [] if self.operators is None else describe_operators(self.operators)

    def as_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "channel": self.channel,
            **self.choice.as_json(),
            "steps": [line._asdict() for line in self.steps],
            "earlier": [{**vars(e), "at": e.at.isoformat()} for e in self.earlier],
            "advice": [vars(a) for a in self.advice],
        }


def forecast_maintenance(
    catalog: Catalog, binding: Binding, run_plan: RunPlan, max_earlier: int = 5
) -> list[MaintenanceForecast]:
    """Forecasts of the tasks of a plan that maintain a query. No data is read.

    Args:
        max_earlier: number of earlier commits of each channel that are looked at.
    """
    queries = {t.name: t.function for t in binding.tasks if isinstance(t.function, IncrementalQuery)}
    return [
        _Forecast(catalog, binding, run_plan, step, queries[step.task]).forecast(max_earlier)
        for step in run_plan.steps
        if step.task in queries
    ]


class _Forecast:
    """Forecast of one task."""

    def __init__(
        self, catalog: Catalog, binding: Binding, run_plan: RunPlan, step: Step, query: IncrementalQuery
    ) -> None:
        self.catalog, self.binding, self.run_plan, self.step, self.query = catalog, binding, run_plan, step, query
        self.channel = binding.channels[query.output_port]
        self.is_partition = query.scope is not None
        self.inputs = {i.name: i for i in step.inputs}
        self.datasets = [self.inputs[name] for name in query.datasets]

    def forecast(self, max_earlier: int) -> MaintenanceForecast:
        sources = {i.name: SourceTable(_schema(i), self.binding.channels[i.port].merge.key) for i in self.datasets}
        without_columns = [name for name, source in sources.items() if not source.schema.fields]
        if without_columns:
            plan = MaintenancePlan(None, f"input {without_columns[0]} has no columns yet")
        else:
            plan = self.query.unconfirmed_plan(sources, self._values)
        choice = self._choose(plan)
        earlier = tuple(self._earlier(max_earlier))
        advice = () if plan.operators is None else self._advice(plan.operators)
        return MaintenanceForecast(self.step.task, self.channel.name, plan.operators, choice, earlier, advice)

    def _choose(self, plan: MaintenancePlan) -> MaintenanceChoice:
        frozen = find_frozen_condition(
            self.query, self._values, self.catalog.now(), self._last_execution, self.channel.name
        )
        if frozen is not None and self.is_partition and frozen.holds_for_partition and self._has_stored_rows():
            return FROZEN_PARTITION
        return choose_strategy(self._state(plan), prefers_changes=self.query.prefers_changes)

    def _has_stored_rows(self) -> bool:
        return count_rows(self.inputs[STORED_ROWS].reads["all"]) > 0

    @cached_property
    def _values(self) -> Mapping[str, Any]:
        return self.query.values(self.run_plan.partition, self.catalog.now(), self.binding.params)

    def _advice(self, operators: Operator) -> tuple[LayoutAdvice, ...]:
        channels = {i.name: self.binding.channels[i.port] for i in self.datasets}
        rows = {i.name: count_rows(i.reads["all"]) for i in self.datasets}
        changed = [i.name for i in self.datasets if not _is_unchanged(i)]
        return tuple(advise_layouts(operators, channels, rows, changed))

    def _state(self, plan: MaintenancePlan) -> ResultState:
        pins, merge, port = self.run_plan.pins, self.channel.merge, self.query.output_port
        head = pins[self.channel.name].head
        return ResultState(
            channel=self.channel.name,
            has_deletions=merge.has_deletions,
            is_partition=self.is_partition,
            reason_for_base=reason_for_base(
                self.catalog.histories.of(self.channel.name, head, pins[self.channel.name].partition, back_to=head),
                is_computed_per_partition=self.is_partition,
            ),
            is_backfill=self._is_marked_for_backfill(),
            has_run=all(pins[i.channel or ""].has_run and not i.reason_without_change for i in self.datasets),
            reason_without_change=next((i.reason_without_change for i in self.datasets if i.reason_without_change), ""),
            is_changed=not all(map(_is_unchanged, self.datasets)),
            has_frozen_rows=self.query.frozen is not None,
            is_redefined=any(has_new_definition(i.reads, self.binding.channels[i.port].merge) for i in self.datasets),
            reason_without_operators=lambda: reason_without_operators(plan),
            has_stored_rows=self._has_stored_rows,
            reason_to_distrust=lambda: self._reason_to_distrust(head),
            may_replace=lambda: self._may_replace(port),
            estimate=lambda: self._estimate(plan),
            nets_to_nothing=lambda: False,  # without reading rows
        )

    @cached_property
    def _last_execution(self) -> LastExecution:
        return last_execution(self.catalog, self.binding, self.run_plan.partition)

    def _is_marked_for_backfill(self) -> bool:
        result = (self.channel.name, self.run_plan.partition)
        return self.binding.is_maintained and any(
            (mark.channel, mark.partition) == result for mark in self.catalog.scheduler.dirty_partitions()
        )

    def _may_replace(self, port: str) -> bool:
        if must_replace_output(self.step, self.binding.workflowette.task(self.step.task), port):
            return True
        if not may_replace_output(self.catalog, self.binding, self.step.task, port, self.run_plan.partition):
            return False
        return self.is_partition or not any(has_dropped_partitions(self.catalog, i.channel) for i in self.datasets)

    def _reason_to_distrust(self, head: int) -> str | None:
        binding, partition, pins = self.binding.name, self.run_plan.partition, self.run_plan.pins
        inputs = {i.name: (i.channel or "", pins[i.channel or ""].head) for i in self.datasets}
        stored_rows = self.inputs[STORED_ROWS]
        read_by_channel = {i.channel or "": i.reads["all"] for i in (*self.datasets, stored_rows)}
        record = ResultRecord(
            fingerprint_query(self.query, self._values),
            "",
            self.channel.name,
            head,
            inputs,
            columns=fingerprint_columns({channel: reads.schema_of(read) for channel, read in read_by_channel.items()}),
        )
        at_cursors = {i.name: list_partitions(i.reads["old"]) for i in self.datasets} if self.is_partition else {}
        return record.reason_to_compare(
            self._last_execution,
            {channel: pin.cursor for channel, pin in pins.items()},
            at_cursors,
            self.channel.merge,
            lambda after: self.catalog.histories.is_written_by_others(
                self.channel.name, binding, partition, after, head
            ),
        )

    def _estimate(self, plan: MaintenancePlan) -> MaintenanceCost | None:
        if plan.operators is None:
            return None
        row_counts = {
            i.name: {mode: count_rows(read) for mode, read in i.reads.items()}
            for i in (*self.datasets, self.inputs[STORED_ROWS])
        }
        cost = estimate_from_row_counts(
            plan.operators,
            row_counts,
            {i.name: self.binding.channels[i.port].merge for i in self.datasets},
            STORED_ROWS,
            is_change_small=all(is_small_change(i.reads["new"]) for i in self.datasets),
            readers=self.query.readers,
            accumulation=plan.accumulation_in(self.channel),
            is_accumulated=self._is_accumulated(plan),
        )
        return None if cost is None else CostCorrections.after(self._last_execution, self.channel.name).correct(cost)

    def _is_accumulated(self, plan: MaintenancePlan) -> bool:
        """Whether the stored rows have the hidden columns of the query."""
        hidden = find_hidden_columns(self._last_execution.reports, self.channel.name)
        if plan.accumulation is None or hidden is None:
            return False
        return hidden.is_complete and hidden.accumulators == plan.accumulation.fingerprint

    def _earlier(self, limit: int) -> list[EarlierMaintenance]:
        return [
            EarlierMaintenance(
                instant.seq,
                instant.at,
                report["seconds"],
                report.get("cpu_seconds"),
                maintenance["strategy"],
                maintenance["reason"],
                maintenance["estimated_cpu_seconds"],
            )
            for instant in reversed(self.catalog.instants.of(self.channel.name, limit))
            for report in instant.details.get("tasks", ())
            if report["task"] == self.step.task and (maintenance := report.get("facts", {}).get("maintenance"))
        ]


def _schema(task_input: Input) -> Schema:
    read = task_input.reads["all"]
    return (read.schema if isinstance(read, Snapshot) else None) or Schema(())


def _is_unchanged(task_input: Input) -> bool:
    read = task_input.reads["new"]
    return not isinstance(read, PrivatePortRead) and reads.is_certainly_empty(read)
