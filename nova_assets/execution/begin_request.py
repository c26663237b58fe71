"""Begin requests of bindings: validated, with the channels to pin, and repeated if a dead owner holds the lease."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TypeVar

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import ChannelNotFound, ExecutionInProgress, InputsMissing, PartitionError
from nova_assets.execution.lease import is_owner_dead
from nova_assets.execution.trigger_state import list_unread_partitions, runs_unpartitioned
from nova_assets.model.binding import Binding
from nova_assets.model.execution import BeginRequest, Execution, Pin
from nova_assets.model.partition_rule import FewRows, InputState
from nova_assets.model.partitions import WHOLE
from nova_assets.model.reads import Read
from nova_assets.model.registered_definition import binding_fingerprint
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.run import (
    changes_needed_after,
    channels_to_pin,
    oldest_snapshot_needed,
    plan_run,
    scope_by_channel,
)
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


T = TypeVar("T")


def build_begin_request(
    catalog: Catalog,
    binding: Binding,
    partition: str,
    *,
    whole: bool,
    owner: str,
    lease_seconds: float,
    few_rows: Callable[[str], FewRows | None],
) -> BeginRequest:
    """Begin request for one partition, validated as far as that needs no transaction.

    Args:
        whole: execute all partitions together, although the binding is triggered per partition.
        few_rows: function from a channel to its rows; None if they are many.

    Raises:
        PartitionError: the binding has no such partition, or it is triggered per partition and none is named.
        InputsMissing: a query would read partitions that do not exist yet.
    """
    partition = binding.partition(partition)
    if partition == WHOLE and not whole:
        _check_may_run_unpartitioned(binding, catalog)
    now, existing = catalog.now(), existing_partitions_lookup(catalog)
    inputs = InputState(lambda channel: existing(channel) or _empty_result(catalog, channel), few_rows)
    _check_inputs_exist(binding, partition, now, inputs)
    to_pin = channels_to_pin(binding)
    return BeginRequest(
        execution_id=uuid.uuid4().hex,
        binding=binding.name,
        pinned_channels=to_pin.head_channels,
        cursor_channels=to_pin.cursor_channels,
        partition=partition,
        owner=owner,
        lease_seconds=lease_seconds,
        scope_by_channel=scope_by_channel(binding, partition, now, InputState(existing)),
        last_read_version_by_channel=_last_read_versions(catalog, binding, partition),
        definition_fingerprint=binding_fingerprint(binding),
    )


def _check_may_run_unpartitioned(binding: Binding, catalog: Catalog) -> None:
    """Check that a binding may run unpartitioned: that the caller did not forget to name a partition.

    A binding runs unpartitioned or per partition (R13). Its first execution decides. An omitted partition must not turn
    a partitioned binding into an unpartitioned one.

    Raises:
        PartitionError: the binding is triggered per partition, and has not been executed unpartitioned before.
    """
    if binding.when is None or not binding.dimensions or runs_unpartitioned(binding, catalog):
        return
    unread = list_unread_partitions(binding, catalog)
    shape = "/".join(f"{d.column}=..." for d in binding.dimensions)
    first = f" (such as {unread[0]})" if unread else ""
    raise PartitionError(
        f"binding {binding.name!r} is triggered per partition, so a run must name its partitions",
        found="no partition",
        expected=f"--partition {shape}, once or several times{first}; --missing, for the {len(unread)} with unread "
        "data; or --whole, for one unpartitioned run. After --whole, the trigger waits until the cursors are switched "
        "back",
        next=f"nova run {binding.name} --missing; in Python: for p in store.unread({binding.name!r}): "
        f"store.run({binding.name!r}, p)",
        binding=binding.name,
        unread=len(unread),
    )


def _check_inputs_exist(binding: Binding, partition: str, now: datetime, inputs: InputState) -> None:
    """Check that every partition exists which the binding's queries read.

    With missing partitions, a query would silently return a part of its result.

    Raises:
        InputsMissing: names the missing partitions.
    """
    missing_partitions = [
        name
        for t in binding.tasks
        if t.scoped is not None
        for name in t.scoped.missing_partitions(partition, now, inputs)
    ]
    if missing_partitions:
        more = f" and {len(missing_partitions) - 3} more" if len(missing_partitions) > 3 else ""
        raise InputsMissing(
            f"{f'{binding.name} {partition}'.rstrip()} reads partitions that do not exist yet",
            found=f"no {', '.join(missing_partitions[:3])}{more}",
            expected="every partition that it reads",
            next="compute the missing partitions first; nova tick --all computes all datasets in order",
            binding=binding.name,
            partition=partition,
        )


def _last_read_versions(catalog: Catalog, binding: Binding, partition: str) -> dict[str, int]:
    names = {c.name for c in binding.channels_without_cursor}
    last = catalog.commits.last(binding.name, partition) if names else None
    return {} if last is None else {name: v for name, v in last.read_versions.items() if name in names}


def _empty_result(catalog: Catalog, dataset: str) -> list[str]:
    """The one partition of a maintained dataset whose result was empty so far, so that it has no blocks."""
    return [WHOLE] if catalog.cursors.positions(dataset) else []


def check_rows_unchanged(catalog: Catalog, execution: Execution, checked_heads: Mapping[str, int]) -> None:
    """Check that the rows on which depends what an execution reads are those with which its inputs were checked.
    Otherwise it could read partitions that do not exist.

    Args:
        checked_heads: channel whose rows decide -> head at which they were checked.

    Raises:
        InputsMissing: the rows have changed since. The execution is aborted.
    """
    changed = [c for c, head in checked_heads.items() if c in execution.pins and execution.pins[c].head != head]
    if changed:
        catalog.executions.abort(execution.id, f"channel {changed[0]} has changed", counts_as_failure=False)
        raise InputsMissing(
            f"channel {changed[0]!r}, which decides what {execution.binding} reads, has changed meanwhile",
            found=f"version {execution.pins[changed[0]].head}",
            expected=f"version {checked_heads[changed[0]]}",
            next=f"nova run {execution.binding}, or the next tick",
            binding=execution.binding,
            partition=execution.partition,
        )


def retry_if_owner_dead(begin_or_preview: Callable[[BeginRequest], T], request: BeginRequest) -> T:
    """Begin or preview. If a dead owner holds the lease, try again at once without waiting for the lease."""
    try:
        return begin_or_preview(request)
    except ExecutionInProgress as busy:
        owner = busy.fields.get("owner", "")
        if not is_owner_dead(owner):
            raise
        return begin_or_preview(replace(request, dead_owners=frozenset({owner})))
