"""Choice of the cheapest read strategy, from catalog metadata alone, before any file is opened. Pure.

Costs are seconds of CPU, with rates measured on one machine (``benchmarks/ways``). Only the comparison between
strategies matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from nova_assets.model.block import Block
from nova_assets.model.merge import Append, Custom, MergeModel, Multiset
from nova_assets.model.read_strategy import READ_STRATEGIES, CostEstimate, ReadStrategy
from nova_assets.model.reads import (
    ChangeUnion,
    DeltaChain,
    EmptyRead,
    PrivatePortRead,
    Read,
    Snapshot,
    SnapshotAsInserts,
    SnapshotDiff,
    source_blocks,
)
from nova_assets.plan.block_layout import COMPARABLE_TYPES, can_merge_outside_spark, common_layout, layout_of_small_diff
from nova_assets.plan.merge_units import EMPTY_SIZE, merge_tasks
from nova_assets.plan.partial_reads import is_plain_file_scan, stored_blocks

Purpose: TypeAlias = Literal["frame", "here", "block"]
"""Destination of the rows: a Spark frame, a table in this process, or a block to write."""

MEMORY_ROWS = 1_000_000
MEMORY_BYTES = 256 * 2**20
"""Limits for reads computed in memory: number of rows, and uncompressed size of the files."""

APPEND_MEMORY_FACTOR = 16
"""Factor on these limits when files of an append-only channel are rewritten in memory.

Nothing is merged there, so only one row group is in memory at a time.
"""

DELTA_MEMORY_FACTOR = 4
"""Factor on these limits for the deltas of a snapshot whose other rows pass through memory."""

_MEMORY_PER_FILE_BYTE = 4
"""Approximate bytes in memory per byte in a file."""

DECODE_ROW_SECONDS, DECODE_BYTE_SECONDS = 80e-9, 5e-9
"""Seconds for decoding a row, and a byte."""

_START_SECONDS = {"arrow": 0.02, "buckets": 0.15, "spark": 0.30}
_SPARK_COMPARISON_SECONDS = 1.2
"""Minimum seconds for Spark's comparison of two snapshots of any size, besides its start."""

_PROBE_ROW_SECONDS, _WINDOW_ROW_SECONDS, _JOIN_ROW_SECONDS, _MERGE_ROW_SECONDS = 100e-9, 2.5e-6, 0.75e-6, 30e-9
_TO_FRAME_ROW_SECONDS = {"buckets": 200e-9, "spark": 0.0}
"""Seconds for passing a row to Spark's own operators."""

_TO_TABLE_ROW_SECONDS = {"arrow": 0.0, "buckets": 400e-9, "spark": 200e-9}
_WRITE_ROW_SECONDS = {"arrow": 120e-9, "buckets": 60e-9, "spark": 1e-6}


def estimate_strategies(read: Read, purpose: Purpose = "frame") -> tuple[CostEstimate, ...]:
    """Cost estimates of the applicable strategies of a read, cheapest first.

    A snapshot that is not computed in memory is a scan by Spark, which skips columns and row groups that the query does
    not need. For the purpose ``frame`` nothing is computed in memory, because it is unknown whether the frame will be
    used. For a union of changes (``ChangeUnion``), each part uses its own strategy, and the estimate is the sum.
    """
    if isinstance(read, SnapshotAsInserts):
        return estimate_strategies(read.snapshot, purpose)
    if isinstance(read, ChangeUnion):
        return _sum_cheapest_estimates([estimate_strategies(p, purpose) for p in read.parts])
    if isinstance(read, EmptyRead | PrivatePortRead) or any(not isinstance(s, Block) for s in source_blocks(read)):
        return ()
    found = [_estimate_cost(read, way, purpose) for way in READ_STRATEGIES if _is_applicable(read, way, purpose)]
    return tuple(sorted(found, key=lambda e: e.seconds))


def choose_strategy(
    read: Read, purpose: Purpose = "frame", forced_strategy: ReadStrategy | None = None
) -> ReadStrategy:
    """Strategy for a read: the forced strategy if applicable, otherwise the cheapest."""
    estimate = best_estimate(estimate_strategies(read, purpose), forced_strategy)
    return "spark" if estimate is None else estimate.strategy


