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
from nova_assets.model.scoped_reads import Existing
from nova_assets.model.task import Context, Task
from nova_assets.sql.datasets.function_calls import Calling
from nova_assets.sql.datasets.graph import Graph, Need
from nova_assets.sql.parse.dialect import parsed
from nova_assets.sql.query.column_lineage import lineage
from nova_assets.sql.query.function import SqlFunction
from nova_assets.sql.query.query import Mode, Query, Scan, calls_in, scans_of
from nova_assets.sql.query.spark_confirmation import check_columns, refusals_shown_in
from nova_assets.sql.query.spark_query import Runnable, runnable, runnable_text
from nova_assets.sql.query.table_function_calls import scalars_of, tables_of
from nova_assets.sql.statement.header import Head, Scope
from nova_assets.sql.text import Text

Late: TypeAlias = Literal["rebuild", "ignore"]
"""What becomes of a partition when data comes to something that it was made of."""

_EDGES: Mapping[Mode, str] = {"all": "all", "whole": "all", "new": "new", "old": "old"}


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
    text = Text(f"task {name}", sql)
    tree = parsed(text)
    if not isinstance(tree, exp.Query):
        raise text.error(
            "is no query", tree, expected="SELECT ...", next="scopes and INSERT are for files: nova.datasets(folder)"
        )
    calls = calls_in(text, tree)
    if calls:
        raise text.error(
            f"{calls[0].function}(...) stands as a table",
            calls[0].place,
            expected="functions that give tables in datasets: nova.datasets(folder, functions=[...])",
        )
    scans = scans_of(text, tree)
    edges = [produces] if isinstance(produces, Produces) else list(produces)
    return Task(
        name=check_name(name, "a task"),
        function=_Free(text, runnable_text(text, tree, scans), _inputs(scans)),
        consumes=consumes_of(scans),
        produces=tuple(edges),
        retries=retries,
        retry_delay=retry_delay,
        skip_if_no_new=skip_if_no_new,
        description=sql.strip(),
    )


def consumes_of(scans: Iterable[Scan]) -> tuple[Consumes, ...]:
    """An edge for each dataset and mode; two places that read the same share it."""
    found = {_name(s): Consumes(s.dataset, _EDGES[s.mode], _name(s), by_name=True) for s in scans}  # type: ignore[arg-type]
    return tuple(found.values())


def _inputs(scans: Iterable[Scan]) -> Mapping[str, str]:
    """The name of a scan's frame in the text -> the input that it is."""
    return {f"scan_{s.number}": _name(s) for s in scans}


def _name(scan: Scan) -> str:
    return scan.dataset if scan.mode == "all" else f"{scan.mode}_{scan.dataset}"


class _Free:
    """Runs a query without a scope, with the binding's parameters."""

    def __init__(self, text: Text, query: Runnable, inputs: Mapping[str, str]) -> None:
        self.text = text
        self.query = query
        self.inputs = inputs

    def __call__(self, ctx: Context, **frames: Any) -> Any:
        values = {name: ctx.params[name] for name in self.query.variables}
        with refusals_shown_in(self.text):
            return ctx.query(self.query.sql, values, {n: frames[self.inputs[n]] for n in self.query.frames.values()})


