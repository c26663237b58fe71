"""Where data comes from, and where it goes. Rows that carry the numbers of their inserts decide what is right."""

from __future__ import annotations

import random
from typing import Any

import pytest

import nova_assets as nova
from nova_assets_tests.effort import examples
from nova_assets_tests.execution.conftest import Opener
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "k bigint, tags string"

orders = nova.Channel("orders", merge=nova.Upsert(key="k"), schema=DDL)
users = nova.Channel("users", merge=nova.Upsert(key="k"), schema=DDL)
joined = nova.Channel("joined", merge=nova.Upsert(key="k"), schema=DDL)
totals = nova.Channel("totals", merge=nova.Upsert(key="k"), schema=DDL)
seen = nova.Channel("seen", merge=nova.Upsert(key="k"), schema=DDL)
fresh = nova.Channel("fresh", schema=DDL)
relayed = nova.Channel("relayed", schema=DDL)
moved = nova.Channel("moved", schema=DDL)
past = nova.Channel("past", merge=nova.Upsert(key="k"), schema=DDL)
CHANNELS = ("orders", "users", "joined", "totals", "seen", "fresh", "past", "relayed", "moved")


def tags_of(*rows: Row) -> str:
    return " ".join(sorted({t for r in rows for t in r["tags"].split()}))


@nova.task(consumes=[nova.new(orders), nova.all(users)], produces=nova.delta(joined))
def join(orders: list[Row], users: list[Row]) -> list[Row]:
    live = [o for o in orders if not o.get("_deleted")]
    return [{"k": o["k"], "tags": tags_of(o, *(u for u in users if u["k"] == o["k"]))} for o in live]


@nova.task(consumes=nova.all(joined), produces=nova.base(totals))
def sum_up(joined: list[Row]) -> list[Row]:
    return [{"k": 0, "tags": tags_of(*joined)}] if joined else []


@nova.task(consumes=[nova.new(joined), nova.all(seen)], produces=[nova.delta(seen), nova.delta(fresh)])
def dedupe(joined: list[Row], seen: list[Row]) -> dict[str, list[Row]]:
    known = {r["k"] for r in seen}
    rows = [r for r in joined if not r.get("_deleted")]
    return {
        "seen": [{"k": r["k"], "tags": tags_of(r, *(s for s in seen if s["k"] == r["k"]))} for r in rows],
        "fresh": [{"k": r["k"], "tags": r["tags"]} for r in rows if r["k"] not in known],
    }


@nova.task(consumes=[nova.new(orders, as_="arrived"), nova.old(orders, as_="before")], produces=nova.delta(past))
def remember(arrived: list[Row], before: list[Row]) -> list[Row]:
    return [{"k": 0, "tags": tags_of(*before, *arrived)}] if arrived else []


@nova.task(consumes=nova.new(joined), produces=nova.delta(relayed))
def relay(joined: list[Row]) -> list[Row]:
    """Deletions carry the row that they delete."""
    return [{"k": r["k"], "tags": r["tags"]} for r in joined if r["tags"]]


@nova.task(consumes=nova.new(orders), produces=nova.delta(moved))
def relay_orders(orders: list[Row]) -> list[Row]:
    return [{"k": r["k"], "tags": r["tags"]} for r in orders if r["tags"]]


PROJECT = nova.Project(
    [nova.bind(nova.Workflowette(t.name, [t])) for t in (join, sum_up, dedupe, remember, relay, relay_orders)]
)


BINDINGS = [b.name for b in PROJECT.bindings]
ACTIONS = ["insert", "insert", "insert", "delete", "base", "combine", "restore", "compact"]


def insert(store: nova.Store, channel: str, *keys: int, deleted: bool = False, **options: Any) -> None:
    """Insert rows that carry the number of the insert."""
    tag = f"{channel}@{store.catalog.definitions.channel(channel).head + 1}"
    store.insert(channel, [{"k": k, "tags": tag, "_deleted": deleted} for k in keys], **options)


def found(store: nova.Store, channel: str, **options: Any) -> list[str]:
    return [f"{s.channel}@{s.seq}" for s in store.provenance(channel, **options)]


@pytest.fixture
def store(opened: Opener) -> nova.Store:
    opened_store = opened(PROJECT, schema=DDL)
    opened_store.register(PROJECT)
    return opened_store


