"""Every misspelt name gets the name that was probably meant, whatever it is a name of."""

from __future__ import annotations

from pathlib import Path

import pytest

import nova_assets
from nova_assets.model.schema import parse_ddl
from nova_assets.model.schema_evolution import reconcile_schema
from nova_assets.store.store import Store
from nova_assets.suggestions import similar_names
from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.usefixtures("with_shop")


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("chanels", "channels"),
        ("plan sel", "sell"),
        ("run take_stok", "take_stock"),
        ("cursors Sell_", "sell"),
        ("timeline order", "orders"),
        ("read archiv", "archive"),
        ("channels --catalogue x", "--catalog"),
        ("plan sell --mising", "--missing"),
    ],
)
def test_of_a_command_line(nova: Nova, stub_store: Store, command: str, meant: str) -> None:
    stub_store.register(stub_store.project)
    stub_store.insert("orders", [{"id": 1, "item": "tea", "price": 2.5}])
    output = nova(*command.split())
    assert output.code in (1, 2) and output.out == ""
    assert "Did you mean" in output.err or "did you mean" in output.err or "Possible options" in output.err, output.err
    assert meant in output.err


def test_of_a_column_to_read(nova: Nova, orders_file: Path) -> None:
    assert nova("insert", "orders", orders_file).code == 0
    assert "did you mean 'price'?" in nova("read", "orders", "--columns", "prise").err


def test_of_a_setting(nova: Nova, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.nova]\ncatalogue = "x.db"\n')
    assert "did you mean 'catalog'?" in nova("channels").err


@pytest.mark.parametrize(
    ("definition", "meant"),
    [
        (lambda: nova_assets.Channel("c", merge=nova_assets.Upsert(key="idd"), schema="id bigint"), "id"),
        (lambda: nova_assets.Channel("c", schema="day date", partitions=nova_assets.daily("dya", "2024-01-01")), "day"),
        (lambda: nova_assets.Channel("c", nova_assets.Keyed("k", {"totl": "sum"}), schema="k int, total int"), "total"),
        (lambda: nova_assets.Channel("c", on_schema_change="evolv"), "evolve"),
        (lambda: nova_assets.Keyed("k", {"total": "summ"}), "sum"),
        (lambda: nova_assets.static("kind", ["login", "logout"]).parse("logni"), "login"),
        (lambda: reconcile_schema("c", parse_ddl("id int, amount int"), parse_ddl("amont int"), "freeze"), "amount"),
    ],
)  # fmt: skip
def test_of_a_definition_or_a_row(definition: object, meant: str) -> None:
    with pytest.raises(nova_assets.NovaError) as refused:
        definition()  # type: ignore[operator]
    assert f"did you mean {meant!r}?" in refused.value.what


def test_a_schema_mistake_names_channel_column_and_type() -> None:
    with pytest.raises(nova_assets.SchemaMismatch) as refused:
        reconcile_schema(
            "orders",
            parse_ddl("id bigint, price double"),
            parse_ddl("id string, price double"),
            "freeze",
        )
    assert refused.value.what == "channel 'orders' got data with another schema: column id is string, not bigint"


def test_names_that_are_nothing_alike_are_not_suggested() -> None:
    assert similar_names("orders", ["stock", "archive"]) == []
    assert similar_names("ORDERS", ["stock", "Orders", "order"]) == ["Orders", "order"]


def test_of_the_cursors_of_a_binding(stub_store: Store) -> None:
    stub_store.register(stub_store.project)
    assert stub_store.cursors("sell") == []
    with pytest.raises(nova_assets.BindingNotFound, match="did you mean 'sell'"):
        stub_store.cursors("sel")
