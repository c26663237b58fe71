"""Files that arrive, under Dagster: a sensor sees them, a run takes them, and the channel shows what came."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions
from nova_assets.dagster_bridge.arrivals import request_receive_run
from nova_assets.dagster_bridge.unreported_commits import collect_missing_events
from nova_assets.store import arrival_watch
from nova_assets.store.arrival_watch import WatchedInboxes

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]


class Deployment:
    def __init__(self, home: Path) -> None:
        self.landing = home / "landing"
        self.landing.mkdir()
        source = nova.files(str(self.landing), min_age="1s")
        actions = nova.Channel(
            "actions",
            schema="id bigint, action string",
            partitions=nova.dynamic("action"),
            source=source,
        )
        self.project = nova.Project(channels=[actions])
        self.where: dict[str, Any] = {"catalog": f"sqlite:///{home}/c.db", "warehouse": str(home / "wh")}
        self.defs = build_definitions(self.project, **self.where)
        self.store = nova.open(self.project, **self.where)
        self.inboxes = WatchedInboxes()

    def put(self, name: str, *rows: Any) -> None:
        hidden = self.landing / f".{name}"
        hidden.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
        os.utime(hidden, (time.time() - 60,) * 2)
        hidden.rename(self.landing / name)

    def tick(self) -> Any:
        """The run that is requested, if there is one."""
        found = request_receive_run(self.store, self.inboxes)
        wanted = [r.run_config["ops"]["receive"]["config"] for r in found.run_requests or ()]
        return wanted[0] if wanted else None


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    made.store.close()


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + 20
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def test_the_sensor_sees_what_arrives(it: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    assert it.tick() == {"channels": ["actions"], "look": True}, "first, all is looked through"
    it.store.receive("actions")
    assert it.tick() is None, "nothing has arrived"
    it.put("a.json", {"id": 1, "action": "view"})
    assert until(it.tick) == {"channels": ["actions"], "look": False}
    assert it.store.receive("actions", look=False).rows == 1, "the run finds what the sensor was told of"
    assert it.tick() is None
    monkeypatch.setattr(arrival_watch, "FULL_LISTING_INTERVAL", 0.0)
    assert it.tick() == {"channels": ["actions"], "look": True}, "now and then all is looked through again"


def test_a_run_receives_and_the_channel_shows_it(it: Deployment) -> None:
    it.put("a.json", {"id": 1, "action": "view"}, {"id": 2, "action": "buy"}, "{oops")
    with dg.DagsterInstance.ephemeral() as instance:
        done = it.defs.resolve_job_def("nova_receive").execute_in_process(instance=instance)
        received = done.output_for_node("receive")["actions"]
        assert (received["files"], received["rows"], received["bad"], received["waiting"]) == (1, 2, 1, 0)
        assert [(why.partition(":")[0], n) for why, n in received["why"].items()] == [("no JSON", 1)]
        events = {(e.asset_key.to_user_string(), e.partition): e for e in collect_missing_events(it.store, instance)}
        assert set(events) == {("actions", "buy"), ("actions", "view"), ("actions_quarantine", None)}
        assert sorted(instance.get_dynamic_partitions("action")) == ["buy", "view"]
    shown = events["actions_quarantine", None].metadata
    assert [shown[f"nova/received_{what}"].value for what in ("files", "rows", "bad")] == [1, 2, 1]


def test_a_source_that_does_not_answer_fails_the_run_and_says_so(it: Deployment) -> None:
    it.landing.rmdir()
    done = it.defs.resolve_job_def("nova_receive").execute_in_process(raise_on_error=False)
    assert not done.success
    (failure,) = [e for e in done.all_events if e.is_step_failure]
    assert "from which files arrive, cannot be read" in str(failure.step_failure_data.error)
    it.store.catalog.arrivals.record_source_listing("actions", it.store.catalog.now())
    found = request_receive_run(it.store, WatchedInboxes())
    assert "from which files arrive, cannot be read" in str(found.skip_reason)


def test_what_is_complete_is_sealed_by_the_run_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_watch, "FULL_LISTING_INTERVAL", 10.0**7)
    start = datetime(2024, 1, 1, 12, tzinfo=UTC)
    landing = tmp_path / "landing"
    landing.mkdir()
    days = nova.Channel(
        "days",
        schema="dt date",
        partitions=nova.daily("dt", start="2024-01-01"),
        source=nova.files(str(landing)),
        seal=nova.seal("dt", lateness="5m"),
    )
    project, now = nova.Project(channels=[days]), [start]
    where: dict[str, Any] = {"catalog": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "wh")}
    with nova.open(project, **where) as store, dg.DagsterInstance.ephemeral() as instance:
        store.catalog.database.clock = lambda: now[0]  # type: ignore[attr-defined]
        inboxes = WatchedInboxes()
        store.receive("days")
        assert not request_receive_run(store, inboxes).run_requests
        now[0] = start + timedelta(hours=12, minutes=4)
        assert not request_receive_run(store, inboxes).run_requests, "what is late is waited for"
        now[0] += timedelta(minutes=2)
        (request,) = request_receive_run(store, inboxes).run_requests or ()
        assert request.run_config["ops"]["receive"]["config"]["look"], "the last look, before it is sealed"
        store.receive("days")
        (request,) = request_receive_run(store, inboxes).run_requests or ()
        assert [s.group for s in store.seal("days")] == ["2024-01-01"]
        assert not request_receive_run(store, inboxes).run_requests
        (event,) = collect_missing_events(store, instance)
        assert isinstance(event, dg.AssetObservation) and event.partition == "2024-01-01"
        assert (event.metadata["nova/sealed"].value, event.metadata["nova/sealed_version"].value) == (
            "dt=2024-01-01",
            1,
        )
        instance.report_runless_asset_event(event)
        assert collect_missing_events(store, instance) == [] and store.catalog.commits.unreported() == [], (
            "it is told once"
        )


def test_without_a_source_there_is_neither_job_nor_sensor(tmp_path: Path) -> None:
    defs = build_definitions(nova.Project(channels=[nova.Channel("c", schema="id bigint")]))
    assert "nova_receive" not in [j.name for j in defs.resolve_all_job_defs()]
