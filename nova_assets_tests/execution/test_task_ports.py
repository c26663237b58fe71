"""Inputs and outputs of tasks: modes, private ports, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import nova_assets as nova
from nova_assets_tests.execution.conftest import Opener
from nova_assets_tests.execution.rule_channels import bound, dedup, fresh, keys, read, rows, seen, source
from nova_assets_tests.stub_merge import Row, sorted_live_rows


def test_a_task_with_nothing_new_still_runs_unless_it_says_otherwise(opened: Opener) -> None:
    calls: list[str] = []

    @nova.task(consumes=nova.new(source), produces=nova.delta(fresh))
    def always(source: list[Row]) -> list[Row]:
        calls.append("always")
        return source

    @nova.task(consumes=nova.new(fresh), produces=nova.delta(seen), skip_if_no_new=True)
    def sometimes(fresh: list[Row]) -> list[Row]:
        calls.append("sometimes")
        return fresh

    store = opened(bound(always, sometimes))
    done = store.run("w")
    assert calls == ["always"] and [t.skipped for t in done.tasks] == [False, True]
    store.insert("source", rows(1))
    store.run("w")
    assert calls == ["always", "always", "sometimes"]


def test_unknown_names_say_which_are_known(opened: Opener) -> None:
    store = opened(bound(dedup))
    with pytest.raises(nova.ChannelNotFound, match="sauce"):
        store.insert("sauce", rows(1))
    with pytest.raises(nova.BindingNotFound, match="no binding is called 'x'") as met:
        store.run("x")
    assert "w" in str(met.value)


def test_outputs_that_are_none_or_misnamed_are_told(opened: Opener) -> None:
    def wrong(result: Any) -> nova.Project:
        @nova.task(consumes=nova.new(source), produces=[nova.delta(fresh), nova.delta(seen)], name="t")
        def t(source: list[Row]) -> Any:
            return result

        return bound(t)

    for result, found in (
        ({"fresh": []}, "a dict of 'fresh'"),
        ([], "list"),
        ({"fresh": [], "seen": None}, "None for port 'seen'"),
        ({"fresh": [], "seen": [{}, {}]}, "a frame without a column for port 'seen'"),
    ):
        store = opened(wrong(result))
        with pytest.raises(nova.TaskFailed, match="does not match its outputs") as met:
            store.run("w")
        assert met.value.found == found


def test_matching_gives_only_the_keys_that_came(opened: Opener) -> None:
    saw: list[list[int]] = []

    @nova.task(consumes=[nova.new(source), nova.matching(seen, keys_of=source, as_="known")], produces=nova.delta(seen))
    def t(source: list[Row], known: list[Row]) -> list[Row]:
        saw.append(keys(known))
        return source

    store = opened(bound(t))
    for batch in ([1, 2, 3], [2, 4]):
        store.insert("source", rows(*batch))
        store.run("w")
    assert saw == [[], [2]]


def test_views_are_one_channel_in_three_modes(opened: Opener) -> None:
    saw: list[tuple[list[int], list[int], list[int]]] = []

    @nova.task(consumes=nova.changes(source), produces=nova.delta(fresh))
    def t(source: nova.View) -> list[Row]:
        saw.append((keys(source.old), keys(source.new), keys(source.all)))
        return []

    store = opened(bound(t))
    for batch in ([1], [2, 3]):
        store.insert("source", rows(*batch))
        store.run("w")
    assert saw == [([], [1], [1]), ([1], [2, 3], [1, 2, 3])]


def test_private_ports_are_handed_on_and_not_kept(opened: Opener) -> None:
    @nova.task(consumes=nova.new(source), produces=nova.delta("between"))
    def one(source: list[Row]) -> list[Row]:
        return [{**r, "v": r["v"] + 1} for r in source]

    @nova.task(consumes=nova.new("between"), produces=nova.delta(fresh))
    def two(between: list[Row]) -> list[Row]:
        return between

    store = opened(bound(one, two))
    store.insert("source", rows(1, 2))
    store.run("w")
    assert sorted_live_rows(read(store, "fresh")) == rows(1, 2, v=1)
    assert sorted(s.channel.name for s in store.channels()) == ["fresh", "source"]


def test_the_plan_is_what_the_run_does(opened: Opener) -> None:
    store = opened(bound(dedup))
    store.insert("source", rows(1))
    store.insert("source", rows(2))
    planned = store.plan("w").as_json()
    assert planned["pins"]["source"] == {"head": 2, "cursor": 0}
    assert planned["steps"][0]["reads"][0]["by"]["new"]["rows"] == 2
    done = store.run("w")
    assert done.tasks[0].read["source"] == 2
