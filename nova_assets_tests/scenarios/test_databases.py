"""A table of a database that another system writes: copied when it changes, and only the parts that have changed."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.engine.inputs.input_converter import DRIVER_PACKAGE
from nova_assets.errors import DefinitionError, SchemaMismatch, SettingsError, SourceUnavailable
from nova_assets.store.store import Store
from nova_assets.testing import World
from nova_assets_tests import postgres
from nova_assets_tests.conftest import missing
from nova_assets_tests.ivy import JarsUnavailable, fetch_jars
from nova_assets_tests.source_database import PASSWORD, SourceDatabase, source_server

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, day date NOT NULL, amount numeric(10,2), note text, updated_at timestamptz)
"""
VIEW = """
CREATE EXTERNAL TABLE orders (id INT, day DATE, amount DECIMAL(10,2), note STRING)
USING jdbc OPTIONS (url '{url}', dbtable 'public.orders', passwordEnv 'SHOP_PASSWORD' {more})
PARTITIONED BY (day)
"""
REVENUE = """
INSERT OVERWRITE revenue SELECT day, SUM(amount) AS revenue, COUNT(*) AS n FROM orders GROUP BY day
"""
FIRST, SECOND = "day=2024-01-01", "day=2024-01-02"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceDatabase]:
    organisation, name, version = DRIVER_PACKAGE.split(":")
    try:
        fetch_jars({organisation: {name: version}}, tmp_path_factory.mktemp("driver"))
    except JarsUnavailable as reason:
        missing(f"no JDBC driver for Spark: {reason}", "Ivy must reach Maven Central, once")
    try:
        with source_server() as database:
            yield database
    except postgres.NoPostgres as reason:
        missing(f"no PostgreSQL server: {reason}", "install PostgreSQL")


