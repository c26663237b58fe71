"""Lists of channels and instants, with the tables that commands print and notebooks show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nova_assets.model.channel_state import ChannelState
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
