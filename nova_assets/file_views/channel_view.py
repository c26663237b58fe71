"""The view of one channel: its partitions with their blocks, as they are at one position of its timeline.

It is spread over drawers of a storage. That of the channel has its head, descriptions that blocks have in common, its
latest instants, and the names of the partitions that are loaded; each of these has a drawer of its own, with its blocks
by number. So an instant changes what it touches, and no more.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from nova_assets.file_views.block_encoding import Descriptions, Kept, decode, loads, understood
from nova_assets.file_views.storage import Look
from nova_assets.model.block import Block
from nova_assets.model.partitions import WHOLE, single_in, within
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, Position, Step
from nova_assets.plan.history_excerpt import NotEnough, excerpt

HEAD = b"!"
DESCRIPTION, INSTANT, PARTITION = b"d", b"i", b"p"
_NUMBER = struct.Struct(">Q")
_GONE, _BASE = b"-", b"b"
_END = b"\xff" * 9
"""After whatever is in the drawer of a partition."""
_AT_NUMBERS = ("compact", "collect", "define")
"""Actions that take no sequence number."""


@dataclass(frozen=True, slots=True)
class Version:
    """From some number on: the schema that blocks tell, and the model of the newest that was given; as hashes."""

    number: int
    schema: str | None
    merge: str | None


@dataclass(frozen=True, slots=True)
class Head:
    """What of a view belongs to no partition.

    Args:
        schema, merge, last_merge: hashes of what the channel has now.
        columns: its partition columns.
        versions: what blocks told, from the number on at which the view began.
        scopes: those that are loaded, beside single partitions.
        cleaned: of partitions that no instant after this one has touched, everything is collected that ever will be.
        began: the instant at which the view began.
    """

    channel: str
    position: Position
    head: int
    schema: str | None
    merge: str
    last_merge: str | None
    columns: tuple[str, ...]
    versions: tuple[Version, ...]
    scopes: tuple[str, ...] = ()
    cleaned: int = -1
    began: int = 0

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @staticmethod
    def decode(text: bytes) -> Head:
        with understood():
            found = loads(text)
            position = Position(**found.pop("position"))
            versions = tuple(Version(**v) for v in found.pop("versions"))
            columns, scopes = tuple(found.pop("columns")), tuple(found.pop("scopes"))
            return Head(position=position, versions=versions, columns=columns, scopes=scopes, **found)

    def single(self, scope: str) -> str | None:
        """The one partition that is in a scope, where it names all dimensions."""
        return single_in(self.columns, scope)


@dataclass(frozen=True, slots=True)
class Instant:
    """One that a view has applied.

    Args:
        partitions: those that it touched; all of them, loaded or not.
        seq: the number that it took, or the newest at which it added or took a block.
    """

    n: int
    prefix: str
    action: str
    commit: str
    at: str
    seq: int | None
    partitions: tuple[str, ...]

    def encode(self) -> bytes:
        return orjson.dumps(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(step: Step) -> Instant:
        numbers = [*(b.hi for b in step.added), *(g.hi for g in step.gone)]
        touched = dict.fromkeys([*(g.partition for g in step.gone), *(b.partition for b in step.added)])
        at, seq = step.at.isoformat(), max(numbers, default=None)
        return Instant(step.position.step, step.position.prefix, step.action, step.commit_id, at, seq, tuple(touched))

    @staticmethod
    def decode(text: bytes) -> Instant:
        with understood():
            found = loads(text)
            return Instant(**{**found, "partitions": tuple(found["partitions"])})


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition that is loaded.

    Args:
        step: the newest instant that touched it since.
    """

    name: str
    step: int

    @staticmethod
    def decode(text: bytes) -> Partition:
        with understood():
            return Partition(**loads(text))


