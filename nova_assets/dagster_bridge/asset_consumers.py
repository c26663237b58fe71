"""Users' assets as consumers of channels: their pins, and the movement of their cursors (R4).

The consumer ``asset:<key>`` pins every channel that its inputs name, once per run. An asset often stores its output
without nova. Its cursors therefore move on evidence: once Dagster has recorded that the asset's step succeeded in the
run that pinned. The asset's next run or the sensor ``nova_publish`` checks for this evidence. Until then the asset
reads the same changes again, so it reads each change at least once.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dagster import (
    AllPartitionMapping,
    AssetKey,
    AssetRecordsFilter,
    AssetsDefinition,
    DagsterEventType,
    DagsterInstance,
    InputContext,
)

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.partitions import dimensions_in_dagster, parse_dagster_key
from nova_assets.dagster_bridge.read_modes import check_read_modes, input_mode, input_modes
from nova_assets.dagster_bridge.run_liveness import (
    execution_owner_of_run,
    instance_of_owner,
    is_dagster_owner_dead,
    is_ephemeral_run_active,
)
from nova_assets.errors import ChannelNotFound, CommitConflict, NotSupported
from nova_assets.execution.lease import start_lease_renewals
from nova_assets.execution.retries import commit_resolving_outcome
from nova_assets.model.commit import CommitRequest, MoveCursor
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.partitions import WHOLE
from nova_assets.model.provenance import ChannelRead
from nova_assets.store.store import Store

_CONSUMER_PREFIX = "asset:"
_LEASE_SECONDS = 30 * 24 * 3600.0  # evidence ends the execution, not time


@dataclass(frozen=True, slots=True)
class AssetConsumer:
    """A user's asset that reads channels.

    Args:
        name: ``asset:<key>``, with all keys of a multi-asset joined by ``+``.
        partition: partition of the asset.
        mode_by_channel: read mode of each input that is a channel.
        scope_by_channel: partitions that are read of each channel; all partitions if a channel is missing.
    """

    name: str
    partition: str
    mode_by_channel: Mapping[str, str]
    scope_by_channel: Mapping[str, str] = field(default_factory=dict)

    @property
    def channels_with_cursor(self) -> tuple[str, ...]:
        return tuple(c for c, mode in self.mode_by_channel.items() if mode != "all")


def channel_of_asset(store: Store, asset_key: AssetKey) -> str:
    """Channel whose asset has this key.

    Raises:
        ChannelNotFound: the key has another prefix than the project.
    """
    names = DagsterNames.of(store)
    channel = names.channel(asset_key)
    if channel is None:
        raise ChannelNotFound(
            f"asset {asset_key.to_user_string()!r} is no channel of this project",
            expected=f"a key below {'/'.join(names.prefix)!r}" if names.prefix else "a key of one part",
            next="build_definitions(project, key_prefix=...), or the setting key_prefix",
        )
    return channel


def mode_of_loaded_input(context: InputContext) -> str:
    """Read mode of the input that a step loads. Raises DefinitionError if its metadata names no mode that is known."""
    annotation, asset = context.dagster_type.typing_type, context.step_context.assets_def
    return input_mode(context.name, context.definition_metadata, annotation, asset=asset, key=context.asset_key)


def check_modes_of_reader(context: InputContext, store: Store) -> None:
    """Raise DefinitionError if an asset that only reads names a mode where nobody reads it.

    ``build_definitions`` has checked the assets that it got. The IO manager loads inputs of others, too.
    """
    asset, names = context.step_context.assets_def, DagsterNames.of(store)
    if asset is not None:
        upstream = filter(None, map(names.channel, asset.keys_by_input_name.values()))
        check_read_modes(asset, {c for c in upstream if _channel_exists(store, c)}, None, names)


def build_consumer(context: InputContext, store: Store) -> AssetConsumer:
    """Consumer for the asset that is being loaded, with all of its inputs that are channels.

    Raises:
        NotSupported: the step makes no asset, or an input is mapped to several partitions but not to all.
        DefinitionError: the metadata of an input names an unknown mode.
    """
    step = context.step_context
    asset = step.assets_def
    if asset is None or not asset.keys:  # an asset check has no keys
        raise NotSupported(
            f"step {step.step.key!r} reads channel {channel_of_asset(store, context.asset_key)!r}, but makes no asset",
            expected="an asset, because the cursor is stored under the key of the asset",
            next='read it with mode "all", or in an @dg.asset',
        )
    own_mode = mode_of_loaded_input(context)
    own_channel = channel_of_asset(store, context.asset_key)
    modes, input_name_by_channel = {own_channel: own_mode}, {own_channel: context.name}
    for name, (channel, mode) in input_modes(asset, DagsterNames.of(store)).items():
        if _channel_exists(store, channel):
            modes[channel] = mode
            input_name_by_channel[channel] = name
    scopes = {
        channel: input_partition_scope(context, store, channel, name) for channel, name in input_name_by_channel.items()
    }
    partition = step.partition_key if _has_partition(step) else WHOLE
    return AssetConsumer(consumer_name(asset), partition, modes, scopes)


def consumer_name(asset: AssetsDefinition) -> str:
    """Name under which the cursors of an asset that only reads are stored."""
    return _CONSUMER_PREFIX + "+".join(sorted(k.to_user_string() for k in asset.keys))


def input_partition_scope(context: InputContext, store: Store, channel: str, input_name: str) -> str:
    """Partitions of a channel that an input reads: one partition, or all.

    Raises:
        NotSupported: the input is mapped to several partitions but not to all.
    """
    step = context.step_context
    if not _has_partition(step) or not step.has_asset_partitions_for_input(input_name):
        return WHOLE
    keys = list(step.asset_partitions_subset_for_input(input_name).get_partition_keys())
    if len(keys) == 1:
        dimensions = dimensions_in_dagster(store.project, store.catalog.definitions.channel(channel).channel)
        return parse_dagster_key(dimensions, keys[0])
    asset = step.assets_def
    if asset is not None and isinstance(
        asset.get_partition_mapping(DagsterNames.of(store).key(channel)), AllPartitionMapping
    ):
        return WHOLE
    raise NotSupported(
        f"input {input_name!r} is mapped to {len(keys)} partitions of channel {channel!r}",
        found=", ".join(keys[:3]) + (" ..." if len(keys) > 3 else ""),
        expected="one partition, or all of them: an input has one cursor for each channel",
        next="partition the asset as the channel is, or map it with dg.AllPartitionMapping()",
    )


def _has_partition(step: Any) -> bool:
    """Whether the step of an asset is for a partition. A run for a partition may contain assets without partitions."""
    return step.has_partition_key and (step.assets_def is None or step.assets_def.partitions_def is not None)


def pin_consumer_inputs(store: Store, consumer: AssetConsumer, run_id: str, instance: DagsterInstance) -> Execution:
    """Execution that pins the consumer's channels for this run. All inputs and retries of the run share it.

    Raises:
        ExecutionInProgress: another run of the asset is active.
    """
    dead_owners = set()
    for earlier in store.catalog.executions.find(consumer.name):
        if earlier.state != "running" or earlier.partition != consumer.partition:
            continue
        if earlier.run_id == run_id:
            return earlier
        if not commit_cursors_if_succeeded(
            store, earlier, instance_of_owner(earlier.owner, instance)
        ) and is_dagster_owner_dead(earlier.owner, instance):
            dead_owners.add(earlier.owner)
    lease = store.settings.lease if instance.is_ephemeral else _LEASE_SECONDS
    execution = store.catalog.executions.begin(
        BeginRequest(
            uuid.uuid4().hex,
            binding=consumer.name,
            pinned_channels=tuple(consumer.mode_by_channel),
            cursor_channels=consumer.channels_with_cursor,
            partition=consumer.partition,
            owner=execution_owner_of_run(run_id, instance),
            lease_seconds=lease,
            run_id=run_id,
            dead_owners=frozenset(dead_owners),
            scope_by_channel=consumer.scope_by_channel,
            purpose="read",
        )
    )
    if instance.is_ephemeral:  # the evidence ends with this process, and so must the lease
        start_lease_renewals(store.catalog, execution, lease, lambda: is_ephemeral_run_active(run_id))
    return execution


def commit_cursors_if_succeeded(store: Store, reader_execution: Execution, instance: DagsterInstance) -> bool:
    """Move the consumer's cursors if its step succeeded in the run that pinned them. Returns whether it succeeded."""
    # The IO manager could not do this: Dagster does not call it for None or a MaterializeResult, nor if the asset has
    # another IO manager.
    if not _has_materialized_asset(reader_execution, instance):
        return False
    name, partition = reader_execution.binding or "", reader_execution.partition
    pins = [p for p in reader_execution.pins.values() if p.cursor is not None]
    request = CommitRequest(
        id=uuid.uuid4().hex,
        execution_id=reader_execution.id,
        epoch=reader_execution.epoch,
        binding=name,
        added_blocks=(),
        cursors=tuple(
            MoveCursor(name, p.channel, p.cursor or 0, p.head, partition=partition, channel_partition=p.partition)
            for p in pins
        ),
        reads=tuple(ChannelRead(p.channel, p.cursor, p.head, p.partition) for p in reader_execution.pins.values()),
    )
    with suppress(CommitConflict):  # another process has moved them
        commit_resolving_outcome(store.catalog, store.runtime.staging.warehouse_check, request)
    return True


