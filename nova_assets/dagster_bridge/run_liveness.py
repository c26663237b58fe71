"""Liveness of an execution's owner, as far as Dagster knows (R3). A run that has ended no longer owns an execution."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from dagster import DagsterInstance, DagsterRun

from nova_assets.errors import ExecutionInProgress
from nova_assets.execution.lease import is_owner_dead, this_process
from nova_assets.execution.runtime import Runtime
from nova_assets.model.execution import Execution

_OWNER_PREFIX = "dagster:"

_EPHEMERAL_INSTANCES: WeakValueDictionary[str, DagsterInstance] = WeakValueDictionary()
"""Instance of each run, by run id, for runs of this process under ephemeral instances."""


def execution_owner_of_run(run_id: str, instance: DagsterInstance) -> str:
    """Owner name of a run's executions. The run is the owner, because its steps may be several processes.

    A run under an ephemeral instance lives in this process alone, so its owner name includes the process.
    """
    if not instance.is_ephemeral:
        return f"{_OWNER_PREFIX}{run_id}"
    _EPHEMERAL_INSTANCES[run_id] = instance
    return f"{_OWNER_PREFIX}{run_id}@{this_process()}"


def instance_of_owner(owner: str, default_instance: DagsterInstance) -> DagsterInstance:
    """Instance that knows an owner's run: the ephemeral instance for a run of this process, else the default."""
    run_id = owner.removeprefix(_OWNER_PREFIX).partition("@")[0]
    return default_instance if _find_ephemeral_run(run_id) is None else _EPHEMERAL_INSTANCES[run_id]


def is_dagster_owner_dead(owner: str, instance: DagsterInstance) -> bool:
    """Whether an owner is known to be dead. A run that this instance does not know may live in another instance."""
    run_id, _, process = owner.removeprefix(_OWNER_PREFIX).partition("@")
    if process == this_process():
        return not is_ephemeral_run_active(run_id)
    if process or not owner.startswith(_OWNER_PREFIX):
        return is_owner_dead(owner)
    run = instance.get_run_by_id(run_id)
    return run is not None and run.is_finished


def begin_for_run(
    runtime: Runtime, binding: str, partition: str, instance: DagsterInstance, *, run_id: str, **options: Any
) -> Execution:
    """Begin an execution in a run. An earlier execution whose run has ended is aborted.

    Args:
        options: further arguments of ``Runtime.begin``.

    Raises:
        ExecutionInProgress: an execution of a run that is still active holds the binding and partition.
    """
    try:
        return runtime.begin(binding, partition, run_id=run_id, **options)
    except ExecutionInProgress as busy:
        if not is_dagster_owner_dead(busy.fields.get("owner", ""), instance):
            raise
        runtime.catalog.executions.abort(busy.fields["execution_id"], f"its run has ended; superseded by run {run_id}")
        return runtime.begin(binding, partition, run_id=run_id, **options)


def is_ephemeral_run_active(run_id: str) -> bool:
    """Whether a run under an ephemeral instance of this process is still active."""
    run = _find_ephemeral_run(run_id)
    return run is not None and not run.is_finished


def _find_ephemeral_run(run_id: str) -> DagsterRun | None:
    """Run of this process from its ephemeral instance; None if the instance is gone."""
    instance = _EPHEMERAL_INSTANCES.get(run_id)
    try:
        return None if instance is None else instance.get_run_by_id(run_id)
    except Exception:  # a closed instance has lost its tables
        return None
