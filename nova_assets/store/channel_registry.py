"""Channels of a deployment: register them, look them up, list their state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import ChannelNotFound
from nova_assets.execution.actor import current_actor
from nova_assets.execution.runtime import Runtime
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState, PartitionState
from nova_assets.model.compaction import Compaction
from nova_assets.model.project import Project
from nova_assets.model.provenance import ProvenanceStep
from nova_assets.model.reads import Snapshot, read_as_json
from nova_assets.model.text_format import (
    format_block_name,
    format_bytes,
    format_count,
    format_merge_model,
    format_number_ranges,
    format_time,
)
from nova_assets.model.text_table import TextTable
from nova_assets.model.timeline import Instant
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes


class ChannelListing(list[ChannelState]):
    """Channels of a catalog. A notebook shows them as the table of ``nova channels``.

    Args:
        load_head: loads the head snapshot of a channel, whose size the table shows.
    """

    def __init__(self, states: Iterable[ChannelState], load_head: Callable[[ChannelState], Snapshot]) -> None:
        super().__init__(states)
        self._load_head = load_head

    def __reduce__(self) -> tuple[type[list[ChannelState]], tuple[list[ChannelState]]]:
        """Another process gets a plain list, since it may not have the catalog."""
        return list, (list(self),)

    def _repr_html_(self) -> str:
        return channels_table(self, [self._head_if_readable(state) for state in self]).to_html()

    def _head_if_readable(self, state: ChannelState) -> Snapshot | None:
        """Head snapshot; None if the catalog no longer answers, or the blocks were collected since."""
        try:
            return self._load_head(state)
        except NovaError:
            return None


class InstantListing(list[Instant]):
    """Instants of a channel, oldest first. A notebook shows them as the table of ``nova timeline``."""

    def _repr_html_(self) -> str:
        return timeline_table(self).to_html()


class ProvenanceListing(list[ProvenanceStep]):
    """Commits that data went through. A notebook shows them as the table of ``nova provenance``."""

    def _repr_html_(self) -> str:
        return provenance_table(self).to_html()


def channels_table(states: Sequence[ChannelState], heads: Sequence[Snapshot | None]) -> TextTable:
    """Table of channels.

    Args:
        heads: head snapshot of each channel; None if it is not known.
    """
    partitioned = ("partitions",) if any(state.channel.partitions for state in states) else ()
    retained = ("retain",) if any(state.channel.retain is not None for state in states) else ()
    columns = ("channel", "merge", *partitioned, *retained, "head", "rows", "bytes", "schema")
    table = TextTable(columns, right_aligned=("head", "rows", "bytes"), shorten=("schema",))
    for state, head in zip(states, heads, strict=True):
        totals = {"rows": None, "bytes": None} if head is None else read_as_json(head)
        table.add(
            state.channel.name,
            format_merge_model(state.channel.merge),
            *([", ".join(state.channel.partition_columns)] if partitioned else []),
            *([state.channel.retain or ""] if retained else []),
            *(str(state.head), format_count(totals["rows"]), format_bytes(totals["bytes"])),
            "(set by the first block)" if state.schema is None else str(state.schema),
        )
    return table


def timeline_table(instants: Iterable[Instant]) -> TextTable:
    """Table of instants, with a row for each block."""
    columns = ("seq", "block", "rows", "deleted", "bytes", "by", "time (UTC)")
    table = TextTable(columns, right_aligned=("seq", "rows", "deleted", "bytes"), shorten=("by",))
    for instant in instants:
        seq = "" if instant.seq is None else str(instant.seq)
        cause, at = _format_cause(instant), format_time(instant.at)
        for block in instant.blocks:
            counts = (format_count(block.rows), format_count(block.manifest.deletes), format_bytes(block.bytes))
            table.add(seq, format_block_name(block), *counts, cause, at)
        for removed in instant.rolled_back:
            files = f"removed {format_count(len(removed.files))} files"
            table.add(seq, f"{files} {removed.partition}".rstrip(), "", "", "", cause, at)
        if not instant.blocks and not instant.rolled_back:
            table.add(seq, "", "", "", "", cause, at)
    return table


def _format_cause(instant: Instant) -> str:
    origin = instant.binding or ("insert" if instant.action == "commit" else "")
    words = [origin] if instant.action == "commit" else [instant.action, origin]
    if instant.state == "requested":
        words.append("(in progress)")
    return " ".join(w for w in words if w)


def provenance_table(steps: Iterable[ProvenanceStep]) -> TextTable:
    """Table of commits, with one row for all commits of a binding, or of inserts, to a channel."""
    columns = ("channel", "numbers", "partitions", "by", "commits", "first (UTC)", "last (UTC)", "read")
    table = TextTable(columns, right_aligned=("partitions", "commits"), shorten=("by", "read"))
    groups: dict[tuple[str, str], list[ProvenanceStep]] = {}
    for step in steps:
        groups.setdefault((step.channel, step.commit.binding or step.origin), []).append(step)
    for (channel, cause), group in groups.items():
        keys = [s.commit.idempotency_key for s in group if s.commit.idempotency_key is not None]
        partitions = {p for s in group for p in s.partitions if p}
        times = [s.commit.at for s in group]
        table.add(
            channel,
            format_number_ranges(s.seq for s in group),
            format_count(len(partitions)) if partitions else "",
            f"{cause} {_format_keys(keys)}".rstrip(),
            format_count(len(group)),
            format_time(min(times)),
            format_time(max(times)),
            _format_reads(group),
        )
    return table


def _format_keys(keys: Sequence[str]) -> str:
    """The first idempotency key, and how many more there are; empty for none."""
    if not keys:
        return ""
    return f"({keys[0]})" if len(keys) == 1 else f"({keys[0]} and {len(keys) - 1} more)"


def _format_reads(group: Sequence[ProvenanceStep]) -> str:
    """What the commits read: numbers of a single commit, otherwise names."""
    if len(group) == 1:
        return "; ".join(map(str, group[0].commit.reads))
    return ", ".join(dict.fromkeys(r.channel for s in group for r in s.commit.reads))


class ChannelRegistry:
    """Channels in the catalog and in the project."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def register(self, what: Channel | Project | Sequence[Channel], *, replace: bool = False) -> None:
        """Register channels, or a project with its bindings, in the catalog.

        Registering the same definition again changes nothing.

        Args:
            what: a channel, several channels, or a project with its bindings.
            replace: accept a different definition of a registered channel. If the merge model changes, the new model
                takes effect with the next base (R18). A binding whose removal is final is registered anew.

        Raises:
            DefinitionConflict: the channel is registered with a different definition, and ``replace`` is false.
            DefinitionRemoved: a channel, binding or workflowette was removed.
        """
        if isinstance(what, Project):
            self.runtime.catalog.definitions.register(what.channels, what.bindings, replace, current_actor())
        else:
            channels = [what] if isinstance(what, Channel) else list(what)
            self.runtime.catalog.definitions.register(channels, (), replace, current_actor())

    def channels(self) -> list[ChannelState]:
        """Every registered channel with its head, rows and bytes."""
        catalog = self.runtime.catalog
        return ChannelListing(catalog.definitions.channels(), lambda state: head_snapshot(catalog, state))

    def partitions(
        self, channel: Channel | str, partition: str | Mapping[str, object] | None = None
    ) -> list[PartitionState]:
        """Partitions of a channel, sorted by name. Dropped partitions are included (``is_dropped``).

        Args:
            partition: values of one or more dimensions. Only partitions with these values are returned.
        """
        state = self.registered_state(channel)
        return self.runtime.catalog.histories.partitions(state.channel.name, state.parse_scope(partition))

    def timeline(self, channel: Channel | str, limit: int | None = None) -> list[Instant]:
        """Instants of a channel, oldest first.

        Args:
            limit: return only the latest ``limit`` instants. By default, all.
        """
        return InstantListing(self.runtime.catalog.instants.of(self.known(channel), limit))

    def known(self, channel: Channel | str) -> str:
        """Name of a registered channel.

        A channel of the project, or a ``Channel`` object, is registered on its first use.

        Raises:
            ChannelNotFound: neither the catalog nor the project has the channel.
        """
        if isinstance(channel, Channel):
            self.register(channel)
            return channel.name
        return self.registered_state(channel).channel.name

    def registered_state(self, channel: Channel | str) -> ChannelState:
        """State of a channel, which is registered on its first use. Raises ChannelNotFound, as ``known``."""
        catalog = self.runtime.catalog
        if isinstance(channel, Channel):
            self.register(channel)
            return catalog.definitions.channel(channel.name)
        try:
            return catalog.definitions.channel(channel)
        except ChannelNotFound:
            definition = self.find_definition(channel)
            if definition is None:
                raise
            self.register(definition)
            return catalog.definitions.channel(channel)

    def find_definition(self, channel: Channel | str) -> Channel | None:
        """Definition of a channel: the ``Channel`` object itself, or the project's definition. None without any."""
        if isinstance(channel, Channel):
            return channel
        return next((c for c in self.runtime.project.channels if c.name == channel), None)

    def compaction_policy(self, channel: str) -> Compaction:
        """Compaction policy of a channel in the project's definition."""
        definition = self.find_definition(channel)
        return Compaction() if definition is None else definition.compaction or Compaction()


def head_snapshot(catalog: Catalog, state: ChannelState) -> Snapshot:
    """Snapshot of a channel at its head, without the blocks of earlier versions."""
    return modes.snapshot(catalog.histories.of(state.channel.name, state.head, back_to=state.head))