class InScope:
    """Runs a dataset's query in the scope that the partition of the execution stands for.

    Args:
        late: what becomes of a partition when data comes to something that it was made of.
        bodies: functions of users, by name.

    Raises:
        SqlError: one is called as it cannot be.
    """

    def __init__(
        self, graph: Graph, name: str, late: Late = "rebuild", bodies: Mapping[str, SqlFunction] | None = None
    ) -> None:
        self.graph = graph
        self.name = name
        self.late = late
        self.bodies = bodies or {}
        self.written = graph.dataset(name).written
        self.schema = graph.dataset(name).schema
        self.names = _inputs(self.written.scans)
        if self.written.calls or any(f.lower() in self.written.named for f in graph.functions):
            _ = self.calling  # what is called as it cannot be is refused here

    @property
    def source(self) -> str:
        """The file."""
        return self.written.text.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets and channels that it reads, in order of first mention."""
        return self.written.reads

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.graph.dataset(self.name).channel.partition_columns

    @property
    def head(self) -> Head:
        """Its scopes, and the partitions that they write."""
        return self.written.head

    @property
    def query(self) -> Query:
        """With every column told."""
        return self.graph.dataset(self.name).query

    @cached_property
    def calling(self) -> Calling:
        """How it calls functions of users."""
        return Calling(self.graph, self.graph.dataset(self.name), self.bodies)

    @cached_property
    def runnable(self) -> Runnable:
        """What Spark is given."""
        return runnable(self.query, self.written.begin, list(self.head.column_types.items()))

    def __call__(self, ctx: Context, **frames: Any) -> Any:
        scope = self.scope(ctx.partition, ctx.started or datetime.now(UTC))
        self._refuse_other_zone(ctx)
        self.calling.register(ctx)
        given = {name: frames[self.names[name]] for name in self.runnable.frames.values()}
        parameters = self._parameters(scope)

        def run(sql: str, made: Mapping[str, Any]) -> Any:
            wanted = {name: frame for name, frame in {**given, **made}.items() if f"{{{name}}}" in sql}
            return ctx.query(sql, parameters, wanted)

        with refusals_shown_in(self.written.text):
            frame = run(self.runnable.sql, self.calling.frames(ctx, scope, self.runnable.calls, run))
        check_columns(self.query, self.schema, ctx.schema_of(frame))
        return frame

    def analysed(self, engine: Engine) -> Schema:
        """The columns of the query as Spark's analyser has them, for one of its scopes, over inputs without rows.

        No function of users is called. Those that stand as tables give what they declare.

        Raises:
            SqlError: Spark's parser or analyser does not take the query.
            NotSupported: it calls a function of which only the type is known here.
        """
        for name in scalars_of(self.graph.functions):
            if name.lower() in self.written.named and name not in self.bodies:
                raise NotSupported(f"it calls {name}(...), which only the session of its tasks has")
        self.calling.register(Context(spark=engine.session))
        tables = tables_of(self.graph.functions)
        schemas = {frame: self.query.schemas[scan.dataset] for frame, scan in self._frames()}
        schemas |= {f"call_{c.number}": tables[c.function] for c in self.query.calls}
        frames = {n: engine.frame([], s) for n, s in schemas.items() if f"{{{n}}}" in self.runnable.sql}
        with refusals_shown_in(self.written.text):
            found = engine.query(self.runnable.sql, self._parameters(self.head.some_scope), frames)
        return engine.schema_of(found)

    def _frames(self) -> Iterable[tuple[str, Scan]]:
        return ((self.runnable.frames[scan.number], scan) for scan in self.written.scans)

    def _parameters(self, scope: Scope) -> dict[str, Any]:
        """The values of the variables that the query has, and of the partition's columns."""
        values = {**scope, **{f"partition_{c}": v for c, v in self.head.partition_of(scope).items()}}
        return {n: values[n] for n in self.runnable.variables}

    @cached_property
    def is_repeatable(self) -> bool:
        """Whether a partition that is made again is as if it were made for the first time."""
        return self.written.kind == "base" and not any(s.mode in ("new", "old") for s in self.written.scans)

    @cached_property
    def follows_late(self) -> bool:
        """Whether ticks make a partition again when data comes to what it was made of: if its author does not say that
        it stays, and if that does not put rows twice, or take some away."""
        adds = self.written.kind == "delta"
        reads_new = any(s.mode == "new" for s in self.written.scans)
        return self.late == "rebuild" and (self.is_repeatable or (adds and reads_new))

    @property
    def parts(self) -> tuple[Any, ...]:
        """The functions of users that it calls, for who has to bring their modules to Spark's workers."""
        return self.calling.functions

    def _refuse_other_zone(self, ctx: Context) -> None:
        """Spark tells the day of a moment in the zone of its session, and what is read was told in UTC."""
        zone = ctx.spark.conf.get("spark.sql.session.timeZone")
        if "timestamp" in self.query.variables.values() and zone not in ("UTC", "Etc/UTC", "GMT", "Z"):
            raise SettingsError(
                f"dataset {self.name!r} compares moments, and the session is in another zone",
                found=zone,
                expected="spark.sql.session.timeZone = UTC",
                next="set it on the session that is given to nova; zones of days are said in TIMESERIES(tz => ...)",
            )

    def inputs(self, partition: str, now: datetime, existing: Existing) -> dict[str, frozenset[str]]:
        """Input -> the partitions that it reads."""
        needs = self.needs(partition, now, existing)
        found: dict[str, frozenset[str]] = {}
        for scan, need in zip(self.written.scans, needs, strict=True):
            if scan.mode == "whole":
                continue
            found[_name(scan)] = found.get(_name(scan), frozenset()) | frozenset(need.partitions)
        return found

    def needs(self, partition: str, now: datetime, existing: Existing) -> tuple[Need, ...]:
        """What the task reads that writes a partition, place by place.

        Raises:
            PartitionError: no task does.
            SqlError: it cannot be told.
        """
        return self.graph.needs(self.name, partition, self._when(partition, now), existing)

    def not_pruned(self, partition: str, now: datetime, existing: Existing) -> tuple[str, ...]:
        """Conditions on partitions by which the task that writes a partition reads no fewer, each with its place and
        the reason. Raises as ``needs``."""
        return self.graph.not_pruned(self.name, partition, self._when(partition, now), existing)

    def lacking(self, partition: str, now: datetime, existing: Existing) -> list[str]:
        """What a task reads that other tasks, or other systems, make, and that is not there yet:
        ``store_sales/day=2022-03-31``."""
        needs = self.needs(partition, now, existing)
        there = {n.dataset: set(existing(n.dataset)) for n in needs if self.graph.is_made(n.dataset)}
        made = ((n.dataset, p) for n in needs if n.dataset in there for p in n.partitions)
        return [f"{name}/{p}" if p else name for name, p in dict.fromkeys(made) if p not in there[name]]

    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Column that is written -> the columns that it is made of, ``input.column`` each, as they are spelled."""
        spelled = {c.lower(): c for c in self.schema.names}
        found = {}
        for column, origins in lineage(self.query).outputs.items():
            scans = ((self.query.scans[number], name) for number, name in sorted(origins))
            found[spelled[column]] = tuple(dict.fromkeys(f"{_name(s)}.{self._spelled(s, name)}" for s, name in scans))
        return found

    def _spelled(self, scan: Scan, column: str) -> str:
        made, channel = self.graph.datasets.get(scan.dataset), self.graph.channels.get(scan.dataset)
        schema = made.schema if made is not None else None if channel is None else channel.schema
        return next((n for n in (schema.names if schema is not None else ()) if n.lower() == column), column)

    def as_json(self) -> dict[str, Any]:
        text, functions = self.written.text, self.graph.functions
        return {"file": text.name, "sql": text.sql, **({"functions": dict(functions)} if functions else {})}

    def scope(self, partition: str, now: datetime) -> Scope:
        """The scope that writes a partition.

        Raises:
            PartitionError: none does.
        """
        return self.graph.scope(self.name, partition, self._when(partition, now))

    def _when(self, partition: str, now: datetime) -> datetime:
        """The moment as of which the partition is looked for: now; or, if it is over by now, when it was not."""
        if partition in self.graph.tasks(self.name, now):
            return now
        ended = self.graph.ended(self.name, partition)
        if ended is None or ended > now or partition not in self.graph.tasks(self.name, ended):
            raise PartitionError(
                f"no task of {self.name!r} writes {partition or 'the whole'}",
                found=partition or "no partition",
                expected=f"one of those that nova show {self.name} lists",
                next=f"nova show {self.name}",
            )
        return ended
