"""One pass of automatic maintenance over the channels of a store's project (R14, R15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store

log = get_logger("nova_assets.upkeep")

_RECHECK_TIME_FORMAT = "%Y-%m-%dT%H"
"""Hourly time stamp in a channel's digest. Unchanged channels are checked every hour, because retention periods pass,
pins are released and a failed run may succeed."""


@dataclass(frozen=True, slots=True)
class MaintenanceTick:
    """Result of one maintenance pass.

    Args:
        state_digests: digest of each checked channel's state, by channel. The next pass skips a channel whose digest
            has not changed.
        channels_to_compact: channels whose compaction is worth the cost.
        messages: lines for people on what was done and what failed.
    """

    state_digests: Mapping[str, str]
    channels_to_compact: tuple[str, ...]
    messages: tuple[str, ...]


def run_maintenance_tick(
    store: Store, previous_digests: Mapping[str, str], is_compaction_running: bool = False
) -> MaintenanceTick:
    """Drop expired partitions, collect blocks and delete their files, and find the channels to compact.

    Args:
        previous_digests: ``state_digests`` of the previous pass. Lost digests cost only another check.
        is_compaction_running: compaction runs elsewhere, so this pass names no channel to compact. The next pass checks
            the channels again.
    """
    state_digests: dict[str, str] = {}
    channels_to_compact: list[str] = []
    messages: list[str] = []
    compacted_channels = auto_compacted_channels(store)
    for channel, digest in _state_digest_by_channel(store, store.catalog.now()).items():
        state_digests[channel] = digest
        if previous_digests.get(channel) == digest:
            continue
        try:
            dropped = store.drop_expired(channel)
            collected = store.collect_garbage(channel).blocks
            due = channel in compacted_channels and store.compactable(channel, force=False)
        except NovaError as error:  # a failing channel must not block the others
            log.error("%s: %s", channel, error)
            messages.append(f"{channel}: {error}")
            continue
        if dropped is not None:
            messages.append(f"{channel}: dropped {', '.join(b.partition for b in dropped.blocks)}")
        if collected:
            messages.append(f"{channel}: collected {', '.join(b.range for b in collected)}")
        if due and is_compaction_running:
            state_digests.pop(channel)
        elif due:
            channels_to_compact.append(channel)
            messages.append(f"{channel}: {'; '.join(c.why for c in due)}")
    deleted = store.delete_collected()
    if deleted:
        messages.append(f"deleted {deleted} files of collected blocks")
    for line in messages:
        log.info("%s", line)
    return MaintenanceTick(state_digests, tuple(channels_to_compact), tuple(messages))


def auto_compacted_channels(store: Store) -> list[str]:
    """Names of the project's channels that are compacted automatically and that the catalog knows."""
    registered_channels = {s.channel.name for s in store.catalog.channels()}
    return [c.name for c in store.project.channels if c.compaction is not None and c.name in registered_channels]


def _state_digest_by_channel(store: Store, now: datetime) -> dict[str, str]:
    """Digest of each channel's state that decides about maintenance. An equal digest means an equal decision."""
    cursor_sum_by_channel: dict[str, int] = {}
    for cursor in store.cursors():
        cursor_sum_by_channel[cursor.channel] = cursor_sum_by_channel.get(cursor.channel, 0) + cursor.seq
    heads = {s.channel.name: s.head for s in store.catalog.channels()}
    names = [c.name for c in store.project.channels if heads.get(c.name)]
    recheck = now.strftime(_RECHECK_TIME_FORMAT)
    return {
        name: f"{heads[name]} {cursor_sum_by_channel.get(name, 0)} {store.catalog.count_full_reads(name)} {recheck}"
        for name in names
    }
