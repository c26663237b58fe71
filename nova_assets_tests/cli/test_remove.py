"""``nova remove``, ``describe``, ``pause``, ``resume``, ``workflowettes`` and ``triggers``, as a person types them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import nova_assets
from nova_assets.cli import remove
from nova_assets.cli.main import cli
from nova_assets.cli.name_completion import DEFINITION_NAME
from nova_assets.store.store import Store
from nova_assets_tests.cli import shop
from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.usefixtures("with_shop")


@pytest.fixture
def store(stub_store: Store) -> Store:
    """Two inserts of orders, of which the first is sold."""
    stub_store.register(stub_store.project)
    stub_store.insert("orders", [{"id": 1, "item": "tea", "price": 2.5}])
    stub_store.insert("stock", [{"item": "tea", "count": 7}])
    stub_store.run("sell")
    stub_store.insert("orders", [{"id": 2, "item": "jam", "price": 4.0}])
    return stub_store


def test_removing_says_first_what_it_orphans_and_needs_a_yes(nova: Nova, store: Store) -> None:
    shown = nova("remove", "channel", "orders", "--dry-run")
    assert shown.code == 0 and "To be removed: channel orders" in shown.out
    refused = nova("remove", "channel", "orders")
    assert refused.code == 2 and "needs --yes" in refused.err
    for text in (shown.out, refused.err):
        words = " ".join(text.split())
        assert "it reads orders, and cannot run any more" in words
        assert "on_data(orders) waits for orders" in words
        assert "it has read orders up to 1 of 2" in words
        assert "2 blocks with 2 rows" in words
    output = nova("remove", "channel", "orders", "--dry-run", "--json").json
    assert output["removes"] == [{"kind": "channel", "name": "orders"}] and not output["removed"]
    assert [o["kind"] for o in output["orphans"]] == ["reader", "trigger", "cursor", "blocks"]
    assert nova("remove", "channel", "orders", "--json").error["code"] == "NOVA-USAGE"
    assert store.catalog.definition_states.statuses() == {}


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_at_a_terminal_it_asks(store: Store, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr(remove, "is_terminal", lambda stream: stream is sys.stdin)
    done = CliRunner().invoke(cli, ["remove", "binding", "sell"], prog_name="nova", input=answer)
    assert done.exit_code == code and "Remove binding sell? [y/N]" in done.stderr
    assert "archive" in done.stderr and "no other binding writes it" in done.stderr
    assert (done.stdout == "Nothing was removed.\n") == (code == 1)
    assert bool(store.catalog.definition_states.statuses()) == (code == 0)


def test_a_removed_binding_does_not_run_until_it_is_taken_back(nova: Nova, store: Store) -> None:
    assert nova("remove", "binding", "sell", "--yes").code == 0
    [sell] = [b for b in nova("bindings", "--json").json["bindings"] if b["name"] == "sell"]
    assert sell["state"] == "removed" and sell["due"] == {} and "nova remove binding sell --undo" in sell["waits"]
    for command in (["run", "sell"], ["plan", "sell"], ["init"]):
        failed = nova(*command)
        assert failed.code == 1 and "[NOVA-DEFINITION-REMOVED]" in failed.err, command
    assert nova("remove", "binding", "sell", "--undo", "--dry-run").out == "binding sell: would be restored\n"
    assert nova("remove", "binding", "sell", "--undo").out == "binding sell: restored\n"
    assert nova("remove", "binding", "sell", "--undo").out == "binding sell is not removed\n"
    assert store.run("sell").state == "committed" and len(store.read("archive").to_spark()) == 2  # type: ignore[arg-type]


def test_a_collection_makes_it_final_and_frees_what_the_cursor_held(nova: Nova, store: Store) -> None:
    store.compact("orders")
    held = [h["range"] for h in nova("gc", "orders", "--dry-run", "--json").json["channels"][0]["held"]]
    assert "Δ(1→2)" in held
    assert "blocks of orders" in nova("remove", "binding", "sell", "--yes").out
    would = nova("gc", "orders", "--dry-run", "--json").json
    done = nova("gc", "orders", "--json").json
    assert would["removals"] == done["removals"] == [{"kind": "binding", "name": "sell"}]
    ranges = [b["range"] for b in done["channels"][0]["collected"]]
    assert "Δ(1→2)" in ranges and [b["range"] for b in would["channels"][0]["collected"]] == ranges
    assert store.cursors("sell") == []
    failed = nova("remove", "binding", "sell", "--undo")
    assert failed.code == 1 and "cannot be taken back" in failed.err
    assert nova("init").code == 1 and nova("init", "--replace").code == 0
    assert nova("bindings", "--json").json["bindings"][0]["state"] == "active"


def test_a_removed_channel_is_collected_whole_and_keeps_its_history(nova: Nova, store: Store) -> None:
    assert nova("remove", "channel", "orders", "--yes").code == 0
    assert "orders" not in {c["name"] for c in nova("channels", "--json").json["channels"]}
    with pytest.raises(nova_assets.DefinitionRemoved):
        store.insert("orders", [{"id": 3, "item": "rum", "price": 1.0}])
    shown = nova("gc")
    assert "the removal of channel orders is now final" in shown.out
    assert "collect" in nova("timeline", "orders").out and store.catalog.histories.of("orders").blocks == ()


def test_a_paused_trigger_waits_and_a_run_by_hand_does_not(nova: Nova, store: Store) -> None:
    assert store.bindings()[0].due
    for kind, name in (("trigger", "sell"), ("binding", "sell"), ("workflowette", "sell"), ("channel", "archive")):
        assert "paused by" in nova("pause", kind, name).out
        state = store.bindings()[0]
        assert state.due == {} and f"{kind} {name} is paused by" in state.waits
        resumed = nova("resume", kind, name, "--json").json
        assert resumed == {"dry_run": False, "kind": kind, "name": name, "state": "active", "status": "active"}
        assert store.bindings()[0].due
    nova("pause", "binding", "sell")
    [trigger] = nova("triggers", "--json").json["triggers"]
    assert trigger["binding"] == "sell" and trigger["when"] == "on_data(orders)" and "binding sell" in trigger["off"]
    assert "binding sell is paused by" in nova("triggers").out
    assert store.run("sell").state == "committed"
    assert nova("pause", "binding", "sell", "--dry-run").out == "binding sell would be paused\n"


def test_a_binding_is_described_with_its_versions_and_what_ran(nova: Nova, store: Store) -> None:
    output = nova("describe", "binding", "sell", "--json").json
    assert output["related"] == {
        "workflowette": ["sell"],
        "reads": ["orders", "stock"],
        "writes": ["archive"],
        "when": ["on_data(orders)"],
    }
    [version] = output["versions"]
    assert (version["version"], version["changes"]) == (1, []) and "@" in version["by"]
    assert [(e["state"], e["version"]) for e in output["executions"]] == [("committed", 1)]
    changed = nova_assets.bind(shop.sell.workflowette, when=nova_assets.every("1h"))
    store.register(nova_assets.Project([changed]))
    later = nova("describe", "binding", "sell", "--json").json["versions"]
    assert [v["changes"] for v in later] == [[], ["when"]]
    text = nova("describe", "binding", "sell", "--version", "2").out
    assert "first version" in text and '"when": "every(1h)"' in text
    assert nova("describe", "binding", "sell", "--version", "3").code == 2
    related = nova("describe", "channel", "orders", "--json").json["related"]
    assert related == {"read by": ["sell"], "written by": []}


def test_workflowettes_and_bindings_outside_the_project_are_listed(
    nova: Nova, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {w["name"]: w for w in nova("workflowettes", "--json").json["workflowettes"]}
    assert found["sell"]["tasks"] == ["check_till", "keep"] and found["sell"]["bindings"] == ["sell"]
    assert "check_till, keep" in nova("workflowettes").out
    monkeypatch.delenv("NOVA_PROJECT")
    output = nova("bindings", "--json").json
    assert output["bindings"] == [] and [b["name"] for b in output["not_in_project"]] == ["sell", "take_stock"]
    assert output["not_in_project"][0]["cursors"] == {"orders": 1}
    assert "orders 1" in nova("bindings").out and nova("remove", "binding", "take_stock", "--yes").code == 0


def test_a_project_that_is_not_registered_yet_can_be_looked_at_and_paused(nova: Nova, folder: Path) -> None:
    assert "reads orders" in nova("remove", "channel", "orders", "--dry-run").out
    assert nova("describe", "binding", "sell", "--json").json["versions"] == []
    assert len(nova("workflowettes", "--json").json["workflowettes"]) == 2
    assert not (folder / ".nova").exists(), "looking changes nothing"
    assert nova("pause", "workflowette", "sell").code == 0
    assert nova("bindings", "--json").json["bindings"][0]["version"] == 1


def test_an_unknown_name_lists_the_known_ones(nova: Nova, store: Store) -> None:
    for command in ("describe", "pause", "resume", "remove"):
        failed = nova(command, "binding", "sel")
        assert failed.code == 1 and "did you mean 'sell'" in failed.err and "NOVA-DEFINITION-NOT-FOUND" in failed.err
    assert nova("describe", "trigger", "take_stock").code == 1, "it has none"
    completed = {kind: DEFINITION_NAME.list_names(store, {"kind": kind}) for kind in ("binding", "trigger", "channel")}
    assert completed["binding"] == ["sell", "take_stock"] and completed["trigger"] == ["sell"]
    assert "orders" in completed["channel"]
    assert nova("remove", "bindings", "sell").code == 2


def test_automatic_maintenance_leaves_time_to_take_a_removal_back(store: Store) -> None:
    from nova_assets.store.maintenance_tick import run_maintenance_tick

    store.remove("binding", "sell")
    run_maintenance_tick(store, {})
    assert store.cursors("sell") and store.undo_removal("binding", "sell")
    store.remove("binding", "sell")
    assert store.collect_removals() and store.cursors("sell") == []
