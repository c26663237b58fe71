"""Column lineage, where tasks declare it or a query says it: which columns a written channel's are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova_assets.model.binding import Binding

Column = tuple[str, str]
"""(channel, column)."""


def column_lineage(binding: Binding) -> dict[str, dict[str, tuple[Column, ...]]]:
    """Written channel -> column -> the columns of other channels that it is made from, through private ports.

    Columns of which nothing is declared are absent: not known is not the same as made from nothing.
    """
    by_port: dict[str, dict[str, tuple[Column, ...]]] = {}
    for task in binding.workflowette.in_order():
        ports = {e.name: e.port for e in task.consumes}
        for out in task.produces:
            known = task.scoped.columns() if task.scoped is not None else out.columns
            by_port[out.port] = {
                column: _made_from(binding, by_port, ports, sources) for column, sources in known.items()
            }
    return {c.name: by_port[p] for p, c in binding.channels.items() if by_port.get(p)}


def _made_from(
    binding: Binding,
    by_port: Mapping[str, Mapping[str, tuple[Column, ...]]],
    ports: Mapping[str, str],
    sources: tuple[str, ...],
) -> tuple[Column, ...]:
    found: dict[Column, None] = {}
    for source in sources:
        name, _, column = source.partition(".")
        channel = binding.channel(ports[name])
        made = ((channel.name, column),) if channel is not None else by_port.get(ports[name], {}).get(column, ())
        found |= dict.fromkeys(made)
    return tuple(found)
