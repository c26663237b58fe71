"""Files that arrive are received by runs, which a sensor requests when there is something to receive.

(Annotations are left as they are here: Dagster looks at the type of ``context`` when an op is made.)
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

from nova_assets.dagster_bridge.maintenance_runs import is_busy, saying
from nova_assets.dagster_bridge.resources import RESOURCE, NovaResource
from nova_assets.errors import NovaError
from nova_assets.masking import get_logger
from nova_assets.model.channel import Channel
from nova_assets.model.quarantine import quarantine_of
from nova_assets.sources.inbox import Inbox
from nova_assets.sources.open_inbox import open_inbox
from nova_assets.store.store import Store

log = get_logger("nova_assets.receiving")

JOB = "nova_receive"
INTERVAL = 10  # seconds
AFTER_FAILURE = 60  # seconds
LOOK_EVERY = 600.0  # seconds

_NOTED = 10_000
"""So many files are noted by one tick."""


def receiving_job() -> JobDefinition:
    """The job ``nova_receive``: takes the files that have arrived, for the channels that its configuration names, or
    for all that have a source; and seals what is complete."""
    config = {
        "channels": Field([str], default_value=[], description="By default all with a source or a seal."),
        "look": Field(bool, default_value=True, description="Also for files that were never announced."),
    }

    @op(name="receive", config_schema=config, required_resource_keys={RESOURCE})
    def receive(context: OpExecutionContext) -> Output[dict[str, Any]]:
        store: Store = context.resources.nova.store()
        done: dict[str, Any] = {}
        failed: dict[str, NovaError] = {}
        for name in context.op_config["channels"] or [c.name for c in looked_after(store)]:
            try:
                with saying(context.log.info, f"{name} is still being received"):
                    done[name] = _receive(context, store, store.project.channel(name))
            except NovaError as error:  # one source that does not answer keeps no other waiting
                context.log.error(f"{name}: {error}")
                failed[name] = error
        if failed:
            raise Failure("\n".join(f"{name}: {error}" for name, error in failed.items()), allow_retries=False)
        return Output(done, metadata={name: MetadataValue.json(counts) for name, counts in done.items()})

    @job(name=JOB, description="Takes files that have arrived. Requested by the sensor nova_receive_sensor.")
    def nova_receive() -> None:
        receive()

    return nova_receive


def _receive(context: OpExecutionContext, store: Store, channel: Channel) -> dict[str, Any]:
    """Receive what has arrived for a channel, and seal what is complete then."""
    done: dict[str, Any] = {}
    if channel.source is not None:
        found = store.receive(channel.name, look=context.op_config["look"])
        done |= {
            "files": found.files,
            "rows": found.rows,
            "bad": found.bad,
            "why": dict(found.why),
            "waiting": found.waiting,
        }
        context.log.info(f"{channel.name}: {found.rows} rows of {found.files} files; {found.bad} set aside")
        for reason, count in found.why.items():
            context.log.warning(f"{channel.name}: {count} set aside, such as: {reason}")
    if channel.seal is not None:
        done["sealed"] = [s.group for s in store.seal(channel.name)]
        for group in done["sealed"]:
            context.log.info(f"{channel.name}: {channel.seal.by}={group} is sealed")
    return done


def receiving_sensor(nova: NovaResource, receives: JobDefinition) -> SensorDefinition:
    """The sensor ``nova_receive_sensor``: watches folders and queues, and now and then has all looked through."""
    inboxes = Inboxes()

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        return due(nova.store(), inboxes, is_busy(context, JOB, AFTER_FAILURE))

    return SensorDefinition(
        name=f"{JOB}_sensor",
        job=receives,
        evaluation_fn=on_tick,
        minimum_interval_seconds=INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Has files received that have arrived for channels with a source.",
    )


class Inboxes:
    """The inboxes of this process: a folder is watched for as long as it lives."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Any, Inbox]] = {}
        self._lock = Lock()

    def of(self, store: Store, channel: Channel) -> Inbox:
        """The inbox of a channel's source. Raises SourceUnavailable."""
        assert channel.source is not None
        with self._lock:
            source, inbox = self._open.get(channel.name, (None, None))
            if inbox is None or source != channel.source:
                if inbox is not None:
                    inbox.close()
                inbox = open_inbox(channel.source, store.settings.root, watch=True)
                self._open[channel.name] = (channel.source, inbox)
            return inbox


def due(store: Store, inboxes: Inboxes, busy: bool) -> SensorResult:
    """One tick.

    Args:
        busy: a run is under way; what comes meanwhile is seen by the next tick.
    """
    if busy:
        return SensorResult(skip_reason="a run is under way, or failed a moment ago")
    to_look, waiting, said = [], [], []
    for channel in looked_after(store):
        try:
            complete, unlooked = _sealable(store, channel)
            if channel.source is not None and (unlooked or _is_long_ago(store, channel)):
                to_look.append(channel.name)
            elif complete or (channel.source is not None and _has_news(store, channel, inboxes.of(store, channel))):
                waiting.append(channel.name)
        except Exception as error:  # one that cannot be looked after keeps no other waiting
            log.error("%s: %s", channel.name, error)
            said.append(f"{channel.name}: {error}")
    requests = [
        RunRequest(run_config={"ops": {"receive": {"config": {"channels": names, "look": look}}}})
        for names, look in ((to_look, True), (waiting, False))
        if names
    ]
    nothing = None if requests else "\n".join(said) or "nothing has arrived, and nothing is to be sealed"
    return SensorResult(run_requests=requests[:1], skip_reason=nothing)


def _is_long_ago(store: Store, channel: Channel) -> bool:
    """Whether all is to be looked through again for what was never announced."""
    assert channel.source is not None
    store.register([channel, quarantine_of(channel)])
    looked = store.catalog.channel(channel.name).looked
    return looked is None or store.catalog.now() - looked > timedelta(seconds=LOOK_EVERY)


def _sealable(store: Store, channel: Channel) -> tuple[bool, bool]:
    """Whether something can be sealed, and whether only a look for what was never announced is missing for that."""
    if channel.seal is None:
        return False, False
    due, still = store.sealable(channel.name)
    return bool(due), any(o.unlooked for o in still)


def _has_news(store: Store, channel: Channel, inbox: Inbox) -> bool:
    """Whether there is something to receive. What only this process is told of is made known to the run that will."""
    if inbox.is_local:
        notices = inbox.poll(_NOTED)
        store.catalog.announce(channel.name, [a for n in notices for a in n.arrivals])
        inbox.acknowledge(notices)
    elif inbox.has_news():
        return True
    return store.catalog.arrival_counts(channel.name).waiting > 0


def looked_after(store: Store) -> list[Channel]:
    """The channels of the project that have a source, or a seal."""
    return [c for c in store.project.channels if c.source is not None or c.seal is not None]
