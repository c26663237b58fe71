"""What each way to a read's rows is expected to cost, and what it does: whether the cheapest is chosen.

python -m benchmarks.ways [--quick] [--json FILE]
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import nova_assets as nova
from benchmarks import measure
from nova_assets.engine.read.read_executor import ReadExecutor
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.spark_engine import SparkEngine
from nova_assets.engine.write.block_rewriter import BlockRewriter
from nova_assets.model.block import StagedBlock
from nova_assets.model.read_strategy import CostEstimate, ReadStrategy
from nova_assets.model.reads import DeltaChain, Read, Snapshot, SnapshotDiff
from nova_assets.plan.read_strategy import Purpose, estimate_strategies
from nova_assets.store.store import Store

SIZES = (200_000, 5_000_000)
ROUNDS = 3

facts = nova.Channel("facts", merge=nova.Upsert(key="id"), schema="id bigint, amount double, note string")


def rows(ids: Any, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    notes = pa.array(rng.integers(0, 1000, len(ids))).cast(pa.string())
    return pa.table({"id": ids, "amount": rng.random(len(ids)), "note": notes})


def filled(root: Path, size: int, spark: Any) -> Store:
    """A base, three deltas of 1 %, and a base that a tenth of the rows is changed in."""
    rng = np.random.default_rng(1)
    store = nova.open(nova.Project(channels=[facts]), f"sqlite:///{root}/{size}.db", root / f"wh{size}", spark)
    store.register(facts)
    store.insert(facts, rows(rng.permutation(size), 1), kind="base")
    for n in range(3):
        store.insert(facts, rows(rng.choice(size, size // 100, replace=False), 2 + n))
    kept = store.read("facts").to_arrow()
    amount = np.where(rng.random(len(kept)) < 0.1, 0.0, kept["amount"].to_numpy())
    store.insert(facts, kept.set_column(1, "amount", pa.array(amount)), kind="base")
    return store


def reads(store: Store) -> Iterator[tuple[str, Read, Purpose]]:
    yield "chain of 3", store.read("facts", since=1, at=4).plan, "frame"
    yield "diff", store.read("facts", since=4, at=5).plan, "frame"
    yield "base and 3 deltas", store.read("facts", at=4).plan, "here"
    yield "base and 3 deltas", store.read("facts", at=4).plan, "frame"
    yield "base and 3 deltas", store.read("facts", at=4).plan, "block"
    yield "chain of 3", store.read("facts", since=1, at=4).plan, "block"


def work(store: Store, read: Read, purpose: Purpose, way: ReadStrategy) -> Callable[[], object]:
    engine = store.engine
    assert isinstance(engine, SparkEngine) and isinstance(read, Snapshot | DeltaChain | SnapshotDiff)
    going = ReadExecutor(engine._session, engine.warehouse, engine.frames, way)
    if purpose == "block":
        assert not isinstance(read, SnapshotDiff)
        return lambda: rewritten(store, read, way)
    if purpose == "here":
        return lambda: going.read_without_spark(read) if way == "arrow" else engine.frames.to_arrow(going.read(read))
    return lambda: going.read(read).selectExpr("count(*)", "sum(amount)", "max(note)").collect()


def rewritten(store: Store, read: Snapshot | DeltaChain, way: ReadStrategy) -> None:
    engine, block = store.engine, uuid.uuid4().hex
    assert isinstance(engine, SparkEngine) and read.schema is not None
    kind: Any = "base" if isinstance(read, Snapshot) else "delta"
    staged = StagedBlock(block, "e", "facts", "facts", kind, f"blocks/{block}", 1)
    reader = ReadExecutor(engine._session, engine.warehouse, engine.frames, way)
    rewriter = BlockRewriter(reader, engine.writer)
    rewriter.rewrite(read, staged, facts, read.schema)
    engine.warehouse.delete_staged_folder(staged.folder)


def main() -> None:
    given = measure.options("What each way is expected to cost, and what it does.")
    sizes, rounds = ((50_000,), 1) if given.quick else (SIZES, ROUNDS)
    spark = LazySparkSession().get()
    shown: list[tuple[Any, ...]] = []
    rightly: list[bool] = []
    with tempfile.TemporaryDirectory(prefix="ways-") as root:
        for size in sizes:
            store = filled(Path(root), size, spark)
            for name, read, purpose in reads(store):
                estimates = estimate_strategies(read, purpose)
                costs = measure.interleaved(rounds, *(work(store, read, purpose, e.strategy) for e in estimates))
                cpu = [measure.median(c).cpu for c in costs]
                rightly.append(cpu[0] <= 1.25 * min(cpu))
                shown += [
                    line(size, name, purpose, e, c, e is estimates[0]) for e, c in zip(estimates, cpu, strict=True)
                ]
    columns = ("rows", "read", "for", "way", "expected CPU s", "CPU s", "chosen")
    measure.show(f"Medians of {rounds} rounds", columns, shown)
    measure.keep(given.json, {"rows": [list(s) for s in shown]})
    print(f"ways: the chosen one costs no more than 1.25 x the cheapest in {sum(rightly)} of {len(rightly)} cases")


def line(size: int, name: str, purpose: str, e: CostEstimate, cpu: float, first: bool) -> tuple[Any, ...]:
    return f"{size:,}", name, purpose, e.strategy, e.seconds, cpu, "yes" if first else ""


if __name__ == "__main__":
    main()
