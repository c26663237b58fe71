"""Datasets computed by functions of users: values, tables, and databases read by ADBC and JDBC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.functions import arrow_udf
from pyspark.sql.types import LongType

import nova_assets as nova
from nova_assets.errors import SchemaMismatch, TaskFailed
from nova_assets.testing import World
from nova_assets_tests import postgres

pytestmark = pytest.mark.spark

SOLD = [("Pen", "2022-03-30"), ("Ink", "2022-03-31")]
TICKETS = nova.Channel(
    "tickets", schema="product string, price int, day string", partitions=nova.daily("day", start="2022-03-30")
)
HEAD = "FOR t IN TIMESERIES('2022-03-30', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')\n"
HEAD += "INSERT OVERWRITE made PARTITION (day = d)\n"


@pytest.fixture
def run(tmp_path: Path, spark: Any) -> Iterator[Any]:
    """Make one day's partition by a query; gives its rows."""
    with ExitStack() as open_ones:

        def go(sql: str, *functions: Any) -> list[dict[str, Any]]:
            (tmp_path / "made.sql").write_text(HEAD + sql)
            made = nova.datasets(tmp_path, channels=[TICKETS], functions=functions)
            project = nova.Project(bindings=made, channels=[TICKETS])
            store = open_ones.enter_context(World(project, spark))
            store.insert("tickets", [{"product": p, "price": 2, "day": d} for p, d in SOLD])
            store.run("made", "day=2022-03-31")
            found: list[dict[str, Any]] = store.read("made").to_arrow().to_pylist()
            return found

        yield go


@nova.sql_function(returns="string")
def shouted(text: str) -> str:
    return f"{text.upper()}!"


def test_a_function_of_values(run: Any) -> None:
    found = run("SELECT shouted(product) AS product FROM tickets WHERE tickets.day = :d", shouted)
    assert found == [{"product": "INK!", "day": "2022-03-31"}]


@pytest.mark.parametrize("kind", ["rows", "arrow", "pandas", "spark", "nothing"])
def test_a_function_that_gives_a_table_is_called_with_values_and_with_rows(run: Any, kind: str) -> None:
    given: list[Any] = []

    @nova.sql_function(returns="table(product string, price decimal(10,2))")
    def priced(ctx: nova.Context, day: str, sold: Any, *, rate: int) -> Any:
        given.extend([day, rate, ctx.partition, sold.count()])
        rows = [{"product": r.product, "price": Decimal(r.price * rate)} for r in sold.collect()]
        if kind == "spark":
            return sold.selectExpr(f"price * {rate} AS price", "product")
        if kind in ("rows", "nothing"):
            return rows if kind == "rows" else []
        table = pa.Table.from_pylist(
            rows, schema=pa.schema([("product", pa.string()), ("price", pa.decimal128(10, 2))])
        )
        return table if kind == "arrow" else table.to_pandas()

    found = run("SELECT p.* FROM priced(:d, (SELECT * FROM tickets WHERE tickets.day = :d), rate => 1 + 2) p", priced)
    assert given == ["2022-03-31", 3, "day=2022-03-31", 1]
    expected = [{"product": "Ink", "price": Decimal("6.00"), "day": "2022-03-31"}]
    assert found == ([] if kind == "nothing" else expected)


