"""Partitions that are dropped (R19), for how long things are kept, and readers that hold what they read (R15)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.timeline import History, PartitionHistory
from nova_assets.plan import modes
from nova_assets.plan.garbage_collection import expired_partitions
from nova_assets.store.store import Store
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "dt string, k bigint"
DAY = 24 * 3600

visits = nova.Channel(
    "visits", schema=DDL, partitions=nova.daily("dt", start="2023-12-01", keep="3d"), retain="1d", compaction=None
)
seen = nova.Channel("seen", schema=DDL, partitions=nova.daily("dt", start="2023-12-01"))
got: list[list[Row]] = []


@nova.task(consumes=nova.new(visits), produces=nova.delta(seen))
def see(visits: list[Row]) -> list[Row]:
    got.append(visits)
    return visits


project = nova.Project([nova.bind(nova.Workflowette("see", [see]), partitions=[], when=nova.on_data(visits))])


def visit(day: str, k: int) -> Row:
    return {"dt": day, "k": k}


def keys(store: Store, channel: str = "visits", **what: Any) -> list[int]:
    return sorted(r["k"] for r in store.read(channel, **what).to_spark())  # type: ignore[union-attr]


@pytest.fixture
def store(opened: Opener) -> Store:
    """The clock stands at 2024-01-01."""
    got.clear()
    made = opened(project, schema=DDL)
    made.insert("visits", [visit("2023-12-27", 1), visit("2023-12-28", 2), visit("2023-12-31", 3)])
    return made


@pytest.mark.core
@pytest.mark.parametrize(
    ("dimension", "partition", "over"),
    [
        (nova.daily("d", "2024-01-01", keep="2d"), "d=2024-03-08", "2024-03-11T00:00+00:00"),
        # The clocks of New York went forward on March 10: a day of 23 hours.
        (nova.daily("d", "2024-01-01", tz="America/New_York", keep="1d"), "d=2024-03-10", "2024-03-12T04:00+00:00"),
        (nova.hourly("d", "2024-01-01", keep="6h"), "d=2024-03-08T05:00", "2024-03-08T12:00+00:00"),
        # They went back on November 3: that hour came twice.
        (
            nova.hourly("d", "2024-01-01", tz="America/New_York", keep="1h"),
            "d=2024-11-03T01:00-0500",
            "2024-11-03T08:00+00:00",
        ),
    ],
)
def test_a_partition_is_kept_for_so_long_after_it_is_over(dimension: Any, partition: str, over: str) -> None:
    moment = datetime.fromisoformat(over)
    keep = {"d": dimension.keep}
    assert expired_partitions([dimension], keep, [partition], moment) == (partition,)
    assert expired_partitions([dimension], keep, [partition], moment - timedelta(seconds=1)) == ()
    assert expired_partitions([dimension], {}, [partition], datetime.now(UTC)) == (), "nobody said for how long"


def test_r19_what_is_over_for_long_is_dropped_and_nobody_is_told(store: Store, clock: TestClock) -> None:
    store.run("see")
    assert store.expired("visits") == ("dt=2023-12-27", "dt=2023-12-28")
    heads = {s.channel.name: s.last_data_seq for s in store.channels()}
    commit = store.drop_expired("visits")
    assert commit is not None and commit.seq == 2 and [b.rows for b in commit.blocks] == [0, 0]
    assert keys(store) == [3] and keys(store, at=1) == [1, 2, 3], "it is no history rewritten"
    assert {s.channel.name: s.last_data_seq for s in store.channels()} == heads, "no data trigger fires"
    assert store.expired("visits") == () and store.drop_expired("visits") is None
    store.run("see")
    assert got[-1] == [] and keys(store, "seen") == [1, 2, 3]

    store.insert("visits", [visit("2023-12-28", 4), visit("2024-01-01", 5)])
    assert store.expired("visits") == ("dt=2023-12-28",), "what comes late is dropped as well, and read before"
    store.drop_expired("visits")
    store.run("see")
    assert sorted(r["k"] for r in got[-1]) == [4, 5] and keys(store) == [3, 5]

    clock.advance(2 * DAY)
    store.collect_garbage("visits")
    with pytest.raises(nova.BlockCollected):
        store.read("visits", at=1)
    clock.advance(DAY)
    assert store.drop_expired("visits") is not None and keys(store) == [5]


def test_a_lagging_consumer_is_given_what_was_dropped_unread(store: Store) -> None:
    store.run("see")
    store.insert("visits", [visit("2023-12-27", 7)])
    assert store.drop("visits", "2023-12-27") is not None
    store.collect_garbage("visits", retain="1s")
    store.insert("visits", [visit("2023-12-27", 8)])
    store.run("see")
    assert sorted(r["k"] for r in got[-1]) == [7, 8] and keys(store) == [2, 3, 8]


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
@pytest.mark.parametrize("first", [[], [("2023-12-31", 3)]], ids=["empty", "one row"])
@pytest.mark.parametrize("then", ["nothing", "more", "base"])
@pytest.mark.parametrize("upkeep", [False, True], ids=["plain", "compacted"])
def test_who_ran_on_an_empty_channel_is_told_of_dropped_rows_too(
    opened: Opener, keyed: bool, first: list[tuple[str, int]], then: str, upkeep: bool
) -> None:
    """Whether there was a row before the first run makes no difference to what is told afterwards."""
    merge = nova.Upsert(key=["dt", "k"]) if keyed else nova.Append()
    source = nova.Channel("v", merge, DDL, nova.daily("dt", start="2023-12-01"), compaction=None)
    read: list[list[Row]] = []

    @nova.task(consumes=nova.new(source), produces=nova.delta(seen))
    def look(v: list[Row]) -> list[Row]:
        read.append(v)
        return [{c: r[c] for c in ("dt", "k")} for r in v if not r.get("_deleted")]

    def keep(store: Store) -> None:
        if upkeep:
            store.compact("v")
            store.collect_garbage("v")
            store.delete_collected()

    project = nova.Project([nova.bind(nova.Workflowette("look", [look]), partitions=[])])
    store = opened(project, schema=DDL)
    store.register(project)
    if first:
        store.insert("v", [visit(*r) for r in first])
    store.run("look")
    assert sorted(r["k"] for r in read[-1]) == [k for _, k in first]
    store.insert("v", [visit("2023-12-27", 1), visit("2023-12-28", 2)])
    keep(store)
    assert store.drop("v", "2023-12-27") is not None
    keep(store)
    if then != "nothing":
        kind = "delta" if then == "more" else "base"
        store.insert("v", [visit("2023-12-27", 9)], kind=kind, partition="2023-12-27")  # type: ignore[arg-type]
        keep(store)
    store.run("look")
    told = {r["k"] for r in read[-1]}
    after = {2} | ({9} if then != "nothing" else set())
    # A base says what a partition of a keyed channel is from then on.
    assert told == after | (set() if keyed and then == "base" else {1})
    store.run("look")
    assert read[-1] == [], "each row once"


def test_who_has_never_run_is_given_the_snapshot_alone(store: Store) -> None:
    store.drop("visits", "2023-12-27")
    store.run("see")
    assert sorted(r["k"] for r in got[-1]) == [2, 3]


@pytest.mark.core
def test_a_base_after_a_drop_is_compared_with_what_was_left(store: Store) -> None:
    """An Append channel can tell of no row that went; what was dropped is none that it has to."""
    store.run("see")
    store.drop("visits", "2023-12-27")
    store.insert("visits", [visit("2023-12-27", 9)], kind="base", partition="2023-12-27")
    store.run("see")
    assert got[-1] == [visit("2023-12-27", 9)]
    with pytest.raises(nova.UnrepresentableChange):
        store.insert("visits", [visit("2023-12-28", 9)], kind="base", partition="2023-12-28")


def test_what_comes_while_it_is_dropped_is_planned_again(store: Store, opened: Opener) -> None:
    other, really = opened(project), store.runtime.channel_writer.commit
    came: list[int] = []

    def meanwhile(*given: Any) -> Any:
        if not came:
            came.append(other.insert("visits", [visit("2023-12-27", 6)]).seq)
        return really(*given)

    store.runtime.channel_writer.commit = meanwhile  # type: ignore[method-assign]
    commit = store.drop("visits", "2023-12-27")
    assert commit is not None and commit.seq == 3 and keys(store) == [2, 3]
    assert store.drop("visits", "2023-12-27") is None and store.drop("visits", "2023-12-26") is None


def test_only_a_partition_can_be_dropped(store: Store) -> None:
    for wrong in ("2023-11-01", "country=DE", ""):
        with pytest.raises(nova.PartitionError):
            store.drop("visits", wrong)
    assert keys(store) == [1, 2, 3]


def test_for_how_long_is_known_without_the_project(store: Store, opened: Opener, clock: TestClock) -> None:
    stranger = opened()
    state = stranger.catalog.definitions.channel("visits")
    assert (state.retain, state.keep_by_column) == ("1d", {"dt": "3d"})
    assert stranger.expired("visits") == ("dt=2023-12-27", "dt=2023-12-28")
    store.insert("visits", [visit("2023-12-31", 4)])
    store.compact("visits")
    stranger.collect_garbage("visits")
    assert keys(stranger, at=1) == [1, 2, 3], "nobody said that old versions may go"

    longer = nova.daily("dt", start="2023-12-01", keep="9d")
    store.register(nova.Channel("visits", schema=DDL, partitions=longer, retain="1d"))  # is no other definition
    state = stranger.catalog.definitions.channel("visits")
    assert (state.retain, state.keep_by_column) == ("1d", {"dt": "9d"})
    with pytest.raises(nova.DefinitionError, match="keep of the partitions of 'dt' is not a period"):
        nova.daily("dt", start="2023-12-01", keep="long")


def test_r15_what_a_reader_has_pinned_stays(opened: Opener, clock: TestClock) -> None:
    prices, stock = (
        nova.Channel(n, merge=nova.Upsert(key="k"), schema="k bigint, v bigint") for n in ("prices", "stock")
    )
    store, other = opened(nova.Project(channels=[prices, stock])), opened()
    for n in range(3):
        store.insert("prices", [{"k": n, "v": n}])
        store.insert("stock", [{"k": n, "v": n}])

    def collect_all() -> None:
        for channel in ("prices", "stock"):
            other.insert(channel, [{"k": 9, "v": 9}])
            other.compact(channel)
            other.collect_garbage(channel)
            clock.advance(2)
            other._retention.deletion_delay = 1
            other.delete_collected()

    with store.pin("prices", "stock") as then:
        assert then.heads == {"prices": 3, "stock": 3}
        assert "reader" in " ".join(h for v in store.held("prices") for h in v.held_by)
        collect_all()
        assert keys_of(then, "prices") == keys_of(then, "stock") == [0, 1, 2]
        assert sorted(r["k"] for r in store.read("prices").to_spark()) == [0, 1, 2, 9]  # type: ignore[union-attr]
    collect_all()
    with pytest.raises(nova.BlockCollected, match="prices") as gone, store.pin("prices", at=3):
        pass
    assert gone.value.oldest == 5

    store.insert("prices", [{"k": 7, "v": 7}])
    with store.pin("prices", since=5) as then:
        collect_all()
        assert [r["v"] for r in then.read("prices", since=5).to_spark()] == [7]  # type: ignore[union-attr]
        clock.advance(1000)  # its process slept, and others did not wait for it
        collect_all()
        with pytest.raises(nova.BlockCollected):
            then.read("prices", since=5)


def keys_of(then: Any, channel: str) -> list[int]:
    return sorted(r["k"] for r in then.read(channel).to_spark())


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda s: s.pin("visits", at=7), nova.VersionNotFound),
        (lambda s: s.pin("visits", since=-1), nova.VersionNotFound),
        (lambda s: s.pin("nothing"), nova.ChannelNotFound),
        (lambda s: s.pin("visits", "seen", at=1), nova.DefinitionError),
        (lambda s: s.pin(at=1), nova.DefinitionError),
    ],
)
def test_a_pin_that_cannot_be(store: Store, wrong: Callable[[Store], Any], error: type[Exception]) -> None:
    with pytest.raises(error), wrong(store):
        pass


def prices_of(opened: Opener, **more: Any) -> Store:
    merge = nova.Upsert(key="k")
    return opened(nova.Project(channels=[nova.Channel("prices", merge=merge, schema="k bigint, v bigint", **more)]))


def compacted_and_collected(store: Store, clock: TestClock, seconds: float = 2) -> None:
    store.compact("prices")
    store._retention.deletion_delay = 1
    store.collect_garbage("prices")
    clock.advance(seconds)
    store.delete_collected()


def test_r15_what_a_reader_has_planned_with_stays_while_it_lives(opened: Opener, clock: TestClock) -> None:
    """Planned before a compaction, opened after its parts were collected, and their grace is over."""
    store = prices_of(opened)
    for n in range(3):
        store.insert("prices", [{"k": n, "v": n}])
    with store.pin("prices") as then:
        planned = then.read("prices")
        compacted_and_collected(opened(store.project), clock)
        assert len(store.catalog.histories.of("prices").blocks) == 1, "they are marked"
        assert [r["k"] for r in planned.to_spark()] == [0, 1, 2]  # type: ignore[union-attr]
    store._retention.deletion_delay = 1
    assert store.delete_collected() == 3


def test_time_travel_that_is_wanted_later_begins_with_what_is_there(opened: Opener, clock: TestClock) -> None:
    store = prices_of(opened)
    for n in range(4):
        store.insert("prices", [{"k": 1, "v": n}])
        clock.advance(10)
    compacted_and_collected(store, clock)
    kept = prices_of(opened, retain="30d")
    kept.register(kept.project)
    for n in range(4, 7):
        kept.insert("prices", [{"k": 1, "v": n}])
    compacted_and_collected(kept, clock)
    assert [kept.read("prices", at=n).to_spark()[0]["v"] for n in (4, 5, 6)] == [3, 4, 5]  # type: ignore[index]
    with pytest.raises(nova.BlockCollected) as gone:
        kept.read("prices", at=3)
    assert gone.value.oldest == 4


def test_r18_a_drop_is_no_base_with_which_a_changed_model_takes_effect(opened: Opener) -> None:
    by = nova.static("p", ["a", "b"])
    store = opened(nova.Project(channels=[nova.Channel("x", schema="p string, k bigint", partitions=by)]))
    store.insert("x", [{"p": p, "k": 1} for p in "ab"])
    keyed = nova.Channel("x", merge=nova.Upsert(key=["p", "k"]), schema="p string, k bigint", partitions=by)
    store.register(keyed, replace=True)
    assert store.drop("x", "a") is not None
    with pytest.raises(nova.ModelChanged):
        store.insert("x", [{"p": "b", "k": 1}])
    assert store.compactable("x") == () and len(store.read("x").to_spark()) == 1  # type: ignore[arg-type]


def test_partitions_that_nobody_says_are_kept_for_so_long_are_kept_for_ever(store: Store, opened: Opener) -> None:
    store.register(nova.Channel("visits", schema=DDL, partitions=nova.daily("dt", start="2023-12-01"), retain="1d"))
    assert opened().expired("visits") == (), "what the project said last"
    assert store.expired("visits"), "of a store with a project, it is the project"


def test_a_readers_pin_is_no_consumer(opened: Opener) -> None:
    store = opened(nova.Project(channels=[nova.Channel("bag", schema="k bigint, v bigint")]))
    store.insert("bag", [{"k": 1, "v": 1}])
    with store.pin("bag", since=1):
        assert store.insert("bag", [{"k": 2, "v": 2}], kind="base").seq == 2


def test_many_partitions_are_dropped_in_one_go(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = nova.hourly("h", start="2023-01-01", keep="1d")
    store = opened(nova.Project(channels=[nova.Channel("x", schema="h string, k bigint", partitions=hours)]))
    begins = datetime(2023, 1, 1)
    store.insert("x", [{"h": f"{begins + timedelta(hours=n):%Y-%m-%dT%H:00}", "k": n} for n in range(2000)])
    looked: list[str] = []

    def state(history: History, track: PartitionHistory, at: int) -> Any:
        looked.append(track.partition)
        return modes.base_and_deltas(history, track, at)

    monkeypatch.setattr("nova_assets.plan.garbage_collection.base_and_deltas", state)
    commit = store.drop_expired("x")
    assert commit is not None and len(commit.blocks) == 2000
    assert len(looked) == 2000, "each partition is looked at once"


@pytest.mark.core
def test_the_definition_that_was_registered_last_holds(opened: Opener) -> None:
    store, stranger = opened(), opened()
    kept, plain = (
        nova.Channel("c", schema="k bigint, v bigint", retain="30d"),
        nova.Channel("c", schema="k bigint, v bigint"),
    )

    def retain() -> tuple[str | None, str | None]:
        state = stranger.channels()[0]
        return state.retain, state.channel.retain

    store.register(kept)
    assert retain() == ("30d", "30d")
    for register in (store.register, lambda c: store.catalog.definitions.check_registration([c])):
        with pytest.raises(
            nova.DefinitionConflict, match="registered with retain='30d', and this definition leaves it out"
        ):
            register(plain)
    assert retain() == ("30d", "30d"), "nobody said that old versions may go"
    store.register(plain, replace=True)
    assert retain() == (None, None)
    store.register(kept)  # more is kept: that is accepted at once
    store.register(nova.Channel("c", schema="k bigint, v bigint", retain="0s"))
    assert retain() == (None, None)
    with pytest.raises(nova.DefinitionError, match="retain is '0'; expected a number and a unit"):
        nova.Channel("c", retain="0")
