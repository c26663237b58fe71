"""Which triggers have to be evaluated, because something has changed since they were evaluated last. Pure.

A watch remembers what the catalog said, and when each binding has to be looked at again. It decides nothing: a binding
that it names is evaluated by ``plan/due``. So its memory may be lost at any time. A new watch names all
bindings.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nova_assets.model.binding import Binding
from nova_assets.model.trigger import After, OnData, OnSealed

MIN_REST = timedelta(minutes=15)
"""Least time after which a binding is evaluated although no counter has changed. The most is twice as long."""


@dataclass(frozen=True, slots=True)
class CatalogCounters:
    """Counters of the catalog that grow when a trigger may become due.

    Args:
        heads: channel -> head.
        seals: channel -> number of seals.
        executions: (binding, status) -> number of executions that reached the status.
    """

    heads: Mapping[str, int] = field(default_factory=dict)
    seals: Mapping[str, int] = field(default_factory=dict)
    executions: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def changed_sources(self, before: CatalogCounters) -> set[object]:
        """Channels, and pairs of binding and status, whose counters differ from those of an earlier time."""
        return {
            *dict(self.heads.items() - before.heads.items()),
            *dict(self.seals.items() - before.seals.items()),
            *dict(self.executions.items() - before.executions.items()),
        }


class TriggerWatch:
    """Bindings with triggers, and the time at which each has to be evaluated again."""

    def __init__(self, bindings: Iterable[Binding]) -> None:
        self._bindings_by_source: dict[object, list[str]] = {}
        self._due_at: dict[str, datetime] = {}
        self._counters = CatalogCounters()
        for binding in bindings:
            if binding.when is not None:
                self._due_at[binding.name] = datetime.min.replace(tzinfo=UTC)
                for source in _sources(binding):
                    self._bindings_by_source.setdefault(source, []).append(binding.name)

    def observe(self, counters: CatalogCounters, now: datetime) -> list[str]:
        """Take the current counters, and return the names of the bindings to evaluate, longest waiting first.

        The counters must have been read before the bindings are evaluated. What changes in between is seen next time.
        """
        for source in counters.changed_sources(self._counters):
            for name in self._bindings_by_source.get(source, ()):
                self._due_at[name] = min(self._due_at[name], now)
        self._counters = counters
        waiting = [(due_at, name) for name, due_at in self._due_at.items() if due_at <= now]
        return [name for _, name in sorted(waiting)]

    def rest(self, binding_name: str, until: datetime | None, now: datetime) -> None:
        """Record that a binding has been evaluated.

        Args:
            until: time at which it has to be evaluated again. None if only a change can make it due.
        """
        share = zlib.crc32(binding_name.encode()) / 2**32  # so that bindings do not come all at once
        latest = now + MIN_REST * (1 + share)
        self._due_at[binding_name] = latest if until is None else min(until, latest)


def _sources(binding: Binding) -> set[object]:
    """Channels, and pairs of binding and status, whose counters can make a binding due.

    A trigger fires only for partitions with data, so a partitioned binding depends on all channels that it reads.
    """
    sources: set[object] = {c.name for c in binding.reads} if binding.dimensions else set()
    for trigger in binding.triggers:
        if isinstance(trigger, OnData):
            sources |= set(trigger.channels)
        elif isinstance(trigger, OnSealed):
            sources.add(trigger.channel)
        elif isinstance(trigger, After):
            sources.add((trigger.binding, trigger.status))
    return sources
