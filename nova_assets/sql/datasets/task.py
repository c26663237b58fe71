"""Tasks that are queries: inputs and modes come from the SQL, and Spark runs what was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from nova_assets.errors import NotSupported, PartitionError, SettingsError
from nova_assets.model.edge import Consumes, Produces
from nova_assets.model.engine import Engine
from nova_assets.model.names import check_name
from nova_assets.model.schema import Schema
from nova_assets.model.scoped_reads import ExistingPartitions
from nova_assets.model.task import Context, Task
from nova_assets.sql.datasets.function_calls import FunctionCalls
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.datasets.required_reads import RequiredRead
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.query.column_lineage import trace_lineage
from nova_assets.sql.query.function import SqlFunction
from nova_assets.sql.query.query import Query, mark_calls
from nova_assets.sql.query.scans import Mode, Scan, mark_scans
from nova_assets.sql.query.spark_confirmation import check_columns, convert_spark_refusals
from nova_assets.sql.query.spark_query import RunnableSql, make_runnable, make_runnable_from_text
from nova_assets.sql.query.table_function_calls import scalar_function_types, table_function_schemas
from nova_assets.sql.statement.header import ScopeValues, StatementHeader
from nova_assets.sql.text import SqlText

Late: TypeAlias = Literal["rebuild", "ignore"]
"""What becomes of a partition when data comes to something that it was made of."""

_EDGE_MODE_BY_SCAN_MODE: Mapping[Mode, str] = {"all": "all", "whole": "all", "new": "new", "old": "old"}


def sql_task(
    name: str,
    sql: str,
    *,
    produces: Produces | Sequence[Produces] = (),
    retries: int = 0,
    retry_delay: float = 0.0,
    skip_if_no_new: bool = False,
) -> Task:
    """A task that is a query of Spark's SQL, such as ``SELECT site, COUNT(*) AS n FROM tagged_articles GROUP BY site``.

    What it consumes follows from it: ``FROM x`` is all of the port ``x``, ``FROM NEW(x)`` what came since the last
    successful execution, ``FROM OLD(x)`` what was there before. A port is bound to the channel of that name, unless the
    binding says otherwise. The binding's parameters are ``:name``.

    Args:
        name: of the task.
        sql: one SELECT.
        produces: the one edge to what it writes.
        retries, retry_delay, skip_if_no_new: as for ``nova.task``.

    Raises:
        SqlError: it cannot be read.
    """
    text = SqlText(f"task {name}", sql)
    tree = parse_statement(text)
    if not isinstance(tree, exp.Query):
        raise text.error(
            "is no query", tree, expected="SELECT ...", next="scopes and INSERT are for files: nova.datasets(folder)"
        )
    calls = mark_calls(text, tree)
    if calls:
        raise text.error(
            f"{calls[0].function}(...) stands as a table",
            calls[0].call_span,
            expected="functions that give tables in datasets: nova.datasets(folder, functions=[...])",
        )
    scans = mark_scans(text, tree)
    edges = [produces] if isinstance(produces, Produces) else list(produces)
    return Task(
        name=check_name(name, "a task"),
        function=_UnscopedQuery(text, make_runnable_from_text(text, tree, scans), _input_by_frame(scans)),
        consumes=consumed_edges(scans),
        produces=tuple(edges),
        retries=retries,
        retry_delay=retry_delay,
        skip_if_no_new=skip_if_no_new,
        description=sql.strip(),
    )


def consumed_edges(scans: Iterable[Scan]) -> tuple[Consumes, ...]:
    """An edge for each dataset and mode; two places that read the same share it."""
    found = {
        (name := _input_name(s)): Consumes(s.dataset, _EDGE_MODE_BY_SCAN_MODE[s.mode], name, by_name=True)  # type: ignore[arg-type]
        for s in scans
    }
    return tuple(found.values())


def _input_by_frame(scans: Iterable[Scan]) -> Mapping[str, str]:
    """The name of a scan's frame in the text -> the input that it is."""
    return {f"scan_{s.number}": _input_name(s) for s in scans}


def _input_name(scan: Scan) -> str:
    return scan.dataset if scan.mode == "all" else f"{scan.mode}_{scan.dataset}"


class _UnscopedQuery:
    """Runs a query without a scope, with the binding's parameters."""

    def __init__(self, text: SqlText, runnable: RunnableSql, input_by_frame: Mapping[str, str]) -> None:
        self.text = text
        self.runnable = runnable
        self.input_by_frame = input_by_frame

    def __call__(self, ctx: Context, **frames: Any) -> Any:
        values = {name: ctx.params[name] for name in self.runnable.variables}
        with convert_spark_refusals(self.text):
            return ctx.query(
                self.runnable.sql,
                values,
                {n: frames[self.input_by_frame[n]] for n in self.runnable.frame_by_scan.values()},
            )


