"""Two nova projects, or one project twice, in one Dagster deployment (``build_definitions(key_prefix=...)``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions, nova_asset
from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.repair import DagsterRepair
from nova_assets.errors import SettingsError
from nova_assets.settings import load_settings
from nova_assets.wiring.open_store import load_project
from nova_assets_tests.dagster_bridge.asset_deployment import DELTA, LISTED, NEW, ORDERS, failure

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

COUNTED = nova.Channel("counted", schema="orders bigint")
LARGEST = nova.Channel("largest", schema="shop string, amount bigint")
PREFIXES = {"eu": ("eu",), "us__shop": ("us", "shop")}


@nova.task(consumes=nova.new(ORDERS), produces=nova.delta(COUNTED))
def count_orders(orders: Any) -> Any:
    return orders.groupBy().count().toDF("orders")


def project(publish: Path) -> nova.Project:
    counting = nova.bind(nova.Workflowette("counting", [count_orders]), when=nova.on_data("orders"))
    both = nova.bind(counting.workflowette, name="never", channels={"counted": nova.Channel("again")}, when=WHEN)
    orders = nova.Channel("orders", schema=ORDERS.schema, publish=nova.hive(str(publish)))
    return nova.Project([counting, both], channels=[orders, LISTED], checks=[nova.checks.not_null(COUNTED, "orders")])


NEW_MODE = {"nova/mode": "new"}
WHEN = nova.on_data("orders") & nova.on_data("listed")


def own_assets() -> list[dg.AssetsDefinition]:
    """Assets as a user writes them, who does not know of a prefix."""

    @dg.asset(key="listed", io_manager_key="nova", metadata=DELTA, ins=NEW)
    def list_orders(orders: pa.Table) -> pa.Table:
        return orders

    @nova_asset(reads={"listed": "all"}, writes=nova.base(LARGEST))
    def largest(listed: pa.Table) -> pa.Table:
        return listed.sort_by([("amount", "descending")]).slice(0, 1)

    @dg.asset(ins=NEW, io_manager_key="nova")
    def mail(orders: pa.Table) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"orders": orders.num_rows})

    return [list_orders, largest, mail]


@dg.asset(ins={"sums": dg.AssetIn(["eu", "listed"]), "orders": dg.AssetIn(["us", "shop", "orders"])})
def outside(sums: pa.Table, orders: pa.Table) -> dg.MaterializeResult[None]:
    """A plain asset of the deployment, which reads a channel of each project."""
    return dg.MaterializeResult(metadata={"eu": sums.num_rows, "us": orders.num_rows})


class Twice:
    """The same project twice in one deployment, each with its own catalog."""

    def __init__(self, root: Path) -> None:
        self.defs = dg.Definitions.merge(
            *(
                build_definitions(
                    project(root / "tables" / name),
                    assets=own_assets(),
                    key_prefix=prefix,
                    catalog=f"sqlite:///{root}/{name}.db",
                    warehouse=str(root / name),
                    steps="one" if name == "eu" else "per_task",
                )
                for name, prefix in PREFIXES.items()
            ),
            dg.Definitions(assets=[outside]),
        )
        self.stores: dict[str, nova.Store] = {n: self.defs.resources[f"{n}__nova"].store() for n in PREFIXES}  # type: ignore[index,union-attr]
        for store in self.stores.values():
            store.register(store.project)
        self.instance = dg.DagsterInstance.local_temp(str(root))

    def run(self, *keys: str) -> dg.ExecuteInProcessResult:
        job = self.defs.resolve_implicit_global_asset_job_def()
        selection = [dg.AssetKey(k.split("/")) for k in keys]
        result = job.execute_in_process(instance=self.instance, asset_selection=selection, raise_on_error=False)
        assert result.success, failure(result)
        return result

    def tick(self, sensor: str) -> Any:
        context = dg.build_sensor_context(instance=self.instance, definitions=self.defs)
        answer = self.defs.get_sensor_def(sensor).evaluate_tick(context)
        for event in answer.asset_events:
            self.instance.report_runless_asset_event(event)
        return answer

    def metadata(self, key: str) -> dict[str, Any]:
        record = self.instance.get_latest_materialization_event(dg.AssetKey(key.split("/")))
        assert record is not None and record.asset_materialization is not None, f"{key} is not materialized"
        return {name: value.value for name, value in record.asset_materialization.metadata.items()}

    def has_materialized(self, key: str) -> bool:
        return self.instance.get_latest_materialization_event(dg.AssetKey(key.split("/"))) is not None


@pytest.fixture
def twice(tmp_path: Path) -> Iterator[Callable[[], Twice]]:
    made: list[Twice] = []

    def build() -> Twice:
        made.append(Twice(tmp_path))
        return made[-1]

    yield build
    for world in made:
        for store in world.stores.values():
            store.close()
        world.instance.dispose()


def test_everything_that_two_projects_give_to_dagster_has_another_name(twice: Callable[[], Twice]) -> None:
    defs = twice().defs
    channels = {"orders", "counted", "again", "listed", "largest", "mail"}
    keys = {k.to_user_string() for k in defs.resolve_all_asset_keys()}
    assert keys == {f"{'/'.join(p)}/{c}" for p in PREFIXES.values() for c in channels} | {"outside"}
    names = [*(j.name for j in defs.jobs or ()), *(s.name for s in defs.sensors or ()), *(defs.resources or ())]
    assert len(names) == len(set(names)) and all(n.startswith(("eu__", "us__shop__")) for n in names)
    assert {"eu__counting", "eu__counting_sensor", "eu__nova_tables", "us__shop__nova_publish"} <= set(names)
    checks = {k.to_user_string() for k in defs.resolve_asset_graph().asset_check_keys}
    assert checks == {"eu/counted:not_null_orders", "us/shop/counted:not_null_orders"}


@pytest.mark.spark
def test_assets_of_one_project_do_not_touch_the_other(twice: Callable[[], Twice]) -> None:
    world = twice()
    eu, us = world.stores.values()
    eu.insert("orders", [{"shop": "Lyon", "amount": 1}, {"shop": "Nice", "amount": 2}])
    us.insert("orders", [{"shop": "Reno", "amount": 7}])
    world.run("eu/listed", "eu/largest", "eu/mail")
    assert world.metadata("eu/listed")["nova/consumed"] == {"orders": {"cursor": 0, "head": 1}}
    assert world.metadata("eu/mail")["orders"] == 2
    assert eu.read("largest").to_arrow().to_pylist() == [{"shop": "Nice", "amount": 2}]
    assert us.timeline("listed") == [] and not world.has_materialized("us/shop/listed")
    world.run("outside")
    assert world.metadata("outside") == {"eu": 2, "us": 1}
    world.tick("eu__nova_publish")  # the cursor of an asset that only reads moves on evidence
    assert {c.binding: c.seq for c in eu.cursors()} == {"listed": 1, "asset:eu/mail": 1}


def test_sensors_look_after_the_channels_of_their_own_project(twice: Callable[[], Twice]) -> None:
    world = twice()
    eu = world.stores["eu"]
    eu.insert("orders", [{"shop": "Lyon", "amount": 1}])
    [request] = world.tick("eu__counting_sensor").run_requests
    assert request.job_name == "eu__counting"
    assert world.tick("us__shop__counting_sensor").run_requests == []
    for _ in range(2):  # a commit counts as reported once Dagster is seen to have it
        world.tick("us__shop__nova_publish")
        world.tick("eu__nova_publish")
    assert world.metadata("eu/orders")["nova/seq"] == 1 and not world.has_materialized("us/shop/orders")
    assert [DagsterRepair(s, world.instance).find_damages().damages for s in world.stores.values()] == [(), ()]
    world.instance.wipe_assets([dg.AssetKey(["eu", "orders"])])
    repair = DagsterRepair(eu, world.instance)
    assert [o.mended for o in repair.repair_damages(repair.find_damages().damages)] == [True]
    assert world.has_materialized("eu/orders")


@pytest.mark.spark
def test_a_binding_under_a_prefix_and_the_table_of_its_input(twice: Callable[[], Twice]) -> None:
    world = twice()
    for name, store in world.stores.items():
        store.insert("orders", [{"shop": "Lyon", "amount": 1}])
        run = world.defs.resolve_job_def(f"{name}__counting").execute_in_process(instance=world.instance)
        assert run.success, failure(run)
        assert [e.asset_key.path for e in run.get_asset_materialization_events()] == [[*PREFIXES[name], "counted"]]
        [checked] = run.get_asset_check_evaluations()
        assert checked.passed and checked.asset_key.path == [*PREFIXES[name], "counted"]
        assert store.read("counted").to_arrow().to_pylist() == [{"orders": 1}]
    published = world.defs.resolve_job_def("eu__nova_tables").execute_in_process(instance=world.instance)
    [shown] = published.get_asset_observation_events()
    assert shown.asset_key is not None and shown.asset_key.path == ["eu", "orders"]
    version = shown.asset_observation_data.asset_observation.tags.get("dagster/data_version")
    assert version == "1", "without the head, Dagster's conditions would take it for a change"


def test_a_key_that_has_the_prefix_keeps_it() -> None:
    @dg.asset(key=["eu", "listed"], metadata=DELTA, ins={"orders": dg.AssetIn(["eu", "orders"], metadata=NEW_MODE)})
    def list_orders(orders: pa.Table) -> pa.Table:
        return orders

    defs = build_definitions(nova.Project([], channels=[ORDERS, LISTED]), assets=[list_orders], key_prefix="eu")
    graph = defs.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["eu", "listed"])).parent_keys == {dg.AssetKey(["eu", "orders"])}
    assert len(graph.get_all_asset_keys()) == 2
    [binding] = defs.resources["eu__nova"].defined_project.bindings  # type: ignore[index,union-attr]
    assert (binding.name, [c.name for c in binding.writes], [c.name for c in binding.reads]) == (
        "listed",
        ["listed"],
        ["orders"],
    )


def test_a_channel_is_taken_only_from_a_key_with_the_prefix() -> None:
    names = DagsterNames(("eu", "shop"))
    assert names.channel(names.key("orders")) == "orders"
    assert names.channel(dg.AssetKey("orders")) is None and names.channel(dg.AssetKey(["us", "shop", "orders"])) is None
    assert DagsterNames().channel(dg.AssetKey(["eu", "orders"])) is None, "another project's channel"
    for one in (names, DagsterNames()):
        for location in ("shop", "a#b"):
            assert DagsterNames.of_publisher(one.publisher(location)) == one
    assert DagsterNames().publisher("shop") == "shop"


def test_the_setting_names_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twice_defined.py").write_text(
        "import dagster as dg, nova_assets as nova\n"
        "from nova_assets.dagster_bridge import build_definitions\n"
        "def project(name): return nova.Project([], channels=[nova.Channel(name)])\n"
        "defs = dg.Definitions.merge(*(build_definitions(project(n), key_prefix=n) for n in ('eu', 'us')))\n"
    )
    (tmp_path / "pyproject.toml").write_text('[tool.nova]\nproject = "twice_defined:defs"\nkey_prefix = "eu"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load_project(load_settings(tmp_path))
    assert loaded is not None and [c.name for c in loaded.channels] == ["eu"]
    default = build_definitions(nova.Project([], channels=[nova.Channel("x")]), root=tmp_path)
    assert {k.to_user_string() for k in default.resolve_all_asset_keys()} == {"eu/x"}
    monkeypatch.setenv("NOVA_KEY_PREFIX", "asia")
    with pytest.raises(SettingsError, match="no project with the key prefix") as refused:
        load_project(load_settings(tmp_path))
    assert "'eu' or 'us'" in str(refused.value.expected)
    with pytest.raises(SettingsError, match="'key_prefix' is no prefix"):
        build_definitions(nova.Project(), key_prefix="e u")
