"""Compaction on Spark: the same rows before and after, whatever the merge model (R9, R14)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.compacting import Compacting

pytestmark = pytest.mark.spark
DDL = "p string, k bigint, v bigint"


@pytest.mark.parametrize(
    "channel",
    [
        nova.Channel("c", schema=DDL),
        nova.Channel("c", merge=nova.Upsert(key=["p", "k"]), schema=DDL),
        nova.Channel("c", merge=nova.Keyed(key=["p", "k"], combine={"v": "sum"}), schema=DDL),
        nova.Channel("c", merge=nova.Upsert(key=["p", "k"]), schema=DDL, partitions=nova.dynamic("p")),
    ],
    ids=["append", "upsert", "keyed", "partitioned"],
)
def test_a_compacted_channel_answers_as_before(channel: nova.Channel, tmp_path: Path, spark: Any) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(channel)
        for n in range(4):
            rows = [{"p": p, "k": k, "v": n} for p in "ab" for k in range(n, n + 3)]
            store.insert("c", rows)
        if channel.merge.keyed:
            store.insert("c", [{"p": "a", "k": 3, "v": 0, "_deleted": True}])

        def answers() -> list[Any]:
            head = store.catalog.channel("c").head
            reads = [store.read("c", at=n) for n in range(1, head + 1)] + [store.read("c", since=2)]
            return [sorted(map(str, r.to_arrow().to_pylist())) for r in reads]

        before = answers()
        commit = store.compact("c")
        assert commit is not None and not commit.numbers and answers() == before
        assert {b.origin for b in commit.blocks} == {"compact"}
        assert len(commit.blocks) == (2 if channel.partitions else 1)
        store.insert("c", [{"p": "b", "k": 0, "v": 100}])
        newest = sorted(map(str, store.read("c").to_arrow().to_pylist()))
        store.collect("c")
        assert sorted(map(str, store.read("c").to_arrow().to_pylist())) == newest
        with pytest.raises(nova.BlockCollected):
            store.read("c", at=1)


def test_large_files_of_an_append_channel_are_kept_as_they_are(tmp_path: Path, spark: Any) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c", schema=DDL))
        store.insert("c", [{"p": "a" * 50, "k": k, "v": k * 7919 % 1000} for k in range(5000)])
        for n in range(3):
            store.insert("c", [{"p": "b", "k": n, "v": n}])
        [large, *small] = [b.manifest.files[0] for b in store.catalog.history("c").blocks]
        store.compact("c", policy=Compacting(small=large.bytes))
        [base] = [b for b in store.catalog.history("c").blocks if b.kind == "base"]
        assert large.path in {f.path for f in base.manifest.files} and len(base.manifest.files) == 2
        assert base.rows == 5003 and not {f.path for f in small} & {f.path for f in base.manifest.files}
        store.collect("c")
        assert store.read("c").to_arrow().num_rows == 5003
