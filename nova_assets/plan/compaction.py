"""Compaction decisions: when a channel is worth compacting, and which blocks are added (R14). Pure.

A base saves every reader of ``all`` the merging of earlier deltas, and costs one full read and one full write. The
number of future readers is unknown. A base is therefore written once the readers since the last base have paid more for
merging than a new base costs. In hindsight this costs at most twice the optimum, as in the rent-or-buy problem.

Many deltas that are small compared with their base do not justify rewriting the base: they are chained, in tiers. Each
chain takes the newest deltas, back to a delta that is larger than all of them together. So each row is rewritten only a
few times, not once per fixed number of deltas, and readers open few deltas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nova_assets.model.block import Block, DataFile
from nova_assets.model.block_options import BLOCK_FORMATS
from nova_assets.model.compaction import Compaction
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm
from nova_assets.model.merge import Append, Custom
from nova_assets.model.schema import DELETED, Field, Schema
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan import modes
from nova_assets.plan.required_base import has_new_merge_model
from nova_assets.short_repr import short_repr

MERGE_COST_FACTOR = 0.8
"""Extra cost of merging, relative to a bare scan of the same bytes (DESIGN §6: 1.8 times)."""

FILE_OPENING_BYTES = 4 * 1024 * 1024
"""Cost of opening a file, in bytes, as Spark estimates it."""


@dataclass(frozen=True, slots=True)
class PlannedCompaction(JsonForm):
    """A base or a chained delta that maintenance adds to a partition.

    Args:
        at: existing sequence number at which the block is added.
        why: readable reason.
        since: start of a chained delta; None for a base.
        anew: replaces an earlier base of compaction at that number.
        renamed: the base uses the current column names of the channel instead of those at its number.
        is_published: others read the files of the base, so it has no hidden columns.
    """

    __repr__ = short_repr

    partition: str
    at: int
    why: str
    since: int | None = None
    anew: bool = False
    renamed: bool = field(default=False, metadata=NOT_IN_JSON)
    is_published: bool = field(default=False, metadata=NOT_IN_JSON)

    _json_properties = ("range",)

    @property
    def range(self) -> str:
        """``B5`` or ``Δ(2→5)``, in Nova's notation."""
        return f"B{self.at}" if self.since is None else f"Δ({self.since}→{self.at})"


def due_compactions(
    history: History, policy: Compaction, full_reads: int, cursors: Collection[int] = ()
) -> tuple[PlannedCompaction, ...]:
    """Compactions that are worthwhile now.

    Args:
        history: all blocks, up to the head.
        policy: limits of the channel.
        full_reads: number of full reads of the channel since its newest base.
        cursors: positions of consumers. No chain crosses a cursor, because its parts would have to be retained.
    """
    if has_new_merge_model(history):  # a base of compaction could be mistaken for the one with which it takes effect
        return ()
    found: list[PlannedCompaction] = []
    for partition_history in history.partition_histories:
        base, deltas = modes.base_and_deltas(history, partition_history, history.head)
        why = _reason_for_base(history, base, deltas, policy, full_reads)
        if why is not None:
            found.append(PlannedCompaction(partition_history.partition, partition_history.numbers[-1], why))
        elif len(deltas) >= policy.deltas:
            delta_runs = [_newest_tier(run, policy) for run in _chainable_runs(deltas, cursors)]
            found += [_chain_compaction(run, "small deltas") for run in delta_runs if run]
    return tuple(found)


def forced_compactions(
    history: History, chain_deltas: bool = False, cursors: Collection[int] = (), *, is_published: bool = False
) -> tuple[PlannedCompaction, ...]:
    """All possible compactions, on request of a person: a base for every partition with deltas, or chains.

    Args:
        history: all blocks, up to the head.
        chain_deltas: chain deltas instead of writing bases.
        cursors: positions of consumers.
        is_published: others read the files. Compacted bases are also rewritten if their columns have been renamed
            since, or if they have hidden columns.
    """
    if has_new_merge_model(history):
        return ()
    found: list[PlannedCompaction] = []
    for partition_history in history.partition_histories:
        base, deltas = modes.base_and_deltas(history, partition_history, history.head)
        at = partition_history.numbers[-1]
        if chain_deltas:
            found += [_chain_compaction(run, "requested") for run in _chainable_runs(deltas, cursors)]
        elif deltas:
            found.append(PlannedCompaction(partition_history.partition, at, "requested", is_published=is_published))
        elif base is not None and _has_other_format(base):
            why = f"the base has format {base.manifest.format}"
            found.append(PlannedCompaction(partition_history.partition, base.hi, why, is_published=is_published))
        elif is_published and base is not None and is_compacted_base_at(base, at):
            renamed, hidden = _has_renamed_columns(base, history.schema), base.manifest.schema.hidden
            if renamed or hidden:
                why = "columns were renamed" if renamed else "others do not see hidden columns"
                found.append(
                    PlannedCompaction(
                        partition_history.partition, at, why, anew=True, renamed=renamed, is_published=True
                    )
                )
    return tuple(found)


