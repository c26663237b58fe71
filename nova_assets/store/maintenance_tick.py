"""One pass of automatic maintenance over the channels of a store's project (R14, R15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store

log = get_logger("nova_assets.upkeep")

_RECHECK_TIME_FORMAT = "%Y-%m-%dT%H"
"""Hourly time stamp in a channel's digest. Unchanged channels are checked every hour, because retention periods pass,
pins are released and a failed run may succeed."""


NEWEST_COMMIT_KEY = "nova/newest_commit"
"""Key under which the digests keep the time of the newest commit. No channel can have this name."""


@dataclass(frozen=True, slots=True)
class MaintenanceTick:
    """Result of one maintenance pass.

    Args:
        state_digests: digest of each checked channel's state, by channel. The next pass skips a channel whose digest
            has not changed. The key ``NEWEST_COMMIT_KEY`` has the time of the newest commit.
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
    newest_commit = str(store.catalog.garbage.newest_commit_time())
    has_new_commit = previous_digests.get(NEWEST_COMMIT_KEY) != newest_commit
    state_digests: dict[str, str] = {NEWEST_COMMIT_KEY: newest_commit}
    channels_to_compact: list[str] = []
    messages: list[str] = []
    undo_period = store.settings.gc_grace
    messages += [f"the removal of {key} is final" for key in store.collect_removals(undo_period=undo_period)]
    compacted_channels = auto_compacted_channels(store)
    for channel, digest in _state_digest_by_channel(store, {} if has_new_commit else previous_digests).items():
        state_digests[channel] = digest
        if previous_digests.get(channel) == digest:
            continue
        try:
            dropped = store.drop_expired(channel)
            collected = store.collect_garbage(channel, undo_period=undo_period).blocks
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
    registered_channels = store.catalog.scheduler.heads().keys() - _removed_channels(store)
    return [c.name for c in store.project.channels if c.compaction is not None and c.name in registered_channels]


def _state_digest_by_channel(store: Store, digests_since_commit: Mapping[str, str]) -> dict[str, str]:
    """Digest of each channel's state that decides about maintenance. An equal digest means an equal decision.

    Args:
        digests_since_commit: digests that were taken since the newest commit. Their numbers of reads still hold.
    """
    cursor_sum_by_channel: dict[str, int] = {}
    for cursor in store.cursors():
        cursor_sum_by_channel[cursor.channel] = cursor_sum_by_channel.get(cursor.channel, 0) + cursor.seq
    heads, recheck = store.catalog.scheduler.heads(), store.catalog.now().strftime(_RECHECK_TIME_FORMAT)
    digests: dict[str, str] = {}
    removed_channels = _removed_channels(store)
    for name in (c.name for c in store.project.channels if heads.get(c.name) and c.name not in removed_channels):
        state = f"{heads[name]} {cursor_sum_by_channel.get(name, 0)} {recheck} "
        known = digests_since_commit.get(name, "")
        digests[name] = known if known.startswith(state) else f"{state}{store.catalog.garbage.count_full_reads(name)}"
    return digests


def _removed_channels(store: Store) -> set[str]:
    statuses = store.catalog.definition_states.statuses()
    return {key.name for key, status in statuses.items() if key.kind == "channel" and status.is_removed}
