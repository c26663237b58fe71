"""Bindings: workflowettes with a channel on every port whose data is kept (Nova 2.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from nova_assets.errors import PartitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.block_options import NO_OPTIONS
from nova_assets.model.channel import Channel
from nova_assets.model.data_check import Check
from nova_assets.model.edge import Consumes, Produces
from nova_assets.model.names import check_name
from nova_assets.model.partitions import WHOLE, Dimension, parse_partition
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.resources import NO_LIMITS, Resources
from nova_assets.model.schema import Schema
from nova_assets.model.task import Task
from nova_assets.model.trigger import Trigger, is_supported_trigger
from nova_assets.model.workflowette import Workflowette
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean

ATTEMPTS = 3
"""Default number of runs that one firing may take."""

BACKOFF = "30s"
"""Default delay before the second run of a firing."""


@dataclass(frozen=True)
class Binding:
    """A workflowette that is bound to channels. A binding is triggered, executed and committed as one unit.

    Cursors belong to the name of the binding. If one workflowette is bound under two names, each of the two bindings
    has its own cursors.
    """

    __repr__ = short_repr

    name: str
    workflowette: Workflowette
    channels: Mapping[str, Channel] = field(hash=False)
    params: Mapping[str, Any] = field(hash=False)
    when: Trigger | None
    description: str | None = None
    partitions: Sequence[str] | None = None
    attempts: int = ATTEMPTS
    backoff: str = BACKOFF
    resources: Resources = NO_LIMITS

    def __post_init__(self) -> None:
        if self.partitions is not None:
            object.__setattr__(self, "partitions", tuple(self.partitions))

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.workflowette.tasks

    @property
    def checks(self) -> tuple[Check, ...]:
        return self.workflowette.checks

    @property
    def reads(self) -> tuple[Channel, ...]:
        """Channels that a task consumes, in any mode."""
        return self._channels_on_ports(e.port for t in self.tasks for e in t.consumes)

    @property
    def channels_read_by_checks(self) -> tuple[Channel, ...]:
        """Channels that a check reads.

        A ``new`` edge to an output of the binding shows the check the staged block alone, and so reads no channel.
        """
        return self._channels_on_ports(
            e.port for c in self.checks for e in c.consumes if e.mode != "new" or not self._has_writing_task(e.port)
        )

    @property
    def writes(self) -> tuple[Channel, ...]:
        """Channels that a task produces."""
        return self._channels_on_ports(e.port for t in self.tasks for e in t.produces)

    @property
    def base_writes(self) -> tuple[Channel, ...]:
        """Channels of which a task produces a base."""
        return self._channels_on_ports(e.port for t in self.tasks for e in t.produces if e.kind == "base")

    @property
    def cursor_channels(self) -> tuple[Channel, ...]:
        """Channels for which this binding has a cursor."""
        return self._channels_on_ports(e.port for t in self.tasks for e in t.consumes if e.moves_cursor)

    @property
    def channels_without_cursor(self) -> tuple[Channel, ...]:
        """Channels whose changes begin at the version that the last commit of the same partition read."""
        ports = (e.port for t in self.tasks for e in t.consumes if e.mode == "changes" and not e.has_cursor)
        return self._channels_on_ports(ports)

    @property
    def is_scoped(self) -> bool:
        """Whether the query of a task determines which partitions are read."""
        return any(t.scoped is not None for t in self.tasks)

    @property
    def is_maintained(self) -> bool:
        """Whether a task derives the changes of a dataset from the changes of its inputs."""
        return any(t.scoped is not None and t.scoped.is_maintained for t in self.tasks)

    @property
    def reads_all_partitions(self) -> bool:
        """Whether a task of a dataset reads all partitions of its inputs, whatever its query needs."""
        return any(t.scoped is not None and t.scoped.reads_all_partitions for t in self.tasks)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """Simple triggers of which ``when`` is composed."""
        return tuple(self.when.simple_triggers()) if isinstance(self.when, Trigger) else ()

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Dimensions by which triggers and Dagster partition the executions (R13); empty for an unpartitioned binding.

        By default these are the dimensions that all outputs share and at least one input has. Without that input, an
        execution for one day would have to read all days, and repeat the whole work for each day. A binding that reads
        no channel is partitioned like its outputs.
        """
        known = {d.column: d for c in (*self.writes, *self.reads)[::-1] for d in c.partitions}
        if self.partitions is not None:
            return tuple(known[c] for c in self.partitions if c in known)
        if not self.writes:
            return ()
        written = {c.name for c in self.writes}
        inputs = [c for c in self.reads if c.name not in written]
        return tuple(
            d
            for d in self._dimensions_shared_by_outputs
            if not inputs or any(d.column in c.partition_columns for c in inputs)
        )

    def partition(self, given: str | Mapping[str, object] | None) -> str:
        """Canonical name of a partition for which this binding can be executed. None stands for the unpartitioned
        execution.

        Args:
            given: the partition in any notation that a person may write, or None.

        Raises:
            PartitionError: the binding has no such partition.
        """
        if not given:
            return WHOLE
        dimensions = self.dimensions or self._dimensions_shared_by_outputs
        if not dimensions:
            raise PartitionError(
                f"binding {self.name!r} has no partitions",
                found=str(given),
                expected="no partition: its outputs share no dimension",
                binding=self.name,
            )
        columns = {d.column for d in dimensions}
        fields = {
            f.name: f
            for c in (*self.reads, *self.writes)
            for f in (() if c.schema is None else c.schema.fields)
            if f.name in columns
        }
        return parse_partition(dimensions, given, schema=Schema(tuple(fields.values())))

    @property
    def _dimensions_shared_by_outputs(self) -> tuple[Dimension, ...]:
        first = self.writes[0].partitions if self.writes else ()
        return tuple(d for d in first if all(d.column in c.partition_columns for c in self.writes))

    def completed(self, known: Mapping[str, Channel]) -> Binding:
        """Copy of this binding with more bound ports. If a query reads a port with the name of a channel, the port is
        bound to this channel.

        Args:
            known: name -> channel of the project.
        """
        unbound_ports = {e.port for t in self.tasks for e in t.consumes if e.by_name and e.port not in self.channels}
        found = {p: known[p] for p in sorted(unbound_ports) if p in known and not self._has_writing_task(p)}
        if not found:
            return self
        bound = copy(self)
        object.__setattr__(bound, "channels", {**self.channels, **found})
        return bound

    def channel(self, port: str) -> Channel | None:
        """Channel on a port; None for a private port."""
        return self.channels.get(port)

    def _has_writing_task(self, port: str) -> bool:
        return self.workflowette.writer(port) is not None

    def _channels_on_ports(self, ports: Any) -> tuple[Channel, ...]:
        channels = (self.channels[p] for p in ports if p in self.channels)
        return tuple({c.name: c for c in channels}.values())

    def problems(self) -> list[str]:
        """Problems of this binding alone, including those of its workflowette."""
        found = [
            f"channels names port {p!r}, which the workflowette does not have ({', '.join(self.workflowette.ports)})"
            + did_you_mean(p, self.workflowette.ports)
            for p in self.channels
            if p not in self.workflowette.ports
        ]
        found += [
            f"port {p!r} is bound to {c!r}; expected a nova.Channel"
            for p, c in self.channels.items()
            if not isinstance(c, Channel)
        ]
        if found:
            return [f"binding {self.name!r}: {p}" for p in found]
        found += self._shared_channel_problems() + self._partition_problems()
        for t in self.tasks:
            for e in t.consumes:
                found += self._consume_problems(t, e)
            for p in t.produces:
                found += self._produce_problems(t, p)
        for c in self.checks:
            found += [p for e in c.consumes for p in self._check_edge_problems(c, e)]
        if self.when is not None and not is_supported_trigger(self.when):
            found.append(
                f"when is {self.when!r}; expected nova.on_data(...), nova.every(...), nova.cron(...), "
                "nova.after(...) or nova.on_sealed(...)"
            )
        if not isinstance(self.attempts, int) or self.attempts < 1:
            found.append(f"attempts is {self.attempts!r}; expected a number of runs, at least 1")
        if period_seconds(self.backoff) is None:
            found.append(f"backoff is {self.backoff!r}; expected {EXPECTED_PERIOD}")
        if not isinstance(self.resources, Resources):
            found.append(f"resources is {self.resources!r}; expected nova.Resources(max_cores=...)")
        else:
            found += self.resources.problems()
        return [*self.workflowette.problems(), *(f"binding {self.name!r}: {p}" for p in found)]

    def _shared_channel_problems(self) -> list[str]:
        """Problems if two ports share a channel that is written: the task order would miss that dependency."""
        written = {e.port for t in self.tasks for e in t.produces}
        ports: dict[str, list[str]] = {}
        for port, channel in self.channels.items():
            ports.setdefault(channel.name, []).append(port)
        return [
            f"ports {' and '.join(map(repr, sorted(p)))} are both bound to channel {c!r}, and one of them is written"
            for c, p in ports.items()
            if len(p) > 1 and written & set(p)
        ]

    def _partition_problems(self) -> list[str]:
        channels = dict.fromkeys((*self.writes, *self.reads))
        by_column: dict[str, list[tuple[Channel, Dimension]]] = {}
        for c in channels:
            for d in c.partitions:
                by_column.setdefault(d.column, []).append((c, d))
        found = [
            f"partitions names {p!r}, which is no partition column of its channels ({', '.join(by_column) or 'none'})"
            + did_you_mean(p, by_column)
            for p in self.partitions or ()
            if p not in by_column
        ]
        for d in self.dimensions:
            channels_and_dimensions = by_column[d.column]
            if self.is_scoped:  # the query chooses the partitions of the inputs
                channels_and_dimensions = [(c, other) for c, other in channels_and_dimensions if c in self.writes]
            if len({(other.kind, other.tz) for _, other in channels_and_dimensions}) > 1:
                shown = ", ".join(f"{other.kind} on {c.name!r}" for c, other in channels_and_dimensions)
                found.append(f"partition column {d.column!r} is not the same on all its channels: {shown}")
            found += [
                f"it is partitioned by {d.column!r} and writes bases of channel {c.name!r}, which is not: "
                "each execution would replace the rows of the others"
                for c in self.base_writes
                if d.column not in c.partition_columns
            ]
        return found

    def _consume_problems(self, task: Task, edge: Consumes) -> list[str]:
        channel, where = self.channel(edge.port), f"task {task.name!r}"
        if channel is None:
            writer = self.workflowette.writer(edge.port)
            if writer is None:
                return [
                    f"port {edge.port!r}, which {where} reads, has no channel and no task writes it; "
                    f"bind it with channels={{{edge.port!r}: ...}}"
                ]
            if writer.name == task.name:
                return [f"{where} reads and writes the private port {edge.port!r}; bind a channel to it"]
            if edge.mode in ("old", "changes", "matching"):
                return [
                    f"{where} consumes {edge.mode}({edge.port}) of a private port, which stores nothing; "
                    "bind a channel to it"
                ]
            return []
        if channel.external is not None and not channel.external.has_changes and edge.mode not in ("all", "matching"):
            return [
                f"{where} consumes {edge.mode}({edge.port}), but channel {channel.name!r} is external and "
                f"has no changes to read; use all({edge.port})"
            ]
        if edge.mode == "matching" and not edge.on and not channel.merge.key:
            return [
                f"{where} consumes matching({edge.port}), but channel {channel.name!r} has no key; "
                "name the columns with on="
            ]
        return []

    def _produce_problems(self, task: Task, edge: Produces) -> list[str]:
        if self.channel(edge.port) is None and not self.workflowette.readers(edge.port):
            return [
                f"port {edge.port!r}, which task {task.name!r} writes, has no channel and no task reads it; "
                f"bind it with channels={{{edge.port!r}: ...}}"
            ]
        channel = self.channel(edge.port)
        if channel is not None and channel.external is not None:
            return [f"task {task.name!r} writes channel {channel.name!r}, which is external: another system writes it"]
        options = [] if channel is None else edge.options.problems(channel, edge.kind)
        if channel is None and edge.options != NO_OPTIONS:
            options = ["merge= and format= belong to the blocks of a channel, and the port is private"]
        return [f"task {task.name!r} writes port {edge.port!r} with {edge.options}: {p}" for p in options]

    def _check_edge_problems(self, check: Check, edge: Consumes) -> list[str]:
        where, channel = f"check {check.name!r}", self.channel(edge.port)
        if channel is None and edge.port == check.port:
            return [f"{where} tests the private port {edge.port!r}, which publishes nothing; bind a channel"]
        if channel is None and not self._has_writing_task(edge.port):
            return [f"port {edge.port!r}, which {where} reads, has no channel and no task writes it"]
        if edge.moves_cursor and not self._has_writing_task(edge.port) and channel not in self.cursor_channels:
            return [
                f"{where} consumes {edge.mode}({edge.port}), but no task does. A check has no cursor; "
                f"use all({edge.port})"
            ]
        return []

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "workflowette": self.workflowette.name,
            "tasks": [t.as_json() for t in self.tasks],
            **({"checks": [c.as_json() for c in self.checks]} if self.checks else {}),
            "channels": {p: c.name for p, c in self.channels.items()},
            "when": None if self.when is None else str(self.when),
            "partitions": [d.column for d in self.dimensions],
            **({"attempts": self.attempts} if self.attempts != ATTEMPTS else {}),
            **({"backoff": self.backoff} if self.backoff != BACKOFF else {}),
            **({"resources": self.resources.as_json()} if self.resources != NO_LIMITS else {}),
        }


