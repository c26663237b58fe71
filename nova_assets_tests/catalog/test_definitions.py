"""Versions of definitions, and definitions that are paused or removed, over SQLite and PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.binding import Binding
from nova_assets.model.commit import CommitRequest, MoveCursor
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.registered_definition import DefinitionKey, binding_fingerprint
from nova_assets.model.schema import parse_ddl
from nova_assets_tests.catalog.commit_requests import begin_execution, build_commit_request, channel

BINDING, CHANNEL = DefinitionKey("binding", "b"), DefinitionKey("channel", "c")
copies = nova.Channel("copies", schema="k bigint")


def bound(function: Callable[[Any], Any] = lambda c: c, when: Any = None) -> Binding:
    task = nova.task(name="t", consumes=nova.new(channel), produces=nova.delta(copies))(function)
    return nova.bind(nova.Workflowette("b", [task]), when=when)


def other_code(c: Any) -> Any:
    return c


def begin(catalog: Catalog, binding: Binding, **fields: Any) -> Execution:
    fields = {"owner": "test", "definition_fingerprint": binding_fingerprint(binding), **fields}
    return catalog.executions.begin(
        BeginRequest(f"x{len(catalog.executions.find())}", "b", ("c", "copies"), ("c",), **fields)
    )


def read_up_to(catalog: Catalog, seq: int) -> None:
    """Execute the binding, which moves its cursor."""
    execution = begin(catalog, bound())
    cursor = MoveCursor("b", "c", execution.pins["c"].cursor or 0, seq)
    catalog.commits.commit(CommitRequest(f"of {execution.id}", execution.id, 1, "b", (), cursors=(cursor,)))


@pytest.fixture
def filled(catalog: Catalog) -> Catalog:
    """Two blocks, of which the binding has read the first."""
    catalog.definitions.register([channel, copies], [bound()], by="ann@home")
    catalog.commits.commit(build_commit_request(begin_execution(catalog)))
    read_up_to(catalog, 1)
    catalog.commits.commit(build_commit_request(begin_execution(catalog)))
    return catalog


def test_each_change_of_a_definition_is_a_version_with_its_author(catalog: Catalog) -> None:
    catalog.definitions.register([channel, copies], [bound()], by="ann@home")
    catalog.definitions.register([channel, copies], [bound()], by="bob@work")
    catalog.definitions.register([channel, copies], [bound(other_code, nova.on_data(channel))], by="bob@work")
    catalog.definitions.register([channel, copies], [bound()], by="eve@home")
    found = [(v.number, v.registered_by, v.changes) for v in catalog.definition_versions.of("binding", "b")]
    assert found == [
        (1, "ann@home", ()),
        (2, "bob@work", ("tasks.t.code", "when")),
        (3, "eve@home", ("tasks.t.code", "when")),
    ]
    assert [v.number for v in catalog.definition_versions.of("workflowette", "b")] == [1, 2], "the first one again"
    assert [v.content["when"] for v in catalog.definition_versions.of("trigger", "b")] == ["on_data(c)"]
    assert catalog.definition_versions.latest_numbers("binding") == {"b": 3}


def test_a_refused_definition_is_no_version(catalog: Catalog) -> None:
    wider = nova.Channel("c", schema="k bigint, n bigint")
    with pytest.raises(nova.DefinitionConflict):
        catalog.definitions.register([wider])
    assert [v.number for v in catalog.definition_versions.of("channel", "c")] == [1]
    catalog.definitions.register([wider], replace=True, by="ann")
    assert catalog.definition_versions.of("channel", "c")[-1].changes == ("schema.n",)


def test_processes_that_register_at_the_same_time_make_one_version(url: str) -> None:
    open_catalog(url).close()
    start = threading.Barrier(4)
    failures: list[BaseException] = []

    def register() -> None:
        opened = open_catalog(url)
        start.wait()
        try:
            opened.definitions.register([channel, copies], [bound()], by="one of them")
        except BaseException as error:
            failures.append(error)
        opened.close()

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened = open_catalog(url)
    assert not failures and [v.number for v in opened.definition_versions.of("binding", "b")] == [1]
    opened.close()


def test_an_execution_names_the_version_that_it_runs(catalog: Catalog) -> None:
    for function in (lambda c: c, other_code):
        catalog.definitions.register([channel, copies], [bound(function)])
    older = begin(catalog, bound(other_code))
    catalog.executions.abort(older.id, "done")
    catalog.definitions.register([channel, copies], [bound()])
    assert older.version == 2 and catalog.executions.get(older.id).version == 2
    assert begin(catalog, bound(other_code)).version == 2, "a process with the code of yesterday"
    assert begin_execution(catalog).version is None, "an insert"


def test_what_is_paused_says_since_when_and_by_whom_until_it_is_resumed(catalog: Catalog) -> None:
    catalog.definition_states.set_paused(BINDING, "ann")
    first = catalog.definition_states.statuses()[BINDING]
    catalog.definition_states.set_paused(BINDING, "bob")
    assert (
        catalog.definition_states.statuses() == {BINDING: first}
        and first.state == "paused"
        and first.paused_by == "ann"
    )
    catalog.definitions.register([channel, copies], [bound()])
    assert begin(catalog, bound()).state == "running", "by hand it may run"
    catalog.definition_states.set_paused(BINDING, None)
    catalog.definition_states.set_paused(CHANNEL, None)
    assert catalog.definition_states.statuses() == {}


def test_nothing_begins_with_what_is_removed_and_it_is_not_registered_by_accident(filled: Catalog) -> None:
    filled.definition_states.remove([BINDING], "ann@home")
    for refused in (lambda: begin(filled, bound()), lambda: filled.definitions.register([channel, copies], [bound()])):
        with pytest.raises(
            nova.DefinitionRemoved, match=r"(?s)binding b was removed.*by ann at.*nova remove binding b"
        ):
            refused()
    with pytest.raises(nova.DefinitionRemoved):
        filled.definitions.register([channel, copies], [bound()], replace=True)
    filled.definition_states.take_back_removals([BINDING])
    execution = begin(filled, bound())
    assert execution.pins["c"].cursor == 1, "its cursor is where it was"
    filled.executions.abort(execution.id, "enough")
    filled.definition_states.remove([CHANNEL], "ann")
    with pytest.raises(nova.DefinitionRemoved, match="channel c was removed"):
        begin_execution(filled)
    assert [s.channel.name for s in filled.definitions.channels()] == ["copies"]
    filled.definition_states.take_back_removals([CHANNEL])
    assert filled.commits.commit(build_commit_request(begin_execution(filled))).seq == 3


def test_what_runs_is_not_removed_and_what_failed_is_not_resumed(filled: Catalog) -> None:
    execution = begin(filled, bound())
    for keys in ([BINDING], [CHANNEL], [DefinitionKey("channel", "copies")]):
        with pytest.raises(nova.ExecutionInProgress):
            filled.definition_states.remove(keys, "ann")
    assert filled.definition_states.statuses() == {}
    filled.executions.fail(execution.id, execution.epoch, "it broke")
    filled.definition_states.remove([CHANNEL], "ann")
    with pytest.raises(nova.ExecutionNotLive, match="channel c was removed by ann"):
        filled.executions.resume(execution.id, "test", 60)


def test_a_removal_ends_open_firings(filled: Catalog) -> None:
    fired = filled.firings.record("b", 0, {})
    assert fired is not None
    filled.definition_states.remove([DefinitionKey("trigger", "b")], "ann")
    assert filled.firings.partitions_with_open_firing("b") == frozenset()
    assert begin(filled, bound()).state == "running", "without its trigger it still runs by hand"


def test_a_collection_deletes_the_cursors_of_a_removed_binding_for_good(filled: Catalog) -> None:
    filled.definition_states.remove([BINDING], "ann")
    filled.garbage.collect("c")
    assert [c.seq for c in filled.cursors.find("b")] == [1], "a collection that does not make it final keeps it"
    assert (
        filled.definition_states.collect_removals(["copies_of_others"]) == []
        and filled.definition_states.collect_removals(min_age_seconds=60) == []
    )
    assert (
        filled.definition_states.removals_to_collect(["c"])
        == filled.definition_states.collect_removals(["c"])
        == [BINDING]
    )
    assert filled.cursors.find("b") == [] and filled.definition_states.collect_removals() == []
    with pytest.raises(nova.DefinitionRemoved, match="cannot be taken back"):
        filled.definition_states.take_back_removals([BINDING])
    with pytest.raises(nova.DefinitionRemoved, match="nova init --replace"):
        filled.definitions.register([channel, copies], [bound()])
    filled.definitions.register([channel, copies], [bound()], replace=True)
    assert begin(filled, bound()).pins["c"].cursor == 0 and filled.definition_states.statuses() == {}


def test_a_collection_takes_all_blocks_of_a_removed_channel_unless_somebody_reads_it(url: str) -> None:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    catalog = open_catalog(url, clock=lambda: now)
    catalog.definitions.register([channel, copies], [bound()])
    catalog.commits.commit(build_commit_request(begin_execution(catalog)))
    reader = catalog.executions.begin(BeginRequest("reader", None, ("c",), owner="reader", purpose="read"))
    catalog.definition_states.remove([CHANNEL], "ann")
    assert catalog.definition_states.collect_removals() == [] and len(catalog.histories.of("c").blocks) == 1
    catalog.executions.delete_reader(reader.id)
    assert catalog.definition_states.collect_removals() == [CHANNEL] and catalog.histories.of("c").blocks == ()
    assert catalog.instants.of("c")[-1].action == "collect"
    with pytest.raises(nova.DefinitionRemoved, match="another name"):
        catalog.definitions.register([channel], replace=True)
    now += timedelta(hours=2)
    assert len(catalog.garbage.deletable_files(3600)) == 1
    catalog.close()


def test_a_channel_that_never_had_data_can_be_registered_anew(catalog: Catalog) -> None:
    catalog.definition_states.remove([CHANNEL], "ann")
    wider = nova.Channel("c", schema="k string")
    with pytest.raises(nova.DefinitionRemoved):
        catalog.definitions.register([wider], replace=True)
    assert catalog.definition_states.collect_removals() == [CHANNEL]
    with pytest.raises(nova.DefinitionRemoved, match="if it never had data"):
        catalog.definitions.register([wider])
    catalog.definitions.register([wider], replace=True)
    assert (
        catalog.definitions.channel("c").schema == parse_ddl("k string") and catalog.definition_states.statuses() == {}
    )


def test_several_definitions_are_removed_together_or_not_at_all(filled: Catalog) -> None:
    begin_execution(filled, "copies")
    with pytest.raises(nova.ExecutionInProgress, match="an insert is under way"):
        filled.definition_states.remove([BINDING, DefinitionKey("channel", "copies")], "ann")
    assert filled.definition_states.statuses() == {}


def test_no_insert_gets_past_a_removal_that_races_with_it(url: str) -> None:
    opened = open_catalog(url)
    opened.definitions.register([channel])
    ends: list[str] = []

    def insert_until_removed() -> None:
        own = open_catalog(url)
        while True:
            try:
                own.commits.commit(build_commit_request(begin_execution(own)))
                time.sleep(0.02)
            except nova.DefinitionRemoved:
                ends.append("removed")
                break
            except nova.CommitConflict:  # lost against another insert, or the removal has aborted it
                continue
        own.close()

    threads = [threading.Thread(target=insert_until_removed) for _ in range(3)]
    for thread in threads:
        thread.start()
    while True:
        try:
            opened.definition_states.remove([CHANNEL], "ann")
            break
        except nova.ExecutionInProgress:
            continue
    head = opened.definitions.channel("c").head
    for thread in threads:
        thread.join()
    assert ends == ["removed"] * 3 and opened.definitions.channel("c").head == head
    assert opened.executions.running() == []
    opened.close()


def test_partitions_of_a_channel_with_versions_keep_their_names(catalog: Catalog) -> None:
    def declared(*partitions: Any, schema: str = "p string, q string, at timestamp, dt date") -> nova.Channel:
        return nova.Channel("visits", schema=schema, partitions=partitions)

    by_site = nova.static("p", ["a", "b"])
    by_day = nova.daily("dt", start="2024-01-02", tz="Europe/Paris", of="at")
    catalog.definitions.register([declared()])
    catalog.definitions.register([declared(by_site, by_day)], replace=True)
    begun = begin_execution(catalog, "visits")
    block = replace(build_commit_request(begun).added_blocks[0], channel="visits", partition="p=a/dt=2024-01-02")
    catalog.commits.commit(CommitRequest("first", begun.id, begun.epoch, None, (block,)))
    for other in (
        (),
        (by_site,),
        (by_day, by_site),
        (by_site, by_day, nova.dynamic("q")),
        (nova.static("p", ["a"]), by_day),
        (nova.dynamic("p"), by_day),
        (nova.dynamic("q"), by_day),
        (by_site, nova.daily("dt", start="2024-01-03", tz="Europe/Paris", of="at")),
        (by_site, nova.daily("dt", start="2024-01-02", of="at")),
        (by_site, nova.daily("dt", start="2024-01-02", tz="Europe/Paris")),
    ):
        with pytest.raises(nova.DefinitionError, match="and its partitions cannot change any more") as refused:
            catalog.definitions.register([declared(*other)], replace=True)
        assert "store.insert(NEW, store.read('visits').to_spark())" in str(refused.value)
        assert catalog.definitions.channel("visits").channel.partitions == (by_site, by_day), "as registered"
    wider = (nova.static("p", ["c", "b", "a"]), nova.daily("dt", start="2024-01-01", tz="Europe/Paris", of="at"))
    catalog.definitions.register([declared(*wider)], replace=True)
    assert catalog.definitions.channel("visits").channel.partitions == wider
