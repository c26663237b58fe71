"""Upkeep by itself: what is worth compacting is compacted by a run, what nobody needs is collected by the sensor.

Collection changes the catalog alone and is done at once. Compaction reads and writes data, so it is a run of its own;
that it may run beside every execution and reader is for the catalog to see to (R14).

(Annotations are left as they are here: Dagster looks at the type of ``context`` when an op is made.)
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

from nova_assets.dagster_bridge.maintenance_runs import is_busy, saying
from nova_assets.dagster_bridge.publisher import claimed_channels, location_of
from nova_assets.dagster_bridge.resources import RESOURCE, NovaResource
from nova_assets.dagster_bridge.timeline_metadata import with_observations
from nova_assets.errors import NovaError
from nova_assets.masking import get_logger
from nova_assets.store.store import Store

log = get_logger("nova_assets.upkeep")

JOB = "nova_upkeep"
INTERVAL = 60  # seconds
AFTER_FAILURE = 900  # seconds
AGAIN = "%Y-%m-%dT%H"
"""What did not change is looked at again every hour: retention passes, pins are let go, a failed run may succeed."""


def upkeep_job() -> JobDefinition:
    """The job ``nova_upkeep``: compacts the channels that its configuration names, or all, where that is worth it."""
    channels = Field([str], default_value=[], description="Names of channels; by default every one of the project.")

    @op(name="compact", config_schema={"channels": channels}, required_resource_keys={RESOURCE})
    def compact(context: OpExecutionContext) -> Output[dict[str, Any]]:
        store: Store = context.resources.nova.store()
        done: dict[str, str] = {}
        failed: dict[str, Exception] = {}
        for channel in context.op_config["channels"] or _compacted(store):
            try:
                with saying(context.log.info, f"{channel} is still being compacted"):
                    commit = store.compact(channel, force=False)
                store.collect(channel)
            except Exception as error:  # one that cannot be compacted, whatever Spark says, keeps no other from it
                context.log.error(f"{channel}: {error}")
                failed[channel] = error
            else:
                why = {} if commit is None else commit.details["compacted"]
                done[channel] = "; ".join(f"{made}: {w}" for made, w in why.items()) or "no longer worth it"
                context.log.info(f"{channel} is compacted: {done[channel]}")
        if failed:
            raise Failure("\n".join(f"{channel}: {error}" for channel, error in failed.items()), allow_retries=False)
        return Output(done, metadata={channel: MetadataValue.text(why) for channel, why in done.items()})

    @job(name=JOB, description="Compacts channels that are worth it. Requested by the sensor nova_upkeep_sensor.")
    def nova_upkeep() -> None:
        compact()

    return nova_upkeep


def upkeep_sensor(nova: NovaResource, compaction: JobDefinition) -> SensorDefinition:
    """The sensor ``nova_upkeep_sensor``."""

    def on_tick(context: SensorEvaluationContext) -> SensorResult:
        store = nova.store()
        tick = look_after(store, context.cursor, is_busy(context, JOB, AFTER_FAILURE))
        return with_observations(store, context.cursor, tick, claimed_channels(store, location_of(context)))

    return SensorDefinition(
        name=f"{JOB}_sensor",
        job=compaction,
        evaluation_fn=on_tick,
        minimum_interval_seconds=INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Collects what nobody needs, has compacted what is worth it, and tells of lags that have changed.",
    )


def look_after(store: Store, cursor: str | None, busy: bool = False) -> SensorResult:
    """One tick.

    Args:
        cursor: channel -> what was known of it when it was looked at last. One that is lost costs a look, no more.
        busy: nothing can be compacted now; what would be is looked at again by the next tick.
    """
    seen: dict[str, str] = json.loads(cursor) if cursor else {}
    known, wanted, said = {}, [], []
    compacted = _compacted(store)
    for channel, facts in _facts(store, store.catalog.now()).items():
        known[channel] = facts
        if seen.get(channel) == facts:
            continue
        try:
            dropped = store.drop_expired(channel)
            collected = store.collect(channel).blocks
            due = channel in compacted and store.compactable(channel, force=False)
        except NovaError as error:  # one that cannot be looked after keeps no other from it
            log.error("%s: %s", channel, error)
            said.append(f"{channel}: {error}")
            continue
        if dropped is not None:
            said.append(f"{channel}: dropped {', '.join(b.partition for b in dropped.blocks)}")
        if collected:
            said.append(f"{channel}: collected {', '.join(b.range for b in collected)}")
        if due and busy:
            known.pop(channel)
        elif due:
            wanted.append(channel)
            said.append(f"{channel}: {'; '.join(c.why for c in due)}")
    deleted = store.delete_collected()
    if deleted:
        said.append(f"{deleted} files of collected blocks are deleted")
    for line in said:
        log.info("%s", line)
    requests = [RunRequest(run_config={"ops": {"compact": {"config": {"channels": wanted}}}})] if wanted else []
    nothing = None if requests else "\n".join(said) or "nothing to be done"
    return SensorResult(run_requests=requests, skip_reason=nothing, cursor=json.dumps(known))


def _facts(store: Store, now: datetime) -> dict[str, str]:
    """Channel -> all that decides about its upkeep, in short: when it is the same, so is the decision."""
    read: dict[str, int] = {}
    for cursor in store.cursors():
        read[cursor.channel] = read.get(cursor.channel, 0) + cursor.seq
    heads = {s.channel.name: s.head for s in store.catalog.channels()}
    names = [c.name for c in store.project.channels if heads.get(c.name)]
    return {
        name: f"{heads[name]} {read.get(name, 0)} {store.catalog.reads_of_all(name)} {now.strftime(AGAIN)}"
        for name in names
    }


def _compacted(store: Store) -> list[str]:
    """The channels of the project that are compacted by themselves, as far as the catalog knows them."""
    known = {s.channel.name for s in store.catalog.channels()}
    return [c.name for c in store.project.channels if c.compacting is not None and c.name in known]
