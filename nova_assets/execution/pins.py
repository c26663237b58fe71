"""Histories and plans behind the pins of an execution, from the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import cache

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import ChannelNotFound
from nova_assets.model.binding import Binding
from nova_assets.model.execution import Pin
from nova_assets.model.partition_rule import FewRows
from nova_assets.model.reads import Read
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.run import changes_needed_after, oldest_snapshot_needed, plan_run
from nova_assets.plan.run_plan import RunPlan


def load_pinned_history(catalog: Catalog, binding: Binding, pin: Pin) -> History:
    """Part of a channel's history that a plan needs. Empty for a channel that is not registered yet."""
    with suppress(ChannelNotFound):
        since = changes_needed_after(binding, pin)
        back_to = oldest_snapshot_needed(pin) if since is None else None
        return catalog.histories.of(pin.channel, pin.head, pin.partition, since, back_to=back_to)
    definition = next(c for c in binding.channels.values() if c.name == pin.channel)
    return History(pin.channel, pin.partition, 0, (), definition.schema, definition.merge)


def plan_pinned_read(catalog: Catalog, pin: Pin, mode: str) -> Read:
    """Read of a pinned channel in a mode: ``all``, ``old`` or ``new``."""
    back_to = pin.head if mode == "all" else oldest_snapshot_needed(pin)
    history = catalog.histories.of(pin.channel, pin.head, pin.partition, back_to=back_to)
    if mode == "all":
        return modes.snapshot(history, pin.head)
    if mode == "old":
        return modes.old(history, pin.cursor or 0)
    return modes.changes(history, pin.cursor or 0, pin.head, has_run=pin.has_run)


def plan_run_from_pins(
    catalog: Catalog,
    binding: Binding,
    pins: Iterable[Pin],
    partition: str,
    now: datetime,
    few_rows: Callable[[str], FewRows | None] = lambda channel: None,
) -> RunPlan:
    """Plan of an execution with these pins.

    Args:
        few_rows: function from a channel to its rows at the pinned head; None if they are many.
    """
    by_channel = {p.channel: p for p in pins}
    histories = {c: load_pinned_history(catalog, binding, p) for c, p in by_channel.items()}
    return plan_run(binding, by_channel, histories, partition, now=now, few_rows=few_rows)


def existing_partitions_lookup(catalog: Catalog) -> Callable[[str], list[str]]:
    """Cached lookup of the existing partitions of channels. Empty for a channel that is not registered yet."""

    @cache
    def existing(channel: str) -> list[str]:
        with suppress(ChannelNotFound):
            return [p.partition for p in catalog.histories.partitions(channel) if not p.is_dropped]
        return []

    return existing
