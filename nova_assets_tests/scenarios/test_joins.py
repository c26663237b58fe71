"""Joins kept up to date from what is new on both sides equal the join recomputed, after each step."""

from __future__ import annotations

import csv
import gzip
import random
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from examples.joins import join_changes
from nova_assets.testing.world import for_tiny_queries
from nova_assets_tests.effort import EXHAUSTIVE

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def keyed(name: str, key: list[str], schema: str | None = None) -> nova.Channel:
    return nova.Channel(name, merge=nova.Upsert(key=key), schema=schema)


def rows(store: nova.Store, channel: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read(channel).to_arrow().to_pylist()
    return found


@pytest.mark.parametrize(("rounds", "seed"), [(3, 76), pytest.param(8, 3, marks=EXHAUSTIVE)])
def test_r12_updates_and_deletions_on_both_sides(tmp_path: Path, spark: Any, rounds: int, seed: int) -> None:
    orders = keyed("orders", ["order"], "order int, user int, amount int")
    users = keyed("users", ["user"], "user int, name string")
    joined = keyed("joined", ["order", "user"])

    @nova.task(consumes=[nova.changes(orders), nova.changes(users)], produces=nova.delta(joined))
    def join_orders(orders: nova.View, users: nova.View) -> Any:
        return join_changes(orders, users, on=["user"], left_key=["order"], right_key=["user"])

    rng = random.Random(seed)
    state: dict[str, dict[int, Any]] = {"orders": {}, "users": {}}

    def change(side: str) -> None:
        """Some rows put, some deleted; now and then the whole side anew, as a base."""
        key, other, space = ("order", "amount", 12) if side == "orders" else ("user", "name", 5)
        kind = "base" if rng.random() < 0.2 else "delta"
        if kind == "base":
            state[side] = {}
        batch = []
        for k in rng.sample(range(space), rng.randint(1, 4)):
            gone = kind == "delta" and rng.random() < 0.35
            value = rng.randint(0, 9) if side == "orders" else rng.choice("abc")
            row = {key: k, other: value, **({"user": rng.randrange(5)} if side == "orders" else {})}
            batch.append({**row, "_deleted": True} if gone else row)
            if gone:
                state[side].pop(k, None)
            else:
                state[side][k] = row
        store.insert(side, batch, kind=kind)  # type: ignore[arg-type]

    with (
        nova.open(
            nova.Project([nova.bind(nova.Workflowette("w", [join_orders]))]),
            f"sqlite:///{tmp_path}/c.db",
            tmp_path / "wh",
            spark,
        ) as store,
        for_tiny_queries(store),
    ):
        for _ in range(rounds):
            for side in rng.choice([["orders"], ["users"], ["orders", "users"], ["users", "orders", "users"]]):
                change(side)
            store.run("w")
            expected = [
                {**o, "name": state["users"][o["user"]]["name"]}
                for o in state["orders"].values()
                if o["user"] in state["users"]
            ]
            found = rows(store, "joined")
            assert sorted(found, key=lambda r: r["order"]) == sorted(
                ({c: e[c] for c in found[0]} for e in expected) if found else expected, key=lambda r: r["order"]
            )


@pytest.mark.long
def test_r12_flights_and_weather_arriving_day_by_day_in_any_order(
    shared_data: Path, tmp_path: Path, spark: Any
) -> None:
    folder = shared_data / "relational_nycflights13"
    flights = pa.concat_tables([pq.read_table(folder / f"flights_2013-0{m}.parquet") for m in (1, 2)])
    flight_key = ["month", "day", "sched_dep_time", "carrier", "flight", "origin"]
    flights = flights.select([*flight_key, "dep_time", "dep_delay", "distance", "time_hour"])
    flights = flights.replace_schema_metadata(None)
    weather = pq.read_table(folder / "weather.parquet").select(["origin", "time_hour", "wind_speed", "precip"])
    weather = weather.replace_schema_metadata(None)
    a, b = keyed("flights", flight_key), keyed("weather", ["origin", "time_hour"])
    joined = keyed("departures", [*flight_key, "time_hour"])

    @nova.task(consumes=[nova.changes(a), nova.changes(b)], produces=nova.delta(joined))
    def join_weather(flights: nova.View, weather: nova.View) -> Any:
        return join_changes(
            flights, weather, on=["origin", "time_hour"], left_key=flight_key, right_key=["origin", "time_hour"]
        )

    rng = random.Random(5)
    days = sorted({t[:10] for table in (flights, weather) for t in table["time_hour"].to_pylist()})  # in UTC
    pending = {"flights": days[:], "weather": days[:]}
    for left in pending.values():
        rng.shuffle(left)
    project = nova.Project([nova.bind(nova.Workflowette("w", [join_weather]))])
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        here: dict[str, pa.Table] = {"flights": flights.slice(0, 0), "weather": weather.slice(0, 0)}
        while any(pending.values()):
            for side in pending:
                count = min(len(pending[side]), rng.randint(8, 20))
                taken = {pending[side].pop() for _ in range(count)}
                source = flights if side == "flights" else weather
                of_day = pc.is_in(
                    pc.utf8_slice_codeunits(source["time_hour"], 0, 10), pa.array(sorted(taken), pa.large_string())
                )
                batch = source.filter(of_day)
                here[side] = pa.concat_tables([here[side], batch])
                if batch.num_rows:
                    store.insert(side, batch)
            store.run("w")
            on = ["origin", "time_hour"]
            recomputed = here["flights"].join(here["weather"], on, join_type="inner")
            found = store.read("departures").to_arrow()
            columns = sorted(found.column_names)
            assert Counter(map(str, found.select(columns).to_pylist())) == Counter(
                map(str, recomputed.select(columns).to_pylist())
            )
        counted: Counter[tuple[str, str, str]] = Counter(
            (date(2013, r["month"], r["day"]).isoformat(), r["origin"], r["carrier"]) for r in rows(store, "flights")
        )
    with gzip.open(folder / "truth_by_day_origin_carrier.csv.gz", "rt") as lines:
        truth = {(r["day_key"], r["origin"], r["carrier"]): int(r["n"]) for r in csv.DictReader(lines)}
    assert counted == truth
