"""Datasets together: who reads whom, and which partitions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.errors import DefinitionError, PartitionError, SqlError
from nova_assets.model.partition_rule import InputState
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.datasets.required_reads import RequiredRead
from nova_assets.sql.query.column_lineage import trace_lineage
from nova_assets.sql.text import SqlText
from nova_assets_tests.sql.rig import NOW

TICKETS = nova.Channel(
    "tickets",
    schema="product string, price decimal(10,2), day string, store string",
    partitions=[nova.daily("day", start="2022-03-01"), nova.static("store", ["Detroit", "Oslo", "Paris"])],
)

STORE_SALES = SqlText(
    "store_sales.sql",
    """
    FOR t IN TIMESERIES('2022-03-30', '2022-03-31'), store IN ('Detroit', 'Paris')
    LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
    INSERT OVERWRITE store_sales PARTITION (day = partition_day, store)
    SELECT product, COUNT(*) AS nb_sales, SUM(price) AS revenue
    FROM tickets WHERE tickets.day = partition_day AND tickets.store = :store GROUP BY product
    """,
)

PRODUCTS_SALES = SqlText(
    "products_sales.sql",
    """
    FOR t IN TIMESERIES('2022-03-30', '2022-03-31')
    LET partition_day = DATE_FORMAT(t, 'yyyy-MM-dd')
    INSERT OVERWRITE products_sales PARTITION (day = partition_day)
    SELECT product, SUM(nb_sales) AS nb_sales, SUM(revenue) AS revenue
    FROM store_sales WHERE store_sales.day = partition_day GROUP BY product
    """,
)


def test_the_example_of_the_paper() -> None:
    """BigDataFlow, part 2: what ``bdf show products_sales day=2022-03-31`` prints."""
    found = build_graph([PRODUCTS_SALES, STORE_SALES], [TICKETS])
    assert list(found.datasets) == ["store_sales", "products_sales"]
    assert len(found.scopes_by_partition("store_sales", NOW)) == 4
    assert found.required_reads("products_sales", "day=2022-03-31", NOW) == (
        RequiredRead("store_sales", "all", ("day=2022-03-31/store=Detroit", "day=2022-03-31/store=Paris")),
    )
    assert found.required_reads("store_sales", "day=2022-03-31/store=Paris", NOW) == (
        RequiredRead("tickets", "all", ("day=2022-03-31/store=Paris",)),
    )
    assert str(found.dataset("products_sales").schema) == (
        "product string, nb_sales bigint, revenue decimal(30,2), day string"
    )
    assert found.downstream("tickets") == ("store_sales", "products_sales")


def test_a_new_day_alone_adds_tasks_and_ends_others() -> None:
    """No data came and no definition changed. The partition of the oldest day has no task any more."""
    text = SqlText(
        "recent.sql",
        """
        FOR t IN TIMESERIES(last => 2) LET d = DATE_FORMAT(t, 'yyyy-MM-dd')
        INSERT OVERWRITE recent PARTITION (day = d) SELECT product FROM tickets WHERE tickets.day = :d
        """,
    )
    found = build_graph([text], [TICKETS])
    today, tomorrow = (list(found.scopes_by_partition("recent", NOW + timedelta(days=n))) for n in (0, 1))
    assert today == ["day=2022-03-31", "day=2022-04-01"] and tomorrow == ["day=2022-04-01", "day=2022-04-02"]
    assert found.required_reads("recent", "day=2022-04-02", NOW + timedelta(days=1)) == (
        RequiredRead("tickets", "all", tuple(f"day=2022-04-02/store={s}" for s in ("Detroit", "Oslo", "Paris"))),
    )
    with pytest.raises(PartitionError, match="no task of 'recent' writes day=2022-03-31"):
        found.required_reads("recent", "day=2022-03-31", NOW + timedelta(days=1))


def test_a_partition_that_no_task_writes() -> None:
    with pytest.raises(PartitionError, match="no task of 'products_sales' writes day=2022-04-01"):
        build_graph([PRODUCTS_SALES, STORE_SALES], [TICKETS]).required_reads("products_sales", "day=2022-04-01", NOW)


def test_dynamic_partitions_are_those_that_there_are() -> None:
    events = nova.Channel("events", schema="n int, kind string", partitions=[nova.dynamic("kind")])
    found = build_graph([SqlText("some.sql", "SELECT n FROM events WHERE kind LIKE 'a%'")], [events])
    there = ["kind=a", "kind=ab", "kind=b"]
    assert found.required_reads("some", "", NOW, InputState(lambda name: there)) == (
        RequiredRead("events", "all", ("kind=a", "kind=ab")),
    )


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(DefinitionError) as caught:
        build_graph(
            [
                SqlText("a.sql", "SELECT colour FROM tickets"),
                SqlText("b.sql", "SELECT product FROM tikets"),
                SqlText("c.sql", "SELECT x FROM a"),  # follows from the first
            ],
            [TICKETS],
        )
    assert "2 problems" in str(caught.value)
    assert "a.sql:1:8: there is no column 'colour'" in str(caught.value)
    assert "b.sql:1:21: there is no dataset 'tikets'" in str(caught.value)


def test_datasets_that_read_each_other_are_refused() -> None:
    with pytest.raises(SqlError, match=r"datasets read each other: (a → b → a|b → a → b)"):
        build_graph([SqlText("a.sql", "SELECT x FROM b"), SqlText("b.sql", "SELECT x FROM a")])


def test_a_dataset_twice_is_refused() -> None:
    with pytest.raises(SqlError, match=r"dataset 'x' is already defined in a.sql"):
        build_graph([SqlText("a.sql", "INSERT INTO x SELECT 1 AS n"), SqlText("x.sql", "SELECT 2 AS n")])


def test_a_partition_column_that_is_selected_too_is_refused() -> None:
    text = SqlText("x.sql", "FOR s IN ('a') INSERT OVERWRITE x PARTITION (store = s) SELECT store FROM tickets")
    with pytest.raises(SqlError, match="column 'store' is in PARTITION and in SELECT"):
        build_graph([text], [TICKETS])


def test_how_a_dataset_is_kept_may_be_said() -> None:
    kept = nova.Channel("products_sales", merge=nova.Upsert(key=["product", "day"]), group="sales")
    found = build_graph([PRODUCTS_SALES, STORE_SALES], [TICKETS, kept]).dataset("products_sales").channel
    assert (found.merge, found.group, found.partition_columns) == (kept.merge, "sales", ("day",))
    other = nova.Channel("products_sales", schema="product string")
    with pytest.raises(DefinitionError, match="another schema than its query gives"):
        build_graph([PRODUCTS_SALES, STORE_SALES], [TICKETS, other])


def test_columns_are_followed_to_where_they_come_from() -> None:
    query = (
        build_graph(
            [
                SqlText(
                    "x.sql",
                    "WITH c AS (SELECT product AS p, price * 2 AS twice FROM tickets WHERE store = 'Paris') "
                    "SELECT p, SUM(twice) AS total, COUNT(*) AS n FROM c GROUP BY p "
                    "UNION ALL SELECT day, 0, 1 FROM tickets",
                )
            ],
            [TICKETS],
        )
        .dataset("x")
        .query
    )
    found = trace_lineage(query)
    assert found.outputs == {"p": {(0, "product"), (1, "day")}, "total": {(0, "price")}, "n": frozenset()}
    named = {(u.origin[1], query.text.substring(u.span)) for u in found.uses if u.span is not None}
    assert named == {
        ("product", "product"),
        ("product", "p"),
        ("price", "price"),
        ("price", "twice"),
        ("store", "store"),
        ("day", "day"),
    }


def test_conditions_that_are_not_understood_are_told_with_their_place() -> None:
    text = SqlText(
        "weekly.sql", "SELECT product\nFROM tickets\nWHERE DAYNAME(day) = 'Mon' AND product RLIKE 'a' AND day > '2022'"
    )
    found = build_graph([text], [TICKETS])
    assert found.unpruned_conditions("weekly", "", NOW) == (
        "weekly.sql:3:7: DAYNAME(...) is not evaluated on partitions",
    )
    plain = build_graph(
        [SqlText("plain.sql", "SELECT product FROM tickets WHERE day > '2022' AND product RLIKE 'a'")], [TICKETS]
    )
    assert plain.unpruned_conditions("plain", "", NOW) == ()


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "A.SQL").write_bytes(b"\xef\xbb\xbfSELECT product FROM tickets")
    assert [b.name for b in nova.datasets(tmp_path, channels=[TICKETS])] == ["A"]
    (tmp_path / "b.sql").write_bytes(b"SELECT '\xe9' AS x")
    with pytest.raises(SqlError, match="cannot be read as text"):
        nova.datasets(tmp_path, channels=[TICKETS])
    with pytest.raises(DefinitionError, match="no such folder"):
        nova.datasets(tmp_path / "nowhere")


JAFFLE = {
    "stg_customers": "SELECT id AS customer_id, name AS customer_name FROM raw_customers",
    "stg_locations": "SELECT id AS location_id, name AS location_name, opened_at AS opened FROM raw_stores",
    "stg_order_items": "SELECT id AS item_id, order_id, sku AS product_id FROM raw_items",
    "stg_orders": "SELECT id AS order_id, customer AS customer_id, ordered_at, total / 100 AS total FROM raw_orders",
    "stg_products": "SELECT sku AS product_id, name AS product_name, price / 100 AS price FROM raw_products",
    "stg_supplies": "SELECT id AS supply_id, sku AS product_id, cost / 100 AS cost FROM raw_supplies",
    "locations": "SELECT * FROM stg_locations",
    "products": "SELECT * FROM stg_products",
    "supplies": "SELECT * FROM stg_supplies",
    "order_items": """
        WITH cost AS (SELECT product_id, SUM(cost) AS cost FROM stg_supplies GROUP BY product_id)
        SELECT i.*, o.ordered_at, p.price, c.cost FROM stg_order_items i
        LEFT JOIN stg_orders o ON o.order_id = i.order_id LEFT JOIN stg_products p ON p.product_id = i.product_id
        LEFT JOIN cost c ON c.product_id = i.product_id
    """,
    "orders": """
        SELECT o.*, n.items, n.cost FROM stg_orders o LEFT JOIN
        (SELECT order_id, COUNT(*) AS items, SUM(cost) AS cost FROM order_items GROUP BY order_id) n USING (order_id)
    """,
    "customers": """
        WITH bought AS
        (SELECT customer_id, COUNT(*) AS orders, MIN(ordered_at) AS first FROM orders GROUP BY customer_id)
        SELECT c.*, b.orders, b.first FROM stg_customers c LEFT JOIN bought b ON b.customer_id = c.customer_id
    """,
    "metricflow_time_spine": "SELECT EXPLODE(SEQUENCE(DATE '2000-01-01', DATE '2030-01-01', INTERVAL 1 DAY)) AS day",
}

RAW = {
    "raw_customers": "id string, name string",
    "raw_stores": "id string, name string, opened_at timestamp, tax_rate double",
    "raw_items": "id string, order_id string, sku string",
    "raw_orders": "id string, customer string, ordered_at timestamp, total int",
    "raw_products": "sku string, name string, price int",
    "raw_supplies": "id string, sku string, cost int, perishable boolean",
}


def test_what_becomes_of_late_data_is_said_of_datasets_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("SELECT 1 AS n")
    with pytest.raises(DefinitionError, match="no dataset is called 'b'"):
        nova.datasets(tmp_path, late={"b": "ignore"})
    with pytest.raises(DefinitionError, match="is not a policy") as raised:
        nova.datasets(tmp_path, late={"a": "later"})  # type: ignore[dict-item]
    assert raised.value.expected == "rebuild or ignore"


def test_the_graph_of_dbts_jaffle_shop(shared_data: Path) -> None:
    expected = json.loads((shared_data / "dag_jaffle_shop" / "expected_dag.json").read_text())
    raw = [nova.Channel(name, schema=schema) for name, schema in RAW.items()]
    found = build_graph([SqlText(f"{name}.sql", sql) for name, sql in JAFFLE.items()], raw)
    reads = {n: sorted(f"source:{r}" if r in RAW else r for r in d.query.reads) for n, d in found.datasets.items()}
    assert reads == {name: sorted(inputs) for name, inputs in expected.items()}


def test_a_partition_that_is_made_of_something_else_a_month_later() -> None:
    """What was found out of a scope says nothing of another one that writes the same partition."""
    text = SqlText(
        "of_day.sql",
        """
        FOR t IN TIMESERIES(last => 7) LET d = DATE_FORMAT(t, 'yyyy-MM-dd'), dom = DATE_FORMAT(t, 'dd')
        INSERT OVERWRITE of_day PARTITION (dom) SELECT SUM(price) AS price FROM sold WHERE sold.day = :d
        """,
    )
    sold = nova.Channel("sold", schema="price int, day string", partitions=nova.dynamic("day"))
    found, there = build_graph([text], [sold]), ["day=2022-03-14", "day=2022-04-14"]
    for month in (3, 4):
        at = datetime(2022, month, 14, 12, tzinfo=UTC)
        assert found.required_reads("of_day", "dom=14", at, InputState(lambda name: there))[0].partitions == (
            f"day=2022-{month:02d}-14",
        )


def test_what_was_found_out_is_asked_for_once() -> None:
    found = build_graph([PRODUCTS_SALES, STORE_SALES], [TICKETS])
    for _ in range(3):
        found.required_reads("products_sales", "day=2022-03-31", NOW)
    assert (found.reads_cache.hits, found.reads_cache.misses) == (2, 1)
    assert found.partitions_reading("products_sales", "store_sales", ["day=2022-03-31/store=Paris"], NOW) == (
        "day=2022-03-31",
    )
    assert found.partitions_reading("store_sales", "tickets", ["day=2022-03-31/store=Oslo"], NOW) == ()


def test_heads_that_are_alike_are_wrong_each_in_its_own_file() -> None:
    head = (
        "FOR a IN ('1', 'x'), b IN ('1', '2') LET n = CAST(CONCAT(a, b) AS INT)\n"
        "INSERT OVERWRITE {} PARTITION (n) SELECT 1 AS one"
    )
    found = build_graph([SqlText(f"{name}.sql", head.format(name)) for name in ("sold", "bought")])
    for name in ("sold", "bought"):
        with pytest.raises(SqlError, match=f"{name}.sql:1:"):
            found.scopes_by_partition(name, NOW)
