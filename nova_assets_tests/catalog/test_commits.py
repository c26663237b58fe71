"""Commits over SQLite and PostgreSQL: registration, races, idempotency keys, lost connections."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.catalog import definitions
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.commit import CommitRequest, MoveCursor, SetSchema
from nova_assets.model.execution import Execution
from nova_assets.model.schema import parse_ddl
from nova_assets.model.sum_bounds import RequireSumHeadroom
from nova_assets_tests.catalog.commit_requests import SCHEMA, begin_execution, build_commit_request, channel
from nova_assets_tests.faulty_line import AtCommit, FaultyLine

pytestmark = pytest.mark.slow


def test_registering_again_is_silent_and_another_definition_is_refused(catalog: Catalog) -> None:
    catalog.definitions.register([channel])
    other = nova.Channel("c", merge=nova.Upsert(key="k"), schema="k bigint")
    with pytest.raises(nova.DefinitionConflict, match="different: merge") as met:
        catalog.definitions.register([other])
    assert "replace" in str(met.value.next)
    assert catalog.definitions.channel("c").channel == channel
    catalog.definitions.register([other], replace=True)
    assert catalog.definitions.channel("c").channel == other


@pytest.mark.core
def test_a_registration_that_another_overtakes_is_compared_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*_: Any) -> None:
        monkeypatch.undo()
        raise definitions._ConcurrentRegistration

    monkeypatch.setattr(definitions, "_insert_unless_raced", overtaken)
    catalog.definitions.register([nova.Channel("d", schema="k bigint")])
    assert [s.channel.name for s in catalog.definitions.channels()] == ["c", "d"]


def test_r1_numbers_have_no_holes_when_threads_race(catalog: Catalog) -> None:
    def work() -> None:
        for _ in range(10):
            catalog.commits.commit(build_commit_request(begin_execution(catalog)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [i.seq for i in catalog.instants.of("c")] == list(range(1, 41))
    assert catalog.definitions.channel("c").head == 40


def test_an_idempotency_key_has_one_winner(catalog: Catalog) -> None:
    got: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda: got.append(catalog.commits.commit(build_commit_request(begin_execution(catalog), key="k")))
        )
        for _ in range(5)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({c.id for c in got}) == 1 and sorted(c.repeated for c in got) == [False, True, True, True, True]
    assert catalog.definitions.channel("c").head == 1


def test_an_idempotency_key_has_one_content(catalog: Catalog) -> None:
    """Also where two that use a key for the first time meet in the commit itself."""

    def keyed(digest: str | None) -> CommitRequest:
        return replace(build_commit_request(begin_execution(catalog), key="k"), rows_digest=digest)

    first = catalog.commits.commit(keyed("delta::1:aa"))
    assert catalog.commits.commit(keyed("delta::1:aa")).id == first.id
    with pytest.raises(nova.IdempotencyConflict, match="used for other rows") as refused:
        catalog.commits.commit(keyed("delta::1:bb"))
    assert (refused.value.commit_id, refused.value.seq) == (first.id, 1)
    assert catalog.commits.commit(keyed(None)).repeated, "nothing is known of its content"
    assert catalog.definitions.channel("c").head == 1


def test_r6_a_cursor_that_moved_refuses_the_commit(catalog: Catalog) -> None:
    first, second = begin_execution(catalog), begin_execution(catalog)

    def moving(execution: Execution) -> CommitRequest:
        return CommitRequest(uuid.uuid4().hex, execution.id, 1, "b", (), cursors=(MoveCursor("b", "c", 0, 1),))

    catalog.commits.commit(build_commit_request(begin_execution(catalog)))
    catalog.commits.commit(moving(first))
    with pytest.raises(nova.CommitConflict) as met:
        catalog.commits.commit(moving(second))
    assert (met.value.reason, met.value.found, met.value.expected) == ("cursor", 1, 0)
    assert [c.seq for c in catalog.cursors.find()] == [1]


def test_r6_a_schema_that_another_commit_has_set_refuses_the_commit(catalog: Catalog) -> None:
    """Otherwise the column that the other commit has added would be gone."""

    def adding(column: str) -> CommitRequest:
        change = SetSchema("c", SCHEMA, parse_ddl(f"k bigint, {column} bigint"))
        return replace(build_commit_request(begin_execution(catalog)), schema_changes=(change,))

    first, second = adding("a"), adding("b")
    catalog.commits.commit(first)
    with pytest.raises(nova.CommitConflict, match="the schema of channel 'c' has changed") as met:
        catalog.commits.commit(second)
    assert (met.value.reason, met.value.expected) == ("schema", str(SCHEMA))
    assert (
        catalog.definitions.channel("c").schema == first.schema_changes[0].to
        and catalog.definitions.channel("c").head == 1
    )


def test_r6_sums_to_which_others_have_added_too_much_refuse_the_commit(catalog: Catalog) -> None:
    def growing(headroom: Fraction | None, seq: int) -> CommitRequest:
        required = RequireSumHeadroom("c", seq, "", "k", headroom)
        return replace(build_commit_request(begin_execution(catalog)), required_sum_headrooms=(required,))

    catalog.commits.commit(build_commit_request(begin_execution(catalog)))  # its values are between 1 and 5
    for too_little in (Fraction(4), None):
        with pytest.raises(nova.CommitConflict, match="others have added to column 'k'") as met:
            catalog.commits.commit(growing(too_little, 0))
        assert met.value.reason == "sums" and catalog.definitions.channel("c").head == 1
    assert catalog.commits.commit(growing(Fraction(5), 0)).seq == 2
    assert catalog.commits.commit(growing(None, 2)).seq == 3, "nobody has added anything since"


def test_each_idempotency_key_gives_its_own_commit_back(catalog: Catalog) -> None:
    keys = [f"key {n}" for n in range(12)]
    made = {key: catalog.commits.commit(build_commit_request(begin_execution(catalog), key=key)).id for key in keys}
    assert {
        key: catalog.commits.commit(build_commit_request(begin_execution(catalog), key=key)).id for key in keys
    } == made
    found = [catalog.commits.by_idempotency_key("c", key) for key in keys]
    assert [f and f.commit.seq for f in found] == list(range(1, 13))


@pytest.mark.core
def test_r7_a_look_up_of_what_was_not_committed_makes_a_late_commit_fail(catalog: Catalog) -> None:
    execution = begin_execution(catalog)
    assert catalog.commits.commit_or_abort(execution.id) is None
    with pytest.raises(nova.CommitConflict) as met:
        catalog.commits.commit(build_commit_request(execution))
    assert met.value.reason == "execution" and catalog.definitions.channel("c").head == 0


@pytest.mark.core
@pytest.mark.postgres
@pytest.mark.parametrize("when", ["before", "after"])
def test_r7_a_connection_lost_during_commit(postgres_catalog_url: str, when: str) -> None:
    """The connection is lost before COMMIT arrives, or before its answer does."""
    broken_commit = AtCommit("cut" if when == "before" else "lose")
    broken_commit.armed = False
    line = FaultyLine(postgres_catalog_url, broken_commit)
    catalog = open_catalog(line.url)
    catalog.definitions.register([channel])
    execution = begin_execution(catalog)
    broken_commit.armed = True
    with pytest.raises(nova.CommitOutcomeUnknown):
        catalog.commits.commit(build_commit_request(execution))
    commit = catalog.commits.commit_or_abort(execution.id)
    assert (commit is not None) == (when == "after")
    assert catalog.definitions.channel("c").head == (1 if when == "after" else 0)
    if when == "before":
        with pytest.raises(nova.CommitConflict):
            catalog.commits.commit(build_commit_request(execution))
    catalog.close()
    line.close()


@pytest.mark.core
def test_times_are_in_utc(url: str) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    catalog = open_catalog(url, clock=lambda: moment)
    catalog.definitions.register([channel])
    assert begin_execution(catalog).started_at == moment
    catalog.close()
