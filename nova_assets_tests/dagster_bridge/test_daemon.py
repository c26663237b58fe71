"""Triggers at the level of the daemon's own iterations, with a clock of the test's, killed between any two steps."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.utils import make_new_run_id

from nova_assets.dagster_bridge import resources
from nova_assets.dagster_bridge.janitor import report_lost
from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import Begin
from nova_assets.runtime import Runtime
from nova_assets.settings import load_settings
from nova_assets.store import Store
from nova_assets_tests.dagster_bridge.daemon import Daemon

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

DEFINITIONS = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

DDL = "k bigint, v bigint"
source, other, copy, second = (nova.Channel(n, schema=DDL) for n in ("source", "other", "copy", "second"))
day = nova.daily("day", start="2024-01-01")
daily, sums = (nova.Channel(n, schema="day string, k bigint", partitions=day) for n in ("daily", "sums"))

@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def mirror(source):
    import pathlib
    broken = pathlib.Path(__file__).with_name("broken")
    if broken.exists():
        raise ValueError("still broken")
    return source

@nova.task(consumes=nova.new(other), produces=nova.delta(second))
def again(other):
    return other

@nova.task(consumes=nova.new(daily), produces=nova.delta(sums))
def by_day(daily):
    return daily

w = nova.bind(nova.Workflowette("w", [mirror]), when={when}, attempts=3, backoff="10m")
b = nova.bind(nova.Workflowette("b", [again]))
d = nova.bind(nova.Workflowette("d", [by_day]), when=nova.on_data(daily))
project = nova.Project([w, b, d])
defs = build_definitions(project, catalog={catalog!r}, warehouse={warehouse!r})
"""

MakeDaemon = Callable[[str], Daemon]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeDaemon]:
    made = Daemon(tmp_path, datetime.now(UTC).replace(microsecond=0))  # Dagster's own events carry the real time
    monkeypatch.setattr(resources, "open_store", made.opener)

    def with_trigger(when: str) -> Daemon:
        text = DEFINITIONS.replace("{when}", when)
        text = text.replace("{catalog!r}", repr(made.catalog)).replace("{warehouse!r}", repr(made.warehouse))
        made.file.write_text(text)
        with opened(made) as store:
            store.register(runpy.run_path(str(made.file))["project"])
        made.iterate()
        return made

    with made.held:
        yield with_trigger


def opened(daemon: Daemon) -> Store:
    return daemon.opener(None, settings=load_settings(catalog=daemon.catalog, warehouse=daemon.warehouse))


def insert(daemon: Daemon, channel: str, *keys: int, **more: Any) -> None:
    with opened(daemon) as store:
        store.insert(channel, [{**more, "k": k} if more else {"k": k, "v": k} for k in keys])


def keys(daemon: Daemon, channel: str) -> list[int]:
    with opened(daemon) as store:
        return sorted(r["k"] for r in store.read(channel).to_spark())  # type: ignore[union-attr]


def firings(daemon: Daemon, binding: str = "w", partition: str = "") -> list[tuple[int, str]]:
    """The numbers of all firings, and what became of them."""
    with opened(daemon) as store:
        last = store.catalog.last_firing(binding, partition)
        return [] if last is None else [(last.n, last.state)]


def comes_to_rest(daemon: Daemon, minutes: float = 5, statuses: tuple[str, ...] = ("SUCCESS", "FAILURE")) -> None:
    """Iterate until nothing is under way any more, and once more."""
    resting = 0
    for _ in range(15):
        daemon.later(minutes=minutes)
        daemon.iterate()
        ended = all(state != "requested" for _, state in firings(daemon))
        ended = ended and all(status in statuses for _, status in daemon.runs())
        resting = resting + 1 if ended else 0
        if resting == 2:
            return
    raise AssertionError(f"it does not come to rest: {firings(daemon)}, {daemon.runs()}")


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


