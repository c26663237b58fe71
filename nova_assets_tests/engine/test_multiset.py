"""``Multiset`` channels: rows without a key that can be removed. Python's own counting decides what is right."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.engine.read.arrow_multiset import compose_row_changes, merge_row_changes, to_delta_rows
from nova_assets.errors import DefinitionError
from nova_assets.testing import check_laws
from nova_assets_tests.effort import examples

DDL = "a int, b string, w decimal(10,2), tags array<string>"
Row = dict[str, Any]


@pytest.fixture
def store(spark: Any, tmp_path: Path) -> Iterator[Any]:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as opened:
        opened.register(nova.Channel("bag", merge=nova.Multiset(), schema=DDL))
        yield opened


def row(a: int | None, b: str | None = None, *, deleted: bool | None = None) -> Row:
    mark = {} if deleted is None else {"_deleted": deleted}
    return {"a": a, "b": b, "w": None, "tags": None, **mark}


def rows_of(table: Any) -> Counter[str]:
    return Counter(str(sorted(r.items())) for r in table.to_pylist())


def after(state: Counter[str], change: list[Row]) -> Counter[str]:
    """The rows after a delta: deletions first, as far as there are rows."""
    texts = [(str(sorted((k, v) for k, v in r.items() if k != "_deleted")), bool(r.get("_deleted"))) for r in change]
    for text, deleted in texts:
        if deleted and state[text] > 0:
            state[text] -= 1
    state.update(text for text, deleted in texts if not deleted)
    return +state


@pytest.mark.spark
def test_equal_rows_stay_as_often_as_they_were_added(store: Any) -> None:
    store.insert("bag", [row(1, "x"), row(1, "x"), row(None), row(None), row(2)])
    store.insert("bag", [row(1, "x", deleted=True), row(None, deleted=True), row(7, deleted=True), row(2)])
    assert rows_of(store.read("bag").to_arrow()) == Counter(
        str(sorted(r.items())) for r in [row(1, "x"), row(None), row(2), row(2)]
    )


@pytest.mark.spark
def test_the_changes_of_a_base_are_the_rows_that_differ(store: Any) -> None:
    store.insert("bag", [row(1), row(1), row(2)])
    store.insert("bag", [row(1), row(3), row(3)], kind="base")
    changes = store.read("bag", since=1).to_arrow().to_pylist()
    assert sorted((r["a"], r["_deleted"]) for r in changes) == [(1, True), (2, True), (3, False), (3, False)]


@pytest.mark.spark
def test_some_columns_of_rows_that_differ_elsewhere(store: Any) -> None:
    """Rows are equal in all columns, also if only some of them are read."""
    store.insert("bag", [row(1, "x"), row(1, "y")])
    store.insert("bag", [row(1, "x", deleted=True), row(1, "not there", deleted=True)])
    assert store.read("bag", columns=["a"]).to_arrow().to_pylist() == [{"a": 1}]
    assert store.read("bag", columns=["b"]).to_arrow().to_pylist() == [{"b": "y"}]
    assert store.read("bag", columns=["b"]).to_batches().read_all().to_pylist() == [{"b": "y"}]
    assert store.read("bag", columns=["a"]).to_batches().read_all().to_pylist() == [{"a": 1}]


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(examples(1, 3)))
def test_random_deltas_compacted_or_not(store: Any, seed: int) -> None:
    """Deltas remove rows that are there, that are not, and more of them than there are."""
    rng = random.Random(seed)
    states: list[Counter[str]] = [Counter()]
    for _ in range(7):
        change = [
            {
                "a": rng.choice([None, 1, 2]),
                "b": rng.choice([None, "é"]),
                "w": None,
                "tags": rng.choice([None, ["x", None]]),
                "_deleted": rng.random() < 0.45,
            }
            for _ in range(rng.randint(1, 8))
        ]
        store.insert("bag", change)
        states.append(after(states[-1].copy(), change))

    def check() -> None:
        for number, state in enumerate(states[1:], start=1):
            assert rows_of(store.read("bag", at=number).to_arrow()) == state
        for since in (1, 3, 6):
            change = store.read("bag", since=since).to_arrow().to_pylist()
            assert after(states[since].copy(), change) == states[-1]

    check()
    store.compact("bag", chained=True)
    check()
    store.compact("bag")
    check()


@pytest.mark.core
@pytest.mark.spark
def test_the_laws_of_merging(spark: Any) -> None:
    frames = [
        [{"a": 1}, {"a": 1}, {"a": None}],
        [{"a": 1, "_deleted": True}, {"a": 2, "_deleted": True}, {"a": 2, "_deleted": False}],
        [{"a": 2, "_deleted": True}, {"a": 2, "_deleted": True}, {"a": None, "_deleted": False}],
        [{"a": 1, "_deleted": True}, {"a": 1, "_deleted": True}, {"a": 1, "_deleted": False}],
    ]
    check_laws(nova.Multiset(), frames, "a int", spark)


@pytest.mark.spark
def test_a_task_gets_the_changed_rows_as_they_were_and_as_they_are(spark: Any, tmp_path: Path) -> None:
    bag = nova.Channel("bag", merge=nova.Multiset(), schema="a int, b string")
    sizes = nova.Channel("sizes", merge=nova.Append(), schema="was string, now string")

    @nova.task(consumes=nova.changes(bag), produces=nova.delta(sizes))
    def compare(bag: nova.View, ctx: nova.Context) -> Any:
        was, now = (sorted(f"{r['a']}{r['b']}" for r in f.collect()) for f in (bag.before, bag.after))
        return ctx.frame([{"was": ",".join(was), "now": ",".join(now)}], sizes.schema)

    project = nova.Project([nova.bind(nova.Workflowette("compare", [compare]))])
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.register(project)
        store.insert("bag", [{"a": 1, "b": None}, {"a": 1, "b": None}, {"a": 2, "b": "x"}])
        store.run("compare")
        store.insert("bag", [{"a": 1, "b": None, "_deleted": True}, {"a": 5, "b": "y", "_deleted": True}])
        store.run("compare")
        assert store.read("sizes").to_arrow().to_pylist()[-1] == {"was": "1None,1None", "now": "1None"}


@pytest.mark.core
@pytest.mark.spark
def test_partitions_are_merged_apart(spark: Any, tmp_path: Path) -> None:
    days = nova.Channel(
        "days", merge=nova.Multiset(), schema="day date, n int", partitions=[nova.daily("day", start="2024-01-01")]
    )
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(days)
        store.insert("days", [{"day": f"2024-01-0{d}", "n": n} for d in (1, 2) for n in (1, 1, 2)], kind="base")
        store.insert("days", [{"day": "2024-01-02", "n": 1, "_deleted": True}])
        rows = Counter((str(r["day"]), r["n"]) for r in store.read("days").to_arrow().to_pylist())
    assert rows == {("2024-01-01", 1): 2, ("2024-01-01", 2): 1, ("2024-01-02", 1): 1, ("2024-01-02", 2): 1}


@pytest.mark.core
@pytest.mark.spark
def test_columns_take_part_in_merging_so_none_is_dropped(store: Any) -> None:
    store.insert("bag", [row(1, "x")])
    fewer = nova.Channel("bag", merge=nova.Multiset(), schema="a int, b string, w decimal(10,2)")
    with pytest.raises(DefinitionError, match="column tags takes part in the merge model"):
        store.register(fewer, replace=True)


def test_a_source_needs_another_model() -> None:
    with pytest.raises(DefinitionError, match="Multiset"):
        nova.Channel("bag", merge=nova.Multiset(), schema="a int", source=nova.files("in", format="csv"))


def test_cluster_by_needs_a_key() -> None:
    with pytest.raises(DefinitionError, match="no column of the key"):
        nova.Channel("bag", merge=nova.Multiset(), schema="a int", cluster_by="a")


# multiset deltas that are composed and merged in this process give what a naive model gives. No Spark

SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.string()), ("d", pa.date32()), ("n", pa.decimal128(38, 2)), ("f", pa.float64())]
)
_OTHER_NAN: float = struct.unpack("d", struct.pack("Q", 0xFFF8000000000123))[0]
rows = st.tuples(
    st.none() | st.integers(0, 1),
    st.none() | st.sampled_from(["", "x"]),
    st.none() | st.just(dt.date(2024, 1, 1)),
    st.none() | st.sampled_from([Decimal("1.00"), Decimal("9" * 36 + ".99")]),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, _OTHER_NAN, math.inf]),
)
bases = st.lists(rows, max_size=6)
deltas = st.lists(st.lists(st.tuples(rows, st.booleans()), max_size=6), min_size=1, max_size=4)


def table(some: list[Any]) -> pa.Table:
    columns = [pa.array([r[n] for r in some], f.type) for n, f in enumerate(SCHEMA)]
    return pa.table(columns, schema=SCHEMA)


def delta_table(delta: list[tuple[Any, bool]]) -> pa.Table:
    deleted = pa.array([d for _, d in delta], pa.bool_())
    return table([r for r, _ in delta]).append_column("_deleted", deleted)


def counted(some: pa.Table) -> Counter[Any]:
    return Counter(comparable(r.values()) for r in some.to_pylist())


def comparable(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values of which equal ones are the same: NaN equals NaN, and -0.0 equals 0.0."""
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)


