"""Deltas with a merge model of their own (Nova 3.1): which are refused, what consumers read, what collection keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.service.served_deployment import ArrowEngine
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import sorted_live_rows

SUMS = nova.Keyed(key="k", combine={"v": "sum"})
REPLACES = nova.Upsert(key="k")
seen: list[list[dict[str, Any]]] = []


def project(merge: Any = None) -> nova.Project:
    table = nova.Channel("table", merge=SUMS, schema="k bigint, v bigint")
    copy = nova.Channel("copy", merge=SUMS, schema="k bigint, v bigint")
    fixed = nova.Channel("fixed", schema="k bigint, v bigint")

    @nova.task(consumes=nova.new(table), produces=nova.delta(copy))
    def mirror(table: Any) -> Any:
        seen.append(table)
        return table

    @nova.task(consumes=nova.new(fixed), produces=nova.delta(table, merge=merge))
    def correct(fixed: Any) -> Any:
        return fixed

    tasks = {"mirror": mirror, "correct": correct}
    return nova.Project([nova.bind(nova.Workflowette(n, [t])) for n, t in tasks.items()])


def open_store(root: Path, merge: Any = REPLACES, engine: Callable[[Path], Any] = StubEngine) -> Store:
    config = load_settings(start_folder=root, catalog="sqlite://", warehouse=str(root / "wh"), gc_grace=1e-6)
    store = Store(config, project(merge), open_catalog("sqlite://"), engine(root / "wh"))
    store.register(store.project)
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    seen.clear()
    opened = open_store(tmp_path)
    yield opened
    opened.catalog.close()


def rows(store: Store, channel: str = "table") -> list[dict[str, Any]]:
    return sorted_live_rows(store.read(channel).to_spark())  # type: ignore[arg-type]


def test_blocks_are_merged_one_after_the_other_each_under_its_model(store: Store) -> None:
    store.insert("table", [{"k": 1, "v": 10}, {"k": 2, "v": 5}])
    store.insert("table", [{"k": 1, "v": 7}], merge=REPLACES)
    store.insert("table", [{"k": 1, "v": 1}])
    assert rows(store) == [{"k": 1, "v": 8}, {"k": 2, "v": 5}]
    block = store.timeline("table")[1].blocks[0]
    assert (block.merge, block.channel_merge) == (REPLACES, SUMS)
    store.compact("table")
    store.collect_garbage("table")
    assert rows(store) == [{"k": 1, "v": 8}, {"k": 2, "v": 5}]
    store.insert("table", [{"k": 1, "v": 1}])  # the channel's model has not changed
    assert rows(store)[0] == {"k": 1, "v": 9}


def test_the_engine_merges_each_block_under_its_model(tmp_path: Path) -> None:
    """On the real engine. The stub engine has a merge of its own."""
    store = open_store(tmp_path, engine=ArrowEngine)

    def rows(channel: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = store.read(channel).to_arrow().sort_by("k").to_pylist()
        return found

    store.insert("table", [{"k": 1, "v": 10}, {"k": 2, "v": 5}])
    store.run("mirror")
    store.insert("table", [{"k": 1, "v": 7}], merge=REPLACES)
    assert rows("table") == [{"k": 1, "v": 7}, {"k": 2, "v": 5}]
    store.insert("table", [{"k": 1, "v": 1}])
    assert rows("table") == [{"k": 1, "v": 8}, {"k": 2, "v": 5}]
    store.run("mirror")
    assert rows("copy") == rows("table"), "the consumer reads the difference, not the rows of the blocks"
    store.insert("fixed", [{"k": 2, "v": 3}])
    store.run("correct")  # its output declares the other model
    store.run("mirror")
    assert rows("copy") == rows("table") == [{"k": 1, "v": 8}, {"k": 2, "v": 3}]
    store.compact("table")
    assert store.timeline("table")[-1].blocks[0].kind == "base"
    assert rows("table") == [{"k": 1, "v": 8}, {"k": 2, "v": 3}]
    store.catalog.close()


def test_consumers_read_the_change_in_the_model_of_the_channel(store: Store) -> None:
    store.insert("table", [{"k": 1, "v": 10}])
    store.run("mirror")
    store.insert("fixed", [{"k": 1, "v": 7}])
    store.run("correct")  # its output declares the other model
    store.insert("table", [{"k": 1, "v": 1}])
    store.run("mirror")
    assert [(r["v"], r["_deleted"]) for r in seen[-1]] == [(10, True), (8, False)]
    assert rows(store, "copy") == rows(store) == [{"k": 1, "v": 8}]
    assert "merge=Upsert" in str([t.rows for t in store.plan("correct").tables()])


def test_a_changed_declaration_is_another_version_of_the_binding(store: Store, tmp_path: Path) -> None:
    declared = store.project.binding("correct").as_json()
    assert declared["tasks"][0]["produces"][0]["merge"] == REPLACES.as_json()
    assert "merge" not in project().binding("correct").as_json()["tasks"][0]["produces"][0]


def test_collection_keeps_what_a_lagging_consumer_compares(store: Store) -> None:
    store.insert("table", [{"k": 1, "v": 10}])
    store.run("mirror")
    store.insert("table", [{"k": 1, "v": 7}], merge=REPLACES)
    store.insert("table", [{"k": 1, "v": 1}])
    for _ in range(2):
        store.compact("table")
        store.collect_garbage("table")
    store.run("mirror")
    assert rows(store, "copy") == [{"k": 1, "v": 8}]
    store.collect_garbage("table")
    assert [v.block.range for v in store.held("table")] == ["B3"]


def test_a_block_whose_change_nobody_could_derive_is_refused_until_the_consumer_has_run(store: Store) -> None:
    store.insert("table", [{"k": 1, "v": 10}])
    store.run("mirror")
    store.insert("table", [{"k": 1, "v": 1}])
    store.compact("table")
    store.collect_garbage("table")  # the snapshot at the cursor goes: no block needed it
    with pytest.raises(nova.UnrepresentableChange, match="the snapshot at the cursor of a consumer was collected"):
        store.insert("table", [{"k": 1, "v": 7}], merge=REPLACES)
    assert rows(store) == [{"k": 1, "v": 11}]
    store.run("mirror")
    store.insert("table", [{"k": 1, "v": 7}], merge=REPLACES)
    store.run("mirror")
    assert rows(store, "copy") == [{"k": 1, "v": 7}]


def merge_rows(base: Any, delta: Any) -> Any:
    return base + delta


CUSTOM = nova.Custom(merge=merge_rows, chain=merge_rows, diff=merge_rows)


@pytest.mark.parametrize(
    ("channel", "block", "expected"),
    [
        (nova.Append(), nova.Upsert(key="k"), r"expected Append\(\)"),
        (nova.Append(), nova.Multiset(), "changes without deletions"),
        (nova.Multiset(), nova.Upsert(key="k"), r"expected Append\(\) or Multiset\(\)"),
        (nova.Upsert(key="k"), nova.Append(), "expected Upsert or Keyed with the key k"),
        (nova.Upsert(key="k"), nova.Upsert(key=["k", "v"]), "expected Upsert or Keyed with the key k"),
        (nova.Upsert(key="k"), CUSTOM, "expected Upsert or Keyed"),
        (CUSTOM, nova.Upsert(key="k"), "expected a Custom model"),
        (nova.Upsert(key="k"), nova.Keyed(key="k", combine={"w": "sum"}), "combined column 'w' is not in the schema"),
        (nova.Upsert(key="k"), nova.Upsert(key="k", order_by="w"), "order_by column 'w' is not in the schema"),
    ],
)
def test_models_that_do_not_fit_together_are_refused(store: Store, channel: Any, block: Any, expected: str) -> None:
    other = nova.Channel("other", merge=channel, schema="k bigint, v bigint")
    store.register(other)
    with pytest.raises(nova.DefinitionError, match=expected):
        store.insert("other", [{"k": 1, "v": 1}], merge=block)
    task = nova.task(produces=nova.delta(other, merge=block), name="x")(lambda: [])
    with pytest.raises(nova.DefinitionError, match=expected):
        nova.Project([nova.bind(nova.Workflowette("w", [task]))])
    assert store.catalog.definitions.channel("other").head == 0


def test_a_base_has_no_model_of_its_own(store: Store) -> None:
    with pytest.raises(nova.DefinitionError, match="a base is not merged"):
        store.insert("table", [{"k": 1, "v": 1}], kind="base", merge=REPLACES)


def test_rows_that_are_only_added_to_a_multiset_are_read_as_they_are(store: Store) -> None:
    store.register(nova.Channel("bag", merge=nova.Multiset(), schema="k bigint, v bigint"))
    store.insert("bag", [{"k": 1, "v": 1}], merge=nova.Append())
    assert not store.catalog.definitions.channel("bag").may_get_base, "no snapshot needs to be kept"
