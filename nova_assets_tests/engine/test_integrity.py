"""Files that were altered where they lie: noticed by whoever reads them, and named; never wrong rows without a word."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.store.repair import Repair
from nova_assets.store.store import Store

STEPS = int(os.environ.get("NOVA_FUZZ_STEPS", "40"))
channels = [
    nova.Channel("bag", schema="k bigint, v string"),
    nova.Channel("keyed", merge=nova.Upsert(key="k"), schema="k bigint NOT NULL, v string"),
]


def filled(root: Path, spark: Any = None) -> Store:
    store = nova.open(nova.Project(channels=channels), f"sqlite:///{root}/c.db", root / "wh", spark)
    for channel in ("bag", "keyed"):
        for n in range(3):
            store.insert(channel, [{"k": 1, "v": f"a{n}"}, {"k": 2 + n, "v": f"b{n}"}, {"k": 9, "v": f"c{n}"}])
    return store


def files(store: Store, channel: str) -> list[Path]:
    found = [f.path for b in store.catalog.histories.of(channel).blocks for f in b.manifest.files]
    return [Path(store.settings.warehouse) / path for path in found]


def rows(store: Store, channel: str) -> list[tuple[int, str]]:
    return sorted((r["k"], r["v"]) for r in store.read(channel).to_arrow().to_pylist())


def verified(store: Store) -> list[str]:
    return [d.what for d in Repair(store.runtime, 0.0, thorough=True).verify_files().damages]


VERBS: dict[str, Callable[[Store, str], Any]] = {
    "read": lambda store, channel: store.read(channel).to_arrow(),
    "stream": lambda store, channel: store.read(channel).to_batches().read_all(),
    "compact": lambda store, channel: store.compact(channel),
    "restore": lambda store, channel: store.restore(channel, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["bag", "keyed"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_file_of_another_block_that_was_copied_over_one_is_noticed(verb: str, channel: str, tmp_path: Path) -> None:
    store = filled(tmp_path)
    first, second = files(store, channel)[:2]
    assert first.stat().st_size == second.stat().st_size, "otherwise its size would tell"
    shutil.copyfile(second, first)
    with pytest.raises(nova.FileAltered) as caught:
        VERBS[verb](store, channel)
    assert first.name in str(caught.value) and "nova doctor --repair" in str(caught.value)
    assert [d for d in Repair(store.runtime, 0.0).find_damages().damages if first.name in d.what]
    assert any(first.name in what for what in verified(store))
    assert store.channels()[0].head == 3, "nothing was committed"


@pytest.mark.slow
def test_bytes_that_were_altered_anywhere(tmp_path: Path) -> None:
    """Rows are right, or an error names the file; and whoever reads all bytes finds every alteration."""
    chance = random.Random(7)
    store = filled(tmp_path)
    assert verified(store) == []
    right = {c: rows(store, c) for c in ("bag", "keyed")}
    for step in range(STEPS):
        channel = chance.choice(["bag", "keyed"])
        path = chance.choice(files(store, channel))
        whole = path.read_bytes()
        length = chance.choice([1, 16])
        at = chance.randrange(len(whole) - length)
        altered = whole[:at] + chance.randbytes(length) + whole[at + length :]
        if altered == whole:
            continue
        path.write_bytes(altered)
        try:
            assert rows(store, channel) == right[channel], f"step {step}: {length} bytes at {at} of {path}"
        except nova.FileMissing as error:
            assert path.name in str(error)
        assert any(path.name in what for what in verified(store)), f"step {step}: {length} bytes at {at} of {path}"
        path.write_bytes(whole)
    assert verified(store) == []


@pytest.mark.spark
@pytest.mark.parametrize("channel", ["bag", "keyed"])
def test_spark_notices_it_too(channel: str, tmp_path: Path, spark: Any) -> None:
    store = filled(tmp_path, spark)
    before = rows(store, channel)
    assert sorted(map(tuple, store.read(channel).to_spark().select("k", "v").collect())) == before
    first, second = files(store, channel)[:2]
    whole = first.read_bytes()
    shutil.copyfile(second, first)
    with pytest.raises(nova.FileAltered, match=first.name):
        store.read(channel).to_spark().collect()
    first.write_bytes(whole[:30] + bytes(b ^ 255 for b in whole[30:34]) + whole[34:])  # in a page
    frame = store.read(channel).to_spark()
    with pytest.raises(Exception, match=r"checksum|integrity|NOVA-FILE-ALTERED"):
        frame.collect()
    with pytest.raises(nova.FileAltered, match=first.name):
        store.engine.frames.to_arrow(frame)