@check_argument_types(
    "nova.bind", workflowette="nova.Workflowette(name, tasks)", channels="{'port': nova.Channel(name)}"
)
def bind(
    workflowette: Workflowette,
    *,
    name: str | None = None,
    channels: Mapping[str, Channel] | None = None,
    params: Mapping[str, Any] | None = None,
    when: Trigger | None = None,
    description: str | None = None,
    partitions: Sequence[str] | None = None,
    attempts: int = ATTEMPTS,
    backoff: str = BACKOFF,
    resources: Resources = NO_LIMITS,
) -> Binding:
    """Bind a workflowette to channels.

    Args:
        workflowette: the workflowette to run.
        name: name of the binding, unique in the project. By default, the name of the workflowette.
        channels: port -> channel. Needed for ports whose edges name no channel. If an edge names another channel, this
            channel replaces it. A port without a channel is private.
        params: parameters that tasks receive as ``ctx.params``.
        when: the trigger. A binding without a trigger runs only by hand. Runs by hand are always allowed.
        description: shown in Dagster.
        partitions: columns by which executions are partitioned. ``[]`` means unpartitioned executions. Such an
            execution reads everything, and writes every partition that occurs in the data. By default, the dimensions
            of the outputs that an input also has (R13).
        attempts: number of runs after which a firing is abandoned.
        backoff: delay before the second run, such as ``"30s"``. The delay doubles for each further run.
        resources: limits of Spark for its executions, such as ``nova.Resources(max_cores=4)``.
    """
    bound = {**workflowette.declared_channels_by_port, **(channels or {})}
    return Binding(
        check_name(name or workflowette.name, "a binding"),
        workflowette,
        bound,
        dict(params or {}),
        when,
        description,
        [partitions] if isinstance(partitions, str) else partitions,
        attempts,
        backoff,
        resources,
    )
