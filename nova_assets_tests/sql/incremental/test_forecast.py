"""``nova plan`` of a maintained query: the forecast is what the next execution does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nova_assets as nova
from nova_assets.cli.main import cli
from nova_assets.engine.spark_engine import SparkEngine

pytestmark = pytest.mark.spark

ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")
TOTALS = nova.Channel("totals", merge=nova.Upsert(key="user"), schema="user int, n bigint")
SQL = "SELECT user, COUNT(*) AS n FROM orders WHERE user >= 0 GROUP BY user"
PROJECT = f"""
import nova_assets as nova
ORDERS = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount int")
TOTALS = nova.Channel("totals", merge=nova.Upsert(key="user"), schema="user int, n bigint")
keep = nova.incremental("keep", "{SQL}", produces=nova.delta(TOTALS))
binding = nova.bind(nova.Workflowette("totals", [keep]), channels={{"orders": ORDERS}})
project = nova.Project([binding], channels=[ORDERS])
"""


def project_of(sql: str = SQL, refresh: Any = "incremental") -> nova.Project:
    keep = nova.incremental("keep", sql, produces=nova.delta(TOTALS), refresh=refresh)
    return nova.Project(
        [nova.bind(nova.Workflowette("totals", [keep]), channels={"orders": ORDERS})], channels=[ORDERS]
    )


@pytest.fixture
def open_store(spark: Any, tmp_path: Path) -> Callable[..., nova.Store]:
    def make(project: nova.Project) -> nova.Store:
        store = nova.open(project, f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", spark)
        store.register(project, replace=True)
        return store

    return make


def run(store: nova.Store) -> str:
    """Run the binding. The forecast before it is what the execution records."""
    [forecast] = store.forecast(store.plan("totals"))
    done = store.run("totals").tasks[0].facts["maintenance"]
    assert forecast.choice.as_json() == {name: value for name, value in done.items() if name != "corrections"}
    assert (forecast.task, forecast.channel) == ("keep", "totals")
    return str(done["strategy"])


def test_the_forecast_is_what_the_execution_does(open_store: Any, spark: Any) -> None:
    with open_store(project_of()) as store:
        store.insert("orders", [{"id": n, "user": n % 3, "amount": n} for n in range(9)])
        assert run(store) == "first rows"
        assert run(store) == "no change"
        store.insert("orders", [{"id": 1, "user": 2, "amount": 7}])
        assert run(store) == "changes"
        store.insert("totals", [{"user": 9, "n": 9}])
        assert run(store) == "comparison"
        store.insert("orders", spark.range(400_000).selectExpr("int(id)", "int(id % 7) user", "int(id) amount"))
        assert run(store) == "replacement"
    with open_store(project_of(SQL.replace(">= 0", ">= 1"))) as store:
        assert run(store) == "comparison"
        [forecast] = store.forecast(store.plan("totals"))
        assert [e.strategy for e in forecast.earlier][:2] == ["comparison", "replacement"]
        assert forecast.steps[0].step.startswith("group by ")
    with open_store(
        project_of("SELECT user, COUNT(*) AS n FROM (SELECT user FROM orders LIMIT 3) GROUP BY user")
    ) as store:
        store.run("totals")
        store.insert("orders", [{"id": 1, "user": 2, "amount": 8}])
        assert run(store) == "comparison"
        [forecast] = store.forecast(store.plan("totals"))
        assert forecast.operators is None


def test_a_strategy_that_was_much_dearer_than_estimated_is_not_chosen_again(
    open_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(project_of(refresh="auto")) as store:
        store.insert("orders", [{"id": n, "user": n % 3, "amount": n} for n in range(9)])
        assert run(store) == "first rows"
        store.insert("orders", [{"id": 0, "user": 1, "amount": 5}])
        with monkeypatch.context() as patched:
            clock = iter([0.0, 100.0])
            patched.setattr(SparkEngine, "cpu_seconds", lambda self: next(clock))
            assert run(store) == "changes"
        store.insert("orders", [{"id": 1, "user": 2, "amount": 5}])
        assert run(store) == "replacement"
        [forecast] = store.forecast(store.plan("totals"))
        now, dear, first = forecast.earlier
        assert first.cpu_seconds is None  # it started the session
        assert dear.cpu_seconds == 100
        assert now.cpu_seconds is not None and 0 < now.cpu_seconds < 60
        assert now.reason.endswith("corrected by what earlier executions cost")


@pytest.mark.core
def test_the_plan_on_the_command_line(open_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipeline.py").write_text(PROJECT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NOVA_CATALOG", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("NOVA_WAREHOUSE", str(tmp_path / "warehouse"))
    with open_store(project_of()) as store:
        store.insert("orders", [{"id": n, "user": n % 3, "amount": n} for n in range(9)])
        store.run("totals")
        store.insert("orders", [{"id": 1, "user": 2, "amount": 7}])
    arguments = ["plan", "totals", "--project", "pipeline:project"]
    plain = CliRunner().invoke(cli, arguments)
    assert plain.exit_code == 0, plain.output
    assert "keep maintains totals: changes" in plain.output
    assert "changes are preferred: changes " in plain.output
    assert "group by " in plain.output and "the change is added to the stored rows" in plain.output
    assert "Earlier executions" not in plain.output
    with_reasons = CliRunner().invoke(cli, [*arguments, "--why"])
    assert "Earlier executions" in with_reasons.output and "this is the first execution" in with_reasons.output
    advice = CliRunner().invoke(cli, [*arguments, "--advise"])
    assert "no layout of an input is known by which this execution would cost less" in advice.output
    [maintenance] = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)["maintenance"]
    assert maintenance["strategy"] == "changes" and maintenance["estimated_cpu_seconds"].keys() == {
        "changes",
        "replacement",
    }
    assert [e["strategy"] for e in maintenance["earlier"]] == ["first rows"]
    assert maintenance["advice"] == []
    timeline = json.loads(CliRunner().invoke(cli, ["timeline", "totals", *arguments[2:], "--json"]).stdout)
    facts = timeline["instants"][-1]["details"]["tasks"][0]["facts"]
    assert facts["maintenance"]["strategy"] == "first rows"
