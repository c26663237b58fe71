"""``nova channels``, ``nova timeline`` and ``nova cursors``, over a history that a stub engine made."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from nova_assets.cli import timeline
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import dynamic
from nova_assets.plan.timeline_chart import build_chart
from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.slow

ORDERS = [{"id": 1, "item": "tea", "price": 2.5}, {"id": 2, "item": "jam", "price": 4.0}]

UNSOUND = """
import nova_assets as nova
w = nova.Workflowette("w", [])
project = nova.Project([nova.bind(w)])
"""


@pytest.fixture
def store_with_sales(stub_store: Store) -> Store:
    """Orders sold once, and one more since; stock counted, and one item gone."""
    stub_store.register(stub_store.project)
    stub_store.insert("orders", ORDERS)
    stub_store.insert("stock", [{"item": "tea", "count": 7}, {"item": "jam", "count": 1}])
    stub_store.insert("stock", [{"item": "jam", "count": 0, "_deleted": True}])
    stub_store.run("sell")
    stub_store.run("take_stock")
    stub_store.insert("orders", ORDERS[:1])
    return stub_store


@pytest.mark.core
def test_where_no_catalog_is_looking_makes_none(nova: Nova, folder: Path) -> None:
    output = nova("channels")
    assert output.code == 0
    assert "no channels are registered yet: there is no catalog at" in output.out and "nova init" in output.out
    assert nova("channels", "--json").json["channels"] == []
    assert nova("timeline", "orders").code == 1
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("store_with_sales")
def test_channels_shows_model_head_rows_bytes_and_schema(nova: Nova) -> None:
    output = nova("channels")
    assert output.code == 0
    shown = {line.split()[0]: line for line in output.out.splitlines()[2:]}
    assert shown["orders"].split()[1:4] == ["Append", "2", "3"]
    assert shown["orders"].endswith("id bigint, item string, price double")
    assert shown["stock"].split()[1:3] == ["Upsert(item)", "2"]


def test_channels_shows_how_long_old_versions_are_retained(nova: Nova, store_with_sales: Store) -> None:
    assert "retain" not in nova("channels").out
    store_with_sales.register(Channel("kept", schema="id bigint", retain="30d"))
    assert {c["name"]: c["retain"] for c in nova("channels", "--json").json["channels"]}["kept"] == "30d"
    shown = {line.split()[0]: line.split() for line in nova("channels").out.splitlines()}
    assert shown["channel"][2] == "retain" and shown["kept"][2] == "30d"


def test_channels_counts_what_the_head_is_read_from_not_what_a_base_replaced(
    nova: Nova, store_with_sales: Store
) -> None:
    store_with_sales.run("take_stock")
    latest = next(c for c in nova("channels", "--json").json["channels"] if c["name"] == "latest")
    assert (latest["head"], latest["rows"], latest["files"]) == (2, 1, 1)
    assert latest["merge"] == {"kind": "upsert", "key": ["item"], "order_by": []}
    assert latest["schema"][0] == {"name": "item", "type": "string", "nullable": True}


@pytest.mark.usefixtures("store_with_sales")
def test_in_a_pipe_no_line_is_cut_and_none_ends_in_blanks(nova: Nova, stub_store: Store) -> None:
    wide = ", ".join(f"a_column_with_a_long_name_{n} string" for n in range(60))
    stub_store.register(Channel("wide", schema=wide))
    out = nova("channels").out
    assert wide in out
    assert all(line == line.rstrip() for line in out.splitlines())


def table(out: str) -> list[str]:
    """The instants, below the drawing."""
    lines = out.splitlines()
    return lines[next(n for n, line in enumerate(lines) if line.startswith("seq")) :]


@pytest.mark.usefixtures("store_with_sales")
def test_timeline_shows_each_instant_in_novas_notation(nova: Nova) -> None:
    out = table(nova("timeline", "stock").out)
    assert out[0].split() == ["seq", "block", "rows", "deleted", "bytes", "by", "time", "(UTC)"]
    assert out[2].split()[:4] == ["1", "Δ(0→1)", "2", "0"] and "insert" in out[2]
    assert out[3].split()[:4] == ["2", "Δ(1→2)", "1", "1"]
    assert table(nova("timeline", "latest").out)[2].split()[:2] == ["1", "B1"]
    assert "take_stock" in nova("timeline", "latest").out


@pytest.mark.usefixtures("store_with_sales", "with_shop")
def test_timeline_begins_with_a_drawing(nova: Nova) -> None:
    drawing, _, _ = nova("timeline", "orders").out.partition("\nseq")
    assert drawing.splitlines() == [
        "orders: head 2",
        "",
        "         0   1   2",
        "deltas    ───▶───▶",
        "sell     ━━━━●┄┄┄┄  at 1, lag 1",
        "",
        "─▶ delta  ● read up to here  ┄ unread",
    ]
    assert "take_stock" not in nova("timeline", "stock").out.partition("\nseq")[0], "it reads all of it, always"


@pytest.mark.core
@pytest.mark.usefixtures("with_shop")
def test_timeline_draws_who_never_ran_at_0(nova: Nova, stub_store: Store) -> None:
    stub_store.insert("orders", ORDERS)
    assert "sell     ●┄┄┄┄  at 0, lag 1" in nova("timeline", "orders").out
    [cursor] = nova("timeline", "orders", "--json").json["cursors"]
    assert (cursor["binding"], cursor["cursor"], cursor["lag"], cursor["moved_at"]) == ("sell", 0, 1, None)


def test_timeline_draws_compacted_bases_and_what_was_collected(nova: Nova, store_with_sales: Store) -> None:
    store_with_sales.compact("stock")
    store_with_sales.collect_garbage("stock")
    output = nova("timeline", "stock")
    assert "bases            □" in output.out and "deltas       ·   ·" in output.out and "· collected" in output.out
    assert nova("timeline", "stock", "--json").json["collected"] == [1, 2]


@pytest.mark.core
def test_timeline_of_a_partition_alone(nova: Nova, stub_store: Store) -> None:
    stub_store.insert("orders", ORDERS)
    sales = Channel("sales", schema="shop string, k bigint", partitions=[dynamic("shop")])
    stub_store.register(sales)
    for shop in ("a", "b", "b"):
        stub_store.insert("sales", [{"shop": shop, "k": 1}])
    assert "deltas    ───▶───▶───▶" in nova("timeline", "sales").out
    output = nova("timeline", "sales", "--partition", "a").out
    assert output.startswith("sales shop=a: head 3\n") and "deltas    ───▶\n" in output
    assert [line.split()[0] for line in table(output)[2:]] == ["1"]
    found = nova("timeline", "sales", "--partition", "shop=b", "--json").json
    assert (found["head"], found["partition"]) == (3, "shop=b") and [i["seq"] for i in found["instants"]] == [2, 3]
    assert nova("timeline", "sales", "--partition", "shop=c").out.startswith("the timeline of sales shop=c is empty")
    assert "NOVA-PARTITION" in nova("timeline", "orders", "--partition", "shop=a").err


@pytest.mark.usefixtures("store_with_sales", "with_shop")
def test_timeline_on_a_narrow_terminal_keeps_its_lines(nova: Nova, stub_store: Store) -> None:
    for _ in range(60):
        stub_store.insert("orders", ORDERS[:1])
    whole = build_chart(stub_store.catalog.histories.outlines(["orders"])["orders"])
    for width in (40, 80):
        console = Console(width=width, force_terminal=True, color_system=None, file=io.StringIO(), markup=False)
        timeline._show_timeline(console, whole, stub_store.timeline("orders")[:1])
        shown = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(len, shown)) <= width
        assert sum(line.startswith("sell") for line in shown) == 1


@pytest.mark.usefixtures("store_with_sales")
def test_timeline_as_json_has_the_same_and_more(nova: Nova) -> None:
    found = nova("timeline", "orders", "--json").json
    assert (found["channel"], found["head"]) == ("orders", 2)
    first, second = found["instants"]
    assert (first["action"], first["state"], first["seq"], first["binding"]) == ("commit", "complete", 1, None)
    assert first["at"].endswith("+00:00")
    assert second["blocks"][0] | {"bytes": 0, "id": ""} == {
        "channel": "orders",
        "range": "Δ(1→2)",
        "kind": "delta",
        "lo": 1,
        "hi": 2,
        "origin": "insert",
        "partition": "",
        "rows": 1,
        "deletes": 0,
        "bytes": 0,
        "files": 1,
        "format": "jsonl",
        "id": "",
    }


@pytest.mark.usefixtures("store_with_sales")
def test_an_unknown_channel_lists_the_known_ones(nova: Nova) -> None:
    output = nova("timeline", "order")
    assert output.code == 1 and output.out == ""
    assert output.err.startswith("[NOVA-CHANNEL-NOT-FOUND] no channel is called 'order'; did you mean 'orders'?\n")
    assert "archive, latest, orders, stock" in output.err and "nova channels" in output.err


@pytest.mark.usefixtures("store_with_sales", "with_shop")
def test_cursors_shows_how_far_behind_each_binding_is(nova: Nova) -> None:
    row = nova("cursors").out.splitlines()[2].split()
    assert row[:5] == ["sell", "orders", "1", "2", "1"]
    assert nova("cursors", "sell", "--json").json["cursors"][0]["lag"] == 1


@pytest.mark.core
@pytest.mark.usefixtures("with_shop")
def test_cursors_of_bindings_that_never_ran_stand_at_0(nova: Nova) -> None:
    found = nova("cursors", "--json").json["cursors"]
    assert [(c["binding"], c["channel"], c["cursor"], c["moved_at"]) for c in found] == [("sell", "orders", 0, None)]


@pytest.mark.core
@pytest.mark.usefixtures("with_shop")
def test_cursors_of_an_unknown_binding_lists_the_known_ones(nova: Nova) -> None:
    output = nova("cursors", "sells")
    assert output.code == 1
    assert "no binding is called 'sells'" in output.err and "sell, take_stock" in output.err


@pytest.mark.usefixtures("store_with_sales")
def test_only_reading_and_writing_data_need_the_warehouse_of_the_catalog(nova: Nova, folder: Path) -> None:
    other = ["--warehouse", folder / "other"]
    assert "orders" in nova("channels", *other).out
    for command in (["read", "orders"], ["gc"]):
        output = nova(*command, *other)
        assert output.code == 1 and "NOVA-WAREHOUSE-MISMATCH" in output.err
    assert not (folder / "other").exists()


@pytest.mark.usefixtures("store_with_sales")
@pytest.mark.parametrize("wrong", ["import a_module_of_nowhere", "1/0", "project = 5", UNSOUND])
@pytest.mark.parametrize(
    "command", ["channels", "timeline orders", "cursors", "plan sell", "read orders", "compact orders"]
)
def test_a_wrong_project_is_refused_by_every_command(nova: Nova, folder: Path, command: str, wrong: str) -> None:
    module = f"wrong_{abs(hash(wrong)) % 10**6}"
    (folder / f"{module}.py").write_text(wrong)
    output = nova("--project", f"{module}:project", *command.split())
    assert output.code == 1 and output.out == "" and "NOVA-" in output.err
    assert len(output.err.splitlines()) <= 5 and "Traceback" not in output.err


@pytest.mark.usefixtures("with_shop")
def test_bindings_are_listed_with_trigger_cursors_last_execution_and_what_is_due(nova: Nova, stub_store: Store) -> None:
    before = {b["name"]: b for b in nova("bindings", "--json").json["bindings"]}
    assert list(before) == ["sell", "take_stock"] and before["sell"]["last"] is None
    stub_store.register(stub_store.project)
    stub_store.insert("orders", ORDERS)
    stub_store.run("sell")
    stub_store.insert("orders", ORDERS[:1])
    found = {b["name"]: b for b in nova("bindings", "--json").json["bindings"]}
    sell, take_stock = found["sell"], found["take_stock"]
    assert sell["cursors"] == [{"channel": "orders", "partition": "", "cursor": 1, "head": 2, "lag": 1}]
    assert (sell["when"], sell["due"], sell["last"]["state"]) == (
        "on_data(orders)",
        {"": "orders is at 2"},
        "committed",
    )
    assert (take_stock["when"], take_stock["due"], take_stock["waits"]) == (None, {}, "the binding runs by hand")
    line = next(line for line in nova("bindings").out.splitlines() if line.startswith("sell"))
    assert "orders 1" in line and "now: orders is at 2" in line and "committed 20" in line