def test_a_version_leads_back_to_the_inserts(store: nova.Store) -> None:
    insert(store, "users", 1, idempotency_key="first")
    insert(store, "orders", 1)
    store.run("join")
    insert(store, "orders", 2)
    store.run("join")
    insert(store, "users", 2)
    store.run("sum_up")
    assert found(store, "totals") == ["totals@1", "joined@1", "joined@2", "orders@1", "orders@2", "users@1"]
    steps = {f"{s.channel}@{s.seq}": s for s in store.provenance("totals")}
    assert [steps[n].distance for n in ("totals@1", "joined@2", "orders@2", "users@1")] == [0, 1, 2, 2]
    assert (steps["joined@2"].commit.binding, steps["joined@2"].origin) == ("join", "task")
    assert (steps["users@1"].commit.idempotency_key, steps["users@1"].origin) == ("first", "insert")
    assert [str(r) for r in steps["joined@2"].commit.reads] == ["orders 1→2", "users at 1"]
    assert found(store, "joined", at=1) == ["joined@1", "orders@1", "users@1"]


def test_changes_lead_back_to_the_changes_behind_them(store: nova.Store) -> None:
    insert(store, "users", 1)
    for k in (1, 2):
        insert(store, "orders", k)
        store.run("join")
    store.run("dedupe")
    insert(store, "orders", 3)
    store.run("join")
    store.run("dedupe")
    assert found(store, "fresh", since=1) == ["fresh@2", "joined@3", "orders@3"]
    assert "orders@1" in found(store, "fresh")


@pytest.mark.core
def test_what_an_insert_led_to(store: nova.Store) -> None:
    for k in (1, 2):
        insert(store, "orders", k)
        store.run("join")
        store.run("sum_up")
    assert found(store, "orders", since=1, at=2, downstream=True) == ["joined@2", "totals@2"]
    assert found(store, "orders", since=0, at=1, downstream=True) == ["joined@1", "totals@1", "totals@2"]
    assert found(store, "totals", downstream=True) == [], "nothing reads it"
    assert found(store, "users", downstream=True) == [], "it was read, and had no rows"


def test_what_a_base_replaces_is_no_longer_used(store: nova.Store) -> None:
    insert(store, "orders", 1)
    store.run("join")
    insert(store, "orders", 2, kind="base")
    assert found(store, "orders") == ["orders@2"]
    assert found(store, "orders", at=1) == ["orders@1"]
    store.run("sum_up")
    store.run("join")
    store.run("sum_up")
    assert found(store, "totals", at=1) == ["totals@1", "joined@1", "orders@1"]
    assert "totals@1" not in found(store, "totals"), "the base at 2 replaces it"


def test_changes_that_hold_old_rows_used_the_blocks_of_these_rows(store: nova.Store) -> None:
    """A base deletes rows that were there, and a delta with a model of its own combines them with new ones."""
    insert(store, "orders", 1)
    store.run("relay_orders")
    insert(store, "orders", 2, kind="base")
    store.run("relay_orders")
    assert tags_of(*read(store, "moved", at=2, since=1)) == "orders@1 orders@2", "a deletion has the old row"
    assert found(store, "orders", since=0, at=1, downstream=True) == ["moved@1", "moved@2"]
    insert(store, "orders", 2, merge=nova.Keyed(key="k", combine={"tags": "min"}))
    insert(store, "orders", 3)
    store.run("relay_orders")
    assert found(store, "orders", since=1, at=2, downstream=True) == ["moved@2", "moved@3"]


def test_a_restored_version_leads_back_to_its_inserts(store: nova.Store) -> None:
    for k in (1, 2):
        insert(store, "users", k)
    store.restore("users", 1)
    assert found(store, "users") == ["users@3", "users@1"]
    assert found(store, "users", at=2) == ["users@1", "users@2"]
    assert [s.origin for s in store.provenance("users")] == ["restore", "insert"]


def test_collected_blocks_are_listed(store: nova.Store) -> None:
    for k in (1, 2):
        insert(store, "orders", k)
        store.run("join")
    before = found(store, "joined")
    for channel in ("orders", "joined"):
        store.compact(channel, force=True)
        store.collect_garbage(channel)
    assert all(b.kind == "base" for b in store.catalog.histories.of("joined").blocks)
    assert found(store, "joined") == before == ["joined@1", "joined@2", "orders@1", "orders@2"]