@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True], ids=["", "cursors-reset"])
@pytest.mark.parametrize("point", KILLS)
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
        assert [i.seq for i in store.timeline("copy")] == [1], "exactly one commit"

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
    it = daemon("nova.cron('0 6 * * *', tz='America/New_York')")
    it.later(days=3)  # nobody was there
    comes_to_rest(it, minutes=1)
    [why] = fired(it)
    assert "has come 3 times" in why and "one firing for all of them" in why
    it.later(days=1)
    comes_to_rest(it, minutes=1)
    assert len(fired(it)) == 2 and fired(it)[1] == "cron(0 6 * * *, America/New_York) has come"


def test_every_fires_at_once_and_then_by_its_period(daemon: MakeDaemon) -> None:
    it = daemon("nova.every('1h')")
    comes_to_rest(it)
    it.later(minutes=30)
    it.iterate()
    assert len(fired(it)) == 1
    it.later(minutes=30)
    it.iterate()
    assert len(fired(it)) == 2


@pytest.mark.parametrize("status", ["launched", "succeeded", "failed"])
def test_a_binding_fires_after_another(daemon: MakeDaemon, status: str) -> None:
    it = daemon(f"nova.after('b', status='{status}')")
    with opened(it) as store:
        for n, ended in enumerate(("conflict", "failed", "committed")):
            before = len(fired(it))
            begun = store.catalog.begin(Begin(f"x{n}", "b", ("other", "second"), ("other",), owner="o", lease=9e9))
            if ended == "failed":
                store.catalog.fail(begun.id, begun.epoch, "it broke")
            elif ended == "conflict":
                store.catalog.abort(begun.id, "another was first", failed=False)
            else:
                store.catalog.commit(CommitRequest(f"c{n}", begun.id, begun.epoch, "b", ()))
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


def test_time_and_data_together(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source) & nova.cron('0 * * * *')")
    insert(it, "source", 1)
    at_the_hour = it.now.replace(minute=0, second=0) + timedelta(hours=1)
    it.now = at_the_hour - timedelta(seconds=30)
    it.iterate()
    assert fired(it) == []
    it.now = at_the_hour + timedelta(seconds=30)
    it.iterate()
    assert len(fired(it)) == 1 and keys(it, "copy") == [1]
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
        last = store.catalog.last_firing("w")
        assert last is not None and last.why.startswith("3 runs failed, the last of them ")

    (it.root / "broken").unlink()
    insert(it, "source", 2)
    comes_to_rest(it)
    assert firings(it) == [(2, "committed")] and keys(it, "copy") == [1, 2], "nothing is lost by that"


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


def lost(it: Daemon) -> list[str]:
    """What is reported after two looks, a lease apart."""
    with opened(it) as store:
        store.runtime.project = runpy.run_path(str(it.file))["project"]
        store.project = store.runtime.project
        _, suspected = report_lost(store, it.instance, {})
        said, _ = report_lost(store, it.instance, suspected)
        assert said == [], "not at first sight"
        it.later(seconds=store.settings.lease)
        said, _ = report_lost(store, it.instance, suspected)
        it.later(seconds=-store.settings.lease)
        return said


def under_way(it: Daemon, step: str, **tags: str) -> str:
    """A run that has started a step, and from then on says nothing."""
    run_id = make_new_run_id()
    run = dg.DagsterRun("job", run_id, tags=tags, status=dg.DagsterRunStatus.STARTED)
    it.instance.add_run(run)
    event = dg.DagsterEvent("STEP_START", "job", step_key=step)
    it.instance.report_dagster_event(event, run_id)
    return run_id


def test_a_run_is_lost_when_no_lease_speaks_for_it_and_it_says_nothing(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "w__steps.mirror")
    with opened(it) as store:
        store.catalog.begin(Begin("x", "w", ("source", "copy"), ("source",), owner="o", lease=600, run_id=run_id))
    it.later(minutes=9)
    assert lost(it) == [], "its lease is alive"
    it.later(minutes=2)
    assert lost(it) == [], "lease and grace have not passed since"
    it.later(minutes=5)
    [said] = lost(it)
    assert said.startswith(f"run {run_id} was lost: its process is gone")
    assert it.instance.get_run_by_id(run_id).status == dg.DagsterRunStatus.FAILURE  # type: ignore[union-attr]
    with opened(it) as store:
        assert store.catalog.execution("x").state == "aborted"
    assert lost(it) == []


