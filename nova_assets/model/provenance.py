"""Provenance: the commits that a version of a channel was computed from, and those that were computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nova_assets.model.block import Kind, Origin
from nova_assets.model.partitions import WHOLE
from nova_assets.short_repr import short_repr

if TYPE_CHECKING:
    from nova_assets.model.binding import Binding


READ_VERSIONS = "read_versions"
"""Detail of a commit: channel -> the version that it used, where that is no input of a binding."""


@dataclass(frozen=True, slots=True)
class ChannelRead:
    """What an execution read of one channel. Its commit records it.

    Args:
        channel: name of the channel.
        since: version that the previous execution read; None for a read of one whole version.
        at: version that was read.
        scope: partitions that were read; ``""`` for all.
        is_new_only: whether every task read nothing but what changed after ``since``. False also for commits of older
            catalogs, which did not record it.
    """

    channel: str
    since: int | None
    at: int
    scope: str = WHOLE
    is_new_only: bool = False

    def as_json(self) -> list[Any]:
        """The fields without the channel."""
        return [self.since, self.at, self.scope, self.is_new_only]

    @staticmethod
    def from_json(channel: str, fields: Sequence[Any]) -> ChannelRead:
        return ChannelRead(channel, *fields)

    def __str__(self) -> str:
        numbers = f"{self.since}→{self.at}" if self.is_new_only and self.since is not None else f"at {self.at}"
        return " ".join(t for t in (self.channel, self.scope, numbers) if t)


@dataclass(frozen=True, slots=True)
class NumberedBlock:
    """A block that took a sequence number, as provenance needs it. Its files may have been collected.

    Args:
        seq: the sequence number.
    """

    channel: str
    partition: str
    seq: int
    kind: Kind
    origin: Origin
    commit_id: str


@dataclass(frozen=True, slots=True)
class CommitOrigin:
    """Origin of one commit: its binding or idempotency key, and its reads.

    Args:
        binding: binding that was executed; None for an insert, a restore or upkeep.
        partition: partition of the binding.
        idempotency_key: key of an insert, if it has one.
        reads: the reads of the execution.
        numbers: channel -> sequence number that the commit took there.
    """

    __repr__ = short_repr

    id: str
    binding: str | None
    partition: str
    at: datetime
    idempotency_key: str | None
    reads: tuple[ChannelRead, ...]
    numbers: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ProvenanceStep:
    """One commit that data went through.

    Args:
        distance: number of reads between this commit and the version that was asked about, on the shortest way. The
            commit that wrote the version has 0. A commit that read it has 1.
        channel: channel that the commit wrote.
        seq: sequence number that it took there.
        partitions: the written partitions that belong to the answer.
        origin: origin of its blocks, such as ``task`` or ``insert``.
        commit: the commit, with what it read.
    """

    __repr__ = short_repr

    distance: int
    channel: str
    seq: int
    partitions: tuple[str, ...]
    origin: Origin
    commit: CommitOrigin

    def as_json(self) -> Mapping[str, Any]:
        """The step as JSON, in the shape that ``nova provenance --json`` documents."""
        return {
            "distance": self.distance,
            "channel": self.channel,
            "seq": self.seq,
            "partitions": list(self.partitions),
            "origin": self.origin,
            "commit": self.commit.id,
            "binding": self.commit.binding,
            "partition": self.commit.partition,
            "at": self.commit.at.isoformat(),
            "key": self.commit.idempotency_key,
            "reads": [
                {
                    "channel": r.channel,
                    "since": r.since,
                    "at": r.at,
                    "partition": r.scope,
                    "new_only": r.is_new_only,
                }
                for r in self.commit.reads
            ],
        }


ChannelColumn = tuple[str, str]
"""(channel, column)."""


def column_lineage(binding: Binding) -> dict[str, dict[str, tuple[ChannelColumn, ...]]]:
    """Written channel -> column -> its source columns in other channels, resolved through private ports.

    Columns without declared lineage are absent: unknown lineage differs from having no sources.
    """
    lineage_by_port: dict[str, dict[str, tuple[ChannelColumn, ...]]] = {}
    for task in binding.workflowette.in_order():
        port_by_input = {e.name: e.port for e in task.consumes}
        for produced_edge in task.produces:
            sources_by_column = task.scoped.column_origins() if task.scoped is not None else produced_edge.columns
            lineage_by_port[produced_edge.port] = {
                column: _resolve_source_columns(binding, lineage_by_port, port_by_input, sources)
                for column, sources in sources_by_column.items()
            }
    return {c.name: lineage_by_port[p] for p, c in binding.channels.items() if lineage_by_port.get(p)}


def _resolve_source_columns(
    binding: Binding,
    lineage_by_port: Mapping[str, Mapping[str, tuple[ChannelColumn, ...]]],
    port_by_input: Mapping[str, str],
    sources: tuple[str, ...],
) -> tuple[ChannelColumn, ...]:
    columns: dict[ChannelColumn, None] = {}
    for source in sources:
        name, _, column = source.partition(".")
        channel = binding.channel(port_by_input[name])
        source_columns = (
            ((channel.name, column),)
            if channel is not None
            else lineage_by_port.get(port_by_input[name], {}).get(column, ())
        )
        columns |= dict.fromkeys(source_columns)
    return tuple(columns)
