"""Compaction on Spark: the same rows before and after, whatever the merge model (R9, R14)."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.engine.read.in_memory import compute_in_memory
from nova_assets.model.compaction import Compaction
from nova_assets.model.reads import DeltaChain, Snapshot
from nova_assets.plan import modes, read_strategy

pytestmark = pytest.mark.spark
DDL = "p string, k bigint, v bigint"


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "spark"])
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
def test_a_compacted_channel_answers_as_before(
    channel: nova.Channel, in_memory: bool, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.setattr(read_strategy, "MEMORY_ROWS", -1)
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(channel)
        for n in range(4):
            rows = [{"p": p, "k": k, "v": n} for p in "ab" for k in range(n, n + 3)]
            store.insert("c", rows)
        if channel.merge.has_deletions:
            store.insert("c", [{"p": "a", "k": 3, "v": 0, "_deleted": True}])

        def answers() -> list[Any]:
            head = store.catalog.definitions.channel("c").head
            reads = [store.read("c", at=n) for n in range(1, head + 1)] + [store.read("c", since=2)]
            return [sorted(map(str, r.to_arrow().to_pylist())) for r in reads]

        before = answers()
        chain = store.compact("c", chained=True)
        assert chain is not None and {b.kind for b in chain.blocks} == {"delta"} and answers() == before
        commit = store.compact("c")
        assert commit is not None and not commit.numbers and answers() == before
        assert {b.origin for b in commit.blocks} == {"compact"}
        assert len(commit.blocks) == (2 if channel.partitions else 1)
        store.insert("c", [{"p": "b", "k": 0, "v": 100}])
        newest = sorted(map(str, store.read("c").to_arrow().to_pylist()))
        store.collect_garbage("c")
        assert sorted(map(str, store.read("c").to_arrow().to_pylist())) == newest
        with pytest.raises(nova.BlockCollected):
            store.read("c", at=1)


def test_large_files_of_an_append_channel_are_kept_as_they_are(tmp_path: Path, spark: Any) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c", schema=DDL))
        store.insert("c", [{"p": "a" * 50, "k": k, "v": k * 7919 % 1000} for k in range(5000)])
        for n in range(3):
            store.insert("c", [{"p": "b", "k": n, "v": n}])
        [large, *small] = [b.manifest.files[0] for b in store.catalog.histories.of("c").blocks]
        store.compact("c", policy=Compaction(small=large.bytes))
        [base] = [b for b in store.catalog.histories.of("c").blocks if b.kind == "base"]
        assert large.path in {f.path for f in base.manifest.files} and len(base.manifest.files) == 2
        assert base.rows == 5003 and not {f.path for f in small} & {f.path for f in base.manifest.files}
        store.collect_garbage("c")
        assert store.read("c").to_arrow().num_rows == 5003


@pytest.mark.parametrize("channel", [nova.Append(), nova.Upsert(key=["p", "k"])], ids=["append", "upsert"])
def test_what_is_computed_in_memory_is_what_spark_computes(channel: Any, tmp_path: Path, spark: Any) -> None:
    """Random deltas, in which a key is deleted, given, or both, and a column that came later."""
    rng = random.Random(7)
    ddl = f"{DDL}, at timestamp, d decimal(10,2), tags array<string>"
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c", merge=channel, schema=ddl))
        for n in range(6):
            rows = []
            for k in rng.sample(range(8), 5):
                row = {"p": rng.choice(["a", "é", ""]), "k": k, "v": n, "at": datetime(2024, 1, 1 + n, tzinfo=UTC)}
                row |= {"d": Decimal(n) / 4, "tags": ["x"] * n if n % 2 else None}
                kinds = rng.choice([(False,), (True,), (True, False)]) if channel.has_deletions else (None,)
                rows += [row if gone is None else {**row, "_deleted": gone} for gone in kinds]
            store.insert("c", rows, kind="base" if n == 1 and channel.has_deletions is False else "delta")
        warehouse = store.engine.warehouse  # type: ignore[attr-defined]
        history = store.catalog.histories.of("c")
        for read in (
            modes.snapshot(history),
            modes.snapshot(history, 4),
            modes.changes(history, 2),
            modes.changes(history, 5),
        ):
            assert isinstance(read, Snapshot | DeltaChain)
            found = compute_in_memory(read, warehouse)
            assert found is not None and multiset(found) == multiset(
                store.engine.frames.to_arrow(store.engine.reader.read(read))
            )


def multiset(table: Any) -> list[str]:
    return sorted(str(sorted(row.items())) for row in table.to_pylist())


def test_compaction_of_little_data_starts_no_spark(tmp_path: Path) -> None:
    def never() -> Any:
        raise AssertionError("Spark was started")

    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=never) as store:
        store.register(
            [nova.Channel("bag", schema=DDL), nova.Channel("c", merge=nova.Upsert(key=["p", "k"]), schema=DDL)]
        )
        for n in range(3):
            for channel in ("bag", "c"):
                store.insert(channel, [{"p": "a", "k": n % 2, "v": n}])
        assert [b.range for b in store.compact("c", chained=True).blocks] == ["Δ(0→3)"]  # type: ignore[union-attr]
        assert [(b.range, b.rows) for b in store.compact("c").blocks] == [("B3", 2)]  # type: ignore[union-attr]
        assert [(b.range, b.rows) for b in store.compact("bag").blocks] == [("B3", 3)]  # type: ignore[union-attr]
