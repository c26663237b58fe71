"""Column lineage: the source columns of each written column, as declared by tasks or derived from queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova_assets.model.binding import Binding

ChannelColumn = tuple[str, str]
"""(channel, column)."""


def column_lineage(binding: Binding) -> dict[str, dict[str, tuple[ChannelColumn, ...]]]:
    """Written channel -> column -> its source columns in other channels, resolved through private ports.

    Columns without declared lineage are absent: unknown lineage differs from having no sources.
    """
    lineage_by_port: dict[str, dict[str, tuple[ChannelColumn, ...]]] = {}
    for task in binding.workflowette.in_order():
        port_by_input = {e.name: e.port for e in task.consumes}
        for produced_edge in task.produces:
            sources_by_column = task.scoped.column_origins() if task.scoped is not None else produced_edge.columns
            lineage_by_port[produced_edge.port] = {
                column: _resolve_source_columns(binding, lineage_by_port, port_by_input, sources)
                for column, sources in sources_by_column.items()
            }
    return {c.name: lineage_by_port[p] for p, c in binding.channels.items() if lineage_by_port.get(p)}


def _resolve_source_columns(
    binding: Binding,
    lineage_by_port: Mapping[str, Mapping[str, tuple[ChannelColumn, ...]]],
    port_by_input: Mapping[str, str],
    sources: tuple[str, ...],
) -> tuple[ChannelColumn, ...]:
    columns: dict[ChannelColumn, None] = {}
    for source in sources:
        name, _, column = source.partition(".")
        channel = binding.channel(port_by_input[name])
        source_columns = (
            ((channel.name, column),)
            if channel is not None
            else lineage_by_port.get(port_by_input[name], {}).get(column, ())
        )
        columns |= dict.fromkeys(source_columns)
    return tuple(columns)