@pytest.fixture
def database(server: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> SourceDatabase:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    server.execute(
        "DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO reader", ORDERS
    )
    server.execute(
        "INSERT INTO orders SELECT n, '2024-01-01'::date + n % 2, n, 'note ' || n, '2024-01-03' "
        "FROM generate_series(1, 10) n",
    )
    return server


Opened = Callable[..., Store]


@pytest.fixture
def opened(tmp_path: Path, spark: Any) -> Iterator[Opened]:
    """A store over SQL texts, or over channels."""
    worlds: list[World] = []

    def open_store(*definitions: Any) -> Store:
        texts = [d for d in definitions if isinstance(d, str)]
        for n, text in enumerate(texts):
            (tmp_path / "sql").mkdir(exist_ok=True)
            (tmp_path / "sql" / f"{n}.sql").write_text(text)
        project = nova.Project(nova.datasets(tmp_path / "sql")) if texts else nova.Project(channels=definitions)
        worlds.append(World(project, spark))
        store: Store = worlds[-1].__enter__()
        return store

    yield open_store
    for world in worlds:
        world.__exit__(None, None, None)


def ticked(store: Store) -> list[str]:
    """One tick: the datasets that it computes."""
    outcomes = store.tick()
    assert not [o.error for o in outcomes if o.error]
    return [o.dataset for o in outcomes]


def rows(store: Store, channel: str, **options: Any) -> list[dict[str, Any]]:
    found = store.read(channel, **options).to_arrow().to_pylist()
    return sorted(found, key=lambda r: str(r.get("id", r.get("day"))).zfill(12))


def test_a_tick_copies_only_what_changed(database: SourceDatabase, opened: Opened) -> None:
    store = opened(VIEW.format(url=database.url, more=", freshnessColumn 'updated_at'"), REVENUE)
    assert ticked(store) == ["revenue"]
    assert rows(store, "revenue") == [
        {"day": date(2024, 1, 1), "revenue": Decimal("30.00"), "n": 5},
        {"day": date(2024, 1, 2), "revenue": Decimal("25.00"), "n": 5},
    ]
    assert ticked(store) == [], "nothing has changed"
    assert store.refresh("orders").same == 2

    database.execute("UPDATE orders SET amount = 100, updated_at = now() WHERE id = 2")
    # A row of the other day cannot be read now. Its freshness did not change, so it must not be read at all.
    database.execute("UPDATE orders SET amount = 'NaN' WHERE id = 3")
    assert store.preview_refresh("orders").changed == (FIRST,)
    assert store.refresh("orders").changed == (FIRST,)
    assert ticked(store) == ["revenue"]
    assert rows(store, "revenue")[0]["revenue"] == Decimal("128.00")
    assert [r["id"] for r in rows(store, "orders", partition=SECOND)] == [1, 3, 5, 7, 9]

    database.execute("DELETE FROM orders WHERE day = '2024-01-02'")
    result = store.refresh("orders")
    assert (result.gone, result.changed) == ((SECOND,), ())
    assert ticked(store) == ["revenue"] and len(rows(store, "revenue")) == 1


def test_without_a_stated_freshness_a_checksum_finds_every_change(database: SourceDatabase, opened: Opened) -> None:
    store = opened(VIEW.format(url=database.url, more=""))
    assert store.refresh("orders").changed == (FIRST, SECOND)
    assert store.refresh("orders").same == 2
    database.execute("UPDATE orders SET note = 'other' WHERE id = 3")
    assert store.refresh("orders").changed == (SECOND,)
    assert rows(store, "orders", partition=SECOND)[1]["note"] == "other"
    database.execute("UPDATE orders SET updated_at = now()")
    assert store.refresh("orders").changed == (), "no column of the channel has changed"


def test_a_freshness_query_says_which_partitions_there_are(database: SourceDatabase, opened: Opened) -> None:
    database.execute(
        "CREATE TABLE loads (day date, loaded_at timestamptz)", "INSERT INTO loads VALUES ('2024-01-01', now())"
    )
    query = "freshnessQuery 'SELECT day, max(loaded_at) FROM loads GROUP BY day'"
    store = opened(VIEW.format(url=database.url, more=f", {query}"))
    assert store.refresh("orders").changed == (FIRST,), "the second day is not loaded yet"
    database.execute("INSERT INTO orders VALUES (11, '2024-01-01', 1, '', now())")
    assert store.refresh("orders").changed == (), "the query has not changed"
    database.execute("INSERT INTO loads VALUES ('2024-01-01', now()), ('2024-01-02', now()), ('2024-01-03', now())")
    assert store.refresh("orders").changed == (FIRST, SECOND, "day=2024-01-03")
    assert len(rows(store, "orders")) == 11 and rows(store, "orders", partition="day=2024-01-03") == []


@pytest.mark.parametrize(
    "split", ["splitBy 'hash', partitionColumn 'note'", "partitionColumn 'id'", "partitionColumn 'day'"]
)
def test_parts_are_read_in_parallel(database: SourceDatabase, opened: Opened, split: str) -> None:
    database.execute(
        "DELETE FROM orders",
        "INSERT INTO orders SELECT n, '2024-01-01'::date + n % 2, 1, nullif('x' || n, 'x7'), null "
        "FROM generate_series(-500, 500) n",
    )
    store = opened(
        VIEW.format(url=database.url, more=f", numPartitions 4, {split}").replace("PARTITIONED BY (day)", "")
    )
    store.refresh("orders")
    assert [r["id"] for r in store.read("orders").to_arrow().sort_by("id").to_pylist()] == list(range(-500, 501))


def test_every_type_keeps_its_values(database: SourceDatabase, opened: Opened) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('glad')",
        "CREATE TABLE kinds (id int, s smallint, l bigint, r real, d double precision, n numeric(38,10), free numeric, "
        "ok boolean, t text, v varchar(5), b bytea, day date, ts timestamp, tz timestamptz(3), u uuid, j jsonb, "
        "m mood, a int[])",
        "INSERT INTO kinds VALUES (1, -32768, 9223372036854775807, 0.1, 0.1, 1234567890123456789012345678.0123456789, "
        "1e-30, true, E'\\u00e9\\n''', 'abc', '\\x00ff', '1500-02-28', '1582-10-10 01:02:03.123456', "
        "'2024-03-31 02:30:00.123+02', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"b\": 1}', 'glad', '{1,2}')",
        "INSERT INTO kinds (id) VALUES (2)",
    )
    schema = (
        "id int, s smallint, l bigint, r float, d double, n decimal(38,10), free string, ok boolean, t string, "
        "v string, b binary, day date, ts timestamp_ntz, tz timestamp, u string, j string, m string, a string"
    )
    external = nova.external(database.url, table="kinds", password_env="SHOP_PASSWORD")
    store = opened(nova.Channel("kinds", schema=schema, external=external))
    store.refresh("kinds")
    first, second = rows(store, "kinds")
    assert first == {
        "id": 1,
        "s": -32768,
        "l": 2**63 - 1,
        "r": pytest.approx(0.1, rel=1e-7),
        "d": 0.1,
        "n": Decimal("1234567890123456789012345678.0123456789"),
        "free": "0.000000000000000000000000000001",
        "ok": True,
        "t": "é\n'",
        "v": "abc",
        "b": b"\x00\xff",
        "day": date(1500, 2, 28),
        "ts": datetime(1582, 10, 10, 1, 2, 3, 123456),
        "tz": datetime(2024, 3, 31, 0, 30, 0, 123000, UTC),
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "j": '{"b": 1}',
        "m": "glad",
        "a": "{1,2}",
    }
    assert {v for k, v in second.items() if k != "id"} == {None}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("amount", "'NaN'", "NaN"),
        ("amount", "1.005", "too many digits"),
        ("at", "'infinity'", "infinit"),
        ("day", "'infinity'", "infinit"),
    ],
)
def test_a_value_without_a_twin_fails_the_refresh(
    database: SourceDatabase, opened: Opened, column: str, value: str, message: str
) -> None:
    database.execute(
        "CREATE TABLE odd (amount numeric, at timestamp, day date)", f"INSERT INTO odd ({column}) VALUES ({value})"
    )
    external = nova.external(database.url, table="odd", password_env="SHOP_PASSWORD", freshness_query="SELECT 1")
    store = opened(nova.Channel("odd", schema="amount decimal(10,2), at timestamp_ntz, day date", external=external))
    with pytest.raises(SourceUnavailable, match=message):
        store.refresh("odd")
    assert store.channels()[0].head == 0


