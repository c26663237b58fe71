"""A job with one op, and the sensor that requests its runs one at a time: the shape of all background work.

(This module does not postpone annotations, because Dagster inspects the type of ``context`` when it builds an op.)
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dagster import (
    DagsterRunStatus,
    DefaultSensorStatus,
    Failure,
    Field,
    JobDefinition,
    OpExecutionContext,
    Output,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    job,
    op,
)
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._time import get_current_timestamp

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.store.store import Store

LIFE_SIGN_INTERVAL = 120  # seconds

SensorAnswer: TypeAlias = SensorResult | RunRequest | list[RunRequest] | SkipReason


@dataclass(frozen=True, slots=True)
class SensorJob:
    """A job with one op, and a sensor that requests the job's runs. At most one run is active at a time.

    Args:
        name: name of the job, without a key prefix. The sensor's name is ``<name>_sensor``.
        op_name: name of the op.
        run: the op's work on the open store.
        evaluate: one tick of the sensor.
        sensor_interval: minimum time between two ticks, in seconds.
        pause_after_failure: time after a failed run during which no further run is requested, in seconds.
        config_schema: configuration fields of the op.
        evaluates_during_run: call ``evaluate`` also while no run may be requested.
    """

    name: str
    op_name: str
    job_description: str
    sensor_description: str
    run: Callable[[OpExecutionContext, Store], Output[dict[str, Any]]]
    evaluate: Callable[[SensorEvaluationContext, Store], SensorAnswer]
    sensor_interval: int
    pause_after_failure: float
    config_schema: Mapping[str, Field] = field(default_factory=dict)
    evaluates_during_run: bool = False

    def build_definitions(self, nova: NovaResource) -> tuple[JobDefinition, SensorDefinition]:
        """The job and its sensor."""
        job_definition = self._build_job(nova.names)
        return job_definition, self._build_sensor(nova, job_definition)

    def _build_job(self, names: DagsterNames) -> JobDefinition:
        @op(name=self.op_name, config_schema=dict(self.config_schema), required_resource_keys={names.resource})
        def run_op(context: OpExecutionContext) -> Output[dict[str, Any]]:
            return self.run(context, getattr(context.resources, names.resource).store())

        @job(name=names.name(self.name), description=self.job_description)
        def one_op_job() -> None:
            run_op()

        return one_op_job

    def _build_sensor(self, nova: NovaResource, job_definition: JobDefinition) -> SensorDefinition:
        job_name = job_definition.name

        def on_tick(context: SensorEvaluationContext) -> SensorAnswer:
            if not self.evaluates_during_run and is_job_busy_or_paused(context, job_name, self.pause_after_failure):
                return SkipReason("a run is active, or failed a moment ago")
            return self.evaluate(context, nova.store())

        return SensorDefinition(
            name=f"{job_name}_sensor",
            job=job_definition,
            evaluation_fn=on_tick,
            minimum_interval_seconds=self.sensor_interval,
            default_status=DefaultSensorStatus.RUNNING,
            description=self.sensor_description,
        )


def channels_config_field(description: str) -> Field:
    """Config field ``channels``: names of the channels that a run processes, empty by default."""
    return Field([str], default_value=[], description=description)


def build_channels_run_request(op_name: str, channels: list[str], **op_config: object) -> RunRequest:
    """Request for a run that processes these channels."""
    return RunRequest(run_config={"ops": {op_name: {"config": {"channels": channels, **op_config}}}})


def process_each_channel(
    context: OpExecutionContext,
    channels: Iterable[str],
    activity: str,
    process_channel: Callable[[str], Any],
    tolerated_error: type[Exception] = Exception,
) -> dict[str, Any]:
    """Process channels one after the other, and return the result of each. A failing channel does not block the others.

    Args:
        channels: names of the channels. If the run's configuration names channels, these are processed instead.
        activity: past participle for the log, as in "orders is still being compacted".
        process_channel: function from a channel's name to its result.
        tolerated_error: type of the errors after which the next channel is processed.

    Raises:
        Failure: at least one channel failed.
    """
    results: dict[str, Any] = {}
    errors: dict[str, Exception] = {}
    for channel in context.op_config["channels"] or channels:
        try:
            with log_periodically(context.log.info, f"{channel} is still being {activity}"):
                results[channel] = process_channel(channel)
        except tolerated_error as error:
            context.log.error(f"{channel}: {error}")
            errors[channel] = error
    if errors:
        raise Failure("\n".join(f"{channel}: {error}" for channel, error in errors.items()), allow_retries=False)
    return results


def is_job_busy_or_paused(context: SensorEvaluationContext, job_name: str, pause_after_failure: float) -> bool:
    """Whether a run of the job is active, or the last run failed less than ``pause_after_failure`` seconds ago."""
    unfinished_runs = RunsFilter(job_name=job_name, statuses=list(NOT_FINISHED_STATUSES))
    if context.instance.get_run_records(unfinished_runs, limit=1):
        return True
    for record in context.instance.get_run_records(RunsFilter(job_name=job_name), limit=1):
        status, ended = record.dagster_run.status, record.end_time or 0
        return status == DagsterRunStatus.FAILURE and get_current_timestamp() < ended + pause_after_failure
    return False


@contextmanager
def log_periodically(log_message: Callable[[str], None], message: str) -> Iterator[None]:
    """Log a message regularly while the body runs, because the sensor ``nova_janitor`` reports silent runs as lost."""
    stopped = threading.Event()

    def log_until_stopped() -> None:
        while not stopped.wait(LIFE_SIGN_INTERVAL):
            with suppress(Exception):  # Dagster's storage may be busy; the next message may succeed
                log_message(message)

    logging_thread = threading.Thread(target=log_until_stopped, name="nova-life-sign", daemon=True)
    logging_thread.start()
    try:
        yield
    finally:
        stopped.set()
        logging_thread.join()
