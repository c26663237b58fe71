"""Runs whose process is gone: found, reported, and what they held is free."""

from __future__ import annotations

import runpy
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster._core.launcher.sync_in_memory_run_launcher import SyncInMemoryRunLauncher
from dagster._core.utils import make_new_run_id

from nova_assets.dagster_bridge.lost_runs import SENSOR_INTERVAL, SuspectedRuns, report_lost_runs
from nova_assets.execution.runtime import Runtime
from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import BeginRequest
from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import MakeDaemon, opened

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def lost(it: Daemon) -> list[str]:
    """What is reported after two looks, a lease apart."""
    with opened(it) as store:
        store.runtime.project = runpy.run_path(str(it.file))["project"]
        _, suspected = report_lost_runs(store, it.instance, {})
        said, _ = report_lost_runs(store, it.instance, suspected)
        assert said == [], "not at first sight"
        it.later(seconds=store.settings.lease)
        said, _ = report_lost_runs(store, it.instance, suspected)
        it.later(seconds=-store.settings.lease)
        return said


def under_way(it: Daemon, step: str, job: str = "job", **tags: str) -> str:
    """A run that has started a step, and from then on says nothing."""
    run_id = make_new_run_id()
    run = dg.DagsterRun(job, run_id, tags=tags, status=dg.DagsterRunStatus.STARTED)
    it.instance.add_run(run)
    event = dg.DagsterEvent("STEP_START", job, step_key=step)
    it.instance.report_dagster_event(event, run_id)
    return run_id


@pytest.mark.core
def test_a_run_is_lost_when_no_lease_speaks_for_it_and_it_says_nothing(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "w__steps.mirror")
    with opened(it) as store:
        store.catalog.executions.begin(
            BeginRequest("x", "w", ("source", "copy"), ("source",), owner="o", lease_seconds=600, run_id=run_id)
        )
    it.later(minutes=9)
    assert lost(it) == [], "its lease is alive"
    it.later(minutes=2)
    assert lost(it) == [], "lease and grace have not passed since"
    it.later(minutes=5)
    [said] = lost(it)
    assert said.startswith(f"run {run_id} was lost: its process is gone")
    assert it.instance.get_run_by_id(run_id).status == dg.DagsterRunStatus.FAILURE  # type: ignore[union-attr]
    with opened(it) as store:
        assert store.catalog.executions.get("x").state == "aborted"
    assert lost(it) == []


def test_what_a_users_own_step_does_is_its_own_affair_however_long_it_says_nothing(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "my_own_asset")
    with opened(it) as store:
        done = store.catalog.executions.begin(
            BeginRequest("x", "w", ("source",), ("source",), owner="o", lease_seconds=1, run_id=run_id)
        )
        store.catalog.commits.commit(CommitRequest("c", done.id, done.epoch, "w", ()))
    under_way(it, "other_step")  # no run of ours
    it.later(hours=30)
    assert lost(it) == []


def test_a_run_that_is_cancelled_and_whose_process_is_gone_ends_as_cancelled(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "w__steps.mirror", "w", **{"nova/firing": "f"})
    run = it.instance.get_run_by_id(run_id)
    assert run is not None
    it.instance.report_run_canceling(run)
    it.later(minutes=14)
    assert lost(it) == []
    it.later(minutes=2)
    assert len(lost(it)) == 1
    assert it.instance.get_run_by_id(run_id).status == dg.DagsterRunStatus.CANCELED  # type: ignore[union-attr]


def test_one_of_several_executions_of_a_run_is_enough_to_speak_for_it(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "w__steps.mirror")
    with opened(it) as store:
        store.catalog.executions.begin(
            BeginRequest("x", "w", ("source", "copy"), ("source",), owner="o", lease_seconds=9000, run_id=run_id)
        )
        it.later(minutes=1)
        done = store.catalog.executions.begin(
            BeginRequest("y", "b", ("other",), ("other",), owner="o", lease_seconds=60, run_id=run_id)
        )
        store.catalog.commits.commit(CommitRequest("c", done.id, done.epoch, "b", ()))
    it.later(hours=2)
    assert lost(it) == []
    it.later(hours=1)
    assert len(lost(it)) == 1


