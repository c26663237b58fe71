"""Missing or changed files: which answers they make impossible, and which damaged blocks no reader needs. Pure.

The functions that answer reads and collect blocks (``plan/modes``, ``plan/garbage_collection``) determine the effect of
a damaged block, applied to the history without the block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nova_assets.model.block import Block
from nova_assets.model.channel_state import RetentionState
from nova_assets.model.damage import Damage
from nova_assets.model.merge import Append
from nova_assets.model.partitions import is_in_scope
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan.delta_paths import last_number_up_to
from nova_assets.plan.garbage_collection import NEWEST_SNAPSHOT, reasons_of_possible_reads
from nova_assets.plan.modes import answerable_versions

DefectByPath = Mapping[str, str]
"""Path of a damaged file -> description of the defect."""

_MAX_NAMED_FILES = 3
"""Maximum number of files named in a message."""


@dataclass(frozen=True, slots=True)
class PartitionLoss:
    """Damage of one partition of a channel.

    Args:
        damaged_blocks: blocks with a missing or changed file.
        affected_readers: readers with a retained read that is no longer possible.
        lost_versions: numbers of the partition that can no longer be answered.
        answerable_versions: numbers of the partition that can still be answered.
    """

    partition_history: PartitionHistory
    damaged_blocks: tuple[Block, ...]
    affected_readers: tuple[str, ...]
    lost_versions: tuple[int, ...]
    answerable_versions: frozenset[int]

    def is_answerable_at(self, at: int) -> bool:
        """Whether the content of the partition at a version of the channel can still be answered."""
        return last_number_up_to(self.partition_history.numbers, at) in self.answerable_versions


def blocks_to_give_up(state: RetentionState, damaged_block_ids: frozenset[str]) -> tuple[Block, ...]:
    """Damaged blocks that no reader needs.

    Of each partition either all damaged blocks are given up or none. Giving up some would remove one path to an answer,
    while the other path exists only in the catalog.
    """
    return tuple(
        b
        for loss in losses_by_partition(state, damaged_block_ids)
        if not loss.affected_readers
        for b in loss.damaged_blocks
    )


def losses_by_partition(state: RetentionState, damaged_block_ids: frozenset[str]) -> tuple[PartitionLoss, ...]:
    """Effect of damaged blocks, for each partition that has some."""
    found = []
    for partition_history in state.history.partition_histories:
        damaged_blocks = tuple(b for b in partition_history.blocks if b.id in damaged_block_ids)
        if damaged_blocks:
            partition_state = replace(state, history=state.history.for_partitions({partition_history.partition}))
            remaining_history = history_without_blocks(partition_state.history, damaged_blocks)
            affected_readers = tuple(
                Counter(reasons_of_possible_reads(partition_state))
                - Counter(reasons_of_possible_reads(replace(partition_state, history=remaining_history)))
            )
            remaining_versions = answerable_versions(remaining_history.partition_histories[0])
            found.append(
                PartitionLoss(
                    partition_history,
                    damaged_blocks,
                    affected_readers,
                    tuple(sorted(answerable_versions(partition_history) - remaining_versions)),
                    remaining_versions,
                )
            )
    return tuple(found)


def history_without_blocks(history: History, blocks: Sequence[Block]) -> History:
    """The history as if the blocks had been collected: the numbers of their changes stay recorded."""
    removed_ids = {b.id for b in blocks}
    numbers = {p: set(n) for p, n in history.collected_numbers.items()}
    for b in blocks:
        block_numbers = numbers.setdefault(b.partition, set())
        block_numbers |= {b.hi} if b.origin != "compact" else set()
    remaining_blocks = tuple(b for b in history.blocks if b.id not in removed_ids)
    return replace(
        history, blocks=remaining_blocks, collected_numbers={p: tuple(sorted(n)) for p, n in numbers.items()}
    )


def newest_answerable_version(state: RetentionState, losses: Sequence[PartitionLoss]) -> int:
    """Newest version of the channel that can be answered; 0 if only the empty version can."""
    unaffected_partitions = [
        (t.numbers, answerable_versions(t))
        for t in state.history.partition_histories
        if all(t.partition != loss.partition_history.partition for loss in losses)
    ]
    version = state.history.head
    while version > 0:
        if all(loss.is_answerable_at(version) for loss in losses) and all(
            last_number_up_to(n, version) in whole for n, whole in unaffected_partitions
        ):
            return version
        version -= 1
    return 0


def damage_of_lost_files(
    state: RetentionState, defect_by_path: DefectByPath, readers: Sequence[str] = (), writer: str | None = None
) -> list[Damage]:
    """Damage reports for a channel's files, one per affected partition.

    Args:
        state: retention state of the channel.
        defect_by_path: the damaged files.
        readers: bindings that read the channel.
        writer: binding that writes the channel as a base.
    """
    damaged_block_ids = frozenset(
        b.id for b in state.history.blocks if any(f.path in defect_by_path for f in b.manifest.files)
    )
    losses = losses_by_partition(state, damaged_block_ids)
    return [
        _unrepairable_damage(state, loss, defect_by_path, readers, writer, losses)
        if loss.affected_readers
        else _repairable_damage(state, loss, defect_by_path)
        for loss in losses
    ]


def _repairable_damage(state: RetentionState, loss: PartitionLoss, defect_by_path: DefectByPath) -> Damage:
    ranges = ", ".join(b.range for b in loss.damaged_blocks)
    lost_versions_note = (
        f"; {_format_versions(loss.lost_versions)}, which no reader needs, cannot be read" if loss.lost_versions else ""
    )
    return Damage(
        "file",
        _damage_subject(state, loss),
        _describe_loss(state, loss, defect_by_path),
        f"every retained read is possible without {ranges}{lost_versions_note}",
        "give up",
        f"{ranges} is marked as collected, so that no plan uses it",
        concerns=tuple(b.id for b in loss.damaged_blocks),
    )


def _unrepairable_damage(
    state: RetentionState,
    loss: PartitionLoss,
    defect_by_path: DefectByPath,
    readers: Sequence[str],
    writer: str | None,
    losses: Sequence[PartitionLoss],
) -> Damage:
    head_lost = NEWEST_SNAPSHOT in loss.affected_readers
    means = (
        [f"{_format_versions(loss.lost_versions)} of {_format_partition(state, loss)} cannot be read"]
        if loss.lost_versions
        else []
    )
    means += [f"needed by {'; '.join(loss.affected_readers)}"]
    means += [f"read by {', '.join(readers)}"] if head_lost and readers else []
    return Damage(
        "file",
        _damage_subject(state, loss),
        _describe_loss(state, loss, defect_by_path),
        "; ".join(means),
        next=_next_steps(state, loss, writer, newest_answerable_version(state, losses)),
        concerns=tuple(f.path for b in loss.damaged_blocks for f in b.manifest.files if f.path in defect_by_path),
    )


def _next_steps(state: RetentionState, loss: PartitionLoss, writer: str | None, newest_version: int) -> str:
    """Commands for the user. A new base takes effect immediately, unless it must first be compared with the
    lost data.
    """
    channel, advice = state.history.channel, ["copy the files back from a backup"]
    head_lost, consumers = NEWEST_SNAPSHOT in loss.affected_readers, [r for r in state.consumers if r.cursor > 0]
    compared = bool(consumers) and (isinstance(state.history.merge, Append) or not state.may_get_base)
    if not head_lost and all(why.startswith("time travel") for why in loss.affected_readers):
        return advice[0]
    if head_lost and compared:
        return f"{advice[0]}: a new base would have to be compared with them, for consumer {consumers[0].name}"
    if writer is not None:
        advice.append(f"nova run {writer}, which writes a new base")
    if newest_version > 0:
        after = "" if newest_version == state.history.head else ", without the later data"
        advice.append(
            f"nova restore {channel} --at {newest_version}, which writes a base of the newest readable version{after}"
        )
    else:
        advice.append(f"nova insert {channel} FILE --kind base")
    stuck_consumers = [
        r.name
        for r in consumers
        if is_in_scope(loss.partition_history.partition, r.scope) and not loss.is_answerable_at(r.cursor)
    ]
    stuck_note = f" ({', '.join(stuck_consumers)} can continue only with the files)" if stuck_consumers else ""
    return "; or ".join(advice) + stuck_note


def _describe_loss(state: RetentionState, loss: PartitionLoss, defect_by_path: DefectByPath) -> str:
    damaged_paths = list(
        dict.fromkeys(f.path for b in loss.damaged_blocks for f in b.manifest.files if f.path in defect_by_path)
    )
    defects = [f"{path} {defect_by_path[path]}" for path in damaged_paths[:_MAX_NAMED_FILES]]
    defects += [f"and {len(damaged_paths) - _MAX_NAMED_FILES} more"] if len(damaged_paths) > _MAX_NAMED_FILES else []
    return (
        f"{', '.join(b.range for b in loss.damaged_blocks)} of {_format_partition(state, loss)}: {'; '.join(defects)}"
    )


def _format_versions(numbers: Sequence[int]) -> str:
    """``version 3``, ``versions 3 to 5, 9``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    shown = ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
    return f"version{'s' if len(numbers) > 1 else ''} {shown}"


def _format_partition(state: RetentionState, loss: PartitionLoss) -> str:
    return state.history.channel + (
        f" in {loss.partition_history.partition}" if loss.partition_history.partition else ""
    )


def _damage_subject(state: RetentionState, loss: PartitionLoss) -> str:
    return f"{state.history.channel} {loss.partition_history.partition}".rstrip()
