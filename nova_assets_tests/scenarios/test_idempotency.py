"""An idempotency key stands for its rows: the same again change nothing, whatever they come as; others are refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

import nova_assets as nova
from nova_assets.engine.write.row_digest import Digest, digest_of, digest_of_frame
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.schema import parse_ddl

DDL = "id bigint, name string, price decimal(10,2), at timestamp, x double"
ROWS = [
    {
        "id": n,
        "name": None if n == 3 else f"n{n}",
        "price": Decimal(n) / 4,
        "at": datetime(2024, 1, n, tzinfo=UTC),
        "x": n,
    }
    for n in range(1, 7)
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nova.Store]:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as opened:
        opened.register(nova.Channel("c", schema=DDL))
        opened.register(nova.Channel("keyed", merge=nova.Upsert(key="id", order_by="at"), schema=DDL))
        yield opened


def table(rows: list[dict[str, Any]] = ROWS) -> pa.Table:
    return pa.Table.from_pylist(rows, to_arrow_schema(parse_ddl(DDL)))


def shuffled() -> list[dict[str, Any]]:
    return random.Random(1).sample(ROWS, len(ROWS))


def two_files(folder: Path) -> list[Path]:
    paths = [folder / "a.parquet", folder / "b.parquet"]
    for path, rows in zip(paths, (shuffled()[:2], shuffled()[2:]), strict=True):
        pq.write_table(table(rows), path)
    return paths


def csv(folder: Path) -> Path:
    lines = [f"{r['price']},{r['name'] or ''},{r['at'].isoformat()},{r['id']},{r['x']}" for r in shuffled()]
    (folder / "c.csv").write_text("price,name,at,id,x\n" + "\n".join(lines) + "\n")
    return folder / "c.csv"


AGAIN: Mapping[str, Callable[[Path], Any]] = {
    "dicts": lambda _: shuffled(),
    "Arrow": lambda _: table(shuffled()),
    "narrower types": lambda _: table().set_column(0, "id", table()["id"].cast(pa.int8())),
    "pandas": lambda _: table(shuffled()).to_pandas(),
    "polars": lambda _: pl.from_arrow(table(shuffled())),
    "two Parquet files": two_files,
    "CSV": csv,
}


@pytest.mark.parametrize("channel", ["c", "keyed"])
def test_the_same_rows_are_one_insert_whatever_they_come_as(store: nova.Store, channel: str, tmp_path: Path) -> None:
    first = store.insert(channel, ROWS, idempotency_key="k")
    for kind, make in AGAIN.items():
        again = store.insert(channel, make(tmp_path), idempotency_key="k")
        assert again.repeated and again.id == first.id, kind
    assert store.read(channel).to_arrow().num_rows == len(ROWS) and len(store.timeline(channel)) == 1


OTHER: Mapping[str, tuple[Any, str]] = {
    "another value": ([*ROWS[:5], {**ROWS[5], "x": 6.5}], "delta"),
    "another null": ([*ROWS[:5], {**ROWS[5], "name": None}], "delta"),
    "a row less": (ROWS[:5], "delta"),
    "a row twice": ([*ROWS, ROWS[0]], "delta"),
    "values that change places": ([{**ROWS[0], "x": 2}, {**ROWS[1], "x": 1}, *ROWS[2:]], "delta"),
    "a base": (ROWS, "base"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHER)
def test_other_rows_are_refused_with_both_sides(store: nova.Store, case: str) -> None:
    first = store.insert("c", ROWS, idempotency_key="k")
    rows, kind = OTHER[case]
    with pytest.raises(nova.IdempotencyConflict) as refused:
        store.insert("c", rows, kind=kind, idempotency_key="k")
    error = refused.value
    assert error.code == "NOVA-IDEMPOTENCY-CONFLICT" and (error.commit_id, error.seq) == (first.id, 1)
    assert f"a {kind} of {len(rows)} rows" in str(error.found) and "a delta of 6 rows" in str(error.expected)
    assert store.read("c").to_arrow().num_rows == len(ROWS) and len(store.timeline("c")) == 1
    assert store.insert("c", rows, kind=kind, idempotency_key="other").seq == 2


def test_a_key_of_an_older_catalog_gives_its_commit_back_unchecked(store: nova.Store, tmp_path: Path) -> None:
    first = store.insert("c", ROWS, idempotency_key="k")
    with create_engine(f"sqlite:///{tmp_path}/c.db").begin() as connection:
        connection.execute(text("UPDATE nova_keys SET digest = NULL"))
    assert store.insert("c", ROWS[:1], idempotency_key="k").id == first.id


def test_a_partition_that_is_named_and_one_that_is_in_the_data_are_alike(store: nova.Store) -> None:
    store.register(nova.Channel("p", schema="v int, day date", partitions=nova.daily("day", "2024-01-01")))
    first = store.insert("p", [{"v": 1}], partition="day=2024-01-02", idempotency_key="k")
    assert store.insert("p", [{"v": 1, "day": "2024-01-02"}], idempotency_key="k").id == first.id
    with pytest.raises(nova.IdempotencyConflict):
        store.insert("p", [{"v": 1}], partition="day=2024-01-03", idempotency_key="k")


def test_a_column_that_came_later_changes_no_digest(store: nova.Store) -> None:
    first = store.insert("c", ROWS, idempotency_key="k")
    store.register(nova.Channel("c", schema=f"{DDL}, more string", on_schema_change="evolve"), replace=True)
    assert store.insert("c", ROWS, idempotency_key="k").id == first.id


NESTED = """i int, s string, b binary, f float, d decimal(38,10), t timestamp_ntz,
    l array<struct<a:int,b:string>>, m map<string,int>"""
SCHEMA = to_arrow_schema(parse_ddl(NESTED))
values = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3),
        "s": st.none() | st.text(max_size=3),
        "b": st.none() | st.binary(max_size=3),
        "f": st.none() | st.floats(width=32),
        "d": st.none() | st.decimals(-1, 1, places=10),
        "t": st.none() | st.datetimes().map(lambda t: t.replace(fold=0)),
        "l": st.none()
        | st.lists(st.none() | st.fixed_dictionaries({"a": st.none() | st.just(1), "b": st.none()}), max_size=3),
        "m": st.none()
        | st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 1)).map(lambda d: list(d.items())),
    }
)


def canonical(row: Mapping[str, Any]) -> str:
    """A naive model of when two rows are equal."""
    entries = {**row, "m": None if row["m"] is None else sorted(map(repr, row["m"]))}
    numbers = {k: v + 0 for k, v in entries.items() if isinstance(v, float | Decimal)}  # without the sign of zero
    return repr(sorted({**entries, **numbers}.items()))


@pytest.mark.core
@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(values, max_size=6), st.lists(values, max_size=6), st.randoms(use_true_random=False))
def test_digests_are_equal_where_the_bags_of_rows_are(
    rows: list[dict[str, Any]], others: list[dict[str, Any]], order: random.Random
) -> None:
    whole = digest_of(pa.Table.from_pylist(rows, SCHEMA), None)
    mixed = pa.Table.from_pylist(order.sample(rows, len(rows)), SCHEMA)
    cut = order.randint(0, len(rows))
    assert digest_of(mixed.slice(0, cut), None) + digest_of(mixed.slice(cut), None) == whole
    assert Digest.parse(str(whole)) == whole
    same = sorted(map(canonical, rows)) == sorted(map(canonical, others))
    assert (digest_of(pa.Table.from_pylist(others, SCHEMA), None) == whole) == same


@pytest.mark.core
@pytest.mark.spark
def test_frames_of_spark_have_the_digest_of_their_rows(tmp_path: Path, spark: Any) -> None:
    """Of a first insert by the files that were written, of a second by the frame; and as the same rows have it here."""
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("c", schema=DDL))
        store.register(nova.Channel("keyed", merge=nova.Upsert(key="id", order_by="at"), schema=DDL))
        twice = [*ROWS, {**ROWS[0], "at": datetime(2023, 1, 1, tzinfo=UTC)}]
        for channel, rows in (("c", ROWS), ("keyed", twice)):
            frame = spark.createDataFrame(table(rows)).repartition(3)
            first = store.insert(channel, frame, idempotency_key="k")
            assert store.insert(channel, rows, idempotency_key="k").id == first.id
            assert store.insert(channel, frame.orderBy("x"), idempotency_key="k").id == first.id
            with pytest.raises(nova.IdempotencyConflict):
                store.insert(channel, frame.limit(5), idempotency_key="k")
            with pytest.raises(nova.IdempotencyConflict):
                store.insert(channel, rows[:5], idempotency_key="k")
        session = store.engine._session  # type: ignore[attr-defined]
        nested = pa.Table.from_pylist(
            [{"i": 1, "l": [{"a": 1}, None], "m": [("b", 1), ("a", None)], "t": datetime(1500, 1, 1)}, {"f": -0.0}],
            SCHEMA,
        )
        pq.write_table(nested, tmp_path / "n.parquet")
        assert digest_of_frame(session, spark.read.parquet(str(tmp_path / "n.parquet")), None) == digest_of(
            nested, None
        )
