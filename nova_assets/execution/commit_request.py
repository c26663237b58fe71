"""Commit requests: the blocks that an execution publishes, with the requirements for publishing them (R2, R6)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nova_assets.catalog.catalog import Catalog
from nova_assets.execution.staging import SKIPPED_FOLDER
from nova_assets.model.block import Origin, StagedBlock
from nova_assets.model.commit import AddBlock, CommitRequest, RequireNoConsumers, SetSchema
from nova_assets.model.execution import Execution, TaskReport
from nova_assets.model.merge import Append, Custom
from nova_assets.model.sum_bounds import RequireSumHeadroom, overflowable_sums
from nova_assets.model.timeline import History
from nova_assets.plan.run_plan import RunPlan
from nova_assets.plan.sum_bounds import sum_headrooms


def build_commit_request(
    catalog: Catalog,
    execution: Execution,
    staged_by_port: Mapping[str, StagedBlock],
    plan: RunPlan,
    histories: Mapping[str, History],
    task_reports: Sequence[TaskReport] = (),
) -> CommitRequest:
    """Commit request for everything that the execution staged, with its requirements (R2, R6).

    Args:
        staged_by_port: the blocks that the execution has staged.
        task_reports: reports of the tasks that ran in this process, stored beside the commit.
    """
    added_blocks = tuple(
        part
        for b in staged_by_port.values()
        if b.channel is not None and b.folder != SKIPPED_FOLDER
        for part in split_staged_block(b, histories[b.channel])
    )
    requirements = load_block_requirements(catalog, added_blocks, histories)
    return CommitRequest(
        id=uuid.uuid4().hex,
        execution_id=execution.id,
        epoch=execution.epoch,
        binding=execution.binding,
        added_blocks=added_blocks,
        cursors=plan.cursors,
        required_heads=plan.heads,
        reads=plan.recorded_reads(execution.pins),
        details={"tasks": [r.as_json() for r in task_reports]} if task_reports else {},
        schema_changes=requirements.schema_changes,
        required_without_consumers=requirements.without_consumers,
        required_sum_headrooms=requirements.sum_headrooms,
    )


def split_staged_block(staged: StagedBlock, history: History, origin: Origin = "task") -> list[AddBlock]:
    """Blocks that a staged block publishes: one for each partition (R13).

    A base replaces everything in its scope, so each partition that it does not contain gets a base without rows.
    """
    assert staged.manifest is not None
    parts = staged.manifest.split_by_partition()
    if staged.kind == "base":
        nonempty_partitions = [
            t.partition for t in history.partition_histories if t.blocks[-1].kind == "delta" or t.blocks[-1].rows
        ]
        for partition in nonempty_partitions:
            parts.setdefault(partition, replace(staged.manifest, files=(), deletes=0))
    parts = parts or {history.scope: staged.manifest}
    own = staged.manifest.merge
    return [
        AddBlock(
            staged.id if n == 0 else f"{staged.id}-{n}",
            history.channel,
            staged.kind,
            m,
            history.merge if own is None else own,
            p,
            origin,
            channel_merge=None if own is None else history.merge,
        )
        for n, (p, m) in enumerate(parts.items())
    ]


@dataclass(frozen=True, slots=True)
class BlockRequirements:
    """Schema changes and preconditions of a commit that adds certain blocks.

    Args:
        without_consumers: channels of which no consumer may read changes, because a base drops rows.
        sum_headrooms: limits for concurrent deltas, so that no sum overflows in total.
    """

    schema_changes: tuple[SetSchema, ...] = ()
    without_consumers: tuple[RequireNoConsumers, ...] = ()
    sum_headrooms: tuple[RequireSumHeadroom, ...] = ()

    def __add__(self, other: BlockRequirements) -> BlockRequirements:
        return BlockRequirements(
            self.schema_changes + other.schema_changes,
            tuple(dict.fromkeys(self.without_consumers + other.without_consumers)),
            self.sum_headrooms + other.sum_headrooms,
        )


def load_block_requirements(
    catalog: Catalog, added_blocks: Sequence[AddBlock], histories: Mapping[str, History]
) -> BlockRequirements:
    """Requirements for adding these blocks, beyond cursors and heads.

    Args:
        histories: channel -> the pinned history on which its blocks were planned.
    """
    schema_changes, without_consumers = [], []
    for block in {b.channel: b for b in sorted(added_blocks, key=lambda b: b.kind == "base")}.values():
        history, schema = histories[block.channel], block.manifest.schema.visible
        if not isinstance(history.merge, Custom) or block.kind == "base" or history.schema is None:
            # Only a base that the definition waits for drops or renames columns.
            is_next = history.schema is not None and any(
                schema.name_of_field(f) != f.name for f in history.schema.fields
            )
            schema_changes.append(SetSchema(block.channel, history.schema, schema, is_next))
        replaces_rows = block.kind == "base" and isinstance(history.merge, Append) and history.head > 0
        if replaces_rows and not block.manifest.drops_no_rows:
            without_consumers.append(RequireNoConsumers(block.channel))
    headrooms = load_sum_headrooms(catalog, added_blocks, histories)
    return BlockRequirements(tuple(schema_changes), tuple(without_consumers), headrooms)


def load_sum_headrooms(
    catalog: Catalog, added_blocks: Iterable[AddBlock], histories: Mapping[str, History]
) -> tuple[RequireSumHeadroom, ...]:
    """Limits that adding these blocks sets for concurrent deltas, so that no sum overflows in total."""
    headrooms: list[RequireSumHeadroom] = []
    for part in added_blocks:
        types = overflowable_sums(part.merge, part.manifest.schema) if part.kind == "delta" else {}
        if types and part.manifest.rows:
            head = histories[part.channel].head
            near = catalog.histories.of(part.channel, head, part.partition, back_to=head)
            headrooms += sum_headrooms(near, part.manifest, types)
    return tuple(headrooms)
