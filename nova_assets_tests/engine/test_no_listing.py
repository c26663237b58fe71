"""R16: no folder is listed to answer a read, by nobody: the kernel counts, the JVM's readings included."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.conftest import missing
from nova_assets_tests.listings import Listings, NoCounting

pytestmark = pytest.mark.spark

MANY = 45
"""Files: above 32 paths Spark starts a job of its own that lists them, unless it is told not to."""

plain = nova.Channel("plain", merge=nova.Upsert(key="k"), schema="k bigint, v bigint")
parted = nova.Channel("parted", merge=nova.Append(), schema="p bigint, k bigint", partitions=nova.dynamic("p"))


@pytest.fixture(scope="module")
def store(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    root = tmp_path_factory.mktemp("listed")
    with nova.open(nova.Project([]), f"sqlite:///{root}/c.db", root / "wh", spark) as made:
        for n in range(MANY):
            made.insert(plain, [{"k": n, "v": n}, {"k": 1000, "v": n}])
        made.insert(parted, [{"p": n, "k": n} for n in range(MANY)])
        made.insert(parted, [{"p": n, "k": -n} for n in range(MANY)])
        yield made


@pytest.fixture
def folder(store: Store) -> Path:
    """One of a block."""
    return next(p.parent for p in sorted(Path(store.settings.warehouse).rglob("*.parquet")))


@pytest.fixture
def listings(store: Store, folder: Path) -> Iterator[Listings]:
    try:
        with Listings(Path(store.settings.warehouse)) as counting:
            yield counting
    except NoCounting as reason:
        missing(f"folders that are read cannot be counted: {reason}", "run this on Linux")


def test_whoever_lists_a_folder_is_counted(folder: Path, spark: Any, listings: Listings) -> None:
    """Otherwise there would be nothing to see in the tests below."""
    for who in (
        lambda: os.listdir(folder),
        lambda: subprocess.run(["ls", folder], check=True, capture_output=True),
        lambda: spark.read.parquet(str(folder)).count(),
    ):
        assert not listings.seen()
        who()
        assert folder in listings.seen()
    for file in sorted(folder.iterdir()):
        listings.seen()
        assert file.stat().st_size == len(file.read_bytes())
        assert not listings.seen(), "neither asking for a status nor reading a file is a listing"


READS: dict[str, tuple[Callable[[Store], Any], int]] = {
    "all": (lambda s: s.read("plain"), MANY + 1),
    "at": (lambda s: s.read("plain", at=40), 41),
    "since": (lambda s: s.read("plain", since=2), MANY - 1),
    "keys": (lambda s: s.read("plain", keys=[{"k": 3}, {"k": 1000}]), 2),
    "partitions, all": (lambda s: s.read("parted"), 2 * MANY),
    "partitions, at": (lambda s: s.read("parted", at=1), MANY),
    "partitions, since": (lambda s: s.read("parted", since=1), MANY),
    "one partition": (lambda s: s.read("parted", partition="7"), 2),
}


@pytest.mark.parametrize("name", READS)
def test_r16_no_folder_is_listed_to_answer_a_read(store: Store, listings: Listings, name: str) -> None:
    how, rows = READS[name]
    selected = how(store)
    assert not listings.seen(), "planned"
    assert len(selected.to_spark().collect()) == rows
    assert selected.to_arrow().num_rows == rows
    assert not listings.seen(), "evaluated"
