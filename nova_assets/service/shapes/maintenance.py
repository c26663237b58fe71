"""JSON shapes of compaction and garbage collection."""

from __future__ import annotations

from nova_assets.model.retention import CollectedGarbage
from nova_assets.plan.compaction import PlannedCompaction
from nova_assets.service.shapes.blocks import BlockShape, CommitShape
from nova_assets.service.shapes.shape import Shape


class CompactShape(Shape):
    """A block that compaction adds to a partition at a number: a base, or with ``since`` a chained delta."""

    partition: str
    at: int
    why: str
    since: int | None
    anew: bool
    range: str

    @staticmethod
    def from_planned_compaction(planned_compaction: PlannedCompaction) -> CompactShape:
        return CompactShape(
            partition=planned_compaction.partition,
            at=planned_compaction.at,
            why=planned_compaction.why,
            since=planned_compaction.since,
            anew=planned_compaction.anew,
            range=planned_compaction.range,
        )

    def to_planned_compaction(self) -> PlannedCompaction:
        return PlannedCompaction(self.partition, self.at, self.why, self.since, self.anew)


class CompactedShape(Shape):
    """Result of a compaction or of its dry run. ``commit`` is null if nothing was added."""

    channel: str
    wanted: list[CompactShape]
    commit: CommitShape | None


class CollectedShape(Shape):
    """Blocks that were collected, or would be."""

    channel: str
    blocks: list[BlockShape]
    commit: str

    @staticmethod
    def from_collection(collection: CollectedGarbage) -> CollectedShape:
        return CollectedShape(
            channel=collection.channel,
            blocks=[BlockShape.from_block(b) for b in collection.blocks],
            commit=collection.commit_id,
        )

    def to_collection(self) -> CollectedGarbage:
        return CollectedGarbage(self.channel, tuple(b.to_block() for b in self.blocks), self.commit)


class PlanShape(Shape):
    """Maintenance that a channel needs now."""

    channel: str
    compact: list[CompactShape]
    collect: list[BlockShape]
