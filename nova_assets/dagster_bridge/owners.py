"""Who holds an execution, as far as Dagster knows (R3): a run that has ended holds nothing any more."""

from __future__ import annotations

from dagster import DagsterInstance

from nova_assets.lease import is_dead
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE
from nova_assets.model.ports import Catalog

_PREFIX = "dagster:"


def owner_of(run_id: str) -> str:
    """How a run signs its executions; its steps may be several processes."""
    return f"{_PREFIX}{run_id}"


def is_gone(owner: str, instance: DagsterInstance) -> bool:
    """Whether an owner is known to be gone. A run that this instance has never seen may live in another one."""
    if not owner.startswith(_PREFIX):
        return is_dead(owner)
    run = instance.get_run_by_id(owner.removeprefix(_PREFIX))
    return run is not None and run.is_finished


def live_execution(
    catalog: Catalog, binding: str, instance: DagsterInstance, partition: str = WHOLE
) -> Execution | None:
    """The execution that a new run of the binding, in that partition, would have to wait for."""
    for latest in catalog.executions(binding, 1, partition):
        held = latest.state == "running" and latest.lease_until >= catalog.now()
        if held and not is_gone(latest.owner, instance):
            return latest
    return None