def test_a_machine_that_slept_fails_no_run(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "w__steps.mirror")
    with opened(it) as store:
        store.runtime.project = runpy.run_path(str(it.file))["project"]
        alive = store.catalog.executions.begin(
            BeginRequest("x", "w", ("source",), ("source",), owner="o", lease_seconds=120, run_id=run_id)
        )
        it.later(hours=8)
        said, suspected = report_lost_runs(store, it.instance, {})
        assert said == [] and run_id in suspected
        it.later(seconds=40)  # its heartbeat is heard again
        assert store.catalog.executions.renew_lease(alive.id, alive.epoch, 120)
        it.later(seconds=100)
        assert report_lost_runs(store, it.instance, suspected) == ([], {})


def test_a_run_that_goes_on_from_a_failure_speaks_for_itself(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    first, second = under_way(it, "w__steps.mirror"), under_way(it, "w__steps.mirror")
    with opened(it) as store:
        store.runtime.project = runpy.run_path(str(it.file))["project"]
        begun = BeginRequest(
            "x", "w", ("source",), ("source",), owner=f"dagster:{first}", lease_seconds=9e4, run_id=first
        )
        store.catalog.executions.begin(begun)
        runtime = Runtime(store.catalog, store.engine, store.project, owner=f"dagster:{second}", lease=9e4)
        assert runtime.attach_to_execution("x", second, lambda owner: False).epoch == 1, "the first may live"
        taken = runtime.attach_to_execution("x", second, lambda owner: owner == f"dagster:{first}")
        assert (taken.epoch, taken.owner, taken.run_id) == (2, f"dagster:{second}", second)
    it.later(hours=2)
    assert lost(it) == []
    it.later(hours=30)
    assert [s.split()[1] for s in lost(it)] == [second]


def starting(it: Daemon, attempt: int = 1) -> str:
    """A run of ``w`` that was launched, and whose process was killed before it began."""
    run_id = make_new_run_id()
    tags = {"nova/firing": "f", "nova/attempt": str(attempt)}
    it.instance.add_run(dg.DagsterRun("w", run_id, tags=tags, status=dg.DagsterRunStatus.STARTING))
    it.now = datetime.now(UTC)
    return run_id


def seconds_until_lost(it: Daemon) -> int:
    with opened(it) as store:
        store.runtime.project = runpy.run_path(str(it.file))["project"]
        suspected: SuspectedRuns = {}
        for seconds in range(0, 1000, SENSOR_INTERVAL):
            said, suspected = report_lost_runs(store, it.instance, suspected)
            if said:
                assert "its process never started" in said[0]
                return seconds
            it.later(seconds=SENSOR_INTERVAL)
    raise AssertionError("it is not lost")


def test_a_run_killed_while_it_starts_is_reported_within_the_start_timeout(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = starting(it)
    assert 40 <= seconds_until_lost(it) <= 60
    assert it.instance.get_run_by_id(run_id).status == dg.DagsterRunStatus.FAILURE  # type: ignore[union-attr]


def test_where_processes_start_slowly_each_attempt_has_twice_the_time(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    waited = []
    for attempt in (1, 2, 3, 9):
        starting(it, attempt)
        waited.append(seconds_until_lost(it))
    assert waited[0] <= 60 < 100 <= waited[1] <= 120 < 200 <= waited[2] <= 240 and waited[3] <= 900


class Healthy(SyncInMemoryRunLauncher):
    """A launcher that can tell how its workers are, as those of Kubernetes and Docker can."""

    supports_check_run_worker_health = True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        return CheckRunHealthResult(WorkerStatus.RUNNING)


def test_a_run_whose_launcher_says_that_it_lives_is_waited_for(
    daemon: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = daemon("nova.on_data(source)")
    starting(it)
    monkeypatch.setattr(it.instance, "_run_launcher", Healthy())
    it.later(minutes=14)
    assert lost(it) == []
