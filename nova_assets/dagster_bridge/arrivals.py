"""Ingestion of arriving files under Dagster: a sensor detects arrivals and requests runs that receive them.

(This module does not postpone annotations, because Dagster inspects the type of ``context`` when it builds an op.)
"""

from datetime import timedelta
from threading import Lock
from typing import Any

from dagster import (
    DefaultSensorStatus,
    Failure,
    Field,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    Output,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    job,
    op,
)

from nova_assets.dagster_bridge.maintenance_runs import is_job_busy_or_paused, log_periodically
from nova_assets.dagster_bridge.resources import RESOURCE_KEY, NovaResource
from nova_assets.masking import get_logger
from nova_assets.model.channel import Channel
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.nova_error import NovaError
from nova_assets.sources.inbox import Inbox
from nova_assets.sources.open_inbox import open_inbox
from nova_assets.store.store import Store

log = get_logger("nova_assets.receiving")

JOB_NAME = "nova_receive"
SENSOR_INTERVAL = 10  # seconds
PAUSE_AFTER_FAILURE = 60  # seconds
LOOK_EVERY = 600.0  # seconds

_MAX_NOTICES_PER_TICK = 10_000
"""Maximum number of file notices that one tick takes from an inbox."""


def build_receive_job() -> JobDefinition:
    """Job ``nova_receive``: receives arrived files and seals complete groups.

    The job's configuration names the channels. The default is every channel that has a source or a seal.
    """
    config = {
        "channels": Field([str], default_value=[], description="By default all with a source or a seal."),
        "look": Field(bool, default_value=True, description="Also for files that were never announced."),
    }

    @op(name="receive", config_schema=config, required_resource_keys={RESOURCE_KEY})
    def receive(context: OpExecutionContext) -> Output[dict[str, Any]]:
        store: Store = context.resources.nova.store()
        done: dict[str, Any] = {}
        failed: dict[str, NovaError] = {}
        for name in context.op_config["channels"] or [c.name for c in channels_to_receive_or_seal(store)]:
            try:
                with log_periodically(context.log.info, f"{name} is still being received"):
                    done[name] = _receive_and_seal(context, store, store.project.channel(name))
            except NovaError as error:  # an unavailable source must not block the others
                context.log.error(f"{name}: {error}")
                failed[name] = error
        if failed:
            raise Failure("\n".join(f"{name}: {error}" for name, error in failed.items()), allow_retries=False)
        return Output(done, metadata={name: MetadataValue.json(counts) for name, counts in done.items()})

    @job(name=JOB_NAME, description="Takes files that have arrived. Requested by the sensor nova_receive_sensor.")
    def nova_receive() -> None:
        receive()

    return nova_receive


def _receive_and_seal(context: OpExecutionContext, store: Store, channel: Channel) -> dict[str, Any]:
    """Receive the arrived files of a channel, then seal its complete groups. Returns counts for the run's metadata."""
    result: dict[str, Any] = {}
    if channel.source is not None:
        received = store.receive(channel.name, look=context.op_config["look"])
        result |= {
            "files": received.files,
            "rows": received.rows,
            "bad": received.bad,
            "why": dict(received.why),
            "waiting": received.waiting,
        }
        context.log.info(f"{channel.name}: {received.rows} rows of {received.files} files; {received.bad} set aside")
        for reason, count in received.why.items():
            context.log.warning(f"{channel.name}: {count} set aside, such as: {reason}")
    if channel.seal is not None:
        result["sealed"] = [s.group for s in store.seal(channel.name)]
        for group in result["sealed"]:
            context.log.info(f"{channel.name}: {channel.seal.by}={group} is sealed")
    return result


def build_receive_sensor(nova: NovaResource, receive_job: JobDefinition) -> SensorDefinition:
    """Sensor ``nova_receive_sensor``: watches folders and queues, and requests regular full listings."""
    inboxes = WatchedInboxes()

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        return request_receive_runs(
            nova.store(), inboxes, is_job_busy_or_paused(context, JOB_NAME, PAUSE_AFTER_FAILURE)
        )

    return SensorDefinition(
        name=f"{JOB_NAME}_sensor",
        job=receive_job,
        evaluation_fn=on_tick,
        minimum_interval_seconds=SENSOR_INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Has files received that have arrived for channels with a source.",
    )


class WatchedInboxes:
    """Open inboxes of this process, one per channel. Each watches its source until the process ends."""

    def __init__(self) -> None:
        self._inbox_by_channel: dict[str, tuple[Any, Inbox]] = {}
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


def request_receive_runs(store: Store, watched_inboxes: WatchedInboxes, is_run_active: bool) -> SensorResult:
    """Run request of one sensor tick. Channels that need a full listing come before channels with announced arrivals.

    Args:
        is_run_active: a run is active, so this tick requests none. The next tick sees files that arrive meanwhile.
    """
    if is_run_active:
        return SensorResult(skip_reason="a run is under way, or failed a moment ago")
    channels_to_list, channels_with_arrivals, errors = [], [], []
    for channel in channels_to_receive_or_seal(store):
        try:
            has_sealable, needs_listing = _can_seal_or_needs_listing(store, channel)
            if channel.source is not None and (needs_listing or _is_full_listing_due(store, channel)):
                channels_to_list.append(channel.name)
            elif has_sealable or (
                channel.source is not None
                and _has_waiting_arrivals(store, channel, watched_inboxes.get_inbox(store, channel))
            ):
                channels_with_arrivals.append(channel.name)
        except Exception as error:  # a failing channel must not block the others
            log.error("%s: %s", channel.name, error)
            errors.append(f"{channel.name}: {error}")
    requests = [
        RunRequest(run_config={"ops": {"receive": {"config": {"channels": names, "look": look}}}})
        for names, look in ((channels_to_list, True), (channels_with_arrivals, False))
        if names
    ]
    skip_reason = None if requests else "\n".join(errors) or "nothing has arrived, and nothing is to be sealed"
    return SensorResult(run_requests=requests[:1], skip_reason=skip_reason)


def _is_full_listing_due(store: Store, channel: Channel) -> bool:
    """Whether the source is due for another full listing, which finds files that were never announced."""
    assert channel.source is not None
    store.register([channel, quarantine_channel(channel)])
    last_listing = store.catalog.channel(channel.name).looked
    return last_listing is None or store.catalog.now() - last_listing > timedelta(seconds=LOOK_EVERY)


def _can_seal_or_needs_listing(store: Store, channel: Channel) -> tuple[bool, bool]:
    """Whether a group can be sealed, and whether a group waits only for a full listing before it can be sealed."""
    if channel.seal is None:
        return False, False
    due_groups, open_groups = store.sealable(channel.name)
    return bool(due_groups), any(o.needs_listing for o in open_groups)


def _has_waiting_arrivals(store: Store, channel: Channel, inbox: Inbox) -> bool:
    """Whether files wait to be received.

    Notices of a local inbox reach this process alone, so they are recorded in the catalog for the run that receives the
    files.
    """
    if inbox.is_local:
        notices = inbox.poll(_MAX_NOTICES_PER_TICK)
        store.catalog.announce(channel.name, [a for n in notices for a in n.arrivals])
        inbox.acknowledge(notices)
    elif inbox.has_news():
        return True
    return store.catalog.arrival_counts(channel.name).waiting > 0


def channels_to_receive_or_seal(store: Store) -> list[Channel]:
    """Channels of the project that have a source or a seal."""
    return [c for c in store.project.channels if c.source is not None or c.seal is not None]
