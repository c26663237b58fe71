"""Bindings whose executions are one Dagster step (``build_definitions(steps="one")``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import build_reconstructable_job

import nova_assets as nova
from nova_assets import crash_points
from nova_assets_tests.dagster_bridge import single_step_worker as worker

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nova.Store]:
    monkeypatch.setenv("NOVA_TEST_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("NOVA_TEST_BROKEN", str(tmp_path / "broken"))
    (tmp_path / "home").mkdir()
    store: nova.Store = worker.definitions(str(tmp_path)).resources["nova"].store()  # type: ignore[index,union-attr]
    store.register(store.project)
    yield store
    store.close()


def test_a_run_from_failure_keeps_the_pins_and_the_staged_tasks(store: nova.Store, tmp_path: Path) -> None:
    store.insert("orders", [{"shop": "a", "amount": 1}])
    (tmp_path / "broken").touch()
    job = build_reconstructable_job(worker.__name__, "job_of", (str(tmp_path),))
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        failed = dg.execute_job(job, instance=instance)
        assert not failed.success and worker.calls() == ["list_orders", "count_rows", "count_rows"], "with its retry"
        assert store.timeline("listed") == []
        (tmp_path / "broken").unlink()
        store.insert("orders", [{"shop": "b", "amount": 2}])
        from_failure = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
        again = dg.execute_job(job, instance=instance, reexecution_options=from_failure)
        assert again.success and worker.calls()[3:] == ["count_rows"], "the first task is staged already"
        assert store.read("listed").to_arrow().to_pylist() == [{"shop": "a", "amount": 1}], "as the first run read it"
        assert [e.step_key for e in again.get_step_success_events()] == ["w__steps.execute"]
        assert dg.execute_job(job, instance=instance).success
        assert store.read("listed").to_arrow().num_rows == 2


def test_a_commit_is_reported_again_if_its_step_fails_after_it(
    store: nova.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.insert("orders", [{"shop": "a", "amount": 1}])
    job = build_reconstructable_job(worker.__name__, "job_of", (str(tmp_path),))
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as instance:
        with monkeypatch.context() as patched:
            patched.setattr("nova_assets.dagster_bridge.commit_outputs.crash_point", _raise_before_report)
            failed = dg.execute_job(job, instance=instance)
        assert not failed.success and len(store.timeline("listed")) == 1
        from_failure = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
        again = dg.execute_job(job, instance=instance, reexecution_options=from_failure)
        assert again.success and worker.calls() == ["list_orders", "count_rows"], "nothing is computed again"
        assert {e.asset_key.path[-1] for e in again.get_asset_materialization_events()} == {"listed", "counted"}
        assert len(store.timeline("listed")) == 1


def _raise_before_report(name: str) -> None:
    if name == "publish.before":
        raise RuntimeError("the process dies here")
    crash_points.crash_point(name)