def best_estimate(
    estimates: Sequence[CostEstimate], forced_strategy: ReadStrategy | None = None
) -> CostEstimate | None:
    """Estimate of the forced strategy if applicable, otherwise the cheapest; None if nothing has to be read."""
    forced_estimates = [e for e in estimates if e.strategy == forced_strategy]
    return next(iter([*forced_estimates, *estimates]), None)


def seconds_without_start(estimate: CostEstimate) -> float:
    """Estimated seconds of a read, without those that a query costs however little it reads."""
    return max(0.0, estimate.seconds - _START_SECONDS[estimate.strategy])


def _sum_cheapest_estimates(estimates_by_part: Sequence[tuple[CostEstimate, ...]]) -> tuple[CostEstimate, ...]:
    cheapest = [p[0] for p in estimates_by_part if p]
    if not cheapest:
        return ()
    strategy = cheapest[0].strategy if len({e.strategy for e in cheapest}) == 1 else "spark"
    return (
        CostEstimate(
            strategy, sum(e.rows for e in cheapest), sum(e.bytes for e in cheapest), sum(e.seconds for e in cheapest)
        ),
    )


def _is_applicable(read: Snapshot | DeltaChain | SnapshotDiff, strategy: ReadStrategy, purpose: Purpose) -> bool:
    if strategy == "spark":
        return True
    if (strategy == "arrow" and purpose == "frame") or (
        strategy == "buckets" and purpose != "block" and isinstance(read, Snapshot)
    ):
        return False
    return common_layout(read) is not None if strategy == "buckets" else _fits_in_memory(read, purpose)


def _fits_in_memory(read: Snapshot | DeltaChain | SnapshotDiff, purpose: Purpose) -> bool:
    """Whether a read may be computed in memory."""
    factor = APPEND_MEMORY_FACTOR if purpose == "block" and isinstance(_model_of(read), Append) else 1
    return can_merge_in_process(read) and _are_few(stored_blocks(read), factor)


def can_merge_touched_rows(read: Snapshot) -> bool:
    """Whether a keyed snapshot of any size can be merged in this process, because its deltas are few rows.

    The base has each key once, so the rows that they may change are few, too. A multiset may have any number of rows
    that are equal.
    """
    deltas = [d for d in read.deltas if isinstance(d, Block)]
    limit = MEMORY_BYTES * DELTA_MEMORY_FACTOR
    return (
        bool(deltas and read.merge.key)
        and can_merge_in_process(read)
        and _are_few(deltas, DELTA_MEMORY_FACTOR)
        and sum(f.uncompressed_bytes for d in deltas for f in d.manifest.files) <= limit
    )


def _are_few(blocks: Sequence[Block], factor: int) -> bool:
    is_small = sum(b.bytes for b in blocks) * _MEMORY_PER_FILE_BYTE <= MEMORY_BYTES * factor
    return is_small and sum(b.rows for b in blocks) <= MEMORY_ROWS * factor


def can_merge_in_process(read: Snapshot | DeltaChain | SnapshotDiff) -> bool:
    """Whether Arrow and NumPy merge the rows of a read as Spark does, whatever their number."""
    blocks = stored_blocks(read)
    schema = read.new.schema if isinstance(read, SnapshotDiff) else read.schema
    model = _model_of(read)
    if schema is None or isinstance(model, Custom):
        return False
    if isinstance(read, SnapshotDiff) and common_layout(read) is None and layout_of_small_diff(read) is None:
        return False
    has_comparable_keys = all(k in schema and schema.field(k).type.name in COMPARABLE_TYPES for k in model.key)
    is_unmerged = isinstance(model, Append) or (isinstance(model, Multiset) and is_plain_file_scan(read))
    if isinstance(model, Multiset):
        can_fold = is_unmerged or all(f.type.name in COMPARABLE_TYPES for f in schema.fields)
    else:
        can_fold = is_unmerged or (has_comparable_keys and can_merge_outside_spark(model, schema))
    can_fold = can_fold and all(
        b.manifest.external_folder is None for b in blocks
    )  # values of partition columns are in folder names
    has_one_model = all(model.as_json() in (b.merge.as_json(), b.model_of_channel.as_json()) for b in blocks)
    has_one_model = has_one_model and all(
        can_merge_outside_spark(b.merge, schema) for b in blocks if b.has_own_merge and b.merge.key
    )
    return can_fold and has_one_model


def _model_of(read: Snapshot | DeltaChain | SnapshotDiff) -> MergeModel:
    """The merge model of a read."""
    return read.new.merge if isinstance(read, SnapshotDiff) else read.merge