@pytest.mark.core
def test_nobody_reads_the_password(
    database: SourceDatabase, opened: Opened, caplog: pytest.LogCaptureFixture, tmp_path: Path, spark: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "secret").write_text(f"{PASSWORD}\n")
    external = nova.external(database.url, table="orders", password_file=str(tmp_path / "secret"))
    channel = nova.Channel("orders", schema="id int, amount decimal(10,2)", external=external)
    store = opened(channel)
    store.refresh("orders")
    assert len(rows(store, "orders")) == 10
    (tmp_path / "secret").write_text("another-wrong-pass")
    with pytest.raises(SourceUnavailable) as refused:
        store.refresh("orders")
    told = "".join([str(refused.value), repr(refused.value.__cause__), caplog.text, repr(channel), repr(external)])
    told += repr(store.timeline("orders")) + repr(store.channels()) + str(channel.as_json())
    assert PASSWORD not in told and "another-wrong-pass" not in told
    with pytest.raises(DefinitionError, match="password_env") as refused_url:
        nova.Channel("o", schema="id int", external=nova.external("postgresql://u:very-Secret-9@h/d", table="t"))
    assert "very-Secret-9" not in str(refused_url.value)
    with pytest.raises(SettingsError, match="NOT_THERE"):
        gone = nova.external(database.url, table="orders", password_env="NOT_THERE")
        opened(nova.Channel("orders", schema="id int", external=gone)).refresh("orders")


def test_new_rows_are_changes(database: SourceDatabase, opened: Opened) -> None:
    view = VIEW.format(url=database.url, more=", incremental 'id'")
    store = opened(view, "INSERT INTO seen SELECT id FROM NEW(orders)")
    assert ticked(store) == ["seen"] and len(rows(store, "seen")) == 10
    database.execute("INSERT INTO orders VALUES (11, '2024-01-05', 1, '', now())")
    result = store.refresh("orders")
    assert (result.changed, result.seq) == (("day=2024-01-05",), 2)
    assert [r["id"] for r in rows(store, "orders", since=1)] == [11]
    assert store.refresh("orders").same == 1
    database.execute("DELETE FROM orders WHERE id = 1", "UPDATE orders SET amount = 0 WHERE id = 2")
    assert store.refresh("orders").same == 1, "changes below the mark are not seen, as documented"
    assert ticked(store) == ["seen"] and [r["id"] for r in rows(store, "seen")] == list(range(1, 12))


