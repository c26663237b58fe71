"""The IO manager: how a user's own asset reads a channel, in the mode that its input names.

    @dg.asset(ins={"articles": dg.AssetIn("unique_articles", metadata={"nova/mode": "new"})})
    def report(articles: pa.Table): ...

The cursor of such a consumer is ``asset:<its key>``. It moves on evidence: once the run that pinned it is seen to have
materialized the asset. Until then the same changes are given again, so the asset is fed at least once.
"""

from __future__ import annotations

import uuid
from typing import Any

from dagster import (
    AssetKey,
    ConfigurableIOManager,
    DagsterInstance,
    InputContext,
    OutputContext,
)

from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.model.commit import CommitRequest, MoveCursor
from nova_assets.model.execution import Begin, Execution
from nova_assets.model.reads import Read
from nova_assets.model.view import View
from nova_assets.plan import modes
from nova_assets.store import Store

MODES = ("all", "new", "old", "changes")
_LEASE = 7 * 24 * 3600.0  # the evidence decides, not the clock


class NovaIOManager(ConfigurableIOManager):
    """Loads bases and deltas for users' assets, with merge, chain and diff.

    An input is given as what it is annotated with: a Spark DataFrame (also without annotation), a ``pyarrow.Table``, a
    ``pandas.DataFrame`` or a ``nova.View``.
    """

    nova: NovaResource

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Channels are written by bindings and inserts, never by returning a value."""
        if obj is not None:
            raise NotSupported(
                f"asset {context.asset_key.to_user_string()} returned a {type(obj).__name__} to the nova IO manager",
                expected="None: its output is its own",
                next="give the asset an io_manager_key of your own, or write with store.insert",
            )

    def load_input(self, context: InputContext) -> Any:
        """A channel in the mode of the input's metadata ``nova/mode`` (``all`` by default)."""
        store = self.nova.store()
        channel = context.asset_key.path[-1]
        mode = (context.definition_metadata or {}).get("nova/mode", "all")
        if mode not in MODES:
            raise DefinitionError(f"input {context.name!r} has an unknown mode", found=mode, expected=", ".join(MODES))
        if mode == "all":
            return self._shaped(store, modes.snapshot(store.catalog.history(channel)), context)
        return self._with_cursor(store, channel, mode, context)

    def _with_cursor(self, store: Store, channel: str, mode: str, context: InputContext) -> Any:
        consumer = _consumer(context)
        binding = f"asset:{consumer.to_user_string()}:{channel}"
        settle_evidence(store, binding, channel, consumer, context.instance)
        execution = _begin(store, binding, channel, context)
        pin = execution.pins[channel]
        history = store.catalog.history(channel, pin.head)
        cursor = pin.cursor or 0
        if mode == "new":
            return self._shaped(store, modes.changes(history, cursor, pin.head), context)
        if mode == "old":
            return self._shaped(store, modes.old(history, cursor), context)
        engine = store.engine
        return View(
            all=lambda: engine.read(modes.snapshot(history, pin.head)),
            new=lambda: engine.read(modes.changes(history, cursor, pin.head)),
            old=lambda: engine.read(modes.old(history, cursor)),
        )

    def _shaped(self, store: Store, read: Read, context: InputContext) -> Any:
        frame = store.engine.read(read)
        wanted = context.dagster_type.typing_type
        name = f"{getattr(wanted, '__module__', '')}.{getattr(wanted, '__qualname__', '')}"
        if name.startswith("pyarrow."):
            return store.engine.to_arrow(frame)
        if name.startswith("pandas."):
            return store.engine.to_arrow(frame).to_pandas()
        return frame


def settle_evidence(store: Store, binding: str, channel: str, consumer: AssetKey, instance: DagsterInstance) -> None:
    """Move the consumer's cursor, if the run that pinned it last has materialized the asset since."""
    for execution in store.catalog.executions(binding, limit=1):
        if execution.state != "running" or execution.run_id is None:
            return
        done = instance.fetch_materializations(consumer, limit=100).records
        if any(r.run_id == execution.run_id for r in done):
            pin = execution.pins[channel]
            move = MoveCursor(binding, channel, pin.cursor or 0, pin.head)
            consumed = {channel: (pin.cursor, pin.head)}
            request = CommitRequest(
                uuid.uuid4().hex, execution.id, execution.epoch, binding, (), (move,), consumed=consumed
            )
            store.catalog.commit(request)


def _begin(store: Store, binding: str, channel: str, context: InputContext) -> Execution:
    """Pin for this run. An earlier pin without evidence is given up, unless its run is still going."""
    run_id = context.step_context.run_id
    dead = set()
    for earlier in store.catalog.executions(binding, limit=1):
        if earlier.state == "running" and earlier.run_id == run_id:
            return earlier
        run = context.instance.get_run_by_id(earlier.run_id) if earlier.run_id else None
        if run is None or run.is_finished:
            dead.add(earlier.owner)
    return store.catalog.begin(
        Begin(
            uuid.uuid4().hex,
            binding,
            heads=(channel,),
            cursors=(channel,),
            owner=f"dagster:{run_id}",
            lease=_LEASE,
            run_id=run_id,
            dead=frozenset(dead),
        )
    )


def _consumer(context: InputContext) -> AssetKey:
    """The asset that reads."""
    return AssetKey(context.step_context.op_def.name.split("__"))
