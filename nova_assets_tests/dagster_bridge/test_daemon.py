"""Triggers at the level of the daemon's own iterations, with a clock of the test's, killed between any two steps."""

from __future__ import annotations

import logging
import runpy
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._daemon.auto_run_reexecution.auto_run_reexecution import consume_new_runs_for_automatic_reexecution

from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import BeginRequest
from nova_assets_tests.dagster_bridge import daemon as daemons
from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import MakeDaemon, comes_to_rest, firings, insert, keys, opened
from nova_assets_tests.effort import EXHAUSTIVE, by_hand, long_except

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

KILLS = [
    "fire.before",
    "fire.after",
    "TICK_CREATED",
    "TICK_HELD",
    "RUN_CREATED",
    "begin.before",
    "begin.after",
    "stage.recorded",
    "stage.written",
    "task.after",
    "commit.before",
    "commit.inside",
    "commit.after",
    "publish.before",
    "publish.after",
    "RUN_LAUNCHED",
]


def killed_at(point: str, *, forgets: bool) -> Any:
    """A kill. Once a run exists, the harder case is that Dagster forgets, too: the other one is tried by hand."""
    is_before_run = KILLS.index(point) <= KILLS.index("RUN_CREATED")
    is_short = (point, forgets) == ("commit.after", False)
    marks = [] if is_short else [*EXHAUSTIVE]
    marks += [] if forgets or is_before_run or point == "commit.after" else [by_hand]
    return pytest.param(point, forgets, id=f"{point}-{'cursors-reset' if forgets else ''}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("point", "forgets"), [killed_at(p, forgets=f) for p in KILLS for f in (False, True)])
def test_a_daemon_killed_anywhere_loses_no_firing_and_repeats_none(
    daemon: MakeDaemon, point: str, forgets: bool
) -> None:
    it = daemon("nova.on_data(source)")
    insert(it, "source", 1, 2)
    it.later(minutes=1)
    it.is_killed(point)
    if forgets:
        it.forgets()
    comes_to_rest(it)
    assert firings(it) == [(1, "committed")]
    assert keys(it, "copy") == [1, 2]
    with opened(it) as store:
        assert [i.seq for i in store.timeline("copy") if i.action == "commit"] == [1], "exactly one commit"

    insert(it, "source", 3)
    comes_to_rest(it)
    assert firings(it) == [(2, "committed")] and keys(it, "copy") == [1, 2, 3]


def fired(daemon: Daemon) -> list[str]:
    """Why each run of ``w`` was requested, oldest first."""
    return [t["nova/why"] for t in daemon.tags() if t.get("nova/binding") == "w"]


def test_data_waits_until_there_is_enough_or_it_is_old_enough(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source, rows=3, older_than='1h')")
    insert(it, "source", 1, 2)
    it.later(minutes=5)
    it.iterate()
    assert fired(it) == []
    insert(it, "source", 3)
    comes_to_rest(it)
    [first] = fired(it)
    assert first.startswith("source has 2 blocks, 3 rows") and keys(it, "copy") == [1, 2, 3]

    insert(it, "source", 4)
    it.later(minutes=50)
    it.iterate()
    assert len(fired(it)) == 1
    it.later(minutes=15)
    it.iterate()
    assert len(fired(it)) == 2 and "1 blocks, 1 rows" in fired(it)[1] and keys(it, "copy") == [1, 2, 3, 4]


def test_blocks_and_bytes_are_counted_too(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source, blocks=2) | nova.on_data(other, bytes=1)")
    insert(it, "source", 1)
    it.later(minutes=1)
    it.iterate()
    assert fired(it) == []
    insert(it, "other", 1)
    comes_to_rest(it)
    assert len(fired(it)) == 1 and fired(it)[0].startswith("other has 1 blocks")
    insert(it, "source", 2)
    comes_to_rest(it)
    assert len(fired(it)) == 1, "the run before has read the first, so there is one block again"
    insert(it, "source", 3)
    comes_to_rest(it)
    assert len(fired(it)) == 2 and keys(it, "copy") == [1, 2, 3]


def test_times_that_were_missed_make_one_catch_up_and_it_is_said(daemon: MakeDaemon) -> None:
    hour = (datetime.now(ZoneInfo("America/New_York")).hour + 12) % 24  # far from the minutes that pass meanwhile
    it = daemon(f"nova.cron('0 {hour} * * *', tz='America/New_York')")
    it.later(days=3)  # nobody was there
    comes_to_rest(it, minutes=1)
    [why] = fired(it)
    assert "was due 3 times" in why and "which gives one firing" in why
    it.later(days=1)
    comes_to_rest(it, minutes=1)
    assert len(fired(it)) == 2 and fired(it)[1] == f"cron(0 {hour} * * *, America/New_York) is due"


def test_every_fires_at_once_and_then_by_its_period(daemon: MakeDaemon) -> None:
    it = daemon("nova.every('1h')")
    comes_to_rest(it)
    it.later(minutes=30)
    it.iterate()
    assert len(fired(it)) == 1
    it.later(minutes=30)
    it.iterate()
    assert len(fired(it)) == 2


@pytest.mark.parametrize("status", long_except(["launched", "succeeded", "failed"], "succeeded"))
def test_a_binding_fires_after_another(daemon: MakeDaemon, status: str) -> None:
    it = daemon(f"nova.after('b', status='{status}')")
    with opened(it) as store:
        for n, ended in enumerate(("conflict", "failed", "committed")):
            before = len(fired(it))
            begun = store.catalog.executions.begin(
                BeginRequest(f"x{n}", "b", ("other", "second"), ("other",), owner="o", lease_seconds=9e9)
            )
            if ended == "failed":
                store.catalog.executions.fail(begun.id, begun.epoch, "it broke")
            elif ended == "conflict":
                store.catalog.executions.abort(begun.id, "another was first", counts_as_failure=False)
            else:
                store.catalog.commits.commit(CommitRequest(f"c{n}", begun.id, begun.epoch, "b", ()))
            comes_to_rest(it)
            fires = status == "launched" or status == {"committed": "succeeded"}.get(ended, ended)
            assert len(fired(it)) - before == int(fires), f"{ended}: {fired(it)}"


def test_all_of_several_fires_once_and_several_firings_of_a_part_count_as_one(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source) & nova.on_data(other)")
    for k in (1, 2, 3):
        insert(it, "source", k)
        it.later(minutes=1)
        it.iterate()
    assert fired(it) == []
    insert(it, "other", 1)
    comes_to_rest(it)
    assert len(fired(it)) == 1 and keys(it, "copy") == [1, 2, 3]
    insert(it, "other", 2)
    comes_to_rest(it)
    assert len(fired(it)) == 1, "the other part has not fired since"
    insert(it, "source", 4)
    comes_to_rest(it)
    assert len(fired(it)) == 2


@pytest.mark.parametrize(
    ("when", "watched"),
    [
        ("nova.on_data(source) & nova.on_data(other)", ["source", "other"]),
        ("nova.on_data(source, other) | nova.every('1h')", ["source", "other"]),
        ("nova.on_data(source) & nova.every('1h')", None),
    ],
)
def test_a_trigger_over_several_channels_names_the_assets_that_it_watches(
    daemon: MakeDaemon, when: str, watched: list[str] | None
) -> None:
    it = daemon(when)
    [sensor] = [s for s in runpy.run_path(str(it.file))["defs"].sensors if s.name == "w_sensor"]
    assert isinstance(sensor, dg.MultiAssetSensorDefinition) is (watched is not None)
    assert watched is None or f"Watches {' and '.join(watched)}." in sensor.description
    insert(it, "source", 1)
    insert(it, "other", 1)
    comes_to_rest(it)
    assert keys(it, "copy") == [1]


def test_time_and_data_together(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source) & nova.cron('0 * * * *')")
    insert(it, "source", 1)
    at_the_hour = it.now.replace(minute=0, second=0) + timedelta(hours=1)
    it.now = at_the_hour - timedelta(seconds=30)
    it.iterate()
    assert fired(it) == []
    it.now = at_the_hour + timedelta(seconds=30)
    it.iterate()
    assert keys(it, "copy") == [1]
    it.later(hours=1)
    it.iterate()
    assert len(fired(it)) == 1, "an hour without data"


def test_partitions_fire_each_by_itself(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    insert(it, "daily", 1, day="2024-01-01")
    comes_to_rest(it)
    insert(it, "daily", 2, day="2024-01-02")
    comes_to_rest(it)
    assert firings(it, "d", "day=2024-01-01") == firings(it, "d", "day=2024-01-02") == [(1, "committed")]
    assert keys(it, "sums") == [1, 2]


def test_runs_that_fail_are_tried_again_later_and_later_and_then_abandoned(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    (it.root / "broken").touch()
    insert(it, "source", 1)
    it.later(minutes=1)
    it.iterate()
    assert [s for _, s in it.runs()] == ["FAILURE"]
    for minutes, runs in ((5, 1), (6, 2), (15, 2), (6, 3)):  # 10 minutes, then 20
        it.later(minutes=minutes)
        it.iterate()
        assert len(it.runs()) == runs, minutes
    it.later(minutes=1)
    it.iterate()
    assert firings(it) == [(1, "abandoned")] and keys(it, "copy") == []
    with opened(it) as store:
        last = store.catalog.firings.last("w")
        assert last is not None and last.why.startswith("3 runs failed, the last of them ")

    (it.root / "broken").unlink()
    insert(it, "source", 2)
    comes_to_rest(it)
    assert firings(it) == [(2, "committed")] and keys(it, "copy") == [1, 2], "nothing is lost by that"


@pytest.fixture
def with_run_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "HOME", f"{daemons.HOME}\nrun_retries:\n  enabled: true\n  max_retries: 2\n")


def retried_by_dagster(it: Daemon) -> None:
    """What Dagster's own daemon does about runs that have failed, where ``run_retries`` are on."""
    failed = it.instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    list(consume_new_runs_for_automatic_reexecution(it.workspace, failed, logging.getLogger("dagster.retries")))


def test_with_run_retries_a_firing_has_as_many_runs_as_announced(with_run_retries: None, daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    (it.root / "broken").touch()
    insert(it, "source", 1)
    for _ in range(4):
        it.later(minutes=45)
        it.iterate()
        retried_by_dagster(it)
    assert [key for key, _ in it.runs()] == ["w#1#1", "w#1#2", "w#1#3"] and firings(it) == [(1, "abandoned")]


def test_a_run_that_has_answered_its_firing_and_is_run_again_answers_no_other(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    insert(it, "source", 1)
    comes_to_rest(it)
    [tags] = [t for t in it.tags() if t.get("nova/binding") == "w"]
    location: Any = it.workspace.create_request_context().code_locations[0]
    [repository] = location.get_repositories().values()
    job = location.get_reconstructable_job(repository.name, "w")
    assert dg.execute_job(job, it.instance, tags=tags).success
    with opened(it) as store:
        assert [e.firing_id for e in store.executions("w", 2)] == [None, tags["nova/firing"]]


def test_a_run_that_somebody_cancels_is_not_tried_again(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    insert(it, "source", 1)
    it.later(minutes=1)
    it.is_killed("begin.after")
    [run] = it.instance.get_runs()
    it.instance.report_run_canceled(run)
    comes_to_rest(it, statuses=("CANCELED", "SUCCESS"))
    assert firings(it) == [(1, "abandoned")] and len(it.runs()) == 1
    insert(it, "source", 2)
    comes_to_rest(it, statuses=("CANCELED", "SUCCESS"))
    assert firings(it) == [(2, "committed")] and keys(it, "copy") == [1, 2]


def test_a_day_that_dagster_does_not_know_keeps_no_other_from_its_run(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    with opened(it) as store:
        store.insert("daily", [{"day": "2924-01-01", "k": 1}, {"day": "2024-01-02", "k": 2}])
    comes_to_rest(it)
    assert firings(it, "d", "day=2024-01-02") == [(1, "committed")] and firings(it, "d", "day=2924-01-01") == []
