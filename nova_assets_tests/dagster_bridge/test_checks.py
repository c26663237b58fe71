"""Checks as Dagster shows them: asset checks of channels, evaluated before anything is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

DDL = "k bigint, v bigint"
source = nova.Channel("source", schema=DDL)
table = nova.Channel("table", schema=DDL)
other = nova.Channel("other", schema=DDL)
limit = [0]


@nova.task(consumes=nova.new(source), produces=[nova.delta(table), nova.delta(other)])
def keep(source: list[Row]) -> dict[str, list[Row]]:
    return {"table": source, "other": source}


@nova.check(nova.new(table))
def no_negatives(table: list[Row]) -> nova.CheckResult:
    """Amounts are paid, never owed."""
    found = sum(r["v"] < limit[0] for r in table)
    return nova.CheckResult(not found, f"{found} rows below {limit[0]}", {"below": found})


@nova.check(nova.all(other), blocking=False)
def few(other: list[Row]) -> bool:
    return len(other) < 2


project = nova.Project([nova.bind(nova.Workflowette("w", [keep], checks=[no_negatives, few]))])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    catalog, warehouse = f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh")
    settings = load_settings(catalog=catalog, warehouse=warehouse)
    made = Store(settings, project, open_catalog(catalog), StubEngine(warehouse))
    resources._stores[settings.catalog, settings.warehouse, resources.register_project(project)] = made
    limit[0] = 0
    yield made
    made.close()


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, tuple[str, bool]]:
    return {e.check_name: (e.asset_key.to_user_string(), e.passed) for e in result.get_asset_check_evaluations()}


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "step"), [("per_task", "checks"), ("one", "execute")])
def test_a_failed_check_stops_the_run_before_the_commit(store: Store, steps: Any, step: str) -> None:
    settings = store.settings
    defs = build_definitions(project, catalog=settings.catalog, warehouse=settings.warehouse, steps=steps)
    job, instance = defs.resolve_job_def("w"), dg.DagsterInstance.ephemeral()
    store.insert("source", [{"k": 1, "v": 1}, {"k": 2, "v": -1}])
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    assert verdicts(result) == {"no_negatives": ("table", False), "few": ("other", False)}
    assert [e.step_key.split(".")[-1] for e in result.get_step_failure_events()] == [step]
    assert not result.get_asset_materialization_events()
    assert store.catalog.definitions.channel("table").head == 0 and not store.cursors()
    assert store.executions("w")[0].state == "failed"

    limit[0] = -5  # the check was wrong: mended, the run goes on from its failure with what is staged
    again = job.execute_in_process(instance=instance, raise_on_error=False)
    assert again.success and verdicts(again) == {"no_negatives": ("table", True), "few": ("other", False)}
    assert {e.asset_key.to_user_string() for e in again.get_asset_materialization_events()} == {"table", "other"}
    found = {e.check_name: e for e in again.get_asset_check_evaluations()}
    assert found["no_negatives"].metadata["below"].value == 0
    assert found["few"].severity == dg.AssetCheckSeverity.WARN


def test_a_blocked_execution_is_not_published_by_running_its_last_step_alone(store: Store) -> None:
    defs = build_definitions(project, catalog=store.settings.catalog, warehouse=store.settings.warehouse)
    job, instance = defs.resolve_job_def("w"), dg.DagsterInstance.ephemeral()
    store.insert("source", [{"k": 2, "v": -1}])
    first = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not first.success
    found = store.executions("w")[0]
    with pytest.raises(nova.CheckFailed, match="no_negatives"):
        store.runtime.commit(store.runtime.attach_to_execution(found.id))
    assert store.catalog.definitions.channel("table").head == 0


PER_TASK = [("checks", "no_negatives"), ("checks", "few"), ("commit", "no_negatives"), ("commit", "few")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "expected"), [("per_task", PER_TASK), ("one", [("execute", "no_negatives"), ("execute", "few")])]
)
def test_what_is_found_after_a_conflict_is_reported(
    store: Store, monkeypatch: pytest.MonkeyPatch, steps: Any, expected: list[tuple[str, str]]
) -> None:
    settings = store.settings
    defs = build_definitions(project, catalog=settings.catalog, warehouse=settings.warehouse, steps=steps)
    job, instance = defs.resolve_job_def("w"), dg.DagsterInstance.ephemeral()
    really, rivals = store.catalog.commits.commit, [1]

    def rival(request: Any) -> Any:
        if request.binding and rivals:
            rivals.pop()
            raise nova.CommitConflict("somebody was faster", reason="head")
        return really(request)

    monkeypatch.setattr(store.catalog.commits, "commit", rival)
    store.insert("source", [{"k": 1, "v": 1}])
    result = job.execute_in_process(instance=instance)
    found = [
        (e.step_key.split(".")[-1], e.event_specific_data.check_name)
        for e in result.all_events
        if e.event_type_value == "ASSET_CHECK_EVALUATION"
    ]  # type: ignore[union-attr]
    assert found == expected


def test_names_that_dagster_would_take_for_one(store: Store) -> None:
    channels = {n: nova.Channel(n, schema=DDL) for n in ("table_few", "a", "a_b")}

    @nova.task(consumes=nova.new(source), produces=[nova.delta(c) for c in (table, *channels.values())])
    def spread(source: list[Row]) -> dict[str, list[Row]]:
        return dict.fromkeys(("table", *channels), source)

    def fine(name: str, channel: nova.Channel) -> nova.Check:
        return nova.check(nova.new(channel, as_="rows"), name=name)(lambda rows: True)

    def defined(*checks: nova.Check) -> dg.Definitions:
        made = nova.Project([nova.bind(nova.Workflowette("w", [spread], checks=checks))])
        return build_definitions(made, catalog=store.settings.catalog, warehouse=store.settings.warehouse)

    defined(fine("few", table)).resolve_job_def("w")
    with pytest.raises(nova.DefinitionError, match=r"two checks have the name .* in Dagster"):
        defined(fine("b_c", channels["a"]), fine("c", channels["a_b"]))


def test_checks_are_in_the_asset_graph(store: Store) -> None:
    defs = build_definitions(project, catalog=store.settings.catalog, warehouse=store.settings.warehouse)
    graph = defs.resolve_asset_graph()
    keys = {(k.asset_key.to_user_string(), k.name) for k in graph.asset_check_keys}
    assert keys == {("table", "no_negatives"), ("other", "few")}
    spec = graph.get_check_spec(dg.AssetCheckKey(dg.AssetKey("table"), "no_negatives"))
    assert spec.blocking and spec.description == "Amounts are paid, never owed."
