"""Datasets in SQL as Dagster sees them: their partitions, and which of an input's partitions each of theirs needs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions
from nova_assets.dagster_bridge.partition_mappings import infer_partition_mapping
from nova_assets.dagster_bridge.partitions import build_partitions_definition, to_dagster_key
from nova_assets.model.partition_rule import InputState
from nova_assets.model.provenance import column_lineage
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

STORES = ["Detroit", "Oslo", "Paris"]
TICKETS = nova.Channel(
    "tickets",
    schema="product string, price decimal(10,2), day string, store string",
    partitions=[nova.daily("day", start="2022-03-01"), nova.static("store", STORES)],
)
DAYS = nova.Channel("days", schema="n int, day date", partitions=[nova.daily("day", start="2022-03-28")])
HOURS = nova.Channel("hours", schema="n int, h string", partitions=[nova.hourly("h", start="2022-03-01T00:00")])
SHOPS = nova.Channel("shops", schema="n int, store string", partitions=[nova.static("store", STORES)])
CHANNELS = [TICKETS, DAYS, HOURS, SHOPS]

BY_DAY = "FOR t IN TIMESERIES('2022-03-29', '2022-04-05') LET d = DATE_FORMAT(t, 'yyyy-MM-dd') "
BY_DAY += "INSERT OVERWRITE made PARTITION (day = d) SELECT COUNT(*) AS n FROM "
BY_STORE = "FOR s IN ('Detroit', 'Paris') INSERT OVERWRITE made PARTITION (store = s) SELECT COUNT(*) AS n FROM "
BY_BOTH = "FOR t IN TIMESERIES('2022-03-29', '2022-04-05'), s IN ('Detroit', 'Paris') "
BY_BOTH += "LET d = DATE_FORMAT(t, 'yyyy-MM-dd') "
BY_BOTH += "INSERT OVERWRITE made PARTITION (day = d, store = s) SELECT COUNT(*) AS n FROM "

EXACT = [
    BY_DAY + "days WHERE days.day = :d",
    BY_DAY + "days WHERE days.day = DATE_SUB(:d, 1)",
    BY_DAY + "days WHERE days.day BETWEEN DATE_SUB(:d, 3) AND :d",
    BY_DAY + "days WHERE days.day IN ('2022-03-30', '2022-03-31')",
    BY_DAY + "days",
    BY_DAY + "tickets WHERE tickets.day = :d",
    BY_DAY + "hours WHERE TO_DATE(hours.h) = :d",
    BY_STORE + "shops WHERE shops.store = :s",
    BY_STORE + "shops WHERE shops.store = CASE WHEN :s = 'Paris' THEN 'Oslo' ELSE :s END",
    BY_STORE + "shops WHERE shops.store IN ('Oslo', 'Paris')",
    BY_BOTH + "tickets WHERE tickets.day = :d AND tickets.store = :s",
    BY_BOTH + "tickets WHERE tickets.day BETWEEN DATE_SUB(:d, 2) AND :d AND tickets.store = :s",
    BY_BOTH + "tickets WHERE tickets.day = :d",
    BY_BOTH + "days WHERE days.day = :d",
]
SHOWN_ALL = [
    BY_DAY + "tickets WHERE tickets.day = :d AND tickets.store = 'Paris'",
    BY_DAY + "days WHERE days.day = :d OR days.day = DATE_SUB(:d, 2)",
    BY_DAY + "tickets WHERE tickets.day BETWEEN DATE_SUB(:d, 2) AND :d",
    BY_DAY + "days WHERE days.day BETWEEN DATE_SUB(:d, CASE WHEN DAY(:d) = 31 THEN 3 ELSE 0 END) AND :d",
]


def project(folder: Path, sql: str) -> nova.Project:
    (folder / "made.sql").write_text(sql)
    return nova.Project(bindings=nova.datasets(folder, channels=CHANNELS))


def shown(project: nova.Project) -> tuple[dg.PartitionMapping, dict[str, tuple[set[str], set[str]]]]:
    """How Dagster is told; and for each partition what it works out from that, and what is read in truth."""
    query, binding = dataset_queries_by_name(project)["made"], project.binding("made")
    now = datetime.now(UTC)
    read = project.channel(query.query.reads[0])
    mapping = infer_partition_mapping(query, read.name, read.partitions, binding.dimensions)
    above, below = build_partitions_definition(read.partitions), build_partitions_definition(binding.dimensions)
    assert above is not None and below is not None
    found = {}
    for task in query.graph.scopes_by_partition("made", now):
        key = to_dagster_key(binding.dimensions, task)
        with partition_loading_context(datetime.now()):
            needed = mapping.get_upstream_mapped_partitions_result_for_partitions(
                below.subset_with_partition_keys([key]), below, above
            )
        true = {p for n in query.required_reads(task, now, InputState()) for p in n.partitions}
        found[key] = (
            set(needed.partitions_subset.get_partition_keys()),
            {to_dagster_key(read.partitions, p) for p in true},
        )
    return mapping, found


@pytest.mark.core
@pytest.mark.parametrize("sql", EXACT)
def test_dagster_works_out_the_partitions_that_the_query_reads(tmp_path: Path, sql: str) -> None:
    mapping, found = shown(project(tmp_path, sql))
    assert found and all(needed == true for needed, true in found.values()), mapping
    assert any(true for _, true in found.values())
    everything = "WHERE" not in sql
    assert isinstance(mapping, dg.AllPartitionMapping) == everything


@pytest.mark.parametrize("sql", SHOWN_ALL)
def test_where_dagster_has_no_words_it_is_shown_all(tmp_path: Path, sql: str) -> None:
    mapping, found = shown(project(tmp_path, sql))
    assert isinstance(mapping, dg.AllPartitionMapping)
    assert all(needed >= true for needed, true in found.values())


@pytest.mark.core
@pytest.mark.parametrize(
    ("series", "keys"),
    [
        ("'2022-03-30', '2022-03-31'", ["2022-03-30", "2022-03-31"]),
        ("start => '2022-03-30', end => '2022-03-30'", ["2022-03-30"]),
        ("last => 3", 3),
        ("last => 3, lag => 1", 3),
        ("start => '2022-01-01', last => 30", 30),
        ("last => 10, end => '2026-11-01'", 10),
    ],
)
def test_its_partitions_are_those_of_its_tasks(tmp_path: Path, series: str, keys: Any) -> None:
    sql = f"FOR t IN TIMESERIES({series}) LET d = DATE(t) INSERT OVERWRITE made PARTITION (day = d) SELECT 1 AS n"
    made = project(tmp_path, sql)
    found = build_partitions_definition(made.binding("made").dimensions)
    assert found is not None
    told, query = list(found.get_partition_keys()), dataset_queries_by_name(made)["made"]
    assert told == [p.removeprefix("day=") for p in query.graph.scopes_by_partition("made", datetime.now(UTC))]
    assert told == keys if isinstance(keys, list) else len(told) == keys


@pytest.mark.core
def test_hours_end_when_their_series_does(tmp_path: Path) -> None:
    sql = "FOR t IN TIMESERIES('2022-03-30 00:00', '2022-03-30 05:00', every => '1 hour') "
    sql += "LET h = DATE_FORMAT(t, \"yyyy-MM-dd'T'HH:00\") INSERT OVERWRITE made PARTITION (h) SELECT 1 AS n"
    found = build_partitions_definition(project(tmp_path, sql).binding("made").dimensions)
    assert found is not None
    assert list(found.get_partition_keys()) == [f"2022-03-30-{h:02}:00" for h in range(6)]


@pytest.mark.core
def test_the_sales_example_in_dagsters_graph() -> None:
    from examples.sales.pipeline import project

    graph = build_definitions(project).resolve_asset_graph()
    mapping = graph.get_partition_mapping(dg.AssetKey("products_sales"), dg.AssetKey("store_sales"))
    assert mapping == dg.MultiToSingleDimensionPartitionMapping("day")
    mapping = graph.get_partition_mapping(dg.AssetKey("store_sales"), dg.AssetKey("tickets"))
    assert isinstance(mapping, dg.MultiPartitionMapping)


@pytest.mark.core
def test_columns_are_followed_to_where_they_come_from() -> None:
    from examples.sales.pipeline import project

    found = {b.name: column_lineage(b)[b.name] for b in project.bindings}
    assert found["store_sales"] == {
        "product_id": (("tickets", "product_id"),),
        "nb_sales": (),
        "revenue": (("tickets", "price"),),
    }
    assert found["products_sales"]["revenue"] == (("store_sales", "revenue"),)