@pytest.mark.core
def test_a_running_transaction_loses_no_row(
    database: SourceDatabase, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nova_assets.sources.postgres.marks.SETTLE_WAIT_SECONDS", 0.3)
    store = opened(VIEW.format(url=database.url, more=", incremental 'id'"))
    store.refresh("orders")
    with database.connect() as slow:
        slow.execute("INSERT INTO orders VALUES (11, '2024-01-01', 1, 'slow', now())")
        database.execute("INSERT INTO orders VALUES (12, '2024-01-01', 1, 'quick', now())")
        assert store.refresh("orders").unfinished == ("",), "row 11 may still come"
        slow.commit()
    store.refresh("orders")
    assert [r["id"] for r in rows(store, "orders")] == list(range(1, 13))


@pytest.mark.core
@pytest.mark.parametrize(
    ("column", "more", "message"),
    [
        ("n int", "", "may be null"),
        ("n text NOT NULL", "", "without an order"),
        ("n numeric NOT NULL UNIQUE", "", "without an order"),
        ("n int NOT NULL", "", "not unique"),
        ("n timestamptz NOT NULL", "", "settle"),
        ("n int NOT NULL UNIQUE", "settle", "no effect"),
    ],
)
def test_a_column_that_cannot_tell_new_rows_is_refused(
    database: SourceDatabase, opened: Opened, column: str, more: str, message: str
) -> None:
    database.execute(f"CREATE TABLE log (id int, {column})")
    options = {"settle": "1m"} if more else {}
    external = nova.external(database.url, table="log", password_env="SHOP_PASSWORD", incremental="n", **options)
    with pytest.raises(DefinitionError, match=message):
        opened(nova.Channel("log", schema="id int", external=external))


@pytest.mark.core
def test_a_source_with_other_columns_is_refused(database: SourceDatabase, opened: Opened) -> None:
    store = opened(VIEW.format(url=database.url, more=""))
    database.execute("ALTER TABLE orders DROP COLUMN note", "ALTER TABLE orders ALTER amount TYPE text")
    with pytest.raises(SchemaMismatch, match="note is missing") as refused:
        store.refresh("orders")
    assert "amount is text" in str(refused.value) and "nova external check orders" in str(refused.value)


def test_a_refresh_shows_one_moment(database: SourceDatabase, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that move between partitions while Spark reads are neither lost nor doubled."""
    store = opened(VIEW.format(url=database.url, more=", freshnessColumn 'updated_at'"))
    read = store.engine.inputs.read_database

    def move_rows_first(request: Any) -> Any:
        database.execute(
            "UPDATE orders SET day = date '2024-01-03' - (day - date '2024-01-01') - 1, updated_at = now()"
        )
        return read(request)

    monkeypatch.setattr(store.engine.inputs, "read_database", move_rows_first)
    store.refresh("orders")
    assert [r["id"] for r in rows(store, "orders")] == list(range(1, 11))
    assert [r["id"] for r in rows(store, "orders", partition=FIRST)] == [2, 4, 6, 8, 10]


def test_a_changed_definition_copies_again_or_is_refused(database: SourceDatabase, tmp_path: Path, spark: Any) -> None:
    def refreshed(schema: str, **options: Any) -> list[dict[str, Any]]:
        external = nova.external(database.url, table="orders", password_env="SHOP_PASSWORD", **options)
        project = nova.Project(channels=[nova.Channel("orders", schema=schema, external=external)])
        places = {"catalog": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path / "warehouse"}
        with nova.open(project=project, spark=spark, **places) as store:
            store.register(project, replace=True)
            store.refresh("orders")
            return rows(store, "orders")

    assert set(refreshed("id int")[0]) == {"id"}
    database.execute("ALTER TABLE orders ADD shop text DEFAULT 'Paris'")
    assert [r["shop"] for r in refreshed("id int, shop string")] == ["Paris"] * 10
    with pytest.raises(nova.NovaError, match="did not copy"):
        refreshed("id int, shop string", incremental="id")
    content = "\n".join(sqlite3.connect(tmp_path / "catalog.db").iterdump())
    assert "reader@" in content and PASSWORD not in content
