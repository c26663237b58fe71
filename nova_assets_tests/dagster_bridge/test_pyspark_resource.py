"""The Spark session under Dagster comes from dagster-pyspark's resource: nova's own, or the one that a user gives."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions
from nova_assets.errors import DefinitionError

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]
BRIDGE = Path(nova.__file__).parent / "dagster_bridge"
LISTED = nova.Channel("listed", schema="n bigint")
made: list[Any] = []


class OwnSession(PySparkResource):
    """A user's resource, which hands out a session that it was given."""

    def setup_for_execution(self, context: Any) -> None:
        assert self.spark_config == {"spark.app.name": "own"}
        self._spark_session = made[0]


@pytest.mark.spark
@pytest.mark.parametrize("of_nova", [False, True])
def test_one_resource_makes_the_session_of_all_work(spark: Any, tmp_path: Path, of_nova: bool) -> None:
    made[:] = [spark]

    @dg.asset(key="listed", metadata={"nova/produces": "delta"})
    def numbers() -> Any:
        return spark.range(3).withColumnRenamed("id", "n")

    how: dict[str, Any] = {} if of_nova else {"spark": OwnSession(spark_config={"spark.app.name": "own"})}
    project = nova.Project([], channels=[LISTED])
    where = {"catalog": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "wh")}
    defs = build_definitions(project, assets=[numbers], **where, **how)
    store = defs.resources["nova"].store()  # type: ignore[index,union-attr]
    store.register(store.project)
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    assert result.success and store.engine.session.range(1).sparkSession is not None
    assert store.engine.session is spark or store.engine.session.sparkContext is spark.sparkContext
    assert store.read("listed").to_arrow().num_rows == 3


def test_a_lazy_resource_starts_nothing_before_it_is_needed(tmp_path: Path) -> None:
    class Never(LazyPySparkResource):
        @property
        def spark_session(self) -> Any:
            raise AssertionError("no session is needed")

    resource = Never(spark_config={})
    where = {"catalog": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "wh")}
    store = build_definitions(nova.Project([], channels=[LISTED]), spark=resource, **where).resources["nova"].store()  # type: ignore[index,union-attr]
    store.register(store.project)
    store.insert("listed", [{"n": 1}])
    assert store.read("listed").to_arrow().to_pylist() == [{"n": 1}]


def test_a_resource_without_a_session_is_refused() -> None:
    class Other(dg.ConfigurableResource):  # type: ignore[type-arg]
        pass

    with pytest.raises(DefinitionError, match="PySparkResource or LazyPySparkResource"):
        build_definitions(nova.Project([], channels=[LISTED]), spark=Other())


def test_the_bridge_has_no_other_factory_of_sessions() -> None:
    """dagster-pyspark's resource is the one way: no builder of a session, and one call of the resource."""
    names = [
        (path.name, node.id if isinstance(node, ast.Name) else node.attr)
        for path in sorted(BRIDGE.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
    ]
    assert [file for file, name in names if name == "LazyPySparkResource"] == ["resources.py"]
    assert not [
        file for file, name in names if name in ("SparkSession", "builder", "getOrCreate", "get_or_build_session")
    ]
