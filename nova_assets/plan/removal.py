"""Removal of a definition: what is removed together, and what loses its owner, source or reader by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from nova_assets.model.block import Block
from nova_assets.model.channel_state import ChannelState, ConsumerPosition, Cursor, RetentionState
from nova_assets.model.registered_definition import DefinitionKey
from nova_assets.model.text_format import format_bytes, format_count, pluralize
from nova_assets.plan.garbage_collection import blocks_to_collect, retention_verdicts
from nova_assets.short_repr import short_repr

OrphanKind = Literal["reader", "writer", "trigger", "channel", "cursor", "blocks", "table", "arrivals"]

_LABELS: Mapping[OrphanKind, str] = {
    "reader": "binding",
    "writer": "binding",
    "trigger": "trigger",
    "channel": "channel",
    "cursor": "cursor of",
    "blocks": "blocks of",
    "table": "table",
    "arrivals": "files for",
}

_CHANNEL_TRIGGER = re.compile(r"on_(?:data|sealed)\(([^)]*)\)")
_CASCADE = re.compile(r"after\((\w+), ")


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that a removal leaves without its owner, source or reader.

    Args:
        kind: ``reader`` and ``writer`` are bindings of a removed channel; ``trigger`` waits for something removed;
            ``channel`` loses its writer; ``cursor`` and ``blocks`` are deleted at the next collection; ``table`` stays
            as it is; ``arrivals`` are files that are no longer received.
        name: name of the binding, channel or table.
    """

    kind: OrphanKind
    name: str
    detail: str

    @property
    def label(self) -> str:
        """What is orphaned, in words before its name."""
        return _LABELS[self.kind]

    def __str__(self) -> str:
        return f"{self.label} {self.name}: {self.detail}"

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "name": self.name, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class RemovalFacts:
    """What the catalog has about the definitions that a removal concerns.

    Args:
        bindings: name -> JSON definition of each registered binding that is not removed.
        cursors: all cursors.
        channels: state of the channel to remove.
        retention: retention state of each channel on which a binding to remove has a cursor.
        tables: ids of the tables in which a channel to remove is published.
        waiting_files: number of files that wait for the channel to remove.
    """

    __repr__ = short_repr

    bindings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cursors: Sequence[Cursor] = ()
    channels: Mapping[str, ChannelState] = field(default_factory=dict)
    retention: Mapping[str, RetentionState] = field(default_factory=dict)
    tables: Sequence[str] = ()
    waiting_files: int = 0


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """A removal before it is made.

    Args:
        key: the definition that a person removes.
        removed: all definitions that are removed, in the order in which they are shown.
    """

    __repr__ = short_repr

    key: DefinitionKey
    removed: tuple[DefinitionKey, ...]
    orphans: tuple[Orphan, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.key.kind,
            "name": self.key.name,
            "removes": [{"kind": k.kind, "name": k.name} for k in self.removed],
            "orphans": [o.as_json() for o in self.orphans],
        }


def definitions_removed_with(
    key: DefinitionKey, bindings: Mapping[str, Mapping[str, Any]]
) -> tuple[DefinitionKey, ...]:
    """A definition and those that cannot exist without it: the bindings of a workflowette."""
    if key.kind != "workflowette":
        return (key,)
    bound = (name for name, definition in bindings.items() if definition["workflowette"] == key.name)
    return (key, *(DefinitionKey("binding", name) for name in sorted(bound)))


def plan_removal(key: DefinitionKey, facts: RemovalFacts) -> RemovalPlan:
    """Decide what a removal removes and orphans."""
    removed = definitions_removed_with(key, facts.bindings)
    removed_bindings = [k.name for k in removed if k.kind == "binding"]
    others = {name: d for name, d in facts.bindings.items() if name not in removed_bindings}
    orphans: list[Orphan] = []
    if key.kind == "channel":
        orphans += _orphans_of_channel(key.name, facts)
    elif key.kind == "trigger":
        orphans.append(Orphan("trigger", key.name, "the binding then runs by hand only"))
    if removed_bindings:
        orphans += _orphans_of_bindings(removed_bindings, others, facts)
    return RemovalPlan(key, removed, tuple(orphans))


def released_blocks(state: RetentionState, removed_bindings: Sequence[str]) -> list[Block]:
    """Blocks of a channel that only the cursors of some bindings hold."""
    collectable = {b.id for b in blocks_to_collect(retention_verdicts(state))}
    released = blocks_to_collect(retention_verdicts(without_consumers(state, removed_bindings)))
    return [b for b in released if b.id not in collectable]


