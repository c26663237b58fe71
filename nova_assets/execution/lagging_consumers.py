"""Consumers that have not read a channel up to its head, and can only derive its changes by comparing snapshots."""

from __future__ import annotations

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import BlockCollected, UnrepresentableChange
from nova_assets.model.block_options import has_same_effect
from nova_assets.model.channel import Channel
from nova_assets.model.merge import MergeModel
from nova_assets.plan import modes
from nova_assets.plan.garbage_collection import history_in_scope


def has_consumer_without_snapshot(catalog: Catalog, channel: str, head: int) -> bool:
    """Whether the snapshot at a lagging consumer's cursor was collected."""
    lagging = catalog.cursors.lagging(channel, head)
    if not lagging:
        return False
    history = catalog.histories.of(channel, head, back_to=min(seq for seq, _ in lagging))
    for seq, scope in lagging:
        try:
            modes.snapshot(history_in_scope(history, scope), seq)
        except BlockCollected:
            return True
    return False


def prepare_consumers_for(catalog: Catalog, channel: Channel, own_merge: MergeModel | None, head: int) -> None:
    """Make sure that every consumer can derive the change of a block with a merge model of its own (Nova 3.1).

    The change is the difference of two snapshots. So collection keeps the snapshot at each cursor from now on (R15).

    Raises:
        UnrepresentableChange: the snapshot at a consumer's cursor was collected before that.
    """
    if own_merge is None or has_same_effect(own_merge, channel.merge):
        return
    catalog.cursors.keep_snapshots(channel.name)
    if head and has_consumer_without_snapshot(catalog, channel.name, head):
        raise UnrepresentableChange(
            f"channel {channel.name!r} cannot take a block with merge={own_merge!r} yet: the block's change is the "
            "difference of two snapshots, and the snapshot at the cursor of a consumer was collected",
            found="a consumer whose cursor is older than the oldest snapshot",
            expected=f"consumers that have read up to version {head}",
            next=f"run the consumers (nova cursors --channel {channel.name} lists them), then write the block again",
            channel=channel.name,
        )


def check_consumers_can_compare(catalog: Catalog, channel: str, head: int) -> None:
    """Check that every consumer can derive the change of a base with which a new merge model takes effect (R18).

    Deltas of two models form no chain. So a consumer that has not read the channel up to its head compares snapshots.

    Raises:
        UnrepresentableChange: the snapshot at a consumer's cursor was collected.
    """
    if has_consumer_without_snapshot(catalog, channel, head):
        raise UnrepresentableChange(
            f"the merge model of channel {channel!r} cannot change yet: its earlier changes form no chain with later "
            "ones, and the snapshot at the cursor of a consumer was collected",
            found="a consumer whose cursor is older than the oldest snapshot",
            expected=f"consumers that have read up to version {head}",
            next=f"run the consumers (nova cursors --channel {channel} lists them), then write the base again",
            channel=channel,
        )