def is_asset_consumer(execution_binding: str | None) -> bool:
    """Whether an execution's binding name denotes a user's asset, not a binding of the project."""
    return (execution_binding or "").startswith(_CONSUMER_PREFIX)


def commit_or_abort_consumers(store: Store, instance: DagsterInstance) -> None:
    """Settle every consumer whose run has ended: move its cursors, or abort its execution and release its pins."""
    for execution in store.catalog.executions.find():
        is_running_consumer = is_asset_consumer(execution.binding) and execution.state == "running"
        if (
            is_running_consumer
            and not commit_cursors_if_succeeded(store, execution, instance)
            and is_dagster_owner_dead(execution.owner, instance)
        ):
            store.catalog.executions.abort(execution.id, "its run ended and the asset was not materialized")


def _has_materialized_asset(execution: Execution, instance: DagsterInstance) -> bool:
    """Whether a successful step materialized the asset in the execution's run."""
    if execution.run_id is None or not instance.has_run(execution.run_id):
        return False
    succeeded = {e.step_key for e in instance.all_logs(execution.run_id, of_type=DagsterEventType.STEP_SUCCESS)}
    names = (execution.binding or "").removeprefix(_CONSUMER_PREFIX).split("+")
    return any(_materializing_step_key(instance, AssetKey.from_user_string(n), execution) in succeeded for n in names)


def _materializing_step_key(instance: DagsterInstance, asset_key: AssetKey, execution: Execution) -> str | None:
    """Key of the step that materialized an asset in the execution's run; empty if no step did.

    A run materializes an asset once.
    """
    records = AssetRecordsFilter(asset_key, after_timestamp=execution.started_at.timestamp() - 3600)
    for record in instance.fetch_materializations(records, limit=1000).records:
        if record.run_id == execution.run_id:
            return record.event_log_entry.step_key
    return ""


def _channel_exists(store: Store, name: str) -> bool:
    try:
        store.catalog.definitions.channel(name)
    except ChannelNotFound:
        return False
    return True