def is_compacted_base_at(base: Block, at: int) -> bool:
    """Whether a base was added by compaction at a number, so that another base with the same content may replace it."""
    return base.origin == "compact" and base.hi == at


def is_fully_compacted(history: History) -> bool:
    """Whether every partition consists of a base from compaction, under the current merge model."""
    states = [(modes.base_and_deltas(history, t, history.head), t.numbers[-1]) for t in history.partition_histories]
    bases = all(base is not None and is_compacted_base_at(base, at) and not deltas for (base, deltas), at in states)
    return bases and not has_new_merge_model(history)


def _has_renamed_columns(base: Block, schema: Schema | None) -> bool:
    """Whether columns of a base were renamed since, while none was dropped or changed its type."""
    own = base.manifest.schema
    return schema is not None and (now := _with_current_names(own, schema)) is not None and now != own


def _with_current_names(block_schema: Schema, current_schema: Schema) -> Schema | None:
    """Schema of a block with current column names; None if a column was dropped or widened since."""
    by_identity = {f.identity: f for f in current_schema.fields}
    fields = [by_identity.get(f.identity) for f in block_schema.fields]
    renamed_fields = [n for f, n in zip(block_schema.fields, fields, strict=True) if n is not None and n.type == f.type]
    return Schema(tuple(renamed_fields)) if len(renamed_fields) == len(block_schema.fields) else None


def group_by_written_schema(
    compactions: Iterable[PlannedCompaction], history: History
) -> dict[Schema, list[PlannedCompaction]]:
    """Compactions by the schema in which their block is written: the schema at their number (R18).

    Answers at that number need the columns and types of that version (R9), whatever the channel's schema is now.
    """
    history_by_partition = {t.partition: t for t in history.partition_histories}
    compactions_by_schema: dict[Schema, list[PlannedCompaction]] = {}
    for compact in compactions:
        compactions_by_schema.setdefault(
            _written_schema(compact, history_by_partition[compact.partition], history), []
        ).append(compact)
    return compactions_by_schema


def _written_schema(compact: PlannedCompaction, partition_history: PartitionHistory, history: History) -> Schema:
    # Not the channel's schema: a base at 2, written after a column was dropped, would take its values from ``at=2``.
    # Deltas of Custom models may have columns of their own.
    schema_blocks = [
        b
        for b in partition_history.blocks
        if b.hi <= compact.at and (b.kind == "base" or not isinstance(b.merge, Custom))
    ]
    newest = max(schema_blocks, key=lambda b: (b.hi, b.origin != "compact"), default=None)
    own = history.schema if newest is None else newest.manifest.schema.without_columns(DELETED)
    assert own is not None  # a history with blocks has a schema
    if compact.renamed and history.schema is not None:
        own = _with_current_names(own, history.schema) or own
    hidden = () if compact.is_published else _common_hidden_columns(partition_history, history, compact.at)
    return replace(own, hidden=hidden)


def _common_hidden_columns(partition_history: PartitionHistory, history: History, at: int) -> tuple[Field, ...]:
    """Hidden columns of all blocks that a base at a number merges. Rows of a block without these columns do not agree
    with the rows of other blocks in them, so the columns are left out: a ``Multiset`` merges only equal rows."""
    base, deltas = modes.base_and_deltas(history, partition_history, at)
    hidden = [b.manifest.schema.hidden for b in (*([base] if base is not None else []), *deltas)]
    return hidden[0] if hidden and all(h == hidden[0] for h in hidden) else ()


