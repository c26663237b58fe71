"""A store that throttles a third of all requests: nothing is lost or doubled, and the log says how long it took."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.engine.storage import throttling
from nova_assets.engine.storage.throttling import Throttle
from nova_assets.settings import Settings, load_settings
from nova_assets.store.store import Store
from nova_assets_tests.cloud.faulty_s3 import Fault, FaultyS3, Kind

pytestmark = pytest.mark.slow

DDL = "dt date NOT NULL, id bigint NOT NULL, n bigint"


def opened(root: Path, budget: float = 120.0) -> Store:
    days = nova.daily("dt", start="2024-01-01")
    channels = [
        nova.Channel("logs", nova.Append(), DDL, days),
        nova.Channel("people", nova.Upsert(key="id"), "id bigint NOT NULL, n bigint"),
    ]
    settings = Settings(f"sqlite:///{root}/c.db", "s3://lake/wh", root=root, throttle_budget=budget)
    return nova.open(nova.Project(channels=channels), settings=settings)


def rows(day: int, *ids: int) -> list[dict[str, Any]]:
    return [{"dt": date(2024, 1, day), "id": n, "n": n} for n in ids]


def test_nothing_is_lost_or_doubled(
    faulty: FaultyS3, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "FIRST_DELAY_SECONDS", 0.01)  # the store of this test needs no rest
    monkeypatch.setattr(throttling, "MAX_DELAY_SECONDS", 0.1)
    chance = random.Random(7)
    throttled = Counter[str]()

    def choose(kind: Kind, path: str) -> Fault | None:
        prefix = path.rsplit("/", 1)[0]
        if chance.random() < 1 / 3:
            throttled[prefix] += 1
            return "fails"
        return None

    store = opened(tmp_path)
    faulty.choose = choose
    caplog.set_level(logging.WARNING, "nova_assets")
    for n in range(12):
        store.insert("logs", rows(1 + n % 3, n))
        store.insert("people", [{"id": n % 4, "n": n}])
    assert sorted(r["id"] for r in store.read("logs").to_arrow().to_pylist()) == list(range(12))
    assert sorted(r["n"] for r in store.read("people").to_arrow().to_pylist()) == [8, 9, 10, 11]
    store.compact("logs")
    store.compact("people")
    store.collect_garbage("logs")
    store._retention.deletion_delay = 0.0
    store.delete_collected()
    assert sorted(r["id"] for r in store.read("logs").to_arrow().to_pylist()) == list(range(12))
    assert sorted(r["n"] for r in store.read("people").to_arrow().to_pylist()) == [8, 9, 10, 11]
    assert sum(throttled.values()) > 20

    told = [re.search(r"throttled (\d+) requests? .*waited ([0-9.]+) s", r.getMessage()) for r in caplog.records]
    counts = [(int(m[1]), float(m[2])) for m in told if m is not None]
    assert counts and sum(n for n, _ in counts) <= sum(throttled.values())
    assert sum(seconds for _, seconds in counts) > 0
    assert not [r for r in caplog.records if "commit" in r.getMessage() and "failed" in r.getMessage()]


@pytest.mark.core
def test_a_budget_that_is_used_up_is_told(faulty: FaultyS3, tmp_path: Path) -> None:
    store = opened(tmp_path, budget=0.3)
    faulty.choose = lambda kind, path: "fails" if kind == "PUT" else None
    with pytest.raises(nova.WarehouseUnavailable, match=r"throttled all \d+ attempts .*throttle_budget = 0.3"):
        store.insert("people", [{"id": 1, "n": 1}])
    faulty.choose = lambda kind, path: None
    assert store.catalog.definitions.channel("people").head == 0
    store.insert("people", [{"id": 1, "n": 1}])
    assert store.read("people").to_arrow().num_rows == 1


def test_requests_are_spread_over_prefixes(faulty: FaultyS3, tmp_path: Path) -> None:
    """Stores throttle by prefix. So the keys of one commit begin to differ directly below the folder of its block."""
    store = opened(tmp_path)
    store.insert("logs", rows(1, 0))
    requests = Counter[str]()

    def choose(kind: Kind, path: str) -> Fault | None:
        if kind in ("PUT", "multipart"):
            folder, name = path.rsplit("/", 1)
            requests[f"{folder}/{name[0]}"] += 1
        return None

    faulty.choose = choose
    store.insert("logs", [r for day in range(1, 29) for r in rows(day, day)])
    assert sum(requests.values()) == 28, "one request for each file"
    assert len(requests) >= 8 and max(requests.values()) <= 7, requests
    blocks = {key.rsplit("/", 1)[0] for key in requests}
    store.insert("logs", rows(1, 100))
    assert len({key.rsplit("/", 1)[0] for key in requests}) == len(blocks) + 1, "and each block has its own prefix"


@pytest.mark.core
def test_delays_grow_with_jitter_up_to_the_budget() -> None:
    delays: list[float] = []
    limits: list[float] = []

    def draw(low: float, high: float) -> float:
        limits.append(high)
        return high / 2

    throttle = Throttle(10.0, delays.append, draw)
    answers = iter([OSError("AWS Error SLOW_DOWN during PutObject")] * 5)

    def request() -> str:
        for error in answers:
            raise error
        return "done"

    assert throttle.call(request) == "done"
    assert limits == [0.1, 0.2, 0.4, 0.8, 1.6] and delays == [limit / 2 for limit in limits]
    assert (throttle.counts().requests, throttle.counts().seconds) == (5, pytest.approx(1.55))

    def denied() -> None:
        raise OSError("AWS Error ACCESS_DENIED for key 'blocks/503/x'")

    with pytest.raises(OSError, match="ACCESS_DENIED"):
        throttle.call(denied)
    assert len(delays) == 5, "only throttling and lost connections are repeated"


@pytest.mark.core
def test_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOVA_THROTTLE_BUDGET", "30")
    settings = load_settings(tmp_path, warehouse="s3://lake/wh")
    assert settings.throttle_budget == 30
    assert settings.spark_config["spark.hadoop.fs.s3a.retry.throttle.limit"] == "8"
    assert settings.spark_config["spark.executorEnv.NOVA_THROTTLE_BUDGET"] == "30"
    monkeypatch.setenv("NOVA_THROTTLE_BUDGET", "soon")
    with pytest.raises(nova.SettingsError, match="throttle_budget"):
        load_settings(tmp_path)
