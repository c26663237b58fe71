"""A catalog with long histories, made up: rows in bulk, as commits, compactions and collections would have left them.

Nothing lies in the warehouse: what is measured on it plans and commits, and opens no file.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import nova_assets as nova
from benchmarks.bulk import Bulk
from nova_assets.model.channel_registration import definition_fingerprint
from nova_assets.model.key_layout import KeyLayout

BASE_EVERY = 50
"""Numbers between two compactions."""

AFTER_BASE = 7
"""Deltas that have come since the newest one, on every channel: what is planned is alike, however long the history."""

FILES = 14
"""Files of a block. With the collected ones, which have none left, that makes ten for each block."""

_START, _MINUTE = 1_700_000_000_000_000, 60_000_000
SCHEMA = "id bigint, day string, amount double, note string"
_DAYS = 400
_REGIONS = 10
_PER_DAY = 100
_TOUCHED = 3


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is.

    Args:
        lengths: of the histories that are measured: of each two channels, the second written by who reads the first.
        days: of the partitioned channel.
    """

    channels: int
    blocks: int
    lengths: tuple[int, ...]
    days: int


_LAYOUT = json.dumps(KeyLayout(("id",), ("bigint",)).as_json())

FULL = Size(10_000, 1_000_000, (10, 1_000, 100_000), _DAYS)
QUICK = Size(100, 10_000, (10, 100, 1_000), 8)


def project(lengths: tuple[int, ...]) -> nova.Project:
    """The channels and bindings that are measured."""
    bound = []
    for n in lengths:
        facts, totals = keyed(f"facts_{n}"), keyed(f"totals_{n}")
        whole = nova.Channel(f"whole_{n}", merge=nova.Upsert(key="id"), schema=SCHEMA)
        bound.append(nova.bind(nova.Workflowette(f"new_{n}", [_copy(nova.new(facts, as_="frame"), totals)])))
        bound.append(nova.bind(nova.Workflowette(f"all_{n}", [_copy(nova.all(facts, as_="frame"), whole)])))
    visits = partitioned()
    seen = nova.Channel("seen", merge=nova.Append(), schema=_VISITS, partitions=_dimensions())
    last = nova.Channel("last", merge=nova.Append(), schema=_VISITS)
    bound.append(
        nova.bind(nova.Workflowette("new_visits", [_copy(nova.new(visits, as_="frame"), seen)]), partitions=[])
    )
    bound.append(nova.bind(nova.Workflowette("all_visits", [_copy(nova.all(visits, as_="frame"), last)])))
    return nova.Project(bound)


def keyed(name: str) -> nova.Channel:
    return nova.Channel(name, merge=nova.Upsert(key="id"), schema=SCHEMA)


_VISITS = "dt date, region string, id bigint"


def _dimensions() -> list[Any]:
    return [nova.daily("dt", start="2023-01-01"), nova.dynamic("region")]


def partitioned() -> nova.Channel:
    return nova.Channel("visits", merge=nova.Append(), schema=_VISITS, partitions=_dimensions())


def _copy(edge: Any, to: nova.Channel) -> Any:
    return nova.task(name=f"{edge.mode}_to_{to.name}", consumes=edge, produces=nova.delta(to))(copy)


def copy(frame: Any) -> Any:
    return frame