@nova.sql_function(returns="double")
def middle(values: list[int | None]) -> float | None:
    known = sorted(v for v in values if v is not None)
    return float(known[len(known) // 2]) if known else None


@nova.sql_function(returns="bigint")
@arrow_udf(LongType())
def spread(values: pa.Array) -> int:
    bounds = pc.min_max(values).as_py()
    return int(bounds["max"] - bounds["min"])


def test_a_function_that_aggregates_an_array(run: Any) -> None:
    """Beside aggregates of Spark, with FILTER, and in HAVING."""
    sql = (
        "SELECT t.product, COUNT(*) AS n, middle(COLLECT_LIST(s.price)) AS m, "
        "middle(COLLECT_LIST(s.price) FILTER (WHERE s.price > 5)) AS none FROM tickets t "
        "CROSS JOIN (SELECT price + k AS price FROM tickets LATERAL VIEW EXPLODE(ARRAY(1, 2, 3)) e AS k "
        "WHERE tickets.day = :d) s WHERE t.day = :d GROUP BY t.product HAVING middle(COLLECT_LIST(s.price)) > 1"
    )
    assert run(sql, middle) == [{"product": "Ink", "n": 3, "m": 4.0, "none": None, "day": "2022-03-31"}]


def test_an_aggregate_function_of_sparks_kind(run: Any) -> None:
    sql = (
        "SELECT product, spread(price * k) AS s FROM tickets LATERAL VIEW EXPLODE(ARRAY(1, 2, 3)) e AS k "
        "WHERE tickets.day = :d GROUP BY product"
    )
    assert run(sql, spread) == [{"product": "Ink", "s": 4, "day": "2022-03-31"}]


def test_an_aggregate_of_the_user_follows_changes(tmp_path: Path, spark: Any) -> None:
    """A dataset without partitions is computed in full, since nobody says that the function is deterministic."""
    (tmp_path / "spreads.sql").write_text("SELECT product, spread(price) AS s FROM sold GROUP BY product")
    sold = nova.Channel("sold", schema="id int, product string, price bigint", merge=nova.Upsert(key="id"))
    project = nova.Project(bindings=nova.datasets(tmp_path, channels=[sold], functions=[spread]), channels=[sold])
    with World(project, spark) as store:
        store.insert("sold", [{"id": n, "product": "pen", "price": n} for n in range(5)])
        store.run("spreads")
        store.insert("sold", [{"id": 9, "product": "pen", "price": 100}, {"id": 10, "product": "ink", "price": 1}])
        store.run("spreads")
        found = {r["product"]: r["s"] for r in store.read("spreads").to_arrow().to_pylist()}
        assert found == {"pen": 100, "ink": 0}


def test_braces_are_only_braces(run: Any) -> None:
    assert run("""SELECT '{"a": 1}' AS j""")[0]["j"] == '{"a": 1}'


def test_a_function_that_takes_what_another_gives(run: Any) -> None:
    @nova.sql_function(returns="table(n int)")
    def numbers(upto: int) -> Any:
        return [{"n": n} for n in range(upto)]

    @nova.sql_function(returns="table(n int)")
    def doubled(rows: Any) -> Any:
        return rows.selectExpr("n * 2 AS n")

    assert [r["n"] for r in run("SELECT n FROM doubled((SELECT n FROM Numbers(3) WHERE n > 0))", numbers, doubled)] == [
        2,
        4,
    ]


def test_a_function_that_gives_other_columns_than_it_declares(run: Any, spark: Any) -> None:
    @nova.sql_function(returns="table(product string, price int)")
    def priced() -> Any:
        return spark.createDataFrame([("Ink", 1)], "product string, cost int")

    with pytest.raises(
        SchemaMismatch, match="function 'priced' returns other columns than it declares, for dataset 'made'"
    ):
        run("SELECT * FROM priced()", priced)


@pytest.mark.core
def test_a_function_that_fails_fails_the_task(run: Any) -> None:
    @nova.sql_function(returns="table(product string)")
    def priced() -> Any:
        raise ValueError("the till is closed")

    with pytest.raises(TaskFailed, match="the till is closed"):
        run("SELECT * FROM priced()", priced)


@pytest.mark.postgres
def test_a_table_of_postgresql_read_by_adbc(run: Any, postgres_url: str) -> None:
    import psycopg
    from adbc_driver_postgresql import dbapi

    with postgres.fresh_database(postgres_url) as url:
        plain = url.replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(plain) as connection:
            connection.execute("CREATE TABLE rates (day date, currency text, rate numeric(10,4))")
            connection.execute("INSERT INTO rates VALUES ('2022-03-31', 'EUR', 1.1), ('2022-03-30', 'EUR', 1.2)")

        @nova.sql_function(returns="table(currency string, rate decimal(10,4))")
        def rates(day: str) -> pa.Table:
            with dbapi.connect(plain) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT currency, rate::text AS rate FROM rates WHERE day = $1::text::date", (day,))
                return cursor.fetch_arrow_table()

        found = run("SELECT currency, rate FROM rates(:d)", rates)
    assert found == [{"currency": "EUR", "rate": Decimal("1.1000"), "day": "2022-03-31"}]


def test_a_table_read_by_jdbc(run: Any, spark: Any) -> None:
    url = "jdbc:derby:memory:nova;create=true"  # Spark brings this database along
    rows = spark.createDataFrame(
        [("EUR", 11, "2022-03-31"), ("USD", 12, "2022-03-30")], "currency string, rate int, day string"
    )
    types = "currency VARCHAR(3), day VARCHAR(10)"
    rows.write.option("createTableColumnTypes", types).jdbc(url, "rates", mode="overwrite")

    @nova.sql_function(returns="table(currency string, rate int)")
    def rates(ctx: nova.Context, day: str) -> Any:
        return ctx.spark.read.jdbc(url, "rates").where(f"day = '{day}'").select("currency", "rate")

    assert run("SELECT * FROM rates(:d)", rates) == [{"currency": "EUR", "rate": 11, "day": "2022-03-31"}]