def compactions_of_complete_partitions(history: History, policy: Compaction) -> tuple[PlannedCompaction, ...]:
    """Compactions that bring complete partitions into their final form: one base, in files of the target size.

    A partition is complete if no more data is expected, as in a sealed day.
    """
    if has_new_merge_model(history):
        return ()
    found: list[PlannedCompaction] = []
    for partition_history in history.partition_histories:
        base, deltas = modes.base_and_deltas(history, partition_history, history.head)
        at = partition_history.numbers[-1]
        if deltas:
            found.append(PlannedCompaction(partition_history.partition, at, "the partition is complete"))
        elif base is not None and base.origin == "compact" and base.hi == at and isinstance(history.merge, Append):
            # Earlier compactions may have left small files in a base at this number, where no second base can be added
            # (R14). A base that answers the same (R9) replaces that base.
            files = base.manifest.files
            small = [f.bytes for f in files if f not in _files_to_keep(files, policy.target, is_final=True)]
            if len(small) > file_count_for(sum(small), policy.target):
                found.append(
                    PlannedCompaction(
                        partition_history.partition,
                        at,
                        f"the partition is complete, {len(small)} small files",
                        anew=True,
                    )
                )
    return tuple(found)


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
        return f"deltas of {delta_bytes} bytes, base of {base_bytes} bytes"
    total = base_bytes + delta_bytes
    files = sum(len(b.manifest.files) for b in deltas)
    saved_cost = full_reads * (MERGE_COST_FACTOR * total + files * FILE_OPENING_BYTES)
    base_cost = 2 * total + files * FILE_OPENING_BYTES
    return f"{full_reads} full reads cost more than a new base" if saved_cost > base_cost else None


def _small_files_reason(
    base: Block | None, deltas: tuple[Block, ...], policy: Compaction, full_reads: int
) -> str | None:
    """Reason to merge small files of an append-only channel, or None.

    Nothing is merged by key there, so the only saving is opening fewer files.
    """
    files = [f for b in (*([base] if base is not None else []), *deltas) for f in b.manifest.files]
    small = [f for f in files if f.bytes < policy.small]
    saved, costs = (
        full_reads * len(small) * FILE_OPENING_BYTES,
        2 * sum(f.bytes for f in small) + len(small) * FILE_OPENING_BYTES,
    )
    return f"{len(small)} small files" if len(small) > 1 and saved > costs else None


def _has_other_format(base: Block) -> bool:
    """Whether a base was written, or kept, in a format that compaction turns into the engine's."""
    is_other = base.manifest.format in BLOCK_FORMATS and base.manifest.format != "parquet"
    return is_other and base.manifest.external_folder is None


def _chainable_runs(deltas: Sequence[Block], cursors: Collection[int]) -> list[tuple[Block, ...]]:
    """Runs of adjacent deltas that one chain may replace: same model and schema, and no cursor between them."""
    runs: list[list[Block]] = []
    for delta in deltas:
        previous = runs[-1][-1] if runs else None
        alike = (
            previous is not None
            and previous.merge == delta.merge
            and previous.manifest.schema == delta.manifest.schema
            and not (previous.has_own_merge or delta.has_own_merge)
        )
        if previous is not None and alike and not any(previous.hi <= c < delta.hi for c in cursors):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return [tuple(run) for run in runs if len(run) > 1]


def _newest_tier(run: Sequence[Block], policy: Compaction) -> tuple[Block, ...]:
    """The newest deltas of a run, back to a delta that is larger than all of them; empty while these are few."""
    total_bytes = 0
    for n in range(len(run) - 1, -1, -1):
        if len(run) - 1 - n >= max(2, policy.deltas // 2) and run[n].bytes >= total_bytes:
            return tuple(run[n + 1 :])
        total_bytes += run[n].bytes
    return tuple(run) if len(run) >= max(2, policy.deltas // 2) else ()


def _chain_compaction(run: Sequence[Block], reason: str) -> PlannedCompaction:
    return PlannedCompaction(run[0].partition, run[-1].hi, f"{len(run)} deltas: {reason}", since=run[0].lo)


def reusable_files(
    history: History, block_by_id: Mapping[str, Block], policy: Compaction, format: str, *, is_final: bool = False
) -> frozenset[str]:
    """Paths of files that a new base of an append-only channel may list unchanged.

    Reusable files have the schema and format in which the base is written. Small files are merged into larger ones in
    tiers, like deltas: a file is kept if it is larger than all smaller files of its partition together. So each row is
    rewritten only a few times until its file reaches the target size, however many small files arrive.

    Args:
        history: with the schema in which the new base is written.
        block_by_id: the blocks whose files may be reused.
        policy: limits of the channel.
        format: format in which the engine writes.
        is_final: no more data is expected, so all files below the target size are merged.
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


def file_count_for(total_bytes: int, min_file_bytes: int) -> int:
    """Number of files for a total size, none smaller than the minimum unless the total is."""
    return max(1, total_bytes // min_file_bytes)