def naive(base: Counter[Any], delta: Counter[Any]) -> Counter[Any]:
    """Removals first, as far as the rows are there, then additions."""
    removed, added = ({r[:-1]: n for r, n in delta.items() if r[-1] is flag} for flag in (True, False))
    return +Counter({r: max(base[r] - removed.get(r, 0), 0) + added.get(r, 0) for r in {*base, *removed, *added}})


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(bases, deltas)
def test_merge_and_chain_are_those_of_a_naive_model(base: list[Any], changes: list[Any]) -> None:
    tables = [delta_table(d) for d in changes]
    expected = counted(table(base))
    for delta in tables:
        expected = naive(expected, counted(delta))
    composed = compose_row_changes(tables)
    assert counted(merge_row_changes(table(base), composed)) == expected
    chained = to_delta_rows(composed)
    assert chained.schema.names == [*SCHEMA.names, "_deleted"]
    assert naive(counted(table(base)), counted(chained)) == expected, "the chain is one delta with the same effect"


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(deltas, deltas)
def test_composition_does_not_depend_on_where_it_is_cut(first: list[Any], second: list[Any]) -> None:
    def chain(*some: pa.Table) -> pa.Table:
        return to_delta_rows(compose_row_changes(some))

    left, right = ([delta_table(d) for d in some] for some in (first, second))
    assert counted(chain(*left, *right)) == counted(chain(chain(*left), chain(*right)))
