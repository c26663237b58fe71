"""``nova init``: makes what is not there, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest

import nova_assets
from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova


def test_without_a_project_it_makes_catalog_and_warehouse(nova: Nova, folder: Path) -> None:
    output = nova("init")
    assert output.code == 0
    assert f"catalog    sqlite:///{folder}/.nova/catalog.db: created" in output.out
    assert "project    none; name one with --project, NOVA_PROJECT or project in [tool.nova]" in output.out
    assert (folder / ".nova" / "catalog.db").is_file() and (folder / ".nova" / "warehouse").is_dir()


@pytest.mark.usefixtures("with_shop")
def test_it_registers_the_project_and_again_is_silent(nova: Nova) -> None:
    first, second = nova("init", "--json"), nova("init", "--json")
    assert [c["action"] for c in first.json["channels"]] == ["register"] * 4
    assert [c["action"] for c in second.json["channels"]] == ["keep"] * 4
    assert (first.json["catalog"]["made"], second.json["catalog"]["made"]) == (True, False)
    assert first.json["bindings"] == ["sell", "take_stock"]
    assert {c["name"] for c in nova("channels", "--json").json["channels"]} == {"orders", "stock", "archive", "latest"}


@pytest.mark.usefixtures("with_shop")
def test_a_dry_run_says_what_it_would_make_and_makes_nothing(nova: Nova, folder: Path) -> None:
    output = nova("init", "--dry-run")
    assert output.code == 0
    assert "catalog.db: would be created" in output.out and "would be registered" in output.out
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("with_shop")
def test_a_dry_run_says_what_stored_rows_cannot_become(nova: Nova, stub_store: Store) -> None:
    stub_store.register(nova_assets.Channel("orders", merge=nova_assets.Upsert(key="id"), schema="id string"))
    stub_store.insert("orders", [{"id": "one"}])
    planned = nova("init", "--replace", "--dry-run")
    assert planned.code == 1 and "cannot be replaced" in planned.out
    assert "column id is string and cannot become bigint" in planned.out and "nova remove channel orders" in planned.out
    [refusal] = [c["refusal"] for c in nova("init", "--dry-run", "--json").json["channels"] if c["refusal"]]
    assert refusal["code"] == "NOVA-DEFINITION"
    assert refusal["what"] in nova("init", "--replace").err


@pytest.mark.usefixtures("with_shop")
def test_a_changed_definition_is_refused_unless_replace_is_given(nova: Nova, stub_store: Store) -> None:
    stub_store.register(nova_assets.Channel("orders", merge=nova_assets.Upsert(key="id"), schema="id bigint"))
    refused = nova("init")
    assert refused.code == 1 and refused.out == ""
    assert "channel 'orders' is registered with another definition (different: merge, schema)" in refused.err
    assert "nova init --replace" in refused.err

    asked = nova("init", "--dry-run")
    assert asked.code == 1
    assert "--replace registers this one (different: merge, schema)" in asked.out

    accepted = nova("init", "--replace", "--json")
    assert accepted.code == 0
    assert {c["name"]: c["action"] for c in accepted.json["channels"]}["orders"] == "replace"
    assert nova("init").code == 0
