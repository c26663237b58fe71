"""Attempts of firings: what counts as a failed one, and when the last has failed."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from nova_assets.model.execution import BeginRequest
from nova_assets_tests.dagster_bridge.consumer_world import World, broken, rows

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def _killed(world: World, request: Any, lease: float) -> str:
    """A run of the firing that was killed: Dagster says it failed, its execution still holds its lease."""
    job = world.defs.resolve_implicit_global_asset_job_def()
    run = world.instance.create_run_for_job(job, tags={**request.tags, "dagster/run_key": request.run_key})
    begin = BeginRequest(
        f"x{run.run_id}", "w", ("source", "copy"), ("source",), owner="dagster:elsewhere", lease_seconds=lease
    )
    world.store.catalog.executions.begin(begin)
    world.instance.report_run_failed(run)
    return begin.execution_id


def test_a_firing_waits_for_a_lease_and_does_not_spend_its_attempts_on_it(world: World) -> None:
    world.store.insert("source", rows(1))
    _killed(world, world.tick(), lease=120)
    for _ in range(4):
        assert isinstance(world.tick(), dg.SkipReason)
    assert world.store.catalog.firings.last("w").state == "requested"


def test_an_execution_whose_run_has_ended_is_not_waited_for(world: World) -> None:
    world.store.insert("source", rows(1))
    job = world.defs.resolve_implicit_global_asset_job_def()
    run = world.instance.create_run_for_job(job)
    begin = BeginRequest("dead", "w", ("source", "copy"), ("source",), owner=f"dagster:{run.run_id}", lease_seconds=120)
    world.store.catalog.executions.begin(begin)
    world.instance.report_run_failed(run)
    assert world.run().success


def test_a_run_that_met_an_execution_in_progress_uses_up_no_attempt(world: World) -> None:
    """A run by hand began after the tick. The firing's run fails, as often as the binding has attempts."""
    world.store.insert("source", rows(1))
    for later in range(4):
        request = world.tick(datetime.now(UTC) + timedelta(hours=later))
        assert isinstance(request, dg.RunRequest), request
        begin = BeginRequest(f"hand{later}", "w", ("source", "copy"), ("source",), owner="hand:1", lease_seconds=120)
        world.store.catalog.executions.begin(begin)
        run = world.run(tags={**request.tags, "dagster/run_key": request.run_key})
        assert not run.success
        world.store.catalog.executions.abort(begin.execution_id, "canceled")
    request = world.tick(datetime.now(UTC) + timedelta(hours=9))
    assert world.run(tags={**request.tags, "dagster/run_key": request.run_key}).success


def test_an_abandoned_firing_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.store.insert("source", rows(1))
    for later in range(3):
        request = world.tick(datetime.now(UTC) + timedelta(minutes=later))
        broken.append("again")
        world.run(tags={**request.tags, "dagster/run_key": request.run_key})
    with caplog.at_level(logging.WARNING):
        assert "abandoned after 3 failed runs" in str(world.tick().skip_message)
    assert any("abandoned" in r.getMessage() for r in caplog.records)
