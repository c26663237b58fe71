"""A project in YAML: several components are one nova project, and a wrong field is named with its file and line."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import dagster as dg
import pytest
from dagster.components.core.package_entry import discover_entry_point_package_objects
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

import nova_assets as nova
from nova_assets import components
from nova_assets.dagster_bridge import build_definitions
from nova_assets.dagster_bridge.components import channel_attributes as yaml
from nova_assets.errors import DefinitionError
from nova_assets.model.project import Project

pytestmark = pytest.mark.dagster

ORDERS = """
    type: nova_assets.components.Channel
    attributes:
      name: orders
      schema: id bigint, shop string, amount decimal(10,2), day string
      merge: {kind: upsert, key: [id, day], order_by: day}
      partitions:
        - {kind: daily, column: day, start: 2026-01-01}
      source: {location: data/orders, format: csv, on_extra_columns: drop}
      seal: {by: day, lateness: 15m}
      publish:
        - {kind: hive, path: exports/orders}
      owners: ["team:shops"]
      checks: [not_null(id)]
      warn: ["expression(amount > 0)"]
"""
DATASETS = """
    type: nova_assets.components.Datasets
    attributes:
      folder: .
"""
TOTALS = "INSERT OVERWRITE totals\nSELECT shop, SUM(amount) AS total FROM orders GROUP BY shop\n"
TOP = "INSERT OVERWRITE top\nSELECT MAX(total) AS total FROM totals\n"
PROJECT = """
    type: nova_assets.components.Project
    attributes:
      project: .pipeline:project
      assets: [.assets]
"""
PIPELINE = """
    import nova_assets as nova

    prices = nova.Channel("prices", schema="id bigint, price bigint")
    latest = nova.Channel("latest", merge=nova.Upsert(key="id"))

    @nova.task(consumes=nova.new(prices), produces=nova.delta(latest))
    def keep(prices):
        return prices

    project = nova.Project([nova.bind(nova.Workflowette("keep_latest", [keep]), when=nova.on_data(prices))])
"""
ASSETS = """
    import nova_assets as nova
    from nova_assets.dagster_bridge import nova_asset

    @nova_asset(reads={"totals": "new"}, writes=nova.delta(nova.Channel("copies")))
    def copies(totals):
        return totals
