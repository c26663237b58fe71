"""Values of the inputs of users' assets: frames of channels, converted to the types with which inputs are annotated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dagster import InputContext, OutputContext

from nova_assets.dagster_bridge import asset_steps
from nova_assets.dagster_bridge.asset_consumers import (
    build_consumer,
    channel_of_asset,
    check_modes_of_reader,
    input_partition_scope,
    mode_of_loaded_input,
    pin_consumer_inputs,
)
from nova_assets.dagster_bridge.channel_writer import binding_of_step
from nova_assets.dagster_bridge.partitions import dimensions_in_dagster, parse_dagster_key
from nova_assets.dagster_bridge.read_modes import PRODUCES_METADATA_KEY, input_mode
from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.execution.begin_request import plan_pinned_read
from nova_assets.formats.pandas_frame import to_pandas_frame
from nova_assets.model.block import Kind
from nova_assets.model.execution import Pin
from nova_assets.model.modes_view import View
from nova_assets.model.partitions import WHOLE
from nova_assets.store.store import Store


def load_channel(store: Store, context: InputContext) -> Any:
    """Load a channel as the annotated type. The metadata ``nova/mode`` of the input names the mode.

    Raises:
        DefinitionError: the mode or the annotation is not supported, or ``old`` is not beside ``new`` (R8).
        ChannelNotFound: the upstream asset is not a channel.
        ExecutionInProgress: another run of the asset is reading.
        NotSupported: this run has pinned other channels but not this channel, or the step makes no asset.
    """
    if not _is_in_step(context):
        return _load_outside_step(store, context)
    binding = binding_of_step(context.step_context)
    if binding is not None and any(e.name == context.name for t in binding.tasks for e in t.consumes):
        scopes = None if _is_for_range(context) else build_consumer(context, store).scope_by_channel
        steps = asset_steps.begin_or_attach(store, binding, context.step_context, scopes)
        may_be_table = _is_annotated_with_table(context)
        value = asset_steps.load_input(steps, store, context.name, may_be_table=may_be_table)
        return value if isinstance(value, View) else _as_annotated_type(store, value, context)
    channel = channel_of_asset(store, context.asset_key)
    check_modes_of_reader(context, store)
    mode = mode_of_loaded_input(context)
    head = store.catalog.definitions.channel(channel).head
    if mode != "all":
        store.catalog.definitions.channel(channel).channel.refuse_changes()
    if mode == "all" and not _consumer_has_cursor(store, context):
        scope = input_partition_scope(context, store, channel, context.name)
        return _as_annotated_type(store, _read_pinned(store, Pin(channel, head, partition=scope), "all"), context)
    execution = pin_consumer_inputs(
        store, build_consumer(context, store), context.step_context.run_id, context.step_context.instance
    )
    pinned = execution.pins.get(channel)
    if pinned is None:
        raise NotSupported(
            f"input {context.name!r} reads channel {channel!r}, but this run has only pinned other channels",
            next="read several channels in one @dg.asset, or make each step of the graph an asset",
        )
    if mode == "changes":
        return View(*(partial(_read_pinned, store, pinned, m) for m in ("all", "new", "old")))
    return _as_annotated_type(store, _read_pinned(store, pinned, mode), context)


def _insert_outside_step(store: Store, context: OutputContext, rows: Any, kind: Kind) -> None:
    """Insert rows into the channel of an asset, in the partition that the context names."""
    channel = store.catalog.definitions.channel(channel_of_asset(store, context.asset_key)).channel
    partition = None
    if context.has_partition_key and channel.partitions:
        partition = parse_dagster_key(dimensions_in_dagster(store.project, channel), context.partition_key)
    store.insert(channel.name, rows, kind, partition=partition)


def _is_in_step(context: InputContext | OutputContext) -> bool:
    """Whether the context belongs to a step of a run. Otherwise somebody loads or stores an asset's value, as
    ``defs.load_asset_value`` does, and tests with ``dg.build_output_context()``.
    """
    return getattr(context, "_step_context", None) is not None


def _load_outside_step(store: Store, context: InputContext) -> Any:
    """Rows of a channel at its head, in the partition that the context names.

    Raises:
        NotSupported: the mode needs the cursor of an asset.
    """
    channel = store.catalog.definitions.channel(channel_of_asset(store, context.asset_key))
    metadata = getattr(context, "_definition_metadata", None)
    mode = input_mode(channel.channel.name, metadata, _annotation(context))
    if mode != "all":
        raise NotSupported(
            f"an input reads {mode}({channel.channel.name}) outside a run, where nothing has a cursor",
            expected="mode all",
            next="store.read(channel, since=...) reads changes",
        )
    scope = WHOLE
    if context.has_partition_key and channel.channel.partitions:
        scope = parse_dagster_key(dimensions_in_dagster(store.project, channel.channel), context.partition_key)
    pin = Pin(channel.channel.name, channel.head, partition=scope)
    return _as_annotated_type(store, _read_pinned(store, pin, "all"), context)


def _annotation(context: InputContext) -> Any:
    """Type with which the input is annotated; ``Any`` outside a step that says nothing."""
    dagster_type = getattr(context, "_dagster_type", None)
    return Any if dagster_type is None else dagster_type.typing_type


def accept_output(context: OutputContext, value: Any, open_store: Callable[[], Store]) -> None:
    """Accept the value of an asset that writes a channel: its step has committed the rows. Outside a run, the rows are
    inserted into the channel.

    Args:
        open_store: opens the store, for rows outside a run.

    Raises:
        NotSupported: the asset returned a value, and writes no channel.
    """
    is_in_step = _is_in_step(context)
    if value is None or (is_in_step and binding_of_step(context.step_context) is not None):
        return
    kind: Any = (context.definition_metadata or {}).get(PRODUCES_METADATA_KEY)
    if not is_in_step and kind is not None:
        _insert_outside_step(open_store(), context, value, getattr(kind, "value", kind))
        return
    asset = context.asset_key.to_user_string()
    raise NotSupported(
        f"asset {asset!r} returned a {type(value).__name__} to the nova IO manager, but writes no channel",
        expected=f'metadata={{"{PRODUCES_METADATA_KEY}": "delta"}} on the asset, and a channel {asset!r}',
        next="hand the asset to build_definitions(project, assets=[...]), give it another io_manager_key, or return "
        "None",
    )


def _is_for_range(context: InputContext) -> bool:
    """Whether the step is for several partitions.

    Raises:
        NotSupported: the input is mapped to other partitions.
    """
    step = context.step_context
    if not step.has_partition_key_range:
        return False
    if step.has_asset_partitions_for_input(context.name):
        keys = set(step.asset_partitions_subset_for_input(context.name).get_partition_keys())
        if keys != set(asset_steps.keys_of_range(step)):
            raise NotSupported(
                f"input {context.name!r} reads other partitions than those that the asset writes",
                next="@dg.asset(backfill_policy=dg.BackfillPolicy.multi_run())",
            )
    return True


def _consumer_has_cursor(store: Store, context: InputContext) -> bool:
    """Whether any input of the asset has a cursor, so that all its inputs must be read under one pin."""
    asset = context.step_context.assets_def
    return asset is not None and bool(asset.keys) and bool(build_consumer(context, store).channels_with_cursor)


def _read_pinned(store: Store, pin: Pin, mode: str) -> Any:
    """Frame of a channel at a pin."""
    return store.engine.reader.read(plan_pinned_read(store.catalog, pin, mode))


def _as_annotated_type(store: Store, frame: Any, context: InputContext) -> Any:
    """The frame as the type with which the input is annotated."""
    annotation, type_name = _annotation(context), _annotated_type_name(context)
    if type_name.startswith("pyarrow.") and type_name.endswith(".Table"):
        return store.engine.frames.to_arrow(frame)
    if type_name.startswith("pandas.") and type_name.endswith(".DataFrame"):
        return to_pandas_frame(store.engine.frames.to_arrow(frame))
    if type_name.startswith("polars.") and type_name.endswith(".DataFrame"):
        import polars

        return polars.from_arrow(store.engine.frames.to_arrow(frame))
    if annotation is Any or not isinstance(annotation, type) or isinstance(frame, annotation):
        return frame
    raise DefinitionError(
        f"channel {context.asset_key.to_user_string()!r} cannot be converted into the type that its input names",
        found=type_name,
        expected="pyspark.sql.DataFrame, pyarrow.Table, pandas.DataFrame, polars.DataFrame or nova.View",
    )


def _annotated_type_name(context: InputContext) -> str:
    annotation = _annotation(context)
    return f"{getattr(annotation, '__module__', '')}.{getattr(annotation, '__qualname__', '')}"


def _is_annotated_with_table(context: InputContext) -> bool:
    """Whether the input becomes a table in this process in any case."""
    library, _, name = _annotated_type_name(context).rpartition(".")
    return library.partition(".")[0] in ("pyarrow", "pandas", "polars") and name in ("Table", "DataFrame")
