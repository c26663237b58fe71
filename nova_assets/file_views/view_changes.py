"""What changes in a view: it begins with what the catalog has, and goes on by what happens. Pure; nothing is written
here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova_assets.file_views.block_encoding import described, encode
from nova_assets.file_views.channel_view import (
    DESCRIPTION,
    HEAD,
    Head,
    Instant,
    Partition,
    Version,
    View,
    block_key,
    channel_drawer,
    entries,
    gone_key,
    instant_key,
    part_drawer,
)
from nova_assets.file_views.storage import Changes, Expected, Look
from nova_assets.model.block import Block
from nova_assets.model.merge import Custom
from nova_assets.model.partitions import within
from nova_assets.model.timeline import Gone, History, Standing, Step

INSTANTS = 10_000
"""So many instants are kept of a channel: who is further behind begins anew."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded of a channel.

    Args:
        partitions: these, whole.
        history: everything that is known of them, at the position where the channel stood then.
    """

    standing: Standing
    partitions: tuple[str, ...]
    history: History


class Edit:
    """Gathers changes of the view of one channel.

    Args:
        looked: the state that they are made to.
        view: the channel in it; None where nothing of it is loaded.
    """

    def __init__(self, looked: Look, channel: str, view: View | None) -> None:
        self._looked = looked
        self._view = view
        self._channel = channel
        self._drawers: dict[bytes, dict[bytes, bytes | None] | None] = {}
        self._mine: dict[bytes, bytes | None] = {}
        self._loaded: dict[str, int] = {}
        self._covered: list[tuple[str, int]] = [] if view is None else [(s, 0) for s in view.head.scopes]
        self._versions: list[Version] = [] if view is None else list(view.head.versions)
        self._last_merge = None if view is None else view.head.last_merge
        self._has_covered = False
        self._began = 0
        self.unsafe: set[str] = set()
        self.applied = 0

    # beginning

    def begin(self, standing: Standing) -> None:
        """Nothing of the channel is known yet, or nothing any more: all that was is thrown away."""
        self._drawers[channel_drawer(self._channel)] = None
        for partition in [] if self._view is None else self._view.partitions():
            self._drawers[part_drawer(self._channel, partition.name)] = None
        self._view = None
        self._covered = []
        self._began = standing.position.step
        last = None if standing.last_merge is None else self._describe(standing.last_merge.as_json())
        told = None if standing.told is None else self._describe(standing.told.as_json())
        self._versions, self._last_merge = [Version(standing.head, told, last)], last
        self._put_instant(Instant(standing.position.step, standing.position.prefix, "", "", "", None, ()))

    def load(self, found: Loaded) -> None:
        """Put whole partitions in, in place of what was there of them."""
        blocks: dict[str, list[Block]] = {p: [] for p in found.partitions}
        for block in found.history.blocks:
            blocks[block.partition].append(block)
        for partition, some in blocks.items():
            drawer = part_drawer(self._channel, partition)
            change: dict[bytes, bytes | None] = {key: None for key, _ in self._looked.scan(drawer)}
            change |= {gone_key(n): b"" for n in found.history.numbers.get(partition, ())}
            change |= {block_key(b): encode(b, self._describe) for b in some}
            self._drawers[drawer] = change
            step = found.standing.position.step
            self._loaded[partition] = step
            self._mine |= entries(Partition(partition, step))

    def cover(self, scope: str, standing: Standing) -> None:
        """All partitions that were in a scope where the channel stood are loaded, and none that comes is missed."""
        self._covered = [(s, n) for s, n in self._covered if not within(s, scope)]
        self._covered.append((scope, standing.position.step))
        self._has_covered = True

    # going on

    def apply(self, step: Step) -> None:
        """Apply one instant to the partitions that are loaded. Where that is not safe, they are ``unsafe``."""
        n = step.position.step
        for gone in step.gone:
            if self._has(gone.partition, n):
                self._take(gone)
        for block in step.added:
            self._learn(block)
            if self._has(block.partition, n) or self._creates(block.partition, n):
                self._add(block)
        instant = Instant.of(step)
        for partition in instant.partitions:
            if self._has(partition, n):
                self._mine |= entries(Partition(partition, n))
        self._put_instant(instant)
        if n > INSTANTS:
            self._mine[instant_key(n - INSTANTS)] = None
        self.applied += 1

    def _has(self, partition: str, n: int) -> bool:
        """Whether an instant is to be applied to a partition: one that is loaded, and did not know of it then."""
        if partition in self._loaded:
            return self._loaded[partition] < n
        return self._view is not None and self._view.has(partition)

    def _creates(self, partition: str, n: int) -> bool:
        if partition in self._loaded or not any(within(partition, s) and at < n for s, at in self._covered):
            return False
        self._loaded[partition] = 0
        self._drawers[part_drawer(self._channel, partition)] = {}
        return True

    def _take(self, gone: Gone) -> None:
        key = block_key(gone)
        if self._get(gone.partition, key) is None:
            self.unsafe.add(gone.partition)
        drawer = self._drawer(gone.partition)
        drawer[key] = None
        if gone.origin != "compact":
            drawer[gone_key(gone.hi)] = b""

    def _add(self, block: Block) -> None:
        key = block_key(block)
        if self._get(block.partition, key) is not None:
            self.unsafe.add(block.partition)
        self._drawer(block.partition)[key] = encode(block, self._describe)

    def _learn(self, block: Block) -> None:
        """What a block tells of its number, whether its partition is loaded or not."""
        if block.origin == "compact":
            return
        last = self._versions[-1]
        tells = block.kind == "base" or not isinstance(block.merge, Custom)
        schema = self._describe(block.manifest.schema.as_json()) if tells else last.schema
        if block.origin != "drop":
            self._last_merge = self._describe(block.merge.as_json())
        if (schema, self._last_merge) != (last.schema, last.merge):
            self._versions.append(Version(block.hi, schema, self._last_merge))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._mine and not self._drawers and not self._has_covered

    # together

    def changes(self, standing: Standing) -> tuple[Changes, Expected]:
        """All of it, such that the view is where the channel stands; and what is to be there still, for that."""
        scopes = tuple(s for s, _ in self._covered)
        head = Head(
            self._channel,
            standing.position,
            standing.head,
            None if standing.schema is None else self._describe(standing.schema.as_json()),
            self._describe(standing.merge.as_json()),
            None if standing.last_merge is None else self._describe(standing.last_merge.as_json()),
            standing.columns,
            _newest(self._versions),
            scopes,
            -1 if self._view is None else self._view.head.cleaned,
            self._began if self._view is None else self._view.head.began,
        )
        self._mine[HEAD] = head.encode()
        drawer = channel_drawer(self._channel)
        emptied = self._drawers.get(drawer, {}) is None
        before = {key: None for key, _ in self._looked.scan(drawer)} if emptied else {}
        return {**self._drawers, drawer: {**before, **self._mine}}, (drawer, HEAD, self._looked.get(drawer, HEAD))

    def _drawer(self, partition: str) -> dict[bytes, bytes | None]:
        found = self._drawers.setdefault(part_drawer(self._channel, partition), {})
        assert found is not None
        return found

    def _get(self, partition: str, key: bytes) -> bytes | None:
        name = part_drawer(self._channel, partition)
        drawer = self._drawers.get(name, {})
        assert drawer is not None
        return drawer[key] if key in drawer else self._looked.get(name, key)

    def _put_instant(self, instant: Instant) -> None:
        self._mine[instant_key(instant.n)] = instant.encode()

    def _describe(self, what: Any) -> str:
        mark, text = described(what)
        self._mine[DESCRIPTION + mark.encode()] = text
        return mark


def _newest(versions: Sequence[Version], keep: int = 1000) -> tuple[Version, ...]:
    return tuple(versions[-keep:])
