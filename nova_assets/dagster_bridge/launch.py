"""Immediate launch of due runs, without waiting for the daemon's next sensor tick.

The daemon evaluates a sensor at most every five seconds. A caller that cannot wait evaluates the same triggers with the
same code, and asks Dagster's webserver to launch the runs. The firing is the same catalog row and the run carries the
sensor's tags. The sensor therefore treats the run as its own: it retries a failed run and requests a missing run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from dagster import DagsterInstance, RunRequest
from dagster._core.errors import DagsterHomeNotSetError
from dagster._core.storage.tags import RUN_KEY_TAG, SENSOR_NAME_TAG

from nova_assets.dagster_bridge.dagster_names import DagsterNames
from nova_assets.dagster_bridge.grouped_triggers import GROUPED_SENSOR, error_of_triggers, stopped_sensor_names
from nova_assets.dagster_bridge.partitions import build_partitions_definition
from nova_assets.dagster_bridge.triggers import answer_trigger, sensor_name
from nova_assets.errors import DagsterUnavailable
from nova_assets.masking import get_logger
from nova_assets.model.binding import Binding
from nova_assets.model.trigger import OnData
from nova_assets.store.store import Store

log = get_logger("nova_assets.triggers")


def launch_due(
    store: Store,
    channels: Iterable[str] | None = None,
    *,
    instance: DagsterInstance | None = None,
    url: str | None = None,
) -> dict[str, list[str]]:
    """Launch the runs that are due now, for example right after an insert. Bindings whose sensor is stopped are left
    out.

    Args:
        store: open store with the project whose bindings are evaluated.
        channels: evaluate only bindings with a data trigger on one of these channels. By default, all bindings.
        instance: Dagster instance; by default the instance of DAGSTER_HOME.
        url: URL of Dagster's webserver; by default ``Settings.dagster_url``.

    Returns:
        Run ids of each binding that was launched.

    Raises:
        DagsterUnavailable: DAGSTER_HOME is not set, or the webserver does not answer or does not know the job. Firings
            stay in the catalog, and the daemon requests their runs.
        Exception: triggers could not be evaluated, and no run was launched. Otherwise such an error is only logged: it
            does not affect the other bindings, and the sensor of its binding shows it.
    """
    channel_filter = None if channels is None else set(channels)
    instance, url = instance or _default_dagster_instance(), url or store.settings.dagster_url
    stopped_sensors, names = stopped_sensor_names(instance), DagsterNames.of(store)
    run_ids_by_binding: dict[str, list[str]] = {}
    errors: list[Exception] = []
    if names.name(GROUPED_SENSOR) in stopped_sensors:
        return run_ids_by_binding
    for binding in store.project.bindings:
        if (
            binding.when is None
            or sensor_name(binding, names) in stopped_sensors
            or not _is_triggered_by_channels(binding, channel_filter)
        ):
            continue
        try:
            answer = answer_trigger(binding, store, instance)
        except Exception as error:
            error.add_note(f"(the trigger of binding {binding.name})")
            log.error("the trigger of %s was not evaluated: %s", binding.name, error)
            errors.append(error)
            continue
        for request in answer.requests:
            run_ids_by_binding.setdefault(binding.name, []).append(_submit_run(binding, request, url, names))
    if errors and not run_ids_by_binding:
        raise error_of_triggers(errors)
    return run_ids_by_binding


def _default_dagster_instance() -> DagsterInstance:
    try:
        return DagsterInstance.get()
    except DagsterHomeNotSetError as error:
        raise DagsterUnavailable(
            "runs can only be launched in the Dagster instance of DAGSTER_HOME",
            found="DAGSTER_HOME is not set",
            next="export DAGSTER_HOME=... as for dagster dev",
        ) from error


def _is_triggered_by_channels(binding: Binding, channels: set[str] | None) -> bool:
    return channels is None or any(channels & set(t.channels) for t in binding.triggers if isinstance(t, OnData))


def _submit_run(binding: Binding, request: RunRequest, webserver_url: str, names: DagsterNames) -> str:
    try:
        from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError
    except ImportError as error:  # the package comes with the webserver
        raise _webserver_unavailable_error(binding, webserver_url, error) from error
    tags = {**request.tags, RUN_KEY_TAG: str(request.run_key), SENSOR_NAME_TAG: sensor_name(binding, names)}
    partitions = build_partitions_definition(binding.dimensions) if request.partition_key else None
    if partitions is not None:
        tags |= partitions.get_tags_for_partition_key(str(request.partition_key))
    at = urlsplit(webserver_url)
    try:
        client = DagsterGraphQLClient(at.hostname or webserver_url, at.port, use_https=at.scheme == "https")
        run_id: str = client.submit_job_execution(names.name(binding.name), tags=tags)
    except (DagsterGraphQLClientError, OSError) as error:
        raise _webserver_unavailable_error(binding, webserver_url, error) from error
    return run_id


def _webserver_unavailable_error(binding: Binding, webserver_url: str, error: Any) -> DagsterUnavailable:
    return DagsterUnavailable(
        f"Dagster's webserver did not launch the run of {binding.name}",
        found=" ".join(str(error).split())[:500],
        expected=f"dagster dev, or dagster-webserver, at {webserver_url}",
        next="nothing: the daemon requests the run; or name the webserver with NOVA_DAGSTER_URL",
        binding=binding.name,
        url=webserver_url,
    )
