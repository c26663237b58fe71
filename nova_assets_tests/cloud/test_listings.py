"""No verb that writes relies on a listing: each works as ever where every listing is empty, or of long ago."""

from __future__ import annotations

import itertools
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.cloud.faulty_s3 import Fault, FaultyS3

pytestmark = pytest.mark.slow

DDL = "id bigint NOT NULL, dt date, n bigint"


def row(id: int, n: int, day: int = 1) -> dict[str, Any]:
    return {"id": id, "dt": date(2024, 1, day), "n": n}


def rows(store: Store, channel: str, **how: Any) -> list[tuple[int, int]]:
    return sorted((r["id"], r["n"]) for r in store.read(channel, **how).to_arrow().to_pylist())


def no_spark() -> Any:
    raise AssertionError("Spark was started")


@pytest.mark.parametrize("fault", ["lists nothing", "lists what was"])
def test_every_verb_where_listings_lie(
    fault: Fault, faulty: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOVA_STRATEGY", "arrow")
    faulty.choose = lambda kind, path: fault if kind == "LIST" else None
    channels = [
        nova.Channel("logs", schema=DDL, partitions=nova.daily("dt", start="2024-01-01")),
        nova.Channel("people", nova.Upsert(key="id"), DDL),
    ]
    with nova.open(nova.Project(channels=channels), warehouse="s3://lake/wh", spark=no_spark) as store:
        for n in range(4):
            assert store.insert("logs", [row(n, n), row(10 + n, n, day=2)], idempotency_key=f"k{n}").numbers
            store.insert("people", [row(n + 1, n), row(0, n)])
        before = {c: rows(store, c) for c in ("logs", "people")}
        assert [len(b) for b in before.values()] == [8, 5]
        for channel in before:
            assert store.compact(channel) is not None
            assert store.collect_garbage(channel).blocks
        store._retention.deletion_delay = 0.0
        assert store.delete_collected() > 0
        assert {c: rows(store, c) for c in before} == before
        store.insert("people", [row(7, 7)], kind="base")
        assert rows(store, "people") == [(7, 7)]
        store.restore("people", 4)
        assert {c: rows(store, c) for c in before} == before
        store.insert("people", [{**row(7, 0), "_deleted": True}, row(8, 8)])
        assert rows(store, "people", since=6) == [(7, 0), (8, 8)]


def test_a_listing_that_is_empty_once_deletes_no_file_that_is_needed(
    faulty: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block's folder has files of two partitions; those of one are collected. A listing in between is empty, and the
    next one is right."""
    monkeypatch.chdir(tmp_path)
    answers = itertools.cycle(["lists nothing", None])
    logs = nova.Channel("logs", schema=DDL, partitions=nova.daily("dt", start="2024-01-01"))
    with nova.open(nova.Project(channels=[logs]), warehouse="s3://lake/wh") as store:
        for n in range(3):
            store.insert("logs", [row(n, n), row(10 + n, n, day=2)])
        before = rows(store, "logs")
        assert store.compact("logs", partitions=["dt=2024-01-01"]) is not None
        assert store.collect_garbage("logs").blocks
        store._retention.deletion_delay = 0.0
        faulty.choose = lambda kind, path: next(answers) if kind == "LIST" else None
        assert store.delete_collected() > 0
        assert rows(store, "logs") == before
