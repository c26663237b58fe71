"""Executions whose holder is gone: who holds what is told, and ending one by hand is safe (R4, R6)."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections import Counter

import pytest

import nova_assets as nova
from nova_assets.execution.lease import this_process
from nova_assets.model.execution import BeginRequest
from nova_assets.store.store import Store
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.stub_merge import Row

source, copy = (nova.Channel(n, schema="k bigint, v bigint") for n in ("source", "copy"))


@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def mirror(source: list[Row]) -> list[Row]:
    return source


project = nova.Project([nova.bind(nova.Workflowette("mirror", [mirror]))])


def held(store: Store, owner: str, binding: str | None = "mirror", lease: float = 30 * 24 * 3600.0) -> str:
    """An execution that a process of that name began, and says no more of."""
    cursors = () if binding is None else ("source",)
    store.runtime.register_binding(project.binding("mirror"))
    begun = store.catalog.executions.begin(
        BeginRequest(
            uuid.uuid4().hex,
            binding,
            pinned_channels=("source",),
            cursor_channels=cursors,
            owner=owner,
            lease_seconds=lease,
        )
    )
    return begun.id


@pytest.fixture
def gone() -> str:
    """The name of a process of this host that has ended."""
    program = "from nova_assets.execution.lease import this_process; print(this_process())"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_one_of_another_host_is_told_and_is_released_by_force_alone(opened: Opener) -> None:
    store = opened(project)
    store.register(project)
    store.insert("source", [{"k": 1, "v": 1}])
    execution = held(store, "elsewhere:1:1")
    with pytest.raises(nova.ExecutionInProgress, match="elsewhere") as busy:
        store.run("mirror")
    assert (
        busy.value.next == f"wait for it; nova executions shows who holds it, and nova release {execution[:8]} ends it"
    )
    (one,) = store.open_executions()
    assert (one.execution.id, one.holder, one.lapsed, one.may_end) == (execution, "unknown", False, False)
    with pytest.raises(nova.ExecutionInProgress, match="and this host cannot tell whether it is alive") as refused:
        store.release(execution[:8])
    assert f"nova release {execution[:8]} --force" in str(refused.value.next)
    assert store.catalog.executions.get(execution).state == "running"
    store.release(execution[:8], force=True)
    assert store.catalog.executions.get(execution).state == "aborted" and store.open_executions() == []
    store.run("mirror")
    assert Counter(r["k"] for r in store.read("copy").to_spark()) == {1: 1}  # type: ignore[union-attr]
    assert not store.catalog.executions.renew_lease(execution, 1, 60), "whoever held it has lost it"


def test_one_whose_process_is_gone_is_released(opened: Opener, gone: str) -> None:
    store = opened(project)
    store.register(project)
    reader = held(store, gone, binding=None)
    (one,) = store.open_executions()
    assert (one.holder, one.may_end) == ("gone", True)
    assert store.release(reader[:8], dry_run=True).execution.id == reader
    assert store.catalog.executions.get(reader).state == "running"
    store.release(reader[:8])
    assert store.catalog.executions.get(reader).state == "aborted"
    with pytest.raises(nova.ExecutionNotLive, match="no open execution has an id that begins") as unknown:
        store.release(reader[:8])
    assert unknown.value.next == "nova executions"


def test_one_of_a_live_process_is_not_released(opened: Opener, clock: TestClock) -> None:
    store = opened(project)
    store.register(project)
    execution = held(store, this_process(), lease=60)
    clock.advance(120)
    (one,) = store.open_executions()
    assert (one.holder, one.lapsed, one.may_end) == ("alive", True, False)
    with pytest.raises(nova.ExecutionInProgress, match="which runs on this host"):
        store.release(execution)
    with pytest.raises(nova.ExecutionNotLive):
        store.release("")


@pytest.mark.slow
def test_a_run_under_an_ephemeral_instance_is_known_by_its_process(opened: Opener, gone: str) -> None:
    store = opened(project)
    store.register(project)
    held(store, f"dagster:{uuid.uuid4()}@{gone}")
    assert [e.holder for e in store.open_executions()] == ["gone"]
    store.insert("source", [{"k": 1, "v": 1}])
    store.run("mirror")
