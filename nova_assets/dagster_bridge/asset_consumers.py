"""Users' assets as consumers: what they have pinned, and when their cursors move (R4).

The consumer ``asset:<key>`` pins, once per run, every channel that its inputs name. What an asset makes is its own, and
often made without us. So its cursors move on evidence: once its step is seen to have succeeded in the run that pinned,
by its next run or by the sensor ``nova_publish``. Until then the same changes are given again: it is fed at least once.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from dagster import (
    AllPartitionMapping,
    AssetKey,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    InputContext,
    OpDefinition,
)

from nova_assets.dagster_bridge.partitions import dimensions_shown, partition_of
from nova_assets.dagster_bridge.run_liveness import instance_of, is_gone, is_under_way, owner_of
from nova_assets.errors import ChannelNotFound, CommitConflict, DefinitionError, NotSupported
from nova_assets.execution.lease import keep_alive
from nova_assets.model.commit import CommitRequest, MoveCursor
from nova_assets.model.execution import Begin, Execution
from nova_assets.model.modes_view import View
from nova_assets.model.partitions import WHOLE
from nova_assets.store.store import Store

MODE = "nova/mode"
"""The metadata of an input that says how its channel is read."""

MODES = ("all", "new", "old", "changes")

_PREFIX = "asset:"
_LEASE = 30 * 24 * 3600.0  # it is evidence that ends it, not time


@dataclass(frozen=True, slots=True)
class Consumer:
    """A user's asset, as it reads.

    Args:
        name: ``asset:<key>``, with all keys of a multi-asset.
        partition: of the asset.
        modes: channel -> mode, for all of its inputs that are channels.
        scopes: channel -> the partitions of it that are read, where that is not all.
    """

    name: str
    partition: str
    modes: Mapping[str, str]
    scopes: Mapping[str, str] = field(default_factory=dict)

    @property
    def cursors(self) -> tuple[str, ...]:
        return tuple(c for c, mode in self.modes.items() if mode != "all")


def mode_of(name: str, metadata: Mapping[str, object] | None, wanted: object) -> str:
    """The mode that an input's metadata asks for; an input annotated as a ``View`` has all of them.

    Raises:
        DefinitionError: there is no such mode.
    """
    mode = (metadata or {}).get(MODE, "all" if wanted is not View else "changes")
    mode = getattr(mode, "value", mode)
    if mode not in MODES:
        raise DefinitionError(
            f"input {name!r} has an unknown mode", found=mode, expected=", ".join(MODES), next=f'{{"{MODE}": "new"}}'
        )
    return "changes" if wanted is View else str(mode)


def channel_of(key: AssetKey) -> str:
    return key.path[-1]


def consumer_of(context: InputContext, store: Store) -> Consumer:
    """The asset that is about to read, with all its inputs."""
    step = context.step_context
    asset = step.assets_def
    if asset is None:
        raise NotSupported(
            f"step {step.step.key!r} reads channel {channel_of(context.asset_key)!r}, but makes no asset",
            expected="an asset: its key is the name under which a cursor is kept",
            next='read it with mode "all", or in an @dg.asset',
        )
    wanted = context.dagster_type.typing_type
    modes = {channel_of(context.asset_key): mode_of(context.name, context.definition_metadata, wanted)}
    inputs = {channel_of(context.asset_key): context.name}
    if isinstance(asset.node_def, OpDefinition):  # a graph's inputs say nothing about the modes of its steps
        for name, key in asset.keys_by_input_name.items():
            given = asset.node_def.input_def_named(name)
            if not given.dagster_type.is_nothing and _is_channel(store, channel_of(key)):
                modes[channel_of(key)] = mode_of(name, given.metadata, given.dagster_type.typing_type)
                inputs[channel_of(key)] = name
    keys = "+".join(sorted(k.to_user_string() for k in asset.keys))
    scopes = {channel: scope_of_input(context, store, channel, name) for channel, name in inputs.items()}
    return Consumer(_PREFIX + keys, step.partition_key if step.has_partition_key else WHOLE, modes, scopes)


def scope_of_input(context: InputContext, store: Store, channel: str, name: str) -> str:
    """The partitions of a channel that an input is about: one, or all of them.

    Raises:
        NotSupported: several, and not all.
    """
    step = context.step_context
    if not step.has_partition_key or not step.has_asset_partitions_for_input(name):
        return WHOLE
    keys = list(step.asset_partitions_subset_for_input(name).get_partition_keys())
    if len(keys) == 1:
        dimensions = dimensions_shown(store.project, store.catalog.channel(channel).channel)
        return partition_of(dimensions, keys[0])
    asset = step.assets_def
    if asset is not None and isinstance(asset.get_partition_mapping(AssetKey(channel)), AllPartitionMapping):
        return WHOLE
    raise NotSupported(
        f"input {name!r} is mapped to {len(keys)} partitions of channel {channel!r}",
        found=", ".join(keys[:3]) + (" ..." if len(keys) > 3 else ""),
        expected="one partition, or all of them: an input has one cursor for each channel",
        next="partition the asset as the channel is, or map it with dg.AllPartitionMapping()",
    )


def pinned(store: Store, consumer: Consumer, run_id: str, instance: DagsterInstance) -> Execution:
    """What the consumer reads in this run, the same for all its inputs and retries.

    Raises:
        ExecutionInProgress: another run of the asset is under way.
    """
    dead = set()
    for earlier in store.catalog.executions(consumer.name):
        if earlier.state != "running" or earlier.partition != consumer.partition:
            continue
        if earlier.run_id == run_id:
            return earlier
        if not settle(store, earlier, instance_of(earlier.owner, instance)) and is_gone(earlier.owner, instance):
            dead.add(earlier.owner)
    lease = store.settings.lease if instance.is_ephemeral else _LEASE
    execution = store.catalog.begin(
        Begin(
            uuid.uuid4().hex,
            binding=consumer.name,
            heads=tuple(consumer.modes),
            cursors=consumer.cursors,
            partition=consumer.partition,
            owner=owner_of(run_id, instance),
            lease=lease,
            run_id=run_id,
            dead=frozenset(dead),
            scopes=consumer.scopes,
            purpose="read",
        )
    )
    if instance.is_ephemeral:  # its evidence ends with this process, and so does the lease
        keep_alive(store.catalog, execution, lease, lambda: is_under_way(run_id))
    return execution


def settle(store: Store, execution: Execution, instance: DagsterInstance) -> bool:
    """Move the consumer's cursors if its step has succeeded in the run that pinned them. Says whether it has."""
    if not _has_succeeded(execution, instance):
        return False
    name, partition = execution.binding or "", execution.partition
    pins = [p for p in execution.pins.values() if p.cursor is not None]
    request = CommitRequest(
        id=uuid.uuid4().hex,
        execution_id=execution.id,
        epoch=execution.epoch,
        binding=name,
        publish=(),
        cursors=tuple(
            MoveCursor(name, p.channel, p.cursor or 0, p.head, partition=partition, channel_partition=p.partition)
            for p in pins
        ),
        consumed={p.channel: (p.cursor, p.head) for p in execution.pins.values()},
    )
    with suppress(CommitConflict):  # another process has settled it
        store.runtime.settled_commit(request)
    return True