"""


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[DefsFolderSandbox]:
    for name in ("NOVA_CATALOG", "NOVA_WAREHOUSE", "NOVA_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    with create_defs_folder_sandbox() as made:
        yield made


def write(sandbox: DefsFolderSandbox, **texts: str) -> None:
    """Files below the folder of definitions: ``orders__defs_yaml`` is ``orders/defs.yaml``."""
    for name, text in texts.items():
        folder, _, file = name.partition("__")
        path = sandbox.defs_folder_path / folder / file.replace("_yaml", ".yaml").replace("_sql", ".sql")
        path = path if path.suffix else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip())


def whole_shop(sandbox: DefsFolderSandbox) -> None:
    write(
        sandbox,
        orders__defs_yaml=ORDERS.replace("not_null(id)", 'not_null(id), "relationships(id, prices.id)"'),
        by_shop__defs_yaml=DATASETS,
        by_shop__totals_sql=TOTALS,
        at_top__defs_yaml=DATASETS + "      refresh: full\n",
        at_top__top_sql=TOP,
        python__defs_yaml=PROJECT,
        python__pipeline=PIPELINE,
        python__assets=ASSETS,
    )


def names(things: Any) -> list[str]:
    return sorted(t.name for t in things or ())


def keys(definitions: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in definitions.resolve_all_asset_keys()}


def yaml_of_asset(definitions: dg.Definitions, key: str) -> str:
    """The YAML file that the UI links to."""
    metadata = definitions.resolve_asset_graph().get(dg.AssetKey(key.split("/"))).metadata
    reference = metadata["dagster/code_references"].code_references[-1]
    return str(Path(reference.file_path).parent.name)


def test_all_components_of_a_code_location_are_one_project(sandbox: DefsFolderSandbox) -> None:
    whole_shop(sandbox)
    with sandbox.build_all_defs() as definitions:
        project: Project = definitions.resources["nova"].defined_project  # type: ignore[index]
        assert names(project.bindings) == ["copies", "keep_latest", "top", "totals"]
        assert (
            keys(definitions)
            == {*names(project.channels)}
            == {*("orders", "orders_quarantine", "totals", "top", "prices", "latest", "copies")}
        )
        by_hand = build_definitions(Project(project.bindings[:-1], channels=project.channels))
        assert names(definitions.sensors) == names(by_hand.sensors), "each sensor once"
        assert names(definitions.jobs) == names(by_hand.jobs)
        checks = {(k.asset_key.path[-1], k.name) for k in definitions.resolve_asset_graph().asset_check_keys}
        assert checks == {("orders", name) for name in ("not_null_id", "relationships_id", "expression")}
        assert {k: yaml_of_asset(definitions, k) for k in sorted(keys(definitions))} == {
            "copies": "python",
            "latest": "python",
            "orders": "orders",
            "orders_quarantine": "orders",
            "prices": "python",
            "top": "at_top",
            "totals": "by_shop",
        }


def test_a_channel_has_everything_that_its_yaml_says(sandbox: DefsFolderSandbox) -> None:
    write(sandbox, orders__defs_yaml=ORDERS)
    with sandbox.build_all_defs() as definitions:
        found = definitions.resources["nova"].defined_project.channel("orders")  # type: ignore[index]
    expected = nova.Channel(
        "orders",
        nova.Upsert(key=["id", "day"], order_by="day"),
        "id bigint, shop string, amount decimal(10,2), day string",
        nova.daily("day", start="2026-01-01"),
        source=nova.files("data/orders", format="csv", on_extra_columns="drop"),
        seal=nova.seal("day", lateness="15m"),
        publish=nova.hive("exports/orders"),
        owners=["team:shops"],
    )
    assert found.as_json() == expected.as_json() and found.owners == expected.owners


def test_policies_of_a_folder_are_those_of_its_datasets_only(sandbox: DefsFolderSandbox) -> None:
    whole_shop(sandbox)
    with sandbox.build_all_defs() as definitions:
        project: Project = definitions.resources["nova"].defined_project  # type: ignore[index]
    requested = {b.name: b.tasks[0].scoped.refresh.requested for b in project.bindings if b.tasks[0].scoped}
    assert requested == {"top": "full", "totals": "auto"}


def test_settings_are_those_of_the_project_wherever_dagster_runs(
    sandbox: DefsFolderSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(sandbox, orders__defs_yaml=ORDERS)
    (sandbox.project_root / "pyproject.toml").write_text('[tool.nova]\nwarehouse = "lake"\n')
    monkeypatch.chdir(tmp_path)
    with sandbox.build_all_defs() as definitions:
        store = definitions.resources["nova"].store()  # type: ignore[index]
    assert Path(store.settings.warehouse) == (sandbox.project_root / "lake").resolve()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("kind: upsert", "kind: upsrt", 5, "attributes.merge.kind: 'upsrt' is unknown; did you mean 'upsert'?"),
        ("key: [id, day]", "keys: id", 5, "attributes.merge.MergeAttributesModel.keys at"),
        ("key: [id, day], ", "", 5, "attributes.merge: kind: upsert needs key"),
        ("kind: upsert, key: [id, day]", "kind: append, key: id", 5, "attributes.merge.key: kind: append takes no key"),
        ("start: 2026-01-01", "start: monday", 7, "attributes.partitions[0]: the start of the partitions"),
        ("id bigint", "id bigger", 4, "attributes.schema"),
        ("lateness: 15m", "lateness: soon", 9, "attributes.seal: a seal"),
        ("path: exports/orders", "path: exports/orders, every: now", 11, "attributes.publish[0]"),
        ("owners:", "retain: forever\n      owners:", 2, "attributes: channel 'orders': retain is 'forever'"),
        ("name: orders", "nam: orders", 3, "nam"),
        ("location: data/orders, ", "", 8, "attributes.source"),
        ("not_null(id)", "not_null(uid)", 13, "no such column"),
        ("expression(amount > 0)", "expresion(amount > 0)", 14, "expresion is no check; did you mean 'expression'?"),
        ("not_null(id)", "''", 13, "attributes.checks[0]"),
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(
    sandbox: DefsFolderSandbox, old: str, new: str, line: int, message: str
) -> None:
    write(sandbox, orders__defs_yaml=ORDERS.replace(old, new))
    text = load_error(sandbox)
    assert f"{Path('orders') / 'defs.yaml'}:{line}" in text
    assert message in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DATASETS.replace("folder: .", "folder: sql"), "attributes.folder: there are no datasets in"),
        (DATASETS + "      functions: ['.rates:rate']\n", "attributes.functions[0]: there is no module"),
        (PROJECT, "attributes.project: there is no module"),
        (PROJECT.replace(".pipeline:project", "shutil:copy"), "attributes.project: shutil:copy is no project"),
        (PROJECT.replace(".pipeline:project", "shutil"), "expected: package.module:attribute"),
        (PROJECT.replace("project: .pipeline:project", "").replace("[.assets]", "[shutil]"), "defines no asset"),
        ("type: nova_assets.components.Project\nattributes: {assets: []}\n", "needs project or assets"),
    ],
)
def test_what_is_not_there_is_named(sandbox: DefsFolderSandbox, text: str, message: str) -> None:
    write(sandbox, folder__defs_yaml=text, folder__x_sql="INSERT OVERWRITE x\nSELECT 1 AS id\n")
    assert message in load_error(sandbox)


def test_two_definitions_of_a_channel_are_refused_with_both_places(sandbox: DefsFolderSandbox) -> None:
    write(sandbox, orders__defs_yaml=ORDERS, sales__defs_yaml=ORDERS)
    error = load_error(sandbox)
    assert "two components define the channel 'orders'" in error and "orders[0] and sales[0]" in error


def test_one_component_names_the_key_prefix_of_all(sandbox: DefsFolderSandbox) -> None:
    whole_shop(sandbox)
    write(sandbox, orders__defs_yaml=ORDERS + "      key_prefix: [eu, shop]\n")
    with sandbox.build_all_defs() as definitions:
        assert {tuple(k.path[:-1]) for k in definitions.resolve_all_asset_keys()} == {("eu", "shop")}
        assert "eu__shop__top" in names(definitions.jobs)
        assert names(definitions.sensors)[0] == "eu__shop__keep_latest_sensor"
        assert yaml_of_asset(definitions, "eu/shop/top") == "at_top", "each component has its share"
        assert yaml_of_asset(definitions, "eu/shop/copies") == "python"
    write(sandbox, at_top__defs_yaml=DATASETS + "      key_prefix: us\n")
    assert "two components name different key prefixes" in load_error(sandbox)


def test_a_python_project_may_repeat_a_channel_and_yaml_has_the_last_word(sandbox: DefsFolderSandbox) -> None:
    prices = "type: nova_assets.components.Channel\nattributes: {name: prices, schema: 'SCHEMA', group: market}\n"
    write(
        sandbox, python__defs_yaml=PROJECT, python__pipeline=PIPELINE, python__assets=ASSETS.replace("totals", "latest")
    )
    write(sandbox, zprices__defs_yaml=prices.replace("SCHEMA", "id bigint, price bigint"))
    with sandbox.build_all_defs() as definitions:
        assert definitions.resources["nova"].defined_project.channel("prices").group == "market"  # type: ignore[index]
    write(sandbox, zprices__defs_yaml=prices.replace("SCHEMA", "id bigint"))
    assert "two components define the channel 'prices'" in load_error(sandbox)


@pytest.mark.parametrize("component", [components.Channel, components.Datasets, components.Project])
def test_what_is_scaffolded_loads(sandbox: DefsFolderSandbox, component: type[dg.Component]) -> None:
    folder = sandbox.scaffold_component(component, defs_path="my-things")
    with sandbox.build_all_defs() as definitions:
        assert keys(definitions) == {"my_things"}
    assert (folder / "defs.yaml").is_file()


def test_a_component_can_be_made_in_python() -> None:
    channel = components.Channel(name="orders", schema="id bigint", merge=yaml.MergeAttributes(kind="upsert", key="id"))
    assert keys(dg.build_defs_for_component(channel)) == {"orders"}
    with pytest.raises(DefinitionError, match="kind: keyed needs key and combine"):
        dg.build_defs_for_component(components.Channel(name="x", merge=yaml.MergeAttributes(kind="keyed")))


def test_dg_finds_the_components_by_their_short_names() -> None:
    (entry,) = (e for e in importlib.metadata.entry_points(group="dagster_dg_cli.registry_modules") if "nova" in e.name)
    found = {k.to_typename() for k in discover_entry_point_package_objects() if k.namespace == entry.value}
    assert found == {f"nova_assets.components.{name}" for name in ("Channel", "Datasets", "Project")}


def fields_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (schema, *schema.get("$defs", {}).values()):
        for name, field in part["properties"].items():
            yield f"{part['title']}.{name}", field


@pytest.mark.parametrize("component", [components.Channel, components.Datasets, components.Project])
def test_every_field_has_a_description_for_editors(component: type[dg.Component]) -> None:
    model = component.get_model_cls()
    assert model is not None
    fields = dict(fields_of(model.model_json_schema()))
    assert fields and [name for name, field in fields.items() if not field.get("description")] == []


@pytest.mark.parametrize(
    ("attributes", "functions"),
    [
        (yaml.MergeAttributes, [nova.Upsert, nova.Keyed, nova.Custom]),
        (yaml.PartitionAttributes, [nova.daily, nova.hourly, nova.static, nova.dynamic]),
        (yaml.SourceAttributes, [nova.files]),
        (yaml.SealAttributes, [nova.seal]),
        (yaml.TableAttributes, [nova.hive, nova.hive_table, nova.iceberg]),
    ],
)
def test_yaml_has_the_fields_of_python(attributes: type[dg.Model], functions: list[Any]) -> None:
    arguments = {name for function in functions for name in inspect.signature(function).parameters}
    assert set(attributes.model_fields) - {"kind"} == arguments


def load_error(sandbox: DefsFolderSandbox) -> str:
    """The messages of the error with which the definitions fail to load, from the outermost to its cause."""
    with pytest.raises(Exception) as raised, sandbox.build_all_defs():
        pass
    texts, error = [], raised.value
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return "\n".join(texts)
