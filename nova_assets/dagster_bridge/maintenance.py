"""Automatic maintenance: a sensor collects unneeded blocks and requests runs that compact channels.

Collection changes only the catalog, so the sensor does it at once. Compaction reads and writes data, so it is a run of
its own. The catalog ensures that compaction can run beside every execution and reader (R14).

(This module does not postpone annotations, because Dagster inspects the type of ``context`` when it builds an op.)
"""

import json
from datetime import datetime
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
from nova_assets.dagster_bridge.publisher import claim_channels_for_location, code_location_of_sensor
from nova_assets.dagster_bridge.resources import RESOURCE_KEY, NovaResource
from nova_assets.dagster_bridge.timeline_metadata import add_lag_observations
from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store

log = get_logger("nova_assets.upkeep")

JOB_NAME = "nova_upkeep"
SENSOR_INTERVAL = 60  # seconds
PAUSE_AFTER_FAILURE = 900  # seconds
RECHECK_TIME_FORMAT = "%Y-%m-%dT%H"
"""Hourly time stamp in a channel's state. Unchanged channels are checked every hour, because retention periods pass,
pins are released and a failed run may succeed."""


def build_maintenance_job() -> JobDefinition:
    """Job ``nova_upkeep``: compacts channels where compaction pays off, and collects their blocks.

    The job's configuration names the channels. The default is every channel that is compacted automatically.
    """
    channels = Field([str], default_value=[], description="Names of channels; by default every one of the project.")

    @op(name="compact", config_schema={"channels": channels}, required_resource_keys={RESOURCE_KEY})
    def compact(context: OpExecutionContext) -> Output[dict[str, Any]]:
        store: Store = context.resources.nova.store()
        done: dict[str, str] = {}
        failed: dict[str, Exception] = {}
        for channel in context.op_config["channels"] or _auto_compacted_channels(store):
            try:
                with log_periodically(context.log.info, f"{channel} is still being compacted"):
                    commit = store.compact(channel, force=False)
                store.collect_garbage(channel)
            except Exception as error:  # a failing channel must not block the others
                context.log.error(f"{channel}: {error}")
                failed[channel] = error
            else:
                why = {} if commit is None else commit.details["compacted"]
                done[channel] = "; ".join(f"{made}: {w}" for made, w in why.items()) or "no longer worth it"
                context.log.info(f"{channel} is compacted: {done[channel]}")
        if failed:
            raise Failure("\n".join(f"{channel}: {error}" for channel, error in failed.items()), allow_retries=False)
        return Output(done, metadata={channel: MetadataValue.text(why) for channel, why in done.items()})

    @job(name=JOB_NAME, description="Compacts channels that are worth it. Requested by the sensor nova_upkeep_sensor.")
    def nova_upkeep() -> None:
        compact()

    return nova_upkeep


def build_maintenance_sensor(nova: NovaResource, compaction_job: JobDefinition) -> SensorDefinition:
    """Sensor ``nova_upkeep_sensor``: runs maintenance ticks and reports changed lags."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        store = nova.store()
        tick = run_maintenance_tick(
            store, context.cursor, is_job_busy_or_paused(context, JOB_NAME, PAUSE_AFTER_FAILURE)
        )
        return add_lag_observations(
            store, context.cursor, tick, claim_channels_for_location(store, code_location_of_sensor(context))
        )

    return SensorDefinition(
        name=f"{JOB_NAME}_sensor",
        job=compaction_job,
        evaluation_fn=on_tick,
        minimum_interval_seconds=SENSOR_INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Collects what nobody needs, has compacted what is worth it, and tells of lags that have changed.",
    )


def run_maintenance_tick(store: Store, cursor: str | None, is_run_active: bool = False) -> SensorResult:
    """One maintenance tick: drops expired partitions, collects blocks, deletes their files and requests compaction.

    Args:
        cursor: the state of each channel at its last check, as JSON. A lost cursor costs only another check.
        is_run_active: a compaction run is active, so this tick requests none. The next tick checks the channels again.
    """
    previous_states: dict[str, str] = json.loads(cursor) if cursor else {}
    new_states, channels_to_compact, messages = {}, [], []
    compacted = _auto_compacted_channels(store)
    for channel, channel_state in _state_digest_by_channel(store, store.catalog.now()).items():
        new_states[channel] = channel_state
        if previous_states.get(channel) == channel_state:
            continue
        try:
            dropped = store.drop_expired(channel)
            collected = store.collect_garbage(channel).blocks
            due = channel in compacted and store.compactable(channel, force=False)
        except NovaError as error:  # a failing channel must not block the others
            log.error("%s: %s", channel, error)
            messages.append(f"{channel}: {error}")
            continue
        if dropped is not None:
            messages.append(f"{channel}: dropped {', '.join(b.partition for b in dropped.blocks)}")
        if collected:
            messages.append(f"{channel}: collected {', '.join(b.range for b in collected)}")
        if due and is_run_active:
            new_states.pop(channel)
        elif due:
            channels_to_compact.append(channel)
            messages.append(f"{channel}: {'; '.join(c.why for c in due)}")
    deleted = store.delete_collected()
    if deleted:
        messages.append(f"{deleted} files of collected blocks are deleted")
    for line in messages:
        log.info("%s", line)
    requests = (
        [RunRequest(run_config={"ops": {"compact": {"config": {"channels": channels_to_compact}}}})]
        if channels_to_compact
        else []
    )
    skip_reason = None if requests else "\n".join(messages) or "nothing to be done"
    return SensorResult(run_requests=requests, skip_reason=skip_reason, cursor=json.dumps(new_states))


def _state_digest_by_channel(store: Store, now: datetime) -> dict[str, str]:
    """Digest of each channel's state that decides about maintenance. An equal digest means an equal decision."""
    cursor_sum_by_channel: dict[str, int] = {}
    for cursor in store.cursors():
        cursor_sum_by_channel[cursor.channel] = cursor_sum_by_channel.get(cursor.channel, 0) + cursor.seq
    heads = {s.channel.name: s.head for s in store.catalog.channels()}
    names = [c.name for c in store.project.channels if heads.get(c.name)]
    recheck = now.strftime(RECHECK_TIME_FORMAT)
    return {
        name: f"{heads[name]} {cursor_sum_by_channel.get(name, 0)} {store.catalog.count_full_reads(name)} {recheck}"
        for name in names
    }


def _auto_compacted_channels(store: Store) -> list[str]:
    """Names of the project's channels that are compacted automatically and that the catalog knows."""
    registered_channels = {s.channel.name for s in store.catalog.channels()}
    return [c.name for c in store.project.channels if c.compaction is not None and c.name in registered_channels]
