"""Tasks: plain functions over frames, with their edges (Nova 2.2)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from nova_assets.masking import get_logger
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.channel import Channel
from nova_assets.model.edge import Consumes, Produces, lineage_problems
from nova_assets.model.function_reference import input_parameter_problems, wants_context
from nova_assets.model.names import check_name, find_duplicates
from nova_assets.model.partition_rule import PartitionRule
from nova_assets.model.schema import Schema
from nova_assets.short_repr import short_repr


@dataclass(frozen=True)
class LastExecution:
    """What the last committed execution of a binding's partition recorded.

    Args:
        reports: the facts that each task reported.
        cpu_seconds: CPU time of each task, in the order of ``reports``; None if it is not known.
        written_heads: channel that the binding writes -> head of the channel after the commit. It is the cursor of a
            task that reads the channel in the same binding (R5).
    """

    reports: Sequence[Mapping[str, Any]] = ()
    cpu_seconds: Sequence[float | None] = ()
    written_heads: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """Information about the running execution, passed to the task parameter called ``ctx``.

    Args:
        spark: the Spark session.
        partition: partition of the execution; ``""`` for an unpartitioned execution.
        started: time at which the execution started.
        params: parameters of the binding.
        log: logger for the task. Its lines also appear in Dagster.
        execution_id: id of the running execution; empty in a unit test.
        pins: channel -> the head that this execution reads.
        channels: port -> the channel that the binding gives to this port.
        schemas: channel -> its columns, as this execution reads them; None if no block has given it columns yet.
        next_schemas: channel -> the columns that its next base has to bring, because its definition changed them.
        is_backfill: whether a maintained dataset has to be computed as a whole, because a backfill requests it.
        frame: function that converts data to a frame with a given schema. The data may have any form that
            ``store.insert`` accepts, such as rows or an Arrow table.
        query: function that builds an analysed frame from a SQL query. In the query, ``:name`` stands for a value, and
            ``{name}`` stands for a frame.
        compute: function that computes such a query now, and returns its rows as an Arrow table; None if the rows are
            too many.
        schema_of: function that returns the columns of a frame.
        optimized_plan: function that returns how the engine computes a frame, as text; None if the engine cannot tell.
        viewing: function that creates the file views for ``views``.
        may_replace: function that tells whether the task may return a ``Replacement`` for an output instead of a delta.
        reason_for_base: function that tells why the next block of an output's channel has to be a base, such as a
            changed merge model (R18); empty if a delta is accepted, too.
        row_counts: input -> mode -> rows in the blocks that the mode opens.
        cursors: channel -> version up to which the binding has read it before; None if it keeps no cursor.
        last_execution: function that returns what the last committed execution of the binding's partition recorded.
        is_written_by_others: function that tells whether anything but this binding has written to a port's channel
            after a version.
        report: facts that the task adds, such as a decision with its reason. They are recorded with the commit.
    """

    __repr__ = short_repr

    spark: Any = None
    partition: str = ""
    started: datetime | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    log: logging.Logger = field(default_factory=lambda: get_logger("nova_assets.task"))
    execution_id: str = ""
    pins: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    schemas: Mapping[str, Schema | None] = field(default_factory=dict)
    next_schemas: Mapping[str, Schema] = field(default_factory=dict)
    is_backfill: bool = False
    frame: Callable[[Any, Schema], Any] = lambda data, schema: data
    query: Callable[[str, Mapping[str, Any], Mapping[str, Any]], Any] = lambda sql, values, frames: None
    compute: Callable[[str, Mapping[str, Any], Mapping[str, Any]], Any | None] = lambda sql, values, frames: None
    schema_of: Callable[[Any], Schema] = lambda frame: Schema(())
    optimized_plan: Callable[[Any], str | None] = lambda frame: None
    viewing: Callable[[], Any] = lambda: None
    may_replace: Callable[[str], bool] = lambda port: False
    reason_for_base: Callable[[str], str] = lambda port: ""
    row_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    cursors: Mapping[str, int | None] = field(default_factory=dict)
    last_execution: Callable[[], LastExecution] = lambda: LastExecution()
    is_written_by_others: Callable[[str, int], bool] = lambda port, after: False
    report: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def views(self) -> Any:
        """File lists of the channels that this execution reads (``Views``); None in a unit test.

        For code that opens the files itself, also inside Spark's workers.
        """
        return self.viewing()


@runtime_checkable
class QueryFunction(Protocol):
    """Function of a task that runs a query. The versions of a binding contain the query, as they contain code."""

    def __call__(self, ctx: Context, **inputs: Any) -> Any: ...

    def as_json(self) -> dict[str, Any]:
        """The query, and all that its result depends on."""


@dataclass(frozen=True)
class Task:
    """A function with its input edges and output edges. A call of the task calls the plain function.

    Args:
        name: name of the task, unique in its workflowette.
        function: the plain function. For each input edge, the function has a parameter with the name of the edge, which
            receives the frame. The function returns a frame (one output), a dict from port to frame (several outputs),
            or None (no output).
        consumes, produces: the input edges, and the output edges.
        retries: number of retries after a failure. Each retry reads the same pinned versions (R4).
        retry_delay: seconds before a retry.
        skip_if_no_new: skip the function if every ``new`` input is empty.
        deterministic: true if the author guarantees that a second evaluation of the frames gives the same rows (R4).
        can_replace: whether the function may return a ``Replacement`` for an output, as it does after a change of the
            channel's merge model (R18).
        scoped: rule that determines which partitions the task reads. Only for a task whose query determines these
            partitions.
    """

    __repr__ = short_repr

    name: str
    function: Callable[..., Any]
    consumes: tuple[Consumes, ...] = ()
    produces: tuple[Produces, ...] = ()
    retries: int = 0
    retry_delay: float = 0.0
    skip_if_no_new: bool = False
    deterministic: bool = False
    description: str | None = None
    can_replace: bool = False
    scoped: PartitionRule | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def wants_context(self) -> bool:
        return wants_context(self.function)

    def problems(self) -> list[str]:
        """Problems of this task alone."""
        names = [e.name for e in self.consumes]
        return [
            f"task {self.name!r}: {p}"
            for p in (*self._edge_problems(), *input_parameter_problems(self.function, names))
        ]

    def _edge_problems(self) -> list[str]:
        found = []
        names = [e.name for e in self.consumes]
        found += [f"two inputs are called {n!r}; rename one with as_=" for n in find_duplicates(names)]
        found += [f"port {p!r} is produced twice" for p in find_duplicates(e.port for e in self.produces)]
        with_new = {e.port for e in self.consumes if e.mode == "new"}
        for e in self.consumes:
            if e.mode == "old" and e.port not in with_new:
                found.append(
                    f"consumes old({e.port}) without new({e.port}) beside it (R8); "
                    f"add new({e.port}), or take all({e.port})"
                )
            if e.mode == "matching" and e.keys_of not in names:
                found.append(
                    f"matching({e.port}) takes the keys of {e.keys_of!r}, which is no input of the task "
                    f"({', '.join(names)})"
                )
        inputs = {e.name: e.port for e in self.consumes}
        found += [p for e in self.produces for p in lineage_problems(e, inputs)]
        if not isinstance(self.retries, int) or self.retries < 0:
            found.append(f"retries is {self.retries!r}; expected 0 or more")
        if self.skip_if_no_new and not any(e.moves_cursor for e in self.consumes):
            found.append("skip_if_no_new needs an input that is consumed as new")
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "consumes": [{"port": e.port, "mode": e.mode, "name": e.name, "keys_of": e.keys_of} for e in self.consumes],
            "produces": [{"port": e.port, "kind": e.kind, **e.options.as_json()} for e in self.produces],
            **({"query": self.scoped.as_json()} if self.scoped is not None else {}),
        }


@check_argument_types("nova.task", consumes="nova.new(channel)", produces="nova.delta(channel)")
def task(
    *,
    consumes: Consumes | Sequence[Consumes] = (),
    produces: Produces | Sequence[Produces] = (),
    name: str | None = None,
    retries: int = 0,
    retry_delay: float = 0.0,
    skip_if_no_new: bool = False,
    deterministic: bool = False,
) -> Callable[[Callable[..., Any]], Task]:
    """Decorator that turns a plain function into a task. See ``Task`` for the arguments.

    ``consumes`` and ``produces`` take one edge or a list of edges.
    """

    def make(function: Callable[..., Any]) -> Task:
        return Task(
            name=check_name(name or function.__name__, "a task"),
            function=function,
            consumes=(consumes,) if isinstance(consumes, Consumes) else tuple(consumes),
            produces=(produces,) if isinstance(produces, Produces) else tuple(produces),
            retries=retries,
            retry_delay=retry_delay,
            skip_if_no_new=skip_if_no_new,
            deterministic=deterministic,
            description=inspect.getdoc(function),
        )

    return make
