"""What a scheduler remembers of earlier looks changes nothing: it finds what one finds that has never looked."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.plan.tick import Policy, Tick
from nova_assets.store.store import Store
from nova_assets.store.tick import DatasetScheduler
from nova_assets_tests.effort import examples
from nova_assets_tests.scenarios.tick_worker import open_store

pytestmark = pytest.mark.slow

STORES = ("Oslo", "Paris")
DAYS = [f"2022-03-{n}" for n in range(27, 32)] + [f"2022-04-0{n}" for n in range(1, 4)]
TICKETS = nova.Channel(
    "tickets",
    schema="price bigint, day string, store string",
    partitions=[nova.daily("day", start=DAYS[0]), nova.static("store", STORES)],
)
RATES = nova.Channel("rates", schema="price bigint, region string", partitions=nova.dynamic("region"))
_DAY = "LET d = DATE_FORMAT(t, 'yyyy-MM-dd')"
DATASETS = {
    "sales": f"FOR t IN TIMESERIES(last => 3), store IN ('Oslo', 'Paris') {_DAY} "
    "INSERT OVERWRITE sales PARTITION (day = d, store) "
    "SELECT SUM(price) AS revenue FROM tickets WHERE tickets.day = :d AND tickets.store = :store",
    "two_days": f"FOR t IN TIMESERIES(last => 2) {_DAY}, e = DATE_FORMAT(DATE_SUB(t, 1), 'yyyy-MM-dd') "
    "INSERT OVERWRITE two_days PARTITION (day = d) SELECT SUM(revenue) AS revenue FROM sales s WHERE s.day IN (:d, :e)",
    "since": f"FOR t IN TIMESERIES(last => 3) {_DAY} INSERT OVERWRITE since PARTITION (day = d) "
    "SELECT SUM(revenue) AS revenue FROM sales s WHERE s.day >= :d",
    "joined": f"FOR t IN TIMESERIES(last => 3) {_DAY} INSERT OVERWRITE joined PARTITION (day = d) "
    "SELECT SUM(s.revenue) AS revenue FROM sales s JOIN since o ON o.day = s.day WHERE o.day = :d",
    "rated": "SELECT SUM(price) AS revenue FROM rates WHERE rates.region <> 'none'",
    "total": "SELECT SUM(revenue) AS revenue FROM two_days",
}

OPS = st.lists(
    st.one_of(
        st.tuples(st.just("sell"), st.integers(0, len(DAYS) - 1), st.sampled_from(STORES)),
        st.tuples(st.just("rate"), st.sampled_from(["north", "south", "none"])),
        st.tuples(st.just("tick"), st.integers(1, 9)),
        st.tuples(st.just("tick"), st.integers(5, 20)),
        st.tuples(st.just("drop"), st.sampled_from(["sales", "since", "tickets"]), st.integers(0, len(DAYS) - 1)),
        st.tuples(st.just("backfill"), st.sampled_from(["all", "none"])),
        st.tuples(st.just("later"), st.sampled_from([1, 13, 24])),
    ),
    max_size=14,
)


class Shop:
    """A store on a clock of its own, looked at by a scheduler that remembers."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime(2022, 3, 30, 10, tzinfo=UTC)
        (folder / "sql").mkdir()
        given = (f"sqlite:///{folder}/c.db", str(folder / "wh"), str(folder / "sql"))
        self.store: Store = open_store(*given, DATASETS, [TICKETS, RATES], lambda: self.now)
        self.remembers = DatasetScheduler(self.store.runtime, self.store._external, self.store._retention)

    def do(self, what: str, *how: Any) -> None:
        if what == "sell":
            self.store.insert("tickets", [{"price": 2, "day": DAYS[how[0]], "store": how[1]}])
        elif what == "rate":
            self.store.insert("rates", [{"price": 3, "region": how[0]}])
        elif what == "tick":
            self.remembers.tick(self.remembers.next_tick(Policy(at_once=how[0], few=2)))
        elif what == "drop":
            self.store.drop(how[0], {"day": DAYS[how[1]]})
        elif what == "backfill":
            self.store.backfill("sales", "store=Paris", downstream=how[0])
        self.now += timedelta(hours=how[0]) if what == "later" else timedelta(seconds=1)

    def look(self) -> tuple[Tick, Tick, Any, Any]:
        """What the one that remembers, and one that does not, decide, and find amiss."""
        fresh = DatasetScheduler(self.store.runtime, self.store._external, self.store._retention)
        policy = Policy(few=2)
        one, other = self.remembers.next_tick(policy), fresh.next_tick(policy)
        return one, other, self._found(self.remembers), self._found(fresh)

    def _found(self, scheduling: DatasetScheduler) -> Any:
        known = scheduling.staleness_tracker._cached_staleness
        return {n: (dict(k.staleness.stale), frozenset(k.staleness.orphaned)) for n, k in known.items()}


@given(OPS)
@settings(deadline=None, max_examples=examples(15, 40))
def test_it_finds_what_one_finds_that_looks_for_the_first_time(ops: Sequence[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder))
        shop.do("sell", 3, "Oslo")
        shop.do("rate", "north")
        try:
            for op in ops:
                shop.do(*op)
                one, other, found, fresh = shop.look()
                assert found == fresh, op
                assert (one.run, one.waits, one.held) == (other.run, other.waits, other.held)
                assert {d: set(p) for d, p in one.drop.items()} == {d: set(p) for d, p in other.drop.items()}
        finally:
            shop.store.close()


def test_it_judges_only_what_changes_concern(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for n in range(2, 5):
        for store in STORES:
            shop.do("sell", n, store)
    shop.do("rate", "north")
    shop.now += timedelta(days=1)
    for _ in range(6):
        shop.do("tick", 20)
    assert not shop.look()[0].run
    watch = shop.remembers.staleness_tracker
    before = watch.checked_task_count
    assert not shop.remembers.next_tick().run and watch.checked_task_count == before, "nothing has changed"
    shop.do("sell", 3, "Paris")
    [batch] = shop.remembers.next_tick().run
    assert (batch.dataset, batch.partitions) == ("sales", ("day=2022-03-30/store=Paris",))
    assert watch.checked_task_count == before + 1
    shop.store.close()
