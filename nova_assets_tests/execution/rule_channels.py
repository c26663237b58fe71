"""Channels, rows and bindings of the tests of rules."""

from __future__ import annotations

from typing import Any

import nova_assets as nova
from nova_assets_tests.stub_merge import Row

DDL = "k bigint, v bigint"


source = nova.Channel("source", schema=DDL)


seen = nova.Channel("seen", merge=nova.Upsert(key="k"), schema=DDL)


fresh = nova.Channel("fresh", schema=DDL)


table = nova.Channel("table", merge=nova.Upsert(key="k"), schema=DDL)


def rows(*keys: int, v: int = 0) -> list[Row]:
    return [{"k": k, "v": v} for k in keys]


def keys(frame: list[Row]) -> list[int]:
    return sorted(r["k"] for r in frame)


def read(store: nova.Store, channel: str, **how: Any) -> list[Row]:
    return store.read(channel, **how).to_spark()  # type: ignore[return-value]


def bound(task: nova.Task, *more: nova.Task, name: str = "w") -> nova.Project:
    return nova.Project([nova.bind(nova.Workflowette(name, [task, *more]))])


@nova.task(consumes=[nova.new(source), nova.all(seen)], produces=[nova.delta(seen), nova.delta(fresh)])
def dedup(source: list[Row], seen: list[Row]) -> dict[str, list[Row]]:
    known = {r["k"] for r in seen}
    new = list({r["k"]: r for r in source if r["k"] not in known}.values())
    return {"seen": new, "fresh": new}
