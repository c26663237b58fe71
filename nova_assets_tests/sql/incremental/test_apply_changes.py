"""Changes from elsewhere: records that arrive late or twice give what the right order would have given."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova

CHANGES = nova.Channel(
    "changes", schema="id int, region string, name string, price double, op string, ts timestamp, tags array<string>"
)
START = datetime(2026, 1, 1, tzinfo=UTC)
OPTIONS: dict[str, Any] = {
    "keys": ["region", "ID"],
    "sequence_by": "ts",
    "delete_when": "op = 'D'",
    "except_columns": ["op", "tags"],
}
KEY, VALUES = ("region", "id"), ("name", "price", "ts")


@pytest.fixture
def store(spark: Any, tmp_path: Path) -> Iterator[nova.Store]:
    current = nova.apply_changes(CHANGES, into="customers", **OPTIONS)
    history = nova.apply_changes(CHANGES, into="history", history="scd2", **OPTIONS)
    project = nova.Project([current, history], channels=[CHANGES])
    with nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark) as opened:
        opened.register(project)
        yield opened


def record(rng: random.Random, id: int, minute: int) -> dict[str, Any]:
    """A record whose values follow from its key and its time, as they do elsewhere."""
    is_deletion = (id * 7 + minute) % 5 == 0
    return {
        "id": id,
        "region": "north" if id % 2 else "south",
        "name": None if is_deletion else f"name {(id + minute) % 3}",
        "price": None if minute % 4 == 0 else minute / 3,
        "op": "D" if is_deletion else rng.choice(["I", "U", None]),
        "ts": START + timedelta(minutes=minute),
        "tags": ["new"],
    }


def replay(records: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Current rows and versions, if the records arrive once and in order."""
    current: dict[tuple[Any, ...], dict[str, Any]] = {}
    versions: list[list[Any]] = []
    open_versions: dict[tuple[Any, ...], list[Any]] = {}
    for r in sorted({(r["ts"], r["id"]): r for r in records}.values(), key=lambda r: r["ts"]):
        key = tuple(r[k] for k in KEY)
        if key in open_versions:
            open_versions.pop(key)[-1] = r["ts"]
        if r["op"] == "D":
            current.pop(key, None)
            continue
        current[key] = r
        open_versions[key] = [*(r[c] for c in (*KEY, *VALUES)), r["ts"], None]
        versions.append(open_versions[key])
    return [tuple(r[c] for c in (*KEY, *VALUES)) for r in current.values()], [tuple(v) for v in versions]


def rows(store: nova.Store, channel: str, columns: tuple[str, ...]) -> list[Any]:
    return sorted((tuple(r[c] for c in columns) for r in store.read(channel).to_arrow().to_pylist()), key=repr)


@pytest.mark.spark
def test_any_order_gives_what_the_right_order_gives(store: nova.Store) -> None:
    rng = random.Random(27)
    records = [record(rng, id, minute) for id in range(6) for minute in rng.sample(range(20), 8)]
    arriving = [*records, *rng.sample(records, 10)]
    rng.shuffle(arriving)
    sent: list[dict[str, Any]] = []
    strategies: list[str] = []
    for size in (20, 15, 1, 10, 3, len(arriving)):
        batch, arriving = arriving[:size], arriving[size:]
        store.insert("changes", batch)
        sent += batch
        executions = [store.run("customers"), store.run("history")]
        strategies += [t.facts["maintenance"]["strategy"] for e in executions for t in e.tasks]
        current, versions = replay(sent)
        assert rows(store, "customers", (*KEY, *VALUES)) == sorted(current, key=repr)
        assert rows(store, "history", (*KEY, *VALUES, "valid_from", "valid_to")) == sorted(versions, key=repr)
    assert set(strategies[5:]) <= {"changes", "no change"}, "every task is maintained, also behind another task"


@pytest.mark.spark
def test_records_without_a_key_are_set_aside(store: nova.Store) -> None:
    rng = random.Random(1)
    good, later = record(rng, 3, 6), record(rng, 3, 8)
    without_key, without_time = {**record(rng, 4, 7), "id": None}, {**record(rng, 5, 7), "ts": None}
    store.insert("changes", [good, without_key, without_time])
    store.run("customers")
    store.run("history")
    store.insert("changes", [later, {**without_key, "op": "I"}])
    store.run("customers")
    store.run("history")
    assert rows(store, "customers", ("id", "ts")) == [(3, later["ts"]), (5, None)]
    assert rows(store, "history", ("id", "valid_from", "valid_to")) == [
        (3, good["ts"], later["ts"]),
        (3, later["ts"], None),
    ]
    aside = {name: rows(store, f"{name}_without_key", ("id", "name", "op", "ts")) for name in ("customers", "history")}
    assert [r[0] for r in aside["customers"]] == [None, None] and aside["customers"][0][3] == without_key["ts"]
    assert [(r[0], r[3]) for r in aside["history"]] == [(5, None), (None, without_key["ts"]), (None, without_key["ts"])]


def test_the_newest_record_of_a_key_follows_from_the_new_records_alone() -> None:
    first, second, _ = nova.apply_changes(CHANGES, into="customers", when=nova.on_data("changes"), **OPTIONS).tasks
    assert [e.port for e in first.consumes] == ["changes", "customers_latest"]
    assert [e.port for e in second.consumes] == ["customers_latest", "customers"]
    binding = nova.apply_changes(CHANGES, into=nova.Channel("mine", nova.Multiset()), **OPTIONS)
    assert binding.name == "mine" and {c.name for c in binding.writes} == {"mine", "mine_latest", "mine_without_key"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"keys": "idd"}, nova.DefinitionError, "no column 'idd'; did you mean 'id'"),
        ({"keys": []}, nova.DefinitionError, "no keys"),
        ({"sequence_by": "at"}, nova.DefinitionError, "no column 'at'"),
        ({"except_columns": ["id"]}, nova.DefinitionError, "key column 'id' is in except_columns"),
        ({"history": "scd1"}, nova.DefinitionError, "'scd1' is not a kind of history"),
        ({"delete_when": "op = 'D' FROM x"}, nova.SqlError, "not one condition"),
        ({"delete_when": "op = 'D', true"}, nova.SqlError, "not one condition"),
        ({"delete_when": "MAX(op) = 'D'"}, nova.SqlError, "more than one record"),
        ({"delete_when": "op IN (SELECT op FROM x)"}, nova.SqlError, "more than one record"),
        ({"delete_when": "opp = 'D'"}, nova.SqlError, "no column 'opp'; did you mean 'op'"),
        ({"delete_when": "op = 'D' AND RAND() > 0"}, nova.SqlError, "RAND"),
    ],
)
def test_refusals(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="(?i)" + message.replace("(", r"\(")):
        nova.apply_changes(CHANGES, into="customers", **{**OPTIONS, "keys": "id", **options})


def test_sources_that_have_no_result() -> None:
    options: dict[str, Any] = {"into": "customers", "keys": "id", "sequence_by": "ts"}
    with pytest.raises(nova.DefinitionError, match="columns of channel 'changes' are not known"):
        nova.apply_changes(nova.Channel("changes"), **options)
    maps = nova.Channel("changes", schema="id int, ts timestamp, m map<string, int>, valid_to int")
    with pytest.raises(nova.DefinitionError, match=r"column 'm' .* has maps"):
        nova.apply_changes(maps, **options)
    with pytest.raises(nova.DefinitionError, match="adds a column 'valid_to'"):
        nova.apply_changes(maps, except_columns=["m"], history="scd2", **options)
