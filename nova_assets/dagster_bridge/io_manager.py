"""IO manager through which a user's own asset reads a channel, in the mode that the asset's input names.

    @dg.asset(ins={"articles": dg.AssetIn("unique_articles", metadata={"nova/mode": "new"})})
    def report(articles: pa.Table): ...

The cursors of such an asset belong to the consumer ``asset:<key>``. ``asset_consumers.py`` describes when they move.
"""

from __future__ import annotations

from typing import Any

from dagster import ConfigurableIOManager, InputContext, OutputContext

from nova_assets.dagster_bridge.asset_consumers import (
    build_consumer,
    channel_of_asset,
    input_mode,
    input_partition_scope,
    pin_consumer_inputs,
)
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.execution.pins import plan_pinned_read
from nova_assets.model.execution import Pin
from nova_assets.model.modes_view import View
from nova_assets.model.reads import Read
from nova_assets.store.store import Store


class NovaIOManager(ConfigurableIOManager):
    """IO manager that loads channels into users' assets, in mode ``all`` (default), ``new``, ``old`` or ``changes``.

    The annotation of an input selects the type of its value: a Spark DataFrame (the default), a ``pyarrow.Table``, a
    ``pandas.DataFrame``, or a ``nova.View``. A ``nova.View`` offers all modes under one pin. If all inputs of an asset
    use mode ``all``, the asset pins nothing and reads the head of each channel.

    The IO manager stores nothing, because only bindings and inserts write channels. An asset that uses this IO manager
    for its own output must return None. An asset with a value to store needs another IO manager.

    Args:
        nova: the resource that opens the store.
    """

    nova: NovaResource

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Reject a returned value, because this IO manager stores none.

        Raises:
            NotSupported: ``obj`` is not None.
        """
        if obj is not None:
            raise NotSupported(
                f"asset {context.asset_key.to_user_string()!r} returned a {type(obj).__name__} to the nova IO manager",
                expected="None: channels are written by bindings and by store.insert",
                next="give the asset an io_manager_key of your own, or return None",
            )

    def load_input(self, context: InputContext) -> Any:
        """Load a channel as the annotated type. The metadata ``nova/mode`` of the input names the mode.

        Raises:
            DefinitionError: the mode or the annotation is not supported.
            ChannelNotFound: the upstream asset is not a channel.
            ExecutionInProgress: another run of the asset is reading.
            NotSupported: this run has pinned other channels but not this channel, or the step makes no asset.
        """
        store = self.nova.store()
        channel = channel_of_asset(context.asset_key)
        mode = input_mode(context.name, context.definition_metadata, context.dagster_type.typing_type)
        head = store.catalog.channel(channel).head
        if mode != "all":
            store.catalog.channel(channel).channel.refuse_changes()
        if mode == "all" and not self._consumer_has_cursor(store, context):
            scope = input_partition_scope(context, store, channel, context.name)
            return _load_as_annotated_type(
                store, plan_pinned_read(store.catalog, Pin(channel, head, partition=scope), "all"), context
            )
        execution = pin_consumer_inputs(
            store, build_consumer(context, store), context.step_context.run_id, context.instance
        )
        pin = execution.pins.get(channel)
        if pin is None:
            raise NotSupported(
                f"input {context.name!r} reads channel {channel!r}, but this run has only pinned other channels",
                next="read several channels in one @dg.asset, or make each step of the graph an asset",
            )
        return (
            _build_modes_view(store, pin)
            if mode == "changes"
            else _load_as_annotated_type(store, plan_pinned_read(store.catalog, pin, mode), context)
        )

    def _consumer_has_cursor(self, store: Store, context: InputContext) -> bool:
        """Whether any input of the asset has a cursor, so that all its inputs must be read under one pin."""
        return context.step_context.assets_def is not None and bool(build_consumer(context, store).channels_with_cursor)


def _build_modes_view(store: Store, pin: Pin) -> View:
    engine = store.engine
    return View(
        all=lambda: engine.read(plan_pinned_read(store.catalog, pin, "all")),
        new=lambda: engine.read(plan_pinned_read(store.catalog, pin, "new")),
        old=lambda: engine.read(plan_pinned_read(store.catalog, pin, "old")),
    )


def _load_as_annotated_type(store: Store, read: Read, context: InputContext) -> Any:
    """Execute a read and convert the result to the type with which the input is annotated."""
    annotation = context.dagster_type.typing_type
    type_name = f"{getattr(annotation, '__module__', '')}.{getattr(annotation, '__qualname__', '')}"
    frame = store.engine.read(read)
    if type_name.startswith("pyarrow.") and type_name.endswith(".Table"):
        return store.engine.to_arrow(frame)
    if type_name.startswith("pandas.") and type_name.endswith(".DataFrame"):
        return store.engine.to_arrow(frame).to_pandas()
    if annotation is Any or not isinstance(annotation, type) or isinstance(frame, annotation):
        return frame
    raise DefinitionError(
        f"input {context.name!r} has an annotation into which a channel cannot be converted",
        found=type_name,
        expected="pyspark.sql.DataFrame, pyarrow.Table, pandas.DataFrame or nova.View",
    )
