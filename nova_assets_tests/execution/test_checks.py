"""Checks over each catalog: what they see, and that a failing one publishes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova_assets as nova
from nova_assets_tests.execution.conftest import Opener
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "k bigint, v bigint"
source = nova.Channel("source", schema=DDL)
table = nova.Channel("table", merge=nova.Upsert(key="k"), schema=DDL)
total = nova.Channel("total", merge=nova.Upsert(key="k"), schema=DDL)


@nova.task(consumes=nova.new(source), produces=nova.delta(table))
def keep(source: list[Row]) -> list[Row]:
    return source


@nova.task(consumes=nova.all(table), produces=nova.base(total))
def add_up(table: list[Row]) -> list[Row]:
    return [{"k": 0, "v": sum(r["v"] for r in table)}]


def project(*checks: nova.Check, tasks: Any = (keep,)) -> nova.Project:
    return nova.Project([nova.bind(nova.Workflowette("w", tasks, checks=checks))])


def rows(**values: int) -> list[Row]:
    return [{"k": int(k[1:]), "v": v} for k, v in values.items()]


def test_a_check_sees_what_is_added_what_was_and_what_would_be(opened: Opener) -> None:
    seen: list[dict[str, list[int]]] = []

    @nova.check([nova.changes(table), nova.new(source), nova.changes(total)])
    def watch(table: nova.View, source: list[Row], total: nova.View) -> bool:
        def values(frame: list[Row]) -> list[int]:
            return sorted(r["v"] for r in frame if not r.get("_deleted"))

        seen.append(
            {
                "new": values(table.new),
                "old": values(table.old),
                "all": values(table.all),
                "source": values(source),
                "total": values(total.all),
                "before": values(total.old),
            }
        )
        return True

    store = opened(project(watch, tasks=[keep, add_up]))
    store.insert("source", rows(k1=1, k2=2))
    store.run("w")
    store.insert("source", rows(k2=20, k3=3))
    done = store.run("w")
    assert seen == [
        {"new": [1, 2], "old": [], "all": [1, 2], "source": [1, 2], "total": [3], "before": []},
        {"new": [3, 20], "old": [1, 2], "all": [1, 3, 20], "source": [3, 20], "total": [24], "before": [3]},
    ]
    assert [(c.check, c.channel, c.passed) for c in done.checks] == [("watch", "table", True)]
    assert {c.channel for c in store.cursors()} == {"source"}  # a check keeps no cursor


def test_a_failing_check_publishes_nothing_and_every_check_is_heard(opened: Opener) -> None:
    @nova.check(nova.all(table))
    def no_negatives(table: list[Row]) -> list[Row]:
        return [r for r in table if r["v"] < 0]

    @nova.check(nova.new(table), name="few")
    def is_small(table: list[Row]) -> nova.CheckResult:
        return nova.CheckResult(len(table) < 2, f"{len(table)} rows", {"rows": len(table)})

    store = opened(project(no_negatives, is_small))
    store.insert("source", rows(k1=1, k2=-2))
    with pytest.raises(nova.CheckFailed) as caught:
        store.run("w")
    assert caught.value.checks == ["no_negatives", "few"]
    assert str(caught.value.found) == "1 row violates the check; 2 rows"
    assert store.catalog.definitions.channel("table").head == 0 and not store.cursors()
    [failed] = store.executions("w")
    assert failed.state == "failed" and "NOVA-CHECK-FAILED" in (failed.error or "")
    with pytest.raises(nova.CheckFailed):  # resumed: what is staged is looked at again, and nothing else is done
        store.run("w", resume=failed.id)


def test_a_check_that_does_not_block_is_only_reported(opened: Opener) -> None:
    @nova.check(nova.new(table), blocking=False)
    def nothing_comes(table: list[Row]) -> bool:
        return not table

    store = opened(project(nothing_comes))
    store.insert("source", rows(k1=1))
    done = store.run("w")
    assert done.state == "committed" and [c.passed for c in done.checks] == [False]


def test_r6_what_a_check_has_seen_whole_must_not_move(opened: Opener) -> None:
    others = [1]

    @nova.check(nova.all(table))
    def no_more_than_two(table: list[Row]) -> bool:
        if others:
            others.pop()
            store.insert("table", rows(k8=8, k9=9))
        return len(table) <= 2

    store = opened(project(no_more_than_two))
    store.insert("source", rows(k1=1))
    with pytest.raises(nova.CheckFailed):  # planned again after the conflict, it sees three
        store.run("w")
    assert store.catalog.definitions.channel("table").head == 1


def test_what_was_not_written_is_not_checked(opened: Opener) -> None:
    @nova.task(consumes=nova.new(source), produces=nova.delta(table), skip_if_no_new=True)
    def lazy(source: list[Row]) -> list[Row]:
        return source

    @nova.check(nova.new(table))
    def never(table: list[Row]) -> bool:
        return False

    store = opened(project(never, tasks=[lazy]))
    store.register(store.project)
    done = store.run("w")
    assert done.state == "committed" and done.checks[0].skipped


@pytest.mark.parametrize("blocking", [True, False])
def test_a_check_that_raises_or_says_nothing_has_failed_and_the_others_are_heard(
    opened: Opener, blocking: bool
) -> None:
    @nova.check(nova.new(table), blocking=blocking)
    def raises(table: list[Row]) -> bool:
        raise ZeroDivisionError("by zero")

    @nova.check(nova.new(table), blocking=blocking)
    def says_nothing(table: list[Row]) -> Any:
        return "yes"

    @nova.check(nova.new(table))
    def counts(table: list[Row]) -> nova.CheckResult:
        return nova.CheckResult(np.bool_(True), "fine", {"rows": np.int64(len(table)), "of": table[0]["k"].__class__})  # type: ignore[arg-type, dict-item]

    store = opened(project(raises, says_nothing, counts))
    store.insert("source", rows(k1=1))
    heard: list[Any] = []
    said = r"raised ZeroDivisionError: by zero, at .*test_checks.py, line \d+, in raises.*it returned a str; expected"
    if blocking:
        with pytest.raises(nova.CheckFailed, match=f"(?s){said}"):
            store.run("w", observer=lambda event, subject: heard.append(subject) if event == "check" else None)
        assert store.catalog.definitions.channel("table").head == 0
    else:
        heard = list(store.run("w").checks)
    assert [c.passed for c in heard] == [False, False, True]
    assert heard[2].metadata == {"rows": 1, "of": "<class 'int'>"} and type(heard[2].metadata["rows"]) is int


def test_nobody_commits_what_was_not_checked(opened: Opener) -> None:
    asked: list[int] = []

    @nova.check(nova.new(table))
    def small(table: list[Row]) -> bool:
        asked.append(len(table))
        return len(table) < 2

    store = opened(project(small))
    store.insert("source", rows(k1=1, k2=2))
    execution = store.runtime.begin("w")
    store.runtime.run_task(execution, "keep")
    with pytest.raises(nova.CheckFailed):
        store.runtime.commit(execution)
    with pytest.raises(nova.CheckFailed):
        store.runtime.commit(store.runtime.attach_to_execution(execution.id))
    assert asked == [2, 2] and store.catalog.definitions.channel("table").head == 0

    store.insert("table", rows(k5=5))
    live = store.runtime.begin("w")
    store.runtime.run_task(live, "keep")
    assert store.runtime.run_data_checks(live)[0].blocks_commit


def test_a_check_that_holds_is_not_asked_again_until_a_task_runs_again(opened: Opener) -> None:
    asked: list[int] = []

    @nova.check(nova.new(table))
    def fine(table: list[Row]) -> bool:
        asked.append(len(table))
        return True

    store = opened(project(fine))
    store.insert("source", rows(k1=1))
    execution = store.runtime.begin("w")
    store.runtime.run_task(execution, "keep")
    store.runtime.run_data_checks(execution)
    store.runtime.run_task(execution, "keep")
    store.runtime.commit(execution)
    assert asked == [1, 1] and store.catalog.definitions.channel("table").head == 1


def test_a_check_of_private_rows_that_nobody_made_is_left_out(opened: Opener) -> None:
    calls: list[int] = []

    @nova.task(consumes=nova.new(source), produces=nova.delta("raw"), skip_if_no_new=True)
    def take(source: list[Row]) -> list[Row]:
        calls.append(len(source))
        return source

    @nova.task(consumes=nova.all("raw"), produces=nova.delta(table))
    def put(raw: list[Row]) -> list[Row]:
        return raw

    @nova.check([nova.new(table), nova.all("raw")])
    def as_many(table: list[Row], raw: list[Row]) -> bool:
        return len(table) == len(raw)

    store = opened(project(as_many, tasks=[take, put]))
    store.register(store.project)
    assert store.run("w").checks[0].skipped and calls == []
    store.insert("source", rows(k1=1))
    assert not store.run("w").checks[0].skipped and calls == [1]


@pytest.mark.core
def test_failing_rows_are_those_of_the_latest_execution(opened: Opener) -> None:
    allowed = {"least": 0}

    @nova.check(nova.new(table))
    def is_large_enough(table: list[Row]) -> list[Row]:
        return [r for r in table if r["v"] < allowed["least"]]

    store = opened(project(is_large_enough))
    store.insert("source", rows(k1=-1, k2=2))
    with pytest.raises(nova.CheckFailed, match="nova check-failures table"):
        store.run("w")
    [found] = store.failing_rows("table")
    assert found.execution is not None and [r["v"] for r in found.rows] == [-1]
    allowed["least"] = -5
    store.run("w")
    store.insert("source", rows(k3=3))
    store.run("w")
    allowed["least"] = 3
    [found] = store.failing_rows(table)
    assert found.execution is None and sorted(r["v"] for r in found.rows) == [-1, 2], "of the channel"
