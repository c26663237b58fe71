"""The query of a dataset as the function of a task: Spark runs the text as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias

from nova_assets.errors import NotSupported, PartitionError
from nova_assets.model.engine import Engine
from nova_assets.model.partition_rule import InputState
from nova_assets.model.schema import Schema
from nova_assets.model.task import Context
from nova_assets.sql.datasets.function_calls import FunctionCalls
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.datasets.required_reads import RequiredRead
from nova_assets.sql.datasets.sql_task import input_by_frame, input_name
from nova_assets.sql.incremental.operator_text import describe_operators
from nova_assets.sql.incremental.operators import Operator
from nova_assets.sql.query.column_lineage import trace_lineage
from nova_assets.sql.query.resolved_query import Query
from nova_assets.sql.query.scans import Scan
from nova_assets.sql.query.spark_confirmation import (
    check_session_is_utc,
    check_spark_columns,
    convert_spark_rejections,
    explain_waiting_columns,
)
from nova_assets.sql.query.spark_query import RunnableSql, make_runnable
from nova_assets.sql.query.table_function_calls import scalar_function_types, table_function_schemas
from nova_assets.sql.query.user_functions import SqlFunction
from nova_assets.sql.statement.header import ScopeValues, StatementHeader

Refresh: TypeAlias = Literal["full", "auto", "incremental"]
"""How a dataset is brought up to date. ``full``: its query is computed again. ``incremental``: its rows are maintained
from the changes of its inputs. ``auto``: incremental if nova has a rule for each part of the query, otherwise full; and
each execution chooses the cheaper of changes and replacement.
"""


FloatPolicy: TypeAlias = Literal["exact", "fast"]
"""How sums of floating-point numbers are maintained. ``exact``: groups that changed are computed again. ``fast``: the
change is added to the stored sum, which drifts.
"""


@dataclass(frozen=True)
class RefreshDecision:
    """How a dataset is brought up to date.

    Args:
        operators: the steps through which changes pass; None if the query is computed again.
        reason: why the query is computed again although ``auto`` was requested; otherwise empty.
        requested: what the project requests.
    """

    operators: Operator | None = None
    reason: str = ""
    requested: Refresh = "full"

    @property
    def is_incremental(self) -> bool:
        return self.operators is not None

    def as_json(self) -> dict[str, Any]:
        steps = [] if self.operators is None else [line._asdict() for line in describe_operators(self.operators)]
        return {"refresh": "incremental" if steps else "full", "reason": self.reason, "steps": steps}


Freshness: TypeAlias = str
"""How long changes of the inputs may wait: a period such as ``"10 minutes"``, or ``"downstream"``."""

Late: TypeAlias = Literal["rebuild", "ignore"]
"""What happens to a partition when data arrives at one of its inputs after the partition was built."""


class DatasetQuery:
    """Runs the query of a dataset in the scope that belongs to the partition of the execution.

    Args:
        late: what happens to a partition when data arrives at one of its inputs afterwards.
        bodies: user-defined functions, by name.
        refresh: how the dataset is brought up to date.
        freshness: how long ticks may leave changes of the inputs unread; None if they run the tasks at once.

    Raises:
        SqlError: a function call has invalid arguments.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        late: Late = "rebuild",
        sql_functions: Mapping[str, SqlFunction] | None = None,
        refresh: RefreshDecision | None = None,
        freshness: Freshness | None = None,
    ) -> None:
        self.graph = graph
        self.name = name
        self.late = late
        self.refresh = refresh or RefreshDecision()
        self.freshness = freshness
        self.sql_functions = sql_functions or {}
        self.statement = graph.dataset(name).statement
        self.schema = graph.dataset(name).schema
        self.input_by_frame = input_by_frame(self.statement.scans)
        if self.statement.has_calls or any(f.lower() in self.statement.called_functions for f in graph.function_types):
            _ = self.function_calls  # raises an error for an invalid call

    @property
    def is_maintained(self) -> bool:
        return self.refresh.is_incremental

    @property
    def reads_all_partitions(self) -> bool:
        return self.is_maintained and not self.partition_columns

    @property
    def frozen_where(self) -> str:
        """``WHERE condition`` of the rows that are never made again; empty if there are none."""
        return ""

    @property
    def source_file(self) -> str:
        """Path of the SQL file."""
        return self.statement.text.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets and channels that the query reads, in order of first mention."""
        return self.statement.reads

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.graph.dataset(self.name).channel.partition_columns

    @property
    def header(self) -> StatementHeader:
        """The scopes of the dataset, and the partitions that they write."""
        return self.statement.header

    @property
    def query(self) -> Query:
        """The query, with every column resolved."""
        return self.graph.dataset(self.name).query

    @cached_property
    def function_calls(self) -> FunctionCalls:
        """The calls of user-defined functions in the query."""
        return FunctionCalls(self.graph, self.graph.dataset(self.name), self.sql_functions)

    @cached_property
    def runnable(self) -> RunnableSql:
        """The SQL that Spark runs."""
        return make_runnable(self.query, self.statement.query_start, list(self.header.partition_column_types.items()))

    def __call__(self, ctx: Context, **frames: Any) -> Any:
        scope = self.scope(ctx.partition, ctx.started or datetime.now(UTC))
        self.check_session_timezone_is_utc(ctx)
        self.function_calls.register_scalar_functions(ctx)
        input_frames = {name: frames[self.input_by_frame[name]] for name in self.runnable.frame_by_scan.values()}
        parameters = self.query_parameters(scope)

        def run_sql(sql: str, call_frames: Mapping[str, Any]) -> Any:
            frames_in_sql = {
                name: frame for name, frame in {**input_frames, **call_frames}.items() if f"{{{name}}}" in sql
            }
            return ctx.query(sql, parameters, frames_in_sql)

        with explain_waiting_columns(ctx, self.statement.text.name, self.reads):
            with convert_spark_rejections(self.statement.text):
                frame = run_sql(
                    self.runnable.sql,
                    self.function_calls.frames_by_call(ctx, scope, self.runnable.query_texts_by_call, run_sql),
                )
            check_spark_columns(self.query, self.schema, ctx.schema_of(frame))
        return frame

    def spark_schema(self, engine: Engine) -> Schema:
        """The output columns as Spark's analyser derives them, for one scope and inputs without rows.

        No user-defined function runs. Table functions are replaced by empty frames of the columns that they declare.

        Raises:
            SqlError: Spark's parser or analyser rejects the query.
            NotSupported: the query calls a function of which only the type is known here.
        """
        for name in scalar_function_types(self.graph.function_types):
            if name.lower() in self.statement.called_functions and name not in self.sql_functions:
                raise NotSupported(f"the query calls {name}(...), which exists only in the session of its tasks")
        self.function_calls.register_scalar_functions(Context(spark=engine.session))
        tables = table_function_schemas(self.graph.function_types)
        frame_by_scan, schema_by_dataset = self.runnable.frame_by_scan, self.query.schemas
        schemas = {frame_by_scan[s.number]: schema_by_dataset[s.dataset] for s in self.statement.scans}
        schemas |= {f"call_{c.number}": tables[c.function] for c in self.query.calls}
        frames = {n: engine.inputs.to_frame([], s) for n, s in schemas.items() if f"{{{n}}}" in self.runnable.sql}
        with convert_spark_rejections(self.statement.text):
            frame_of_query = engine.queries.create_frame(
                self.runnable.sql, self.query_parameters(self.header.sample_scope), frames
            )
        return engine.frames.schema_of(frame_of_query)

    def query_parameters(self, scope: ScopeValues) -> dict[str, Any]:
        """Values of the variables that the query uses, and of the partition columns."""
        values = {**scope, **{f"partition_{c}": v for c, v in self.header.partition_values_of(scope).items()}}
        return {n: values[n] for n in self.runnable.variables}

    @cached_property
    def is_repeatable(self) -> bool:
        """Whether a rebuilt partition has the same contents as a partition that is built for the first time."""
        return self.statement.kind == "base" and not any(s.mode in ("new", "old") for s in self.statement.scans)

    @cached_property
    def rebuilds_on_late_data(self) -> bool:
        """Whether ticks rebuild a partition when data arrives at one of its inputs. They do unless the author set
        ``"ignore"``, and only if a rebuild neither duplicates nor removes rows.
        """
        adds = self.statement.kind == "delta"
        reads_new = any(s.mode == "new" for s in self.statement.scans)
        return self.late == "rebuild" and (self.is_repeatable or (adds and reads_new))

    @property
    def parts(self) -> tuple[Any, ...]:
        """The Python functions that the query calls. Their modules have to reach Spark's workers."""
        return self.function_calls.python_functions

    @property
    def depends_on_zone(self) -> bool:
        """Whether a time zone determines which partitions the tasks read or write."""
        return not self.reads_all_partitions and self.graph.depends_on_zone(self.name)

    def check_session_timezone_is_utc(self, ctx: Context) -> None:
        """Raise SettingsError unless the session's time zone is UTC. Spark derives days from timestamps in the
        session's zone, while nova prunes partitions in UTC.
        """
        if "timestamp" in self.query.variables.values() or self.depends_on_zone:
            advice = "; TIMESERIES(tz => ...) takes the time zone of days"
            check_session_is_utc(ctx, f"dataset {self.name!r} uses timestamps", advice)

    def input_partitions(self, partition: str, now: datetime, inputs: InputState) -> dict[str, frozenset[str]]:
        """Input -> the partitions that the task reads. Inputs read as a whole are left out."""
        required_reads = self.required_reads(partition, now, inputs)
        partitions_by_input: dict[str, frozenset[str]] = {}
        for scan, required_read in zip(self.statement.scans, required_reads, strict=True):
            if scan.mode == "whole":
                continue
            partitions_by_input[input_name(scan)] = partitions_by_input.get(input_name(scan), frozenset()) | frozenset(
                required_read.partitions
            )
        return partitions_by_input

    def required_reads(self, partition: str, now: datetime, inputs: InputState) -> tuple[RequiredRead, ...]:
        """The partitions that the task of a partition reads, one entry for each scan.

        Raises:
            PartitionError: no task writes the partition.
            SqlError: the partitions cannot be determined.
        """
        return self.graph.required_reads(self.name, partition, self._moment_of_partition(partition, now), inputs)

    def unpruned_conditions(self, partition: str, now: datetime, inputs: InputState) -> tuple[str, ...]:
        """Conditions on partition columns that do not prune any partition, each with its place and the reason. Raises
        as ``required_reads``.
        """
        return self.graph.unpruned_conditions(self.name, partition, self._moment_of_partition(partition, now), inputs)

    def missing_partitions(self, partition: str, now: datetime, inputs: InputState) -> list[str]:
        """Required partitions that do not exist yet and that other tasks or systems write:
        ``store_sales/day=2022-03-31``.
        """
        needs = self.required_reads(partition, now, inputs)
        existing_by_dataset = {
            n.dataset: set(inputs.existing_partitions(n.dataset)) for n in needs if self.graph.has_producer(n.dataset)
        }
        required_partitions = ((n.dataset, p) for n in needs if n.dataset in existing_by_dataset for p in n.partitions)
        return [
            f"{name}/{p}" if p else name
            for name, p in dict.fromkeys(required_partitions)
            if p not in existing_by_dataset[name]
        ]

    def column_origins(self) -> Mapping[str, tuple[str, ...]]:
        """Output column -> the input columns from which it is computed, spelled ``input.column`` as in the schemas."""
        spelled = {c.lower(): c for c in self.schema.names}
        found = {}
        for column, origins in trace_lineage(self.query).outputs.items():
            scans = ((self.query.scans[number], name) for number, name in sorted(origins))
            found[spelled[column]] = tuple(
                dict.fromkeys(f"{input_name(s)}.{self._column_spelling(s, name)}" for s, name in scans)
            )
        return found

    def _column_spelling(self, scan: Scan, column: str) -> str:
        dataset, channel = self.graph.datasets.get(scan.dataset), self.graph.channels.get(scan.dataset)
        schema = dataset.schema if dataset is not None else None if channel is None else channel.schema
        return next((n for n in (schema.names if schema is not None else ()) if n.lower() == column), column)

    def as_json(self) -> dict[str, Any]:
        text, functions = self.statement.text, self.graph.function_types
        optional = {"functions": dict(functions), "freshness": self.freshness}
        required = {"file": text.name, "sql": text.sql, "meaning": self.statement.meaning}
        return required | {name: value for name, value in optional.items() if value}

    def scope(self, partition: str, now: datetime) -> ScopeValues:
        """The scope that writes a partition.

        Raises:
            PartitionError: no scope writes the partition.
        """
        return self.graph.scope(self.name, partition, self._moment_of_partition(partition, now))

    def _moment_of_partition(self, partition: str, now: datetime) -> datetime:
        """The moment as of which to look up the partition: now, or the last moment at which an expired partition was
        the newest.
        """
        if partition in self.graph.scopes_by_partition(self.name, now):
            return now
        last_moment = self.graph.last_newest_moment(self.name, partition)
        if (
            last_moment is None
            or last_moment > now
            or partition not in self.graph.scopes_by_partition(self.name, last_moment)
        ):
            raise PartitionError(
                f"no task of {self.name!r} writes {partition or 'the whole'}",
                found=partition or "no partition",
                expected=f"one of those that nova show {self.name} lists",
                next=f"nova show {self.name}",
            )
        return last_moment