class View:
    """One channel, as one look at a storage shows it."""

    def __init__(self, looked: Look, head: Head) -> None:
        self._looked = looked
        self._drawer = channel_drawer(head.channel)
        self.head = head
        self.known = Descriptions(lambda mark: looked.get(self._drawer, DESCRIPTION + mark.encode()))

    @staticmethod
    def find(looked: Look, channel: str) -> View | None:
        """None where nothing of the channel is loaded."""
        found = looked.get(channel_drawer(channel), HEAD)
        return None if found is None else View(looked, Head.decode(found))

    @property
    def position(self) -> Position:
        return self.head.position

    def knows(self, position: Position) -> bool:
        """Whether the view is at a position, or has passed it."""
        if position == self.position:
            return True
        found = self._looked.get(self._drawer, INSTANT + _NUMBER.pack(position.step))
        return found is not None and Instant.decode(found).prefix == position.prefix

    def instants(self, since: int = 0) -> list[Instant]:
        """Those after a step, as far back as they are kept."""
        start = INSTANT + _NUMBER.pack(since + 1)
        found = []
        for key, text in self._looked.scan(self._drawer, start):
            if not key.startswith(INSTANT):
                break
            found.append(Instant.decode(text))
        return [i for i in found if i.action]

    def covers(self, scope: str) -> bool:
        """Whether all that is in a scope is loaded."""
        if any(within(scope, s) for s in self.head.scopes):
            return True
        single = self.head.single(scope)
        return single is not None and self.has(single)

    def has(self, partition: str) -> bool:
        return self._looked.get(self._drawer, partition_key(partition)) is not None

    def partition(self, name: str) -> Partition | None:
        found = self._looked.get(self._drawer, partition_key(name))
        return None if found is None else Partition.decode(found)

    def partitions(self, scope: str = WHOLE) -> list[Partition]:
        """The loaded ones in a scope, by name."""
        single = self.head.single(scope)
        if single is not None:
            one = self.partition(single)
            return [] if one is None else [one]
        found: list[Partition] = []
        for key, text in self._looked.scan(self._drawer, PARTITION):
            if not key.startswith(PARTITION):
                break
            found.append(Partition.decode(text))
        return sorted((p for p in found if within(p.name, scope)), key=lambda p: p.name)

    def blocks(self, partition: str, oldest: int = 0) -> tuple[list[Kept], list[int], int]:
        """Of a partition the blocks, by (hi, kind, id), the numbers whose blocks were collected, and where they begin.

        Args:
            oldest: only what came from the newest base on that is no later than this; all of it, where there is none.
        """
        kept, gone, floor = [], [], 0
        for key, text in self._looked.back(part_drawer(self.head.channel, partition), _END):
            number = int(_NUMBER.unpack(key[:8])[0])
            if number < floor:
                break
            if key[8:9] == _GONE:
                gone.append(number)
                continue
            if key[8:9] == _BASE and number <= oldest:
                floor = floor or number
            kept.append(decode(self.head.channel, text, self.known))
        return kept[::-1], gone[::-1], floor

    def tells(self, at: int) -> bool:
        """Whether it is known what the schema was at a number."""
        return at >= self.head.head or (bool(self.head.versions) and self.head.versions[0].number <= at)

    def schema_at(self, scope: str, number: int) -> Schema | None:
        """The schema of a number, as the partitions of a scope tell it (R18): by the newest block that was given, or
        that there is; by its base, where a delta tells the same."""
        newest = [b for p in self.partitions(scope) for b in self._newest_given(p.name, number)]
        found = min(newest, key=lambda b: (b.origin == "compact", -b.hi, b.kind, b.id), default=None)
        return None if found is None else found.manifest.schema.without("_deleted")

    def _newest_given(self, partition: str, number: int) -> list[Block]:
        """The blocks of a partition up to a number, back to the newest number at which it was given something."""
        found: list[Block] = []
        at = 0
        for key, text in self._looked.back(part_drawer(self.head.channel, partition), _NUMBER.pack(number + 1)):
            if key[8:9] == _GONE:
                continue
            block = decode(self.head.channel, text, self.known).block
            if block.hi < at:
                break
            found.append(block)
            at = block.hi if block.origin != "compact" else at
        return found

    def excerpt(
        self, scope: str = WHOLE, at: int | None = None, since: int = 0, back_to: int = 0
    ) -> tuple[History, dict[str, Kept]]:
        """What of a history is asked for (``plan/excerpt``); of long ones little else is looked at."""
        at = self.head.head if at is None else at
        oldest = since or min(back_to, at)
        partitions = self._changed(scope, since, at) if since else [p.name for p in self.partitions(scope)]
        if oldest:
            with suppress(NotEnough):
                short, kept = self._history(scope, partitions, at, oldest)
                return excerpt(short, since, back_to, lambda n: self.schema_at(scope, n)), kept
        whole, kept = self._history(scope, partitions, at, 0)
        return excerpt(whole, since, back_to, lambda n: self.schema_at(scope, n)), kept

    def history(self, scope: str = WHOLE, at: int | None = None) -> tuple[History, dict[str, Kept]]:
        """The history of a scope that is covered, of blocks without their files; and these, by their blocks' ids.

        Args:
            at: up to this number, of which it ``tells``.
        """
        at = self.head.head if at is None else at
        return self._history(scope, [p.name for p in self.partitions(scope)], at, 0)

    def history_of(self, partitions: Sequence[str]) -> History:
        """The history of some that are loaded, of blocks without their files."""
        return self._history(WHOLE, partitions, self.head.head, 0)[0]

    def last_step_at(self, number: int) -> int:
        """The newest instant before which no later number was given; -1 where that is longer ago than is known."""
        kept = self.instants()
        whole = len(kept) == self.position.step - self.head.began
        if number < self.head.versions[0].number or not whole:
            return -1
        later = (i.n for i in kept if i.action not in _AT_NUMBERS and i.seq is not None and i.seq > number)
        return min(later, default=self.position.step + 1) - 1

    def _changed(self, scope: str, since: int, at: int) -> list[str]:
        """The partitions of a scope that have changed between two numbers, and maybe others."""
        touched = self.touched(since) if since < at else set()
        if touched is None:
            return [p.name for p in self.partitions(scope)]
        return sorted(p for p in touched if within(p, scope) and self.has(p))

    def touched(self, since: int) -> set[str] | None:
        """The partitions that were touched since the number after this one was given, loaded or not; None where that is
        longer ago than instants are known."""
        found: set[str] = set()
        for key, text in self._looked.back(self._drawer, INSTANT + _END):
            if not key.startswith(INSTANT):
                break
            instant = Instant.decode(text)
            if not instant.action:  # where the view began
                return found if self.head.versions[0].number <= since else None
            if instant.action not in _AT_NUMBERS and instant.seq is not None and instant.seq <= since:
                return found
            found.update(instant.partitions)
        return None

    def _history(self, scope: str, partitions: Sequence[str], at: int, oldest: int) -> tuple[History, dict[str, Kept]]:
        blocks: list[Kept] = []
        numbers: dict[str, tuple[int, ...]] = {}
        floors: dict[str, int] = {}
        for partition in partitions:
            kept, gone, floor = self.blocks(partition, oldest)
            if floor:
                floors[partition] = floor
            blocks += [k for k in kept if k.block.hi <= at]
            if before := tuple(n for n in gone if n <= at):
                numbers[partition] = before
        blocks.sort(key=lambda k: (k.block.hi, k.block.kind, k.block.id))
        schema, last = self._at(at)
        merge = self.known.merge(self.head.merge)
        assert merge is not None
        history = History(
            self.head.channel,
            scope,
            at,
            tuple(k.block for k in blocks),
            self.known.schema(schema),
            merge,
            numbers,
            last_merge=self.known.merge(last),
            floors=floors,
        )
        return history, {k.block.id: k for k in blocks}

    def marks(self, at: int) -> tuple[str | None, str, str | None]:
        """The hashes of the schema, the channel's model and that of the newest block given, at a number."""
        schema, last = self._at(at)
        return schema, self.head.merge, last

    def _at(self, at: int) -> tuple[str | None, str | None]:
        if at >= self.head.head:
            return self.head.schema, self.head.last_merge
        version = next((v for v in reversed(self.head.versions) if v.number <= at), None)
        return (self.head.schema, None) if version is None else (version.schema or self.head.schema, version.merge)


def channel_drawer(channel: str) -> bytes:
    return b"c" + hashlib.sha256(channel.encode()).digest()[:16]


def part_drawer(channel: str, partition: str) -> bytes:
    return b"p" + hashlib.sha256(f"{channel}\0{partition}".encode()).digest()[:16]


def partition_key(partition: str) -> bytes:
    return PARTITION + hashlib.sha256(partition.encode()).digest()[:16]


def instant_key(n: int) -> bytes:
    return INSTANT + _NUMBER.pack(n)


def block_key(block: Block | Any) -> bytes:
    """Of a block, or of one that is gone."""
    return _NUMBER.pack(block.hi) + block.kind[:1].encode() + block.id.encode()


def gone_key(number: int) -> bytes:
    return _NUMBER.pack(number) + _GONE


def entries(partition: Partition) -> Mapping[bytes, bytes | None]:
    return {partition_key(partition.name): orjson.dumps(asdict(partition))}
