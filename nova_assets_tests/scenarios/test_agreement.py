"""Spark has the last word on queries: what it refuses, and what it makes of them, at each run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import SqlError
from nova_assets.sql.types import query_schema
from nova_assets.testing import World

pytestmark = pytest.mark.spark

SALES = nova.Channel("sales", schema="store string, pieces int, price decimal(10,2), tags map<string,string>")


@pytest.fixture
def run(tmp_path: Path, spark: Any) -> Callable[..., Any]:
    """Make a dataset by a query; gives its rows."""

    def go(sql: str, **functions: str) -> Any:
        (tmp_path / "made.sql").write_text(sql)
        made = nova.datasets(tmp_path, channels=[SALES], functions=functions)
        with World(nova.Project(bindings=made, channels=[SALES]), spark) as store:
            store.insert("sales", [{"store": "Paris", "pieces": 3, "price": "1.50", "tags": None}])
            store.run("made")
            return store.read("made").to_arrow().to_pylist()

    return go


def test_a_type_that_spark_has_otherwise_is_an_error_that_names_both(run: Any, spark: Any) -> None:
    spark.udf.register("doubled", lambda n: 2 * n, "bigint")
    assert run("SELECT doubled(pieces) AS twice FROM sales", doubled="bigint") == [{"twice": 6}]
    with pytest.raises(SqlError, match="nova derives type int for column 'twice', and Spark derives bigint") as caught:
        run("SELECT store,\n  doubled(pieces) AS twice\nFROM sales", doubled="int")
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert "CAST(... AS BIGINT) AS twice" in caught.value.render()
    assert run("SELECT CAST(doubled(pieces) AS INT) AS twice FROM sales", doubled="int") == [{"twice": 6}]


@pytest.mark.core
def test_a_wrong_rule_is_noticed_at_the_run(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = query_schema.schema_of_query

    def wrong(*arguments: Any) -> Any:
        return nova.model.schema.parse_ddl(str(right(*arguments)).replace("bigint", "int"))  # type: ignore[attr-defined]

    monkeypatch.setattr("nova_assets.sql.datasets.graph_builder.schema_of_query", wrong)
    with pytest.raises(SqlError, match="nova derives type int for column 'n', and Spark derives bigint"):
        run("SELECT COUNT(*) AS n FROM sales")


@pytest.mark.parametrize(
    ("sql", "reason", "place"),
    [
        ("SELECT store,\n ARRAY_CONTAINS(pieces, 1) AS at FROM sales", r"DATATYPE_MISMATCH", (2, 2)),
        ("SELECT store, nowhere_known(pieces) AS at FROM sales", r"UNRESOLVED_ROUTINE.*nowhere_known", (1, 15)),
    ],
)
def test_what_spark_refuses_names_the_file_and_the_place(
    run: Any, sql: str, reason: str, place: tuple[int, int]
) -> None:
    with pytest.raises(SqlError, match=rf"(?s)made.sql:{place[0]}:{place[1]}: Spark rejects the query: .*{reason}"):
        run(sql, nowhere_known="int")


@pytest.mark.core
def test_a_task_in_sql_shows_its_own_text(spark: Any) -> None:
    task = nova.sql_task("counted", "SELECT COUNT(*) AS n, nope AS m FROM sales", produces=nova.base("counts"))
    channels = {"sales": SALES, "counts": nova.Channel("counts", schema="n bigint, m int")}
    binding = nova.bind(nova.Workflowette("w", [task]), channels=channels)
    with World(nova.Project([binding]), spark) as store:
        store.insert("sales", [{"store": "Paris", "pieces": 3, "price": "1.50", "tags": None}])
        with pytest.raises(SqlError, match=r"task counted:1:23: Spark rejects the query: .*UNRESOLVED_COLUMN"):
            store.run("w")