def fill(bulk: Bulk, size: Size, seed: int = 1) -> None:
    """Write everything. The channels and bindings of ``project`` are registered already."""
    maker = Maker(bulk, random.Random(seed))
    for n in size.lengths:
        maker.channel(keyed(f"facts_{n}"), n, known=True)
        maker.channel(keyed(f"totals_{n}"), n, known=True, binding=f"new_{n}", of=f"facts_{n}")
        maker.cursor(f"new_{n}", f"facts_{n}", n - 1)
        maker.cursor(f"late_{n}", f"facts_{n}", n - min(n // 5, 2 * BASE_EVERY))
    maker.visits(partitioned(), size.days)
    rest = size.channels - 2 * len(size.lengths) - 1
    for n, length in enumerate(_lengths(rest, size.blocks - bulk.counts["nova_blocks"], maker.rng)):
        name = f"channel_{n:05d}"
        maker.channel(keyed(name) if n % 2 else nova.Channel(name, schema=SCHEMA), length)
        maker.consumers(name, length)
    bulk.flush()


def _lengths(count: int, blocks: int, rng: random.Random) -> Iterator[int]:
    """A few of tens of thousands, some of thousands, and most of ten to a hundred or so."""
    numbers = int(blocks * BASE_EVERY / (BASE_EVERY + 1))
    long = [length for length, share in ((10_000, 1_000), (1_000, 100)) for _ in range(max(count // share, 0))]
    long = [length for length in long if length * 20 < numbers]
    mean = max((numbers - sum(long)) // max(count - len(long), 1), 11)
    yield from long
    for _ in range(count - len(long)):
        yield rng.randint(10, 2 * mean - 10)


@dataclass
class Maker:
    """Writes channels with all that belongs to their numbers."""

    bulk: Bulk
    rng: random.Random
    commits: dict[str, str] = field(default_factory=lambda: defaultdict(str))

    def __post_init__(self) -> None:
        rng = self.rng
        some = [(a, a + rng.randrange(10**6)) for a in (rng.randrange(10**9) for _ in range(500))]
        self.ranges = [json.dumps({"id": [a, b]}) for a, b in some]
        rows = [[rng.randrange(700, 900) for _ in range(3)] for _ in range(500)]
        self.places = [json.dumps({"of": 32, "first": n % 30, "rows": r}) for n, r in enumerate(rows)]

    def id(self) -> str:
        return f"{self.rng.getrandbits(128):032x}"

    def channel(
        self, channel: nova.Channel, head: int, known: bool = False, binding: str | None = None, of: str = ""
    ) -> None:
        """A channel whose every number is a delta, compacted at regular distance, and collected up to a base."""
        name = channel.name
        self._define(channel, head, known)
        bases = [n for n in range(1, head) if (head - n) % BASE_EVERY == AFTER_BASE]
        cut = max((n for n in bases if n <= head * 0.3), default=0)
        gone = self.commit(name, head, None) if cut else ""
        for n in range(1, head + 1):
            commit = self.commit(name, n, binding, (of,) if of else ())
            self.bulk.add("nova_numbers", (commit, name, n))
            self.block(channel, "delta", n, commit, gone if n <= cut else "")
            if (head - n) % BASE_EVERY == AFTER_BASE:
                self.block(channel, "base", n, self.commit(name, n, None), gone if n < cut else "")
        self.commits[name] = commit

    def consumers(self, name: str, head: int) -> None:
        """One that has read nearly everything, and for some a second that lags."""
        self.cursor(f"reader_of_{name}", name, head - self.rng.randint(0, 1))
        if self.rng.random() < 0.2:
            self.cursor(f"late_reader_of_{name}", name, head - self.rng.randrange(max(head // 3, 1)))

    def cursor(self, binding: str, channel: str, seq: int) -> None:
        self.bulk.add("nova_cursors", (binding, "", channel, "", seq, self.commits[channel], self._at(seq)))

    def visits(self, channel: nova.Channel, days: int) -> None:
        """A partitioned one: each number changes a few partitions of its day, seldom one of an earlier day; of every
        day that is over there is a base, and what is older than some days is collected up to it."""
        head = days * _PER_DAY
        self._define(channel, head, True)
        gone = self.commit(channel.name, head, None)
        last: dict[tuple[int, int], int] = {}
        for n in range(1, head + 1):
            day, commit = (n - 1) // _PER_DAY, self.commit(channel.name, n, None)
            self.bulk.add("nova_numbers", (commit, channel.name, n))
            for region in self.rng.sample(range(_REGIONS), _TOUCHED):
                late = day - 1 if day and self.rng.random() < 0.01 else day
                if last.get((late, region)) != n:
                    collected = gone if day < days * 0.3 and late == day else ""
                    self.block(channel, "delta", n, commit, collected, _partition(late, region), files=3)
                    last[late, region] = n
            if n % _PER_DAY == 0 and day < days - 1:
                commit = self.commit(channel.name, n, None)
                for region in range(_REGIONS):
                    at = last.get((day, region))
                    if at is not None:
                        self.block(channel, "base", at, commit, "", _partition(day, region), files=3)
        self.commits[channel.name] = commit
        self.cursor("new_visits", channel.name, head - 1)

    def block(
        self,
        channel: nova.Channel,
        kind: str,
        hi: int,
        commit: str,
        collected: str,
        partition: str = "",
        files: int = FILES,
    ) -> None:
        block, lo = self.id(), hi if kind == "base" else hi - 1
        keyed = bool(channel.merge.key)
        rows = 10_000 * files if kind == "base" else 2_000 * files
        of = self._constants(channel)
        self.bulk.add(
            "nova_blocks",
            (
                block,
                channel.name,
                partition,
                kind,
                lo,
                hi,
                rows,
                rows * 20,
                0,
                of["schema"],
                "parquet",
                False,
                _LAYOUT if keyed else None,
                None,
                of["merge"],
                "compact" if kind == "base" else "insert",
                commit,
                self._at(hi) if collected else None,
                collected or None,
            ),
        )
        if collected:
            return
        tail = f"{self.rng.getrandbits(64):016x}"
        for n in range(files):
            ranges, place = (self.ranges[(hi + n) % 500], self.places[(hi + n) % 500]) if keyed else ("{}", None)
            path = f"blocks/{block}/part-{n:05d}-{tail}-c000.zstd.parquet"
            self.bulk.add("nova_files", (block, n, path, rows // files, rows * 20 // files, ranges, place))

    def commit(self, channel: str, seq: int, binding: str | None, reads: tuple[str, ...] = ()) -> str:
        """A commit with its execution and the pins that it had."""
        commit, execution, at = self.id(), self.id(), self._at(seq)
        heads, consumed = json.dumps({channel: seq}), json.dumps({c: [seq - 2, seq - 1] for c in reads})
        self.bulk.add("nova_commits", (commit, execution, binding, at, heads, consumed, "{}", at))
        lived = (at, at + 2 * _MINUTE, at + 1_000_000, None, commit, None, None, 0, "commit")
        self.bulk.add("nova_executions", (execution, binding, "", "committed", 1, "host/1", *lived))
        self.bulk.add("nova_pins", (execution, channel, "", max(seq - 1, 0), None))
        for other in reads:
            self.bulk.add("nova_pins", (execution, other, "", max(seq - 1, 0), max(seq - 2, 0)))
        return commit

    def _define(self, channel: nova.Channel, head: int, known: bool) -> None:
        definition = channel.as_json()
        if known:
            self.bulk.heads[channel.name] = head
        else:
            text = (json.dumps(definition), definition_fingerprint(definition))
            schemas = (self._constants(channel)["schema"], None)
            row = (channel.name, *text, head, *schemas, _START, False, "{}", None, head)
            # Without steps: as in a catalog from before they were counted.
            self.bulk.add("nova_channels", (*row, 0, ""))

    def _constants(self, channel: nova.Channel) -> dict[str, str]:
        if getattr(self, "_last", None) is not channel:
            self._last = channel
            assert channel.schema is not None
            self._text = {
                "schema": json.dumps(channel.schema.as_json()),
                "merge": json.dumps(channel.merge.as_json()),
            }
        return self._text

    def _at(self, seq: int) -> int:
        return _START + seq * _MINUTE


def _partition(day: int, region: int) -> str:
    year, rest = divmod(day, 336)
    month, of = divmod(rest, 28)
    return f"dt={2023 + year}-{month + 1:02d}-{of + 1:02d}/region=r{region}"
