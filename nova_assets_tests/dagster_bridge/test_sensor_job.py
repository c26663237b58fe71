"""The shape of background work: one run at a time, and a pause after a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.utils import make_new_run_id

import nova_assets as nova
from nova_assets.dagster_bridge import NovaResource
from nova_assets.dagster_bridge.resources import register_project
from nova_assets.dagster_bridge.sensor_job import SensorJob, channels_config_field, process_each_channel

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

BUSY = "a run is active, or failed a moment ago"


def process_or_fail(channel: str) -> str:
    if channel.startswith("bad"):
        raise ValueError(f"cannot process {channel}")
    return f"processed {channel}"


def background_work(pause_after_failure: float = 60, evaluates_during_run: bool = False) -> SensorJob:
    return SensorJob(
        name="work",
        op_name="process",
        job_description="Processes channels.",
        sensor_description="Requests a run.",
        run=lambda context, store: dg.Output(
            process_each_channel(context, ["a", "bad", "b"], "processed", process_or_fail)
        ),
        evaluate=lambda context, store: dg.RunRequest(),
        sensor_interval=10,
        pause_after_failure=pause_after_failure,
        config_schema={"channels": channels_config_field("Names of channels.")},
        evaluates_during_run=evaluates_during_run,
    )


@pytest.fixture
def resource(tmp_path: Path) -> NovaResource:
    project = register_project(nova.Project(channels=[nova.Channel("a", schema="id bigint")]))
    return NovaResource(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"), project=project)


def answer(work: SensorJob, resource: NovaResource, instance: dg.DagsterInstance) -> str | int:
    """Number of requested runs, or the reason why none is requested."""
    _, sensor = work.build_definitions(resource)
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance=instance))
    return tick.skip_message or len(tick.run_requests or ())


def execute(work: SensorJob, resource: NovaResource, instance: dg.DagsterInstance, *channels: str) -> Any:
    job, _ = work.build_definitions(resource)
    config = {"ops": {"process": {"config": {"channels": list(channels)}}}}
    defs = dg.Definitions(jobs=[job], resources={"nova": resource})
    return defs.resolve_job_def("work").execute_in_process(config, instance=instance, raise_on_error=False)


def test_no_run_is_requested_while_one_is_active(resource: NovaResource) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert answer(background_work(), resource, instance) == 1
        instance.create_run_for_job(
            background_work().build_definitions(resource)[0],
            run_id=make_new_run_id(),
            status=dg.DagsterRunStatus.STARTED,
        )
        assert answer(background_work(), resource, instance) == BUSY
        assert answer(background_work(evaluates_during_run=True), resource, instance) == 1


def test_after_a_failure_no_run_is_requested_for_the_pause(resource: NovaResource) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert not execute(background_work(), resource, instance).success
        assert answer(background_work(), resource, instance) == BUSY
        assert answer(background_work(pause_after_failure=0), resource, instance) == 1
        assert execute(background_work(), resource, instance, "a").success
        assert answer(background_work(), resource, instance) == 1


def test_a_failing_channel_does_not_block_the_others(resource: NovaResource) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        done = execute(background_work(), resource, instance)
        (failure,) = [e for e in done.all_events if e.is_step_failure]
        assert "bad: cannot process bad" in str(failure.step_failure_data.error)
        assert execute(background_work(), resource, instance, "b").output_for_node("process") == {"b": "processed b"}