def without_consumers(state: RetentionState, bindings: Sequence[str]) -> RetentionState:
    """Retention state without the cursors of some bindings."""
    if not bindings:
        return state
    return replace(state, consumers=tuple(c for c in state.consumers if not _is_of_binding(c, bindings)))


def channels_read(definition: Mapping[str, Any]) -> set[str]:
    """Channels that the tasks of a registered binding read."""
    return _bound_channels(definition, "consumes")


def channels_written(definition: Mapping[str, Any]) -> set[str]:
    """Channels that the tasks of a registered binding write."""
    return _bound_channels(definition, "produces")


def _bound_channels(definition: Mapping[str, Any], direction: str) -> set[str]:
    ports = {edge["port"] for task in definition["tasks"] for edge in task[direction]}
    return {channel for port, channel in definition["channels"].items() if port in ports}


def _orphans_of_channel(channel: str, facts: RemovalFacts) -> Iterator[Orphan]:
    for name, definition in sorted(facts.bindings.items()):
        if channel in channels_read(definition):
            yield Orphan("reader", name, f"it reads {channel}, and cannot run any more")
        if channel in channels_written(definition):
            yield Orphan("writer", name, f"it writes {channel}, and cannot run any more")
    yield from _waiting_triggers(facts.bindings, _trigger_channels, channel)
    yield from _cursor_orphans(c for c in facts.cursors if c.channel == channel)
    state = facts.channels.get(channel)
    if state is not None and state.blocks:
        yield Orphan("blocks", channel, _format_blocks(state.blocks, state.rows, state.bytes))
    for table in facts.tables:
        yield Orphan("table", table, "it keeps the version that it shows, until nova unpublish removes it")
    if facts.waiting_files:
        yield Orphan("arrivals", channel, f"{pluralize(facts.waiting_files, 'file')} will not be received")


def _orphans_of_bindings(
    names: Sequence[str], others: Mapping[str, Mapping[str, Any]], facts: RemovalFacts
) -> Iterator[Orphan]:
    written = {
        channel for name in names if name in facts.bindings for channel in channels_written(facts.bindings[name])
    }
    for channel in sorted(written - {c for d in others.values() for c in channels_written(d)}):
        yield Orphan("channel", channel, "no other binding writes it")
    for name in names:
        yield from _waiting_triggers(others, _cascaded_bindings, name)
    yield from _cursor_orphans(c for c in facts.cursors if c.binding in names)
    for channel, state in sorted(facts.retention.items()):
        blocks = released_blocks(state, names)
        if blocks:
            totals = _format_blocks(len(blocks), sum(b.rows for b in blocks), sum(b.bytes for b in blocks))
            yield Orphan("blocks", channel, f"{totals}, which only its cursors hold")


def _waiting_triggers(
    bindings: Mapping[str, Mapping[str, Any]], causes_of: Callable[[str], set[str]], cause: str
) -> Iterator[Orphan]:
    """Triggers of bindings that wait for a channel or a binding.

    Args:
        causes_of: channels or bindings for which a trigger, given as text, waits.
    """
    for name, definition in sorted(bindings.items()):
        when = definition["when"]
        if when is not None and cause in causes_of(when):
            yield Orphan("trigger", name, f"{when} waits for {cause}, and will not fire any more")


def _trigger_channels(when: str) -> set[str]:
    return {name.strip() for names in _CHANNEL_TRIGGER.findall(when) for name in names.split(",")}


def _cascaded_bindings(when: str) -> set[str]:
    return set(_CASCADE.findall(when))


def _cursor_orphans(cursors: Iterable[Cursor]) -> Iterator[Orphan]:
    """One orphan for all partitions of a binding and a channel."""
    by_binding_and_channel: dict[tuple[str, str], list[Cursor]] = {}
    for cursor in cursors:
        by_binding_and_channel.setdefault((cursor.binding, cursor.channel), []).append(cursor)
    for (binding, channel), positions in sorted(by_binding_and_channel.items()):
        first = min(positions, key=lambda c: c.seq)
        more = f", and {pluralize(len(positions) - 1, 'other partition')}" if len(positions) > 1 else ""
        yield Orphan("cursor", binding, f"it has read {channel} up to {first.seq} of {first.head}{more}")


def _is_of_binding(consumer: ConsumerPosition, bindings: Sequence[str]) -> bool:
    """Whether a consumer is one of these bindings. Its name is followed by its partition."""
    return any(consumer.name == name or consumer.name.startswith(f"{name} for ") for name in bindings)


def _format_blocks(count: int, rows: int, size: int) -> str:
    return f"{pluralize(count, 'block')} with {format_count(rows)} rows, {format_bytes(size)}"
