"""Watch over the sources of a store's project: which channels have files to receive, or days and hours to seal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from threading import Lock

from nova_assets.masking import get_logger
from nova_assets.model.channel import Channel
from nova_assets.model.file_source import Files
from nova_assets.model.project import Project
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.model.registered_definition import DefinitionKey
from nova_assets.sources.inbox import Inbox
from nova_assets.sources.open_inbox import open_inbox
from nova_assets.store.store import Store

log = get_logger("nova_assets.receiving")

FULL_LISTING_INTERVAL = 600.0  # seconds

_MAX_NOTICES_PER_CHECK = 10_000
"""Maximum number of file notices that one check takes from an inbox."""


class WatchedInboxes:
    """Open inboxes of this process, one per channel. Each watches its source until the process ends."""

    def __init__(self) -> None:
        self._inbox_by_channel: dict[str, tuple[Files, Inbox]] = {}
        self._lock = Lock()

    def get_inbox(self, store: Store, channel: Channel) -> Inbox:
        """The inbox of a channel's source. A changed source replaces the inbox.

        Raises:
            SourceUnavailable: the source cannot be opened.
        """
        assert channel.source is not None
        with self._lock:
            source, inbox = self._inbox_by_channel.get(channel.name, (None, None))
            if inbox is None or source != channel.source:
                if inbox is not None:
                    inbox.close()
                inbox = open_inbox(channel.source, store.settings.root, watch=True)
                self._inbox_by_channel[channel.name] = (channel.source, inbox)
            return inbox


@dataclass(frozen=True, slots=True)
class ChannelsToReceive:
    """Channels of a project with work to do.

    Args:
        to_list: channels whose source is due for a full listing.
        with_arrivals: channels with announced files to receive, or with complete groups to seal.
        errors: message on each channel that could not be checked.
    """

    to_list: tuple[str, ...]
    with_arrivals: tuple[str, ...]
    errors: tuple[str, ...]


def find_channels_to_receive(store: Store, watched_inboxes: WatchedInboxes) -> ChannelsToReceive:
    """Channels of the project with files to receive or groups to seal. Paused channels are left out."""
    to_list, with_arrivals, errors = [], [], []
    statuses = store.catalog.definition_states.statuses()
    for channel in channels_with_source_or_seal(store.project):
        if DefinitionKey("channel", channel.name) in statuses:  # paused or removed
            continue
        try:
            seal_readiness = _check_seal_readiness(store, channel)
            if channel.source is not None and (seal_readiness.needs_listing or _is_full_listing_due(store, channel)):
                to_list.append(channel.name)
            elif seal_readiness.has_sealable_group or (
                channel.source is not None
                and _has_waiting_arrivals(store, channel, watched_inboxes.get_inbox(store, channel))
            ):
                with_arrivals.append(channel.name)
        except Exception as error:  # a failing channel must not block the others
            log.error("%s: %s", channel.name, error)
            errors.append(f"{channel.name}: {error}")
    return ChannelsToReceive(tuple(to_list), tuple(with_arrivals), tuple(errors))


def channels_with_source_or_seal(project: Project) -> list[Channel]:
    """Channels of the project that have a source or a seal."""
    return [c for c in project.channels if c.source is not None or c.seal is not None]


def _is_full_listing_due(store: Store, channel: Channel) -> bool:
    """Whether the source is due for another full listing, which finds files that were never announced."""
    assert channel.source is not None
    store.register([channel, quarantine_channel(channel)])
    last_listing = store.catalog.definitions.channel(channel.name).last_listing_started_at
    return last_listing is None or store.catalog.now() - last_listing > timedelta(seconds=FULL_LISTING_INTERVAL)


@dataclass(frozen=True, slots=True)
class _SealReadiness:
    """Whether a channel has groups to seal.

    Args:
        has_sealable_group: a group can be sealed now.
        needs_listing: a group waits only for a full listing before it can be sealed.
    """

    has_sealable_group: bool = False
    needs_listing: bool = False


def _check_seal_readiness(store: Store, channel: Channel) -> _SealReadiness:
    if channel.seal is None:
        return _SealReadiness()
    sealable_groups, incomplete_groups = store.sealable(channel.name)
    return _SealReadiness(bool(sealable_groups), any(g.needs_listing for g in incomplete_groups))


def _has_waiting_arrivals(store: Store, channel: Channel, inbox: Inbox) -> bool:
    """Whether files wait to be received.

    Notices of a local inbox reach this process alone, so they are recorded in the catalog for the run that receives the
    files.
    """
    if inbox.is_local:
        notices = inbox.poll(_MAX_NOTICES_PER_CHECK)
        store.catalog.arrivals.announce(channel.name, [a for n in notices for a in n.arrivals])
        inbox.acknowledge(notices)
    elif inbox.has_notices():
        return True
    return store.catalog.arrivals.counts(channel.name).waiting > 0