class DatasetQuery:
    """Runs a dataset's query in the scope that the partition of the execution stands for.

    Args:
        late: what becomes of a partition when data comes to something that it was made of.
        sql_functions: functions of users, by name.

    Raises:
        SqlError: one is called as it cannot be.
    """

    def __init__(
        self, graph: Graph, name: str, late: Late = "rebuild", bodies: Mapping[str, SqlFunction] | None = None
    ) -> None:
        self.graph = graph
        self.name = name
        self.late = late
        self.sql_functions = bodies or {}
        self.statement = graph.dataset(name).statement
        self.schema = graph.dataset(name).schema
        self.input_by_frame = _input_by_frame(self.statement.scans)
        if self.statement.calls or any(f.lower() in self.statement.named for f in graph.function_types):
            _ = self.function_calls  # what is called as it cannot be is refused here

    @property
    def source_file(self) -> str:
        """The file."""
        return self.statement.text.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets and channels that it reads, in order of first mention."""
        return self.statement.reads

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.graph.dataset(self.name).channel.partition_columns

    @property
    def header(self) -> StatementHeader:
        """Its scopes, and the partitions that they write."""
        return self.statement.header

    @property
    def query(self) -> Query:
        """With every column told."""
        return self.graph.dataset(self.name).query

    @cached_property
    def function_calls(self) -> FunctionCalls:
        """How it calls functions of users."""
        return FunctionCalls(self.graph, self.graph.dataset(self.name), self.sql_functions)

    @cached_property
    def runnable(self) -> RunnableSql:
        """What Spark is given."""
        return make_runnable(self.query, self.statement.begin, list(self.header.partition_column_types.items()))

    def __call__(self, ctx: Context, **frames: Any) -> Any:
        scope = self.scope(ctx.partition, ctx.started or datetime.now(UTC))
        self._check_session_timezone_is_utc(ctx)
        self.function_calls.register_scalar_functions(ctx)
        input_frames = {name: frames[self.input_by_frame[name]] for name in self.runnable.frame_by_scan.values()}
        parameters = self._query_parameters(scope)

        def run_sql(sql: str, call_frames: Mapping[str, Any]) -> Any:
            frames_in_sql = {
                name: frame for name, frame in {**input_frames, **call_frames}.items() if f"{{{name}}}" in sql
            }
            return ctx.query(sql, parameters, frames_in_sql)

        with convert_spark_refusals(self.statement.text):
            frame = run_sql(
                self.runnable.sql,
                self.function_calls.frames_by_call(ctx, scope, self.runnable.query_texts_by_call, run_sql),
            )
        check_columns(self.query, self.schema, ctx.schema_of(frame))
        return frame

    def spark_schema(self, engine: Engine) -> Schema:
        """The columns of the query as Spark's analyser has them, for one of its scopes, over inputs without rows.

        No function of users is called. Those that stand as tables give what they declare.

        Raises:
            SqlError: Spark's parser or analyser does not take the query.
            NotSupported: it calls a function of which only the type is known here.
        """
        for name in scalar_function_types(self.graph.function_types):
            if name.lower() in self.statement.named and name not in self.sql_functions:
                raise NotSupported(f"it calls {name}(...), which only the session of its tasks has")
        self.function_calls.register_scalar_functions(Context(spark=engine.session))
        tables = table_function_schemas(self.graph.function_types)
        schemas = {frame: self.query.schemas[scan.dataset] for frame, scan in self._scans_by_frame()}
        schemas |= {f"call_{c.number}": tables[c.function] for c in self.query.calls}
        frames = {n: engine.to_frame([], s) for n, s in schemas.items() if f"{{{n}}}" in self.runnable.sql}
        with convert_spark_refusals(self.statement.text):
            found = engine.query(self.runnable.sql, self._query_parameters(self.header.sample_scope), frames)
        return engine.schema_of(found)

    def _scans_by_frame(self) -> Iterable[tuple[str, Scan]]:
        return ((self.runnable.frame_by_scan[scan.number], scan) for scan in self.statement.scans)

    def _query_parameters(self, scope: ScopeValues) -> dict[str, Any]:
        """The values of the variables that the query has, and of the partition's columns."""
        values = {**scope, **{f"partition_{c}": v for c, v in self.header.partition_values_of(scope).items()}}
        return {n: values[n] for n in self.runnable.variables}

    @cached_property
    def is_repeatable(self) -> bool:
        """Whether a partition that is made again is as if it were made for the first time."""
        return self.statement.kind == "base" and not any(s.mode in ("new", "old") for s in self.statement.scans)

    @cached_property
    def rebuilds_on_late_data(self) -> bool:
        """Whether ticks make a partition again when data comes to what it was made of: if its author does not say that
        it stays, and if that does not put rows twice, or take some away."""
        adds = self.statement.kind == "delta"
        reads_new = any(s.mode == "new" for s in self.statement.scans)
        return self.late == "rebuild" and (self.is_repeatable or (adds and reads_new))

    @property
    def parts(self) -> tuple[Any, ...]:
        """The functions of users that it calls, for who has to bring their modules to Spark's workers."""
        return self.function_calls.python_functions

    def _check_session_timezone_is_utc(self, ctx: Context) -> None:
        """Spark tells the day of a moment in the zone of its session, and what is read was told in UTC."""
        zone = ctx.spark.conf.get("spark.sql.session.timeZone")
        if "timestamp" in self.query.variables.values() and zone not in ("UTC", "Etc/UTC", "GMT", "Z"):
            raise SettingsError(
                f"dataset {self.name!r} compares moments, and the session is in another zone",
                found=zone,
                expected="spark.sql.session.timeZone = UTC",
                next="set it on the session that is given to nova; zones of days are said in TIMESERIES(tz => ...)",
            )

    def input_partitions(
        self, partition: str, now: datetime, existing: ExistingPartitions
    ) -> dict[str, frozenset[str]]:
        """Input -> the partitions that it reads."""
        needs = self.required_reads(partition, now, existing)
        found: dict[str, frozenset[str]] = {}
        for scan, need in zip(self.statement.scans, needs, strict=True):
            if scan.mode == "whole":
                continue
            found[_input_name(scan)] = found.get(_input_name(scan), frozenset()) | frozenset(need.partitions)
        return found

    def required_reads(self, partition: str, now: datetime, existing: ExistingPartitions) -> tuple[RequiredRead, ...]:
        """What the task reads that writes a partition, place by place.

        Raises:
            PartitionError: no task does.
            SqlError: it cannot be told.
        """
        return self.graph.required_reads(self.name, partition, self._moment_of_partition(partition, now), existing)

    def unpruned_conditions(self, partition: str, now: datetime, existing: ExistingPartitions) -> tuple[str, ...]:
        """Conditions on partitions by which the task that writes a partition reads no fewer, each with its place and
        the reason. Raises as ``needs``."""
        return self.graph.unpruned_conditions(self.name, partition, self._moment_of_partition(partition, now), existing)

    def missing_partitions(self, partition: str, now: datetime, existing: ExistingPartitions) -> list[str]:
        """What a task reads that other tasks, or other systems, make, and that is not there yet:
        ``store_sales/day=2022-03-31``."""
        needs = self.required_reads(partition, now, existing)
        existing_by_dataset = {n.dataset: set(existing(n.dataset)) for n in needs if self.graph.has_producer(n.dataset)}
        required_partitions = ((n.dataset, p) for n in needs if n.dataset in existing_by_dataset for p in n.partitions)
        return [
            f"{name}/{p}" if p else name
            for name, p in dict.fromkeys(required_partitions)
            if p not in existing_by_dataset[name]
        ]

    def column_origins(self) -> Mapping[str, tuple[str, ...]]:
        """Column that is written -> the columns that it is made of, ``input.column`` each, as they are spelled."""
        spelled = {c.lower(): c for c in self.schema.names}
        found = {}
        for column, origins in trace_lineage(self.query).outputs.items():
            scans = ((self.query.scans[number], name) for number, name in sorted(origins))
            found[spelled[column]] = tuple(
                dict.fromkeys(f"{_input_name(s)}.{self._column_spelling(s, name)}" for s, name in scans)
            )
        return found

    def _column_spelling(self, scan: Scan, column: str) -> str:
        made, channel = self.graph.datasets.get(scan.dataset), self.graph.channels.get(scan.dataset)
        schema = made.schema if made is not None else None if channel is None else channel.schema
        return next((n for n in (schema.names if schema is not None else ()) if n.lower() == column), column)

    def as_json(self) -> dict[str, Any]:
        text, functions = self.statement.text, self.graph.function_types
        return {"file": text.name, "sql": text.sql, **({"functions": dict(functions)} if functions else {})}

    def scope(self, partition: str, now: datetime) -> ScopeValues:
        """The scope that writes a partition.

        Raises:
            PartitionError: none does.
        """
        return self.graph.scope(self.name, partition, self._moment_of_partition(partition, now))

    def _moment_of_partition(self, partition: str, now: datetime) -> datetime:
        """The moment as of which the partition is looked for: now; or, if it is over by now, when it was not."""
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
