"""Runs that are launched at insert time. The real webserver launches them in scenarios/test_dagster_dev.py."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorStatus

import nova_assets as nova
from nova_assets.dagster_bridge import launch, launch_due
from nova_assets.store.store import Store
from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import MakeDaemon, comes_to_rest, firings, insert, keys, opened

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

NOBODY = "http://127.0.0.1:9"


def with_project(it: Daemon) -> Store:
    store = opened(it)
    store.runtime.project = runpy.run_path(str(it.file))["project"]
    return store


def test_what_could_not_be_launched_is_requested_by_the_daemon(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    insert(it, "source", 1)
    with with_project(it) as store:
        with pytest.raises(nova.DagsterUnavailable, match=r"(?s)w.*the daemon requests the run"):
            launch_due(store, ["source"], instance=it.instance, url=NOBODY)
        assert firings(it) == [(1, "requested")] and it.runs() == []
    comes_to_rest(it)
    assert firings(it) == [(1, "committed")] and len(it.runs()) == 1 and keys(it, "copy") == [1]


def test_only_what_is_due_by_this_channel_is_launched(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    with with_project(it) as store:
        assert launch_due(store, ["source"], instance=it.instance, url=NOBODY) == {}, "nothing is new"
        insert(it, "source", 1)
        assert launch_due(store, ["other", "copy"], instance=it.instance, url=NOBODY) == {}
        assert launch_due(store, [], instance=it.instance, url=NOBODY) == {}
        assert firings(it) == []


def test_the_error_of_a_binding_does_not_stop_the_launch_of_the_others(
    daemon: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = daemon("nova.on_data(source)")
    insert(it, "source", 1)
    insert(it, "daily", 1, day="2024-01-01")
    monkeypatch.setattr(launch, "_submit_run", lambda binding, *others: f"run of {binding.name}")
    with with_project(it) as store:
        last = store.catalog.firings.last

        def last_unless_damaged(binding: str, partition: str = "") -> Any:
            if binding == "w":
                raise nova.CatalogUnavailable("its row is damaged")
            return last(binding, partition)

        monkeypatch.setattr(store.catalog.firings, "last", last_unless_damaged)
        assert launch_due(store, instance=it.instance) == {"d": ["run of d"]}
        with pytest.raises(nova.CatalogUnavailable, match="damaged"):
            launch_due(store, ["source"], instance=it.instance)


def test_a_trigger_that_is_switched_off_stays_off(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    insert(it, "source", 1)
    states = it.instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    [state] = [s for s in states if s.instigator_name == "w_sensor"]
    it.instance.update_instigator_state(state.with_status(InstigatorStatus.STOPPED))
    with with_project(it) as store:
        assert launch_due(store, instance=it.instance, url=NOBODY) == {} and firings(it) == []


def test_without_a_dagster_home_it_says_so(daemon: MakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    it = daemon("nova.on_data(source)")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with with_project(it) as store, pytest.raises(nova.DagsterUnavailable, match="DAGSTER_HOME"):
        launch_due(store)