def is_consumer(binding: str | None) -> bool:
    """Whether it is a user's asset that pins under this name, rather than a binding that is executed."""
    return (binding or "").startswith(_PREFIX)


def settle_all(store: Store, instance: DagsterInstance) -> None:
    """Settle every consumer whose run has ended; pins that came to nothing are let go."""
    for execution in store.catalog.executions():
        consumes = is_consumer(execution.binding) and execution.state == "running"
        if consumes and not settle(store, execution, instance) and is_gone(execution.owner, instance):
            store.catalog.abort(execution.id, "its run ended and the asset was not materialized")


def _has_succeeded(execution: Execution, instance: DagsterInstance) -> bool:
    """Evidence: a materialization of the asset in that run, by a step that succeeded."""
    if execution.run_id is None or not instance.has_run(execution.run_id):
        return False
    succeeded = {e.step_key for e in instance.all_logs(execution.run_id, of_type=DagsterEventType.STEP_SUCCESS)}
    names = (execution.binding or "").removeprefix(_PREFIX).split("+")
    return any(_made_by(instance, AssetKey.from_user_string(n), execution) in succeeded for n in names)


def _made_by(instance: DagsterInstance, key: AssetKey, execution: Execution) -> str | None:
    """The step that materialized an asset in the run that pinned; an asset is materialized once in a run."""
    records = AssetRecordsFilter(key, after_timestamp=execution.started_at.timestamp() - 3600)
    for record in instance.fetch_materializations(records, limit=1000).records:
        if record.run_id == execution.run_id:
            return record.event_log_entry.step_key
    return ""


def _is_channel(store: Store, name: str) -> bool:
    try:
        store.catalog.channel(name)
    except ChannelNotFound:
        return False
    return True