def _estimate_cost(
    read: Snapshot | DeltaChain | SnapshotDiff, strategy: ReadStrategy, purpose: Purpose
) -> CostEstimate:
    if isinstance(read, SnapshotDiff):
        return _estimate_diff(read, strategy, purpose)
    if purpose == "block" and strategy == "buckets" and isinstance(read, Snapshot):
        return _estimate_rewrite(read)
    base_blocks = [b for b in (read.bases if isinstance(read, Snapshot) else ()) if isinstance(b, Block)]
    deltas = [d for d in read.deltas if isinstance(d, Block)]
    base_rows, delta_rows = sum(b.rows for b in base_blocks), sum(d.rows for d in deltas)
    read_bytes = sum(b.bytes for b in (*base_blocks, *deltas))
    cost = _START_SECONDS[strategy] + DECODE_ROW_SECONDS * (base_rows + delta_rows) + DECODE_BYTE_SECONDS * read_bytes
    if read.merge.has_deletions and deltas:
        windowed = len(deltas) > 1 and (isinstance(read, DeltaChain) or read.merge.needs_earlier_row)
        cost += _merge_seconds(strategy, base_rows, delta_rows, windowed)
    return CostEstimate(
        strategy, base_rows + delta_rows, read_bytes, cost + _output_seconds(strategy, purpose, base_rows + delta_rows)
    )


def _estimate_rewrite(read: Snapshot) -> CostEstimate:
    """Estimate for rewriting a snapshot. Files of merge units without a change are reused."""
    common, changed_size = common_layout(read), EMPTY_SIZE
    assert common is not None
    blocks = stored_blocks(read)
    for partition in {b.partition for b in blocks}:
        base, deltas = (
            [b for b in some if isinstance(b, Block) and b.partition == partition] for some in (read.bases, read.deltas)
        )
        for task in merge_tasks(base, deltas, common.layout) or ():
            changed_size += task.size if task.deltas else EMPTY_SIZE
    seconds = (
        _START_SECONDS["buckets"]
        + (DECODE_ROW_SECONDS + _MERGE_ROW_SECONDS + _WRITE_ROW_SECONDS["buckets"]) * changed_size.rows
        + DECODE_BYTE_SECONDS * changed_size.bytes
    )
    return CostEstimate("buckets", changed_size.rows, changed_size.bytes, seconds)


def _merge_seconds(strategy: ReadStrategy, base_rows: int, delta_rows: int, needs_window: bool) -> float:
    if strategy != "spark":
        return _MERGE_ROW_SECONDS * (base_rows + delta_rows)
    folded = _START_SECONDS["spark"] + _WINDOW_ROW_SECONDS * delta_rows if needs_window else 0.0
    return folded + (_START_SECONDS["spark"] + _PROBE_ROW_SECONDS * (base_rows + 2 * delta_rows) if base_rows else 0.0)


def _estimate_diff(read: SnapshotDiff, strategy: ReadStrategy, purpose: Purpose) -> CostEstimate:
    shared_paths = (
        set()
        if strategy == "spark"
        else _rows_and_bytes_by_path(read.old).keys() & _rows_and_bytes_by_path(read.new).keys()
    )
    files = {
        p: f for side in (read.old, read.new) for p, f in _rows_and_bytes_by_path(side).items() if p not in shared_paths
    }
    rows, size = sum(r for r, _ in files.values()), sum(s for _, s in files.values())
    cost = _START_SECONDS[strategy] + DECODE_ROW_SECONDS * rows + DECODE_BYTE_SECONDS * size
    cost += _SPARK_COMPARISON_SECONDS + _JOIN_ROW_SECONDS * rows if strategy == "spark" else _MERGE_ROW_SECONDS * rows
    return CostEstimate(strategy, rows, size, cost + _output_seconds(strategy, purpose, rows // 10))


def _rows_and_bytes_by_path(read: Snapshot) -> dict[str, tuple[int, int]]:
    return {f.path: (f.rows, f.bytes) for b in stored_blocks(read) for f in b.manifest.files}


def _output_seconds(strategy: ReadStrategy, purpose: Purpose, rows: int) -> float:
    return {"frame": _TO_FRAME_ROW_SECONDS, "here": _TO_TABLE_ROW_SECONDS, "block": _WRITE_ROW_SECONDS}[purpose][
        strategy
    ] * rows
