"""IO manager of channels: it loads channels into users' assets, and users' assets write channels under its name.

    @dg.asset(
        key="totals",
        io_manager_key="nova",
        metadata={"nova/produces": "delta"},
        ins={"orders": dg.AssetIn("orders", metadata={"nova/mode": "new"})},
    )
    def totals(orders: pa.Table) -> pa.Table: ...

``build_definitions(project, assets=[totals])`` makes such an asset a writer of its channel (``writing_assets.py``).
Other assets only read: their cursors belong to the consumer ``asset:<key>`` (``asset_consumers.py``).
"""

from __future__ import annotations

from typing import Any

from dagster import ConfigurableIOManager, InputContext, OutputContext

from nova_assets.dagster_bridge.channel_inputs import accept_output, load_channel
from nova_assets.dagster_bridge.resources import NovaResource


class NovaIOManager(ConfigurableIOManager):
    """IO manager that loads channels into users' assets, for definitions that name their resources themselves.

    ``NovaResource`` is such an IO manager, too, and describes what it does.

    Args:
        nova: the resource that opens the store.
    """

    nova: NovaResource

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Accept the value of an asset that writes a channel. Raises NotSupported for other assets."""
        accept_output(context, obj, self.nova.store)

    def load_input(self, context: InputContext) -> Any:
        """Load a channel as the annotated type, as ``NovaResource.load_input`` does."""
        return load_channel(self.nova.store(), context)
