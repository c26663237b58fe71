"""The channel that is asked for: many partitions, each with some blocks of some files, made up; and further commits."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nova_assets as nova
from benchmarks.bulk import Bulk
from benchmarks.catalogs import Maker
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.model.block import DataFile, Manifest
from nova_assets.model.commit import AddBlock, CommitRequest
from nova_assets.model.execution import BeginRequest
from nova_assets.model.merge import Append
from nova_assets.model.schema import parse_ddl

NAME = "events"
_DDL = "dt date, region string, id bigint, amount double"
_REGIONS = 10


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is.

    Args:
        blocks: of a partition.
        files: of a block.
        together: partitions that one commit touches.
        listed: partitions that lie in folders, to be listed; and in a bucket.
        seconds: for which clients ask.
        rounds: of what is timed once at a time.
        touched: by one commit, for views that follow.
        random: partitions that are asked for after a start.
    """

    partitions: int
    blocks: int
    files: int = 10
    together: int = 100
    listed: tuple[int, int] = (1_000, 20)
    clients: int = 16
    seconds: float = 8.0
    rounds: int = 9
    touched: tuple[int, ...] = (1, 100, 1_000)
    random: int = 1_000

    @property
    def all_files(self) -> int:
        return self.partitions * self.blocks * self.files


FULL = Size(10_000, 10)
QUICK = Size(200, 5, together=20, listed=(50, 5), seconds=2.0, rounds=3, touched=(1, 100), random=200)


def channel() -> nova.Channel:
    dimensions = [nova.daily("dt", start="2020-01-01"), nova.dynamic("region")]
    return nova.Channel(NAME, merge=nova.Append(), schema=_DDL, partitions=dimensions)


def names(size: Size) -> list[str]:
    """Of the partitions."""
    return [_name(n) for n in range(size.partitions)]


def _name(n: int) -> str:
    day, region = divmod(n, _REGIONS)
    year, rest = divmod(day, 336)
    month, of = divmod(rest, 28)
    return f"dt={2020 + year}-{month + 1:02d}-{of + 1:02d}/region=r{region}"


def fill(url: str, size: Size, warehouse: Path) -> None:
    """Make a catalog that has the channel, as one from before steps were counted: each number is a commit of deltas."""
    catalog, events = open_catalog(url), channel()
    catalog.definitions.register([events])
    Warehouse(str(warehouse)).write_catalog_marker(
        catalog.identity.get(), catalog.identity.adopt_warehouse(uuid.uuid4().hex, str(warehouse))[0]
    )
    catalog.close()
    bulk = Bulk(url)
    maker, named, seq = Maker(bulk, random.Random(1)), names(size), 0
    for _ in range(size.blocks):
        for at in range(0, size.partitions, size.together):
            seq += 1
            commit = maker.commit(NAME, seq, None)
            bulk.add("nova_numbers", (commit, NAME, seq))
            for partition in named[at : at + size.together]:
                maker.block(events, "delta", seq, commit, "", partition, size.files)
    bulk.heads[NAME] = seq
    bulk.close()


def commit(catalog: Catalog, partitions: Sequence[str], files: int = 1) -> None:
    """A delta for each of these partitions, at once."""
    execution = catalog.executions.begin(
        BeginRequest(uuid.uuid4().hex, None, pinned_channels=(NAME,), owner="benchmark")
    )
    publish = []
    for partition in partitions:
        block = uuid.uuid4().hex
        paths = (f"blocks/{block}/part-{n:05d}-0123456789abcdef-c000.zstd.parquet" for n in range(files))
        manifest = Manifest(tuple(DataFile(p, 2_000, 40_000, {}) for p in paths), parse_ddl(_DDL))
        publish.append(AddBlock(block, NAME, "delta", manifest, Append(), partition, "insert"))
    catalog.commits.commit(CommitRequest(uuid.uuid4().hex, execution.id, execution.epoch, None, tuple(publish)))