def test_what_there_is_not(store: nova.Store) -> None:
    assert found(store, "orders") == []
    insert(store, "orders", 1)
    with pytest.raises(nova.VersionNotFound, match="no version 2"):
        store.provenance("orders", at=2)
    with pytest.raises(nova.DefinitionError, match="since=1 is not before version 1"):
        store.provenance("orders", at=1, since=1)
    with pytest.raises(nova.ChannelNotFound):
        store.provenance("order")


clicks = nova.Channel("clicks", partitions=nova.dynamic("p"), schema="p string, k bigint, tags string")
counts = nova.Channel("counts", partitions=nova.dynamic("p"), schema="p string, k bigint, tags string")


@nova.task(consumes=nova.all(clicks), produces=nova.base(counts))
def count(clicks: list[Row]) -> list[Row]:
    return [{"k": len(clicks), "tags": tags_of(*clicks)}]


def test_a_partition_leads_back_to_its_partition_of_the_input(opened: Opener) -> None:
    project = nova.Project([nova.bind(nova.Workflowette("count", [count]), partitions=["p"])])
    store = opened(project, schema="p string, k bigint, tags string")
    store.register(project)
    parts = ["p=a", "p=b"]
    for n, name in enumerate([*parts, parts[0]], start=1):
        store.insert("clicks", [{"k": n, "tags": f"clicks@{n}"}], partition=name)
    for name in parts:
        store.run("count", partition=name)
    assert found(store, "counts", partition=parts[0]) == ["counts@1", "clicks@1", "clicks@3"]
    assert found(store, "counts", partition=parts[1]) == ["counts@2", "clicks@2"]
    assert found(store, "clicks", at=2, since=1, downstream=True) == ["counts@2"]
    [first, *_] = store.provenance("counts", partition=parts[0])
    assert first.partitions == (parts[0],) and str(first.commit.reads[0]) == f"clicks {parts[0]} at 3"


def test_no_insert_whose_rows_were_used_is_missing(store: nova.Store) -> None:
    for seed in range(examples(2, 20)):
        rng = random.Random(seed)
        for _ in range(25):
            step(store, rng)
        check_all_versions(store)


def step(store: nova.Store, rng: random.Random) -> None:
    action = rng.choice([*ACTIONS, *BINDINGS])
    if action in BINDINGS:
        store.run(action)
        return
    channel = rng.choice(["orders", "users"])
    head = store.catalog.definitions.channel(channel).head
    if action == "restore" and head:
        store.restore(channel, rng.randint(1, head))
    elif action == "compact":
        store.compact(rng.choice(CHANNELS), force=True)
    elif action in ("insert", "delete", "base", "combine"):
        keys = rng.sample(range(4), rng.randint(1, 3))
        combined = {"merge": nova.Keyed(key="k", combine={"tags": "max"})} if action == "combine" else {}
        kind = "base" if action == "base" else "delta"
        insert(store, channel, *keys, deleted=action == "delete", kind=kind, **combined)


def check_all_versions(store: nova.Store) -> None:
    used_by: dict[str, set[str]] = {}  # insert -> numbers that changed rows with its tag
    for channel in CHANNELS:
        for at in range(1, store.catalog.definitions.channel(channel).head + 1):
            inserts = {f"{s.channel}@{s.seq}" for s in store.provenance(channel, at) if s.origin == "insert"}
            assert set(tags_of(*read(store, channel, at=at)).split()) <= inserts, (channel, at)
            for tag in tags_of(
                *(r for r in read(store, channel, at=at, since=at - 1) if not r.get("_deleted"))
            ).split():
                used_by.setdefault(tag, set()).add(f"{channel}@{at}")
    for tag, numbers in used_by.items():
        channel, _, seq = tag.partition("@")
        results = set(found(store, channel, at=int(seq), since=int(seq) - 1, downstream=True))
        missing = {n for n in numbers - results if not n.startswith(f"{channel}@")}
        assert not missing, (tag, missing)


def read(store: nova.Store, channel: str, **options: Any) -> list[Row]:
    return store.read(channel, **options).to_spark()  # type: ignore[return-value]
