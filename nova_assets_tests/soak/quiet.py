"""Whether anything is still to be done: what a soak waits for at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from dagster import DagsterInstance, RunsFilter
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES

from nova_assets.model.project import Project
from nova_assets.model.trigger import OnData
from nova_assets_tests.soak.records import Records

LONG_ENOUGH = 25.0
"""Seconds without anything to do, after which nothing will come: two looks of upkeep."""

_LOOK = 2.0


def wait_until_quiet(what_is_left: Callable[[], list[str]], limit: float) -> tuple[float, list[str]]:
    """Wait until nothing was left for long enough.

    Returns:
        The seconds until then; and what was left, where the limit came first.
    """
    began = time.monotonic()
    quiet_since: float | None = None
    left: list[str] = []
    while time.monotonic() - began < limit:
        left = what_is_left()
        now = time.monotonic()
        quiet_since = (quiet_since or now) if not left else None
        if quiet_since is not None and now - quiet_since >= LONG_ENOUGH:
            return quiet_since - began, []
        time.sleep(_LOOK)
    return limit, left or ["something every now and then"]


def left_to_do(records: Records, project: Project, instance: DagsterInstance) -> list[str]:
    """What is left, in the catalog's words and in Dagster's."""
    return [*_unread(records, project), *_alive(records), *_runs(instance)]


def _unread(records: Records, project: Project) -> Iterator[str]:
    heads = records.heads()
    cursors = {(r["binding"], r["channel"]): r["seq"] for r in records.rows("SELECT * FROM nova_cursors")}
    fired = {b.name: _positions(records, b.name) for b in project.bindings}
    for binding in project.bindings:
        for channel in binding.cursor_channels:
            if cursors.get((binding.name, channel.name), 0) < heads.get(channel.name, 0):
                yield f"{binding.name} has not read all of {channel.name}"
        for leaf in binding.triggers:
            assert isinstance(leaf, OnData)
            for name in leaf.channels:
                seen = max(fired[binding.name].get(leaf.position_key(name), 0), cursors.get((binding.name, name), 0))
                if seen < heads.get(name, 0):
                    yield f"{binding.name} has not fired for all of {name}"


def _positions(records: Records, binding: str) -> dict[str, int]:
    query = "SELECT positions FROM nova_firings WHERE binding = :binding ORDER BY n DESC LIMIT 1"
    found = records.json_column(query, binding=binding)
    return found[0] if found else {}


def _alive(records: Records) -> Iterator[str]:
    for row in records.rows("SELECT binding, n FROM nova_firings WHERE state = 'requested'"):
        yield f"firing {row['n']} of {row['binding']} is requested"
    for row in records.rows("SELECT id, binding, state FROM nova_executions WHERE state IN ('running', 'failed')"):
        yield f"execution {row['id']} of {row['binding'] or 'an insert, or upkeep'} is {row['state']}"
    staged = records.column("SELECT count(*) FROM nova_staged")[0]
    if staged:
        yield f"{staged} blocks are staged"


def _runs(instance: DagsterInstance) -> Iterator[str]:
    for run in instance.get_runs(RunsFilter(statuses=list(IN_PROGRESS_RUN_STATUSES))):
        yield f"run {run.run_id} of {run.job_name} is {run.status.value}"