def test_what_a_users_own_step_does_is_its_own_affair_however_long_it_says_nothing(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "my_own_asset")
    with opened(it) as store:
        done = store.catalog.begin(Begin("x", "w", ("source",), ("source",), owner="o", lease=1, run_id=run_id))
        store.catalog.commit(CommitRequest("c", done.id, done.epoch, "w", ()))
    under_way(it, "other_step")  # no run of ours
    it.later(hours=30)
    assert lost(it) == []


def test_a_run_that_is_cancelled_and_whose_process_is_gone_ends_as_cancelled(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "w__steps.mirror", **{"nova/firing": "f"})
    run = it.instance.get_run_by_id(run_id)
    assert run is not None
    it.instance.report_run_canceling(run)
    it.later(minutes=14)
    assert lost(it) == []
    it.later(minutes=2)
    assert len(lost(it)) == 1
    assert it.instance.get_run_by_id(run_id).status == dg.DagsterRunStatus.CANCELED  # type: ignore[union-attr]


def test_one_of_several_executions_of_a_run_is_enough_to_speak_for_it(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "w__steps.mirror")
    with opened(it) as store:
        store.catalog.begin(Begin("x", "w", ("source", "copy"), ("source",), owner="o", lease=9000, run_id=run_id))
        it.later(minutes=1)
        done = store.catalog.begin(Begin("y", "b", ("other",), ("other",), owner="o", lease=60, run_id=run_id))
        store.catalog.commit(CommitRequest("c", done.id, done.epoch, "b", ()))
    it.later(hours=2)
    assert lost(it) == []
    it.later(hours=1)
    assert len(lost(it)) == 1


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


def test_a_machine_that_slept_fails_no_run(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    run_id = under_way(it, "w__steps.mirror")
    with opened(it) as store:
        store.project = runpy.run_path(str(it.file))["project"]
        alive = store.catalog.begin(Begin("x", "w", ("source",), ("source",), owner="o", lease=120, run_id=run_id))
        it.later(hours=8)
        said, suspected = report_lost(store, it.instance, {})
        assert said == [] and run_id in suspected
        it.later(seconds=40)  # its heartbeat is heard again
        assert store.catalog.renew(alive.id, alive.epoch, 120)
        it.later(seconds=100)
        assert report_lost(store, it.instance, suspected) == ([], {})


def test_a_run_that_goes_on_from_a_failure_speaks_for_itself(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    first, second = under_way(it, "w__steps.mirror"), under_way(it, "w__steps.mirror")
    with opened(it) as store:
        store.project = runpy.run_path(str(it.file))["project"]
        begun = Begin("x", "w", ("source",), ("source",), owner=f"dagster:{first}", lease=9e4, run_id=first)
        store.catalog.begin(begun)
        runtime = Runtime(store.catalog, store.engine, store.project, owner=f"dagster:{second}", lease=9e4)
        assert runtime.attach("x", second, lambda owner: False).epoch == 1, "the first may live"
        taken = runtime.attach("x", second, lambda owner: owner == f"dagster:{first}")
        assert (taken.epoch, taken.owner, taken.run_id) == (2, f"dagster:{second}", second)
    it.later(hours=2)
    assert lost(it) == []
    it.later(hours=30)
    assert [s.split()[1] for s in lost(it)] == [second]


def test_a_day_that_dagster_does_not_know_keeps_no_other_from_its_run(daemon: MakeDaemon) -> None:
    it = daemon("nova.on_data(source)")
    with opened(it) as store:
        store.insert("daily", [{"day": "2924-01-01", "k": 1}, {"day": "2024-01-02", "k": 2}])
    comes_to_rest(it)
    assert firings(it, "d", "day=2024-01-02") == [(1, "committed")] and firings(it, "d", "day=2924-01-01") == []
