"""Changelogs: the changes that a base makes, staged beside it for consumers that could not derive them (R15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nova_assets.execution.lagging_consumers import check_consumers_can_compare, has_consumer_without_snapshot
from nova_assets.execution.staging import Staging
from nova_assets.model.block import Block, Manifest, StagedBlock
from nova_assets.model.channel import Channel
from nova_assets.model.execution import Execution
from nova_assets.model.reads import Snapshot, SnapshotDiff
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.required_base import has_new_merge_model


def stage_missing_changelogs(
    staging: Staging, execution: Execution, histories: Mapping[str, History]
) -> dict[str, StagedBlock]:
    """Stage the changes of each staged base beside it, if a lagging consumer could not derive them (R15).

    That happens if the snapshot at the consumer's cursor was collected before it was known that the channel may get
    a base.

    Returns:
        Port -> its staged block, of everything that the execution has staged.
    """
    done = staging.complete_blocks_by_port(execution)
    for block in list(done.values()):
        channel = block.channel
        if block.kind != "base" or channel is None or block.manifest is None or _changelog_port(channel) in done:
            continue
        head = histories[channel].head
        if (
            head
            and staging.catalog.cursors.has_consumers(channel)
            and has_consumer_without_snapshot(staging.catalog, channel, head)
        ):
            history = staging.catalog.histories.of(channel, head, histories[channel].scope, back_to=head)
            done[_changelog_port(channel)] = stage_changelog(
                staging, execution, staging.catalog.definitions.channel(channel).channel, history, block.manifest
            )
    return done


def stage_changelog(
    staging: Staging, execution: Execution, channel: Channel, history: History, base: Manifest
) -> StagedBlock:
    """Stage the changes that a base makes, as a delta to be committed beside it (R15).

    Raises:
        UnrepresentableChange: a new merge model takes effect with the base, and a lagging consumer needs the changes
            since its cursor.
    """
    if has_new_merge_model(history):
        check_consumers_can_compare(staging.catalog, channel.name, history.head)
    new = Block("", channel.name, history.scope, "base", history.head + 1, history.head + 1, base, history.merge)
    after = Snapshot(channel.name, history.head + 1, (new,), (), base.schema, history.merge)
    frame = staging.engine.reader.fetch(SnapshotDiff(modes.snapshot(history), after))
    # A changed model, and changed columns, take effect with this base.
    unchanged = replace(history, last_merge=None, schema=base.schema.visible, next_schema=None)
    return staging.write(execution, _changelog_port(channel.name), "delta", channel, unchanged, frame)


def _changelog_port(channel: str) -> str:
    """Port under which the changes of a base are staged. Parentheses cannot occur in a port's name."""
    return f"(changes of {channel})"
