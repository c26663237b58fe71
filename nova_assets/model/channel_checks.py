"""Data checks that a project gives to channels: whoever writes the channel has to pass them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace

from nova_assets.model.binding import Binding, bind
from nova_assets.model.block import Kind
from nova_assets.model.channel import Channel
from nova_assets.model.data_check import Check
from nova_assets.model.edge import Consumes, Produces
from nova_assets.model.partitions import WHOLE, partition_values
from nova_assets.model.task import Task
from nova_assets.model.workflowette import Workflowette
from nova_assets.suggestions import did_you_mean


def with_channel_checks(binding: Binding, checks: Iterable[Check]) -> Binding:
    """Copy of a binding that also runs the checks of the channels that it writes.

    Args:
        checks: checks whose ports are names of channels, and whose edges name their channels.
    """
    written = {c.name for c in binding.writes}
    present = {(c.name, c.function) for c in binding.checks}
    added = [c for c in checks if c.port in written and (c.name, c.function) not in present]
    if not added:
        return binding
    ports = dict(binding.channels)
    bound = [replace(c, consumes=tuple(_bind_edge(e, binding.workflowette, ports) for e in c.consumes)) for c in added]
    workflowette = binding.workflowette
    extended = copy(binding)
    object.__setattr__(
        extended, "workflowette", Workflowette(workflowette.name, workflowette.tasks, [*workflowette.checks, *bound])
    )
    object.__setattr__(extended, "channels", ports)
    return extended


def insert_binding(channel: Channel, kind: Kind, checks: Sequence[Check], scope: str = WHOLE) -> Binding:
    """An insert as a binding without a task that nova calls, by which the checks of its channel run on its block.

    Args:
        scope: partition of the block.
    """

    def rows_from_outside() -> None:
        """The rows are staged by the insert."""

    task = Task("insert", rows_from_outside, (), (Produces(channel.name, kind, channel),))
    workflowette = Workflowette(f"insert_{channel.name}", [task], checks)
    return bind(workflowette, partitions=list(partition_values(scope)))


def name_channels(check: Check, channels: Mapping[str, Channel]) -> Check:
    """The check with a channel on each edge whose port is the name of a channel."""
    edges = (e if e.channel is not None else replace(e, channel=channels.get(e.port)) for e in check.consumes)
    named = (e if e.channel is None else replace(e, port=e.channel.name) for e in edges)
    return replace(check, consumes=tuple(named))


def channel_check_problems(check: Check, channels: Mapping[str, Channel]) -> list[str]:
    """Problems of a check that a project gives to a channel. Problems with its binding are those of the binding."""
    found = check.problems()
    if not check.consumes:
        return found
    where = f"check {check.name!r} of the project"
    found += [
        f"{where} names {e.port!r}, which is no channel of the project{did_you_mean(e.port, channels)}"
        for e in check.consumes
        if e.port not in channels
    ]
    tested = channels.get(check.port)
    if tested is not None and tested.external is not None:
        found.append(
            f"{where} tests channel {check.port!r}, which is external: another system writes it, "
            "so nova cannot test its rows before they are published"
        )
    return found


def _bind_edge(edge: Consumes, workflowette: Workflowette, ports: dict[str, Channel]) -> Consumes:
    """The edge on the port of a workflowette that is bound to its channel. A port that is missing is added."""
    assert edge.channel is not None
    for port, channel in ports.items():
        if channel.name == edge.channel.name:
            return replace(edge, port=port)
    port = edge.channel.name
    while port in workflowette.ports or port in ports:
        port += "_"
    ports[port] = edge.channel
    return replace(edge, port=port)
