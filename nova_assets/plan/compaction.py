"""When a channel is worth compacting, and what is compacted (R14). Pure.

A base saves everybody who reads ``all`` the merging of the deltas before it, and costs a reading and a writing of the
whole. How many will read is not known; so one is made when what the readers since the last one have paid for merging
exceeds what it costs. In hindsight that is at most twice as dear as knowing, as when one rents until the rent paid
exceeds the price.

Deltas that are many, but hold little beside their base, are no reason to write that again: they are chained, in tiers.
Each chain takes the newest deltas back to one that is larger than all it takes together. So a row is written again a
few times, and not once for every so many deltas; and the deltas that a reader opens stay few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nova_assets.model.block import Block, DataFile
from nova_assets.model.compaction import Compaction
from nova_assets.model.merge import Append, Custom
from nova_assets.model.schema import DELETED, Schema
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan import modes
from nova_assets.short_repr import short_repr

MERGE_COST_FACTOR = 0.8
"""What merging adds to a bare scan of the same bytes (DESIGN §6: 1.8 times)."""

FILE_OPENING_BYTES = 4 * 1024 * 1024
"""Bytes that opening a file is worth, as Spark reckons."""


@dataclass(frozen=True, slots=True)
class Compact:
    """What upkeep adds to a partition: a base, or a chained delta.

    Args:
        at: the number at which it is added; it exists already.
        why: for people.
        since: where a chained delta begins; None for a base.
        anew: a base that compaction has added is at that number already, and is replaced.
        renamed: the base calls its columns as the channel calls them now, and not as they were called at its number.
    """

    __repr__ = short_repr

    partition: str
    at: int
    why: str
    since: int | None = None
    anew: bool = False
    renamed: bool = False

    @property
    def range(self) -> str:
        """``B5`` or ``Δ(2→5)``, as Nova writes it."""
        return f"B{self.at}" if self.since is None else f"Δ({self.since}→{self.at})"


def due_compactions(
    history: History, policy: Compaction, full_reads: int, cursors: Collection[int] = ()
) -> tuple[Compact, ...]:
    """What is worth adding now.

    Args:
        history: all blocks, up to the head.
        full_reads: how often the channel was read whole since its newest base.
        cursors: numbers at which somebody stands; no chain leads across them, or its parts would have to stay.
    """
    if _is_new_model_pending(history):
        return ()
    found: list[Compact] = []
    for track in history.partition_histories:
        base, deltas = modes.base_and_deltas(history, track, history.head)
        why = _reason_for_base(history, base, deltas, policy, full_reads)
        if why is not None:
            found.append(Compact(track.partition, track.numbers[-1], why))
        elif len(deltas) >= policy.deltas:
            delta_runs = [_newest_tier(run, policy) for run in _chainable_runs(deltas, cursors)]
            found += [_chain_compaction(run, "small deltas") for run in delta_runs if run]
    return tuple(found)


def forced_compactions(
    history: History, chain_deltas: bool = False, cursors: Collection[int] = (), *, rewrite_renamed: bool = False
) -> tuple[Compact, ...]:
    """Whatever can be compacted, as a person asks for it: a base for every partition that has deltas, or chains.

    Args:
        rewrite_renamed: also for those whose base upkeep has made, and whose columns are called otherwise now.
    """
    if _is_new_model_pending(history):
        return ()
    found: list[Compact] = []
    for track in history.partition_histories:
        base, deltas = modes.base_and_deltas(history, track, history.head)
        at = track.numbers[-1]
        if chain_deltas:
            found += [_chain_compaction(run, "asked for") for run in _chainable_runs(deltas, cursors)]
        elif deltas:
            found.append(Compact(track.partition, at, "asked for"))
        elif (
            rewrite_renamed
            and base is not None
            and is_compacted_base_at(base, at)
            and _has_renamed_columns(base, history.schema)
        ):
            found.append(Compact(track.partition, at, "its columns were renamed", anew=True, renamed=True))
    return tuple(found)


def is_compacted_base_at(base: Block, at: int) -> bool:
    """Whether compaction has added this base at a number, so that another one of the same content may replace it."""
    return base.origin == "compact" and base.hi == at


def is_fully_compacted(history: History) -> bool:
    """Whether all partitions are bases that compaction has added, under the merge model of now."""
    states = [(modes.base_and_deltas(history, t, history.head), t.numbers[-1]) for t in history.partition_histories]
    bases = all(base is not None and is_compacted_base_at(base, at) and not deltas for (base, deltas), at in states)
    return bases and not _is_new_model_pending(history)


def _has_renamed_columns(base: Block, schema: Schema | None) -> bool:
    """Whether the channel calls columns of a base otherwise now, and has all of them, of the same types."""
    own = base.manifest.schema
    return schema is not None and (now := _with_current_names(own, schema)) is not None and now != own


def _with_current_names(block_schema: Schema, current_schema: Schema) -> Schema | None:
    """Columns of a block under their names of now; None where one was dropped or widened since."""
    by_identity = {f.identity: f for f in current_schema.fields}
    fields = [by_identity.get(f.identity) for f in block_schema.fields]
    renamed_fields = [n for f, n in zip(block_schema.fields, fields, strict=True) if n is not None and n.type == f.type]
    return Schema(tuple(renamed_fields)) if len(renamed_fields) == len(block_schema.fields) else None


def group_by_written_schema(compactions: Iterable[Compact], history: History) -> dict[Schema, list[Compact]]:
    """Bases that compaction adds, by the schema in which each is written: that of its number, whatever the channel has
    become since (R18). Answers at that number need the columns and types of their time (R9)."""
    tracks = {t.partition: t for t in history.partition_histories}
    compactions_by_schema: dict[Schema, list[Compact]] = {}
    for compact in compactions:
        compactions_by_schema.setdefault(_written_schema(compact, tracks[compact.partition], history), []).append(
            compact
        )
    return compactions_by_schema


def _written_schema(compact: Compact, partition_history: PartitionHistory, history: History) -> Schema:
    # Deltas of Custom models may have columns of their own.
    schema_blocks = [
        b
        for b in partition_history.blocks
        if b.hi <= compact.at and (b.kind == "base" or not isinstance(b.merge, Custom))
    ]
    newest = max(schema_blocks, key=lambda b: (b.hi, b.origin != "compact"), default=None)
    own = history.schema if newest is None else newest.manifest.schema.without_columns(DELETED)
    assert own is not None  # there are blocks
    return own if not compact.renamed or history.schema is None else _with_current_names(own, history.schema) or own


def final_compactions(history: History, policy: Compaction) -> tuple[Compact, ...]:
    """What brings partitions to which nothing more is expected into their final form: one base each, of files of the
    size wanted."""
    if _is_new_model_pending(history):
        return ()
    found: list[Compact] = []
    for track in history.partition_histories:
        base, deltas = modes.base_and_deltas(history, track, history.head)
        at = track.numbers[-1]
        if deltas:
            found.append(Compact(track.partition, at, "it is complete"))
        elif base is not None and base.origin == "compact" and base.hi == at and isinstance(history.merge, Append):
            files = base.manifest.files
            small = [f.bytes for f in files if f not in _files_to_keep(files, policy.target, is_final=True)]
            if len(small) > file_count_for(sum(small), policy.target):
                found.append(Compact(track.partition, at, f"it is complete, {len(small)} small files", anew=True))
    return tuple(found)


def _is_new_model_pending(history: History) -> bool:
    """Whether the channel waits for a base with which another merge model takes effect (R18): nothing is added that
    could be taken for it."""
    return history.last_merge is not None and history.last_merge.as_json() != history.merge.as_json()


def _reason_for_base(
    history: History, base: Block | None, deltas: tuple[Block, ...], policy: Compaction, full_reads: int
) -> str | None:
    if not deltas:
        return None
    if isinstance(history.merge, Append):
        return (
            f"{len(deltas)} deltas"
            if len(deltas) >= policy.deltas
            else _small_files_reason(base, deltas, policy, full_reads)
        )
    base_bytes, delta_bytes = (0 if base is None else base.bytes), sum(b.bytes for b in deltas)
    if len(deltas) >= policy.deltas and base_bytes <= policy.small:
        return f"{len(deltas)} deltas"
    if delta_bytes > policy.share * max(base_bytes, policy.small):
        return f"deltas of {delta_bytes} bytes beside a base of {base_bytes}"
    total = base_bytes + delta_bytes
    files = sum(len(b.manifest.files) for b in deltas)
    saved_cost = full_reads * (MERGE_COST_FACTOR * total + files * FILE_OPENING_BYTES)
    base_cost = 2 * total + files * FILE_OPENING_BYTES
    return f"{full_reads} readings have paid for it" if saved_cost > base_cost else None


def _small_files_reason(
    base: Block | None, deltas: tuple[Block, ...], policy: Compaction, full_reads: int
) -> str | None:
    """Of a channel that is only added to nothing is merged: what is saved is the opening of small files."""
    files = [f for b in (*([base] if base is not None else []), *deltas) for f in b.manifest.files]
    small = [f for f in files if f.bytes < policy.small]
    saved, costs = (
        full_reads * len(small) * FILE_OPENING_BYTES,
        2 * sum(f.bytes for f in small) + len(small) * FILE_OPENING_BYTES,
    )
    return f"{len(small)} small files" if len(small) > 1 and saved > costs else None


def _chainable_runs(deltas: Sequence[Block], cursors: Collection[int]) -> list[tuple[Block, ...]]:
    """The deltas that one chain may replace: side by side, of one model and schema, and no cursor between them."""
    runs: list[list[Block]] = []
    for delta in deltas:
        previous = runs[-1][-1] if runs else None
        alike = (
            previous is not None and previous.merge == delta.merge and previous.manifest.schema == delta.manifest.schema
        )
        if previous is not None and alike and not any(previous.hi <= c < delta.hi for c in cursors):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return [tuple(run) for run in runs if len(run) > 1]


def _newest_tier(run: Sequence[Block], policy: Compaction) -> tuple[Block, ...]:
    """The newest deltas of a run, back to one that is larger than all of them; none while that would be few."""
    total_bytes = 0
    for n in range(len(run) - 1, -1, -1):
        if len(run) - 1 - n >= max(2, policy.deltas // 2) and run[n].bytes >= total_bytes:
            return tuple(run[n + 1 :])
        total_bytes += run[n].bytes
    return tuple(run) if len(run) >= max(2, policy.deltas // 2) else ()


def _chain_compaction(run: Sequence[Block], reason: str) -> Compact:
    return Compact(run[0].partition, run[-1].hi, f"{len(run)} deltas: {reason}", since=run[0].lo)


def reusable_files(
    history: History, block_by_id: Mapping[str, Block], policy: Compaction, format: str, *, is_final: bool = False
) -> frozenset[str]:
    """Paths of files that the new base may list as they are: of a channel that is only added to, and written as they
    would be written now.

    Small files are rolled into larger ones in tiers, as deltas are chained: those are kept that hold more than all
    smaller ones of their partition together. So a row is written again a few times on its way to a file of the size
    wanted, however many small ones come.

    Args:
        history: with the schema in which the new base is written.
        format: in which the engine writes.
        is_final: nothing more is expected: all files that are too small are put together.
    """
    if not isinstance(history.merge, Append):
        return frozenset()
    of_partition: dict[str, list[DataFile]] = {}
    for b in block_by_id.values():
        if b.manifest.format == format and b.manifest.schema == history.schema and isinstance(b.merge, Append):
            of_partition.setdefault(b.partition, []).extend(b.manifest.files)
    return frozenset(f.path for files in of_partition.values() for f in _files_to_keep(files, policy.target, is_final))


def _files_to_keep(files: Sequence[DataFile], target: int, is_final: bool) -> list[DataFile]:
    ordered = sorted(files, key=lambda f: f.bytes, reverse=True)
    smaller_bytes = sum(f.bytes for f in ordered)
    kept: list[DataFile] = []
    for f in ordered:
        smaller_bytes -= f.bytes
        if f.bytes < target and (is_final or f.bytes <= smaller_bytes):
            break
        kept.append(f)
    is_single_left = len(ordered) - len(kept) == 1
    return ordered if is_single_left else kept


def file_count_for(total_bytes: int, target_bytes: int) -> int:
    """How many files so many bytes become: none is smaller than the target then, if there is enough for one."""
    return max(1, total_bytes // target_bytes)
