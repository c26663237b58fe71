"""A tick computes the datasets again whose query was changed in its file, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.scenarios.tick_worker import DATASETS, DAYS, STORES, open_store

pytestmark = pytest.mark.slow

QUERIES = {**DATASETS, "copy": "SELECT revenue FROM total", "other": "SELECT SUM(revenue) AS revenue FROM store_sales"}

Deploy = Callable[[dict[str, str]], Store]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """Opens the store of a project with these queries, as a new process does. The first one has data."""
    stores: list[Store] = []
    (tmp_path / "sql").mkdir()

    def deploy(changes: dict[str, str]) -> Store:
        queries = {**QUERIES, **changes}
        stores.append(open_store(f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh"), str(tmp_path / "sql"), queries))
        if len(stores) == 1:
            stores[0].insert("tickets", [{"price": 2, "day": d, "store": s} for d in DAYS for s in STORES])
            run_until_done(stores[0])
        return stores[-1]

    yield deploy
    for store in stores:
        store.close()


def run_until_done(store: Store) -> list[str]:
    computed: list[str] = []
    while (tick := store.next_tick()).run:
        outcomes = store.tick(tick)
        assert all(o.error is None for o in outcomes), outcomes
        computed += [f"{o.dataset} {o.partition}".rstrip() for o in outcomes]
    return computed


def revenue(store: Store, dataset: str) -> list[int]:
    return [row["revenue"] for row in store.read(dataset).to_arrow().to_pylist()]


@pytest.mark.core
def test_a_tick_computes_a_changed_query_and_what_reads_its_result(deploy: Deploy) -> None:
    assert revenue(deploy({}), "copy") == [8]
    store = deploy({"total": "SELECT SUM(revenue) * 2 AS revenue FROM day_sales"})
    planned = store.next_tick()
    assert [(b.dataset, b.partitions, b.why) for b in planned.run] == [("total", ("",), ("dirty",))]
    assert [(w.dataset, w.waits_for) for w in planned.waits] == []
    assert run_until_done(store) == ["total", "copy"]
    assert revenue(store, "copy") == [16]
    assert (
        run_until_done(store)
        == run_until_done(deploy({"total": "SELECT SUM(revenue) * 2 AS revenue FROM day_sales"}))
        == []
    )


def test_a_comment_another_layout_and_other_capitals_are_the_same_query(deploy: Deploy) -> None:
    deploy({})
    total = "-- All of it.\nselect\n  sum(REVENUE) AS revenue /* euros */\nFROM day_sales"
    assert deploy({"total": total}).next_tick().run == ()


def test_rows_of_partitions_wait_for_a_backfill(deploy: Deploy) -> None:
    deploy({})
    store = deploy({"day_sales": DATASETS["day_sales"].replace("SUM(revenue)", "SUM(revenue) + 1")})
    assert store.next_tick().run == ()


def test_a_changed_definition_of_the_channel_waits_for_a_person(deploy: Deploy) -> None:
    deploy({})
    store = deploy({"total": "SELECT SUM(revenue) AS revenue, COUNT(*) AS days FROM day_sales"})
    planned = store.next_tick()
    assert planned.run == ()
    [waiting] = planned.waits
    assert waiting.dataset == "total"
    assert waiting.waits_for == (
        "nova init --replace: channel 'total' is registered with another definition (different: schema)"
    )


def test_columns_that_stored_rows_cannot_have_are_refused_with_the_way_out(deploy: Deploy) -> None:
    deploy({})
    store = deploy({"total": "SELECT CAST(SUM(revenue) AS int) AS revenue FROM day_sales"})
    [waiting] = store.next_tick().waits
    assert waiting.waits_for == "channel 'total': column revenue is bigint and cannot become int"
    refused = store.catalog.definitions.preview_replacements(store.project.channels, store.project.bindings).refused
    assert set(refused) == {"copy", "total"}
    assert refused["total"].next == (
        "give a column that changes its type another name: a base then brings it (nova init --replace)"
    )
    refused = store.catalog.definitions.preview_replacements(store.project.channels).refused
    assert refused["total"].next == (
        "keep these columns, or declare the new ones in a channel or dataset with another name; then: "
        "nova remove channel total"
    )
    with pytest.raises(nova.DefinitionError, match="column revenue is bigint and cannot become int"):
        store.register(store.project, replace=True)


@pytest.mark.core
def test_a_renamed_column_takes_effect_with_the_next_base(deploy: Deploy) -> None:
    deploy({})
    renamed = {"total": "SELECT SUM(revenue) AS income FROM day_sales", "copy": "SELECT income FROM total"}
    store = deploy(renamed)
    assert sorted((w.dataset, w.waits_for) for w in store.next_tick().waits) == [
        (name, f"nova init --replace: channel '{name}' is registered with another definition (different: schema)")
        for name in ("copy", "total")
    ]
    store.register(store.project, replace=True)
    assert revenue(store, "copy") == revenue(store, "total") == [8], "the present columns hold until the base"
    assert run_until_done(store) == ["total", "copy"]
    assert store.read("copy").to_arrow().to_pylist() == store.read("total").to_arrow().to_pylist() == [{"income": 8}]
    assert revenue(store, "other") == [8]
    assert run_until_done(deploy(renamed)) == []
