"""Sensor that delivers notifications. It works itself, because a run per notification would cost far more."""

from __future__ import annotations

from dagster import DefaultSensorStatus, SensorDefinition, SensorEvaluationContext, SkipReason

from nova_assets.dagster_bridge.resources import NovaResource

SENSOR_INTERVAL = 30  # seconds

TIME_LIMIT = 20.0
"""Seconds after which a tick begins no further delivery. Dagster ends a tick after 60 s."""


def build_notify_sensor(nova: NovaResource) -> SensorDefinition:
    """Sensor ``nova_notify_sensor``: delivers the notifications that are due to the notifiers of the settings."""

    def on_tick(context: SensorEvaluationContext) -> SkipReason:
        report = nova.store().notify(time_limit=TIME_LIMIT)
        if report.errors:  # the tick succeeds, since deliveries are tried again
            context.log.warning("\n".join(f"{name}: {error}" for name, error in report.errors))
        errors = "".join(f"\n{name}: {error}" for name, error in report.errors)
        return SkipReason(f"{report.delivered} delivered, {report.failed + report.given_up} failed{errors}")

    return SensorDefinition(
        name=nova.names.name("nova_notify_sensor"),
        evaluation_fn=on_tick,
        minimum_interval_seconds=SENSOR_INTERVAL,
        default_status=DefaultSensorStatus.RUNNING,
        description="Delivers notifications to the notifiers of [tool.nova.notify].",
    )
