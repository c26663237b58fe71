"""What the catalog itself promises, over SQLite and PostgreSQL: versions, registration, races, lost connections."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url

import nova_assets as nova
from nova_assets.catalog import schema_version
from nova_assets.catalog.catalog import SqlCatalog, open_catalog
from nova_assets.catalog.tables import metadata
from nova_assets.model.block import DataFile, Manifest
from nova_assets.model.channel_outline import BlockSpan, ChannelOutline
from nova_assets.model.channel_state import UnreadData
from nova_assets.model.commit import AddBlock, CommitRequest, MoveCursor
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.key_layout import HashBuckets, KeyLayout
from nova_assets.model.merge import Append
from nova_assets.model.schema import parse_ddl

SCHEMA = parse_ddl("k bigint")
LAYOUT, PLACE = KeyLayout(("k",)), HashBuckets(4, 2, (1, 3))
channel = nova.Channel("c", schema="k bigint")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    found: str = request.getfixturevalue("postgres_catalog_url")
    return found


@pytest.fixture
def catalog(url: str) -> Iterator[SqlCatalog]:
    made = open_catalog(url)
    made.register([channel])
    yield made
    made.close()


def begun(catalog: SqlCatalog, name: str = "c") -> Execution:
    return catalog.begin(BeginRequest(uuid.uuid4().hex, None, pinned_channels=(name,), owner="test"))


def request_of(execution: Execution, rows: int = 1, key: str | None = None) -> CommitRequest:
    block = uuid.uuid4().hex
    manifest = Manifest(
        (DataFile(f"blocks/{block}/0", rows, 10, {"k": (1, 5)}, PLACE),) if rows else (), SCHEMA, layout=LAYOUT
    )
    publish = (AddBlock(block, "c", "delta", manifest, Append(), origin="insert"),)
    return CommitRequest(
        uuid.uuid4().hex, execution.id, execution.epoch, None, publish, idempotency=None if key is None else ("c", key)
    )


def test_the_version_is_the_newest_migration(tmp_path: Path) -> None:
    versions = sorted(
        p.name.split("_")[0] for p in (Path(schema_version.__file__).parent / "migrations/versions").glob("0*.py")
    )
    assert versions[-1] == schema_version.HEAD


def test_the_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    open_catalog(url).close()
    engine = create_engine(url)
    looked = inspect(engine)
    for table in metadata.tables.values():
        columns = {c["name"]: bool(c["nullable"]) for c in looked.get_columns(table.name)}
        assert columns == {c.name: bool(c.nullable) for c in table.columns}, table.name
        indexes = {i["name"] for i in looked.get_indexes(table.name)}
        assert {i.name for i in table.indexes} <= indexes, table.name
    engine.dispose()


def test_a_catalog_from_before_upkeep_knows_which_channels_may_be_given_a_base(url: str) -> None:
    read, written = nova.Channel("read"), nova.Channel("written")
    task = nova.task(name="t", consumes=nova.all(read), produces=nova.base(written))(lambda read: read)
    older = open_catalog(url)
    older.register([read, written], [nova.bind(nova.Workflowette("w", [task]))])
    older.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema_version.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")
    engine.dispose()
    newer = open_catalog(url)
    assert {s.channel.name: newer.channel(s.channel.name).bases for s in newer.channels()} == {
        "read": False,
        "written": True,
    }
    newer.close()


def downgraded(url: str, version: str, *statements: str) -> None:
    """Make of a catalog one of an older version, and change it by hand."""
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema_version.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, version)
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def test_a_catalog_that_is_not_what_its_version_says_is_refused_and_left(url: str) -> None:
    open_catalog(url).close()
    downgraded(url, "0006", "DROP TABLE nova_identity")
    with pytest.raises(nova.CatalogVersion, match="of version 0006, cannot be migrated; it is left as it was") as met:
        open_catalog(url)
    assert "nova_identity" in str(met.value.found) and "the version of nova_assets that made it" in str(met.value.next)
    engine = create_engine(url)
    assert "nova_arrivals" not in inspect(engine).get_table_names()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM nova_version")).scalar() == "0006"
    engine.dispose()


def test_blocks_of_an_older_layout_can_be_read(url: str) -> None:
    """Version 0008 hashed keys otherwise, and did not say of which types they were."""
    older = open_catalog(url)
    older.register([channel])
    older.commit(request_of(begun(older)))
    older.close()
    old = '{"order"\\: ["k"], "clustered"\\: false}'
    downgraded(url, "0015", f"UPDATE nova_blocks SET layout = '{old}'")
    newer = open_catalog(url)
    (block,) = newer.history("c").blocks
    assert block.manifest.layout is None and [f.key_placement for f in block.manifest.files] == [None]
    assert [(f.rows, f.ranges) for f in block.manifest.files] == [(1, {"k": (1, 5)})]
    newer.close()


def test_a_newer_catalog_is_refused(url: str) -> None:
    open_catalog(url).close()
    engine = create_engine(url)
    with engine.begin() as c:
        c.execute(text("UPDATE nova_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(nova.CatalogVersion, match="made by a newer version") as met:
        open_catalog(url)
    assert met.value.found == "catalog version 9999" and "pip install" in str(met.value.next)


def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("hello, I am a text file and not a database at all" * 50)
    with pytest.raises(nova.CatalogVersion, match="is no catalog"):
        open_catalog(f"sqlite:///{tmp_path}/x.db")
    assert (tmp_path / "x.db").read_text().startswith("hello")


def test_a_catalog_that_is_down_is_told_without_its_password() -> None:
    with pytest.raises(nova.CatalogUnavailable, match="does not answer") as met:
        open_catalog("postgresql+psycopg://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(met.value) and "me:***@127.0.0.1" in str(met.value)


@pytest.mark.parametrize("wrong", ["mysql://x/y", "nonsense", "postgresql+nothing://x"])
def test_urls_that_are_none(wrong: str) -> None:
    with pytest.raises(nova.CatalogUnavailable):
        open_catalog(wrong)


def test_each_catalog_has_an_identity_that_stays_with_it(url: str, tmp_path: Path) -> None:
    first = open_catalog(url)
    again, other = open_catalog(url), open_catalog(f"sqlite:///{tmp_path}/other.db")
    assert first.identity() == again.identity() != other.identity() and len(first.identity()) == 32
    for catalog in (first, again, other):
        catalog.close()


def test_a_catalog_from_before_repair_is_given_an_identity(url: str) -> None:
    open_catalog(url).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema_version.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, "0004")
    engine.dispose()
    catalog = open_catalog(url)
    assert len(catalog.identity()) == 32
    catalog.close()


def test_several_processes_may_open_a_new_catalog_at_once(url: str) -> None:
    program = f"from nova_assets.catalog.catalog import open_catalog as o; o({url!r}).check()"
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(6)]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors[-2000:]


def test_registering_again_is_silent_and_another_definition_is_refused(catalog: SqlCatalog) -> None:
    catalog.register([channel])
    other = nova.Channel("c", merge=nova.Upsert(key="k"), schema="k bigint")
    with pytest.raises(nova.DefinitionConflict, match="different: merge") as met:
        catalog.register([other])
    assert "replace" in str(met.value.next)
    assert catalog.channel("c").channel == channel
    catalog.register([other], replace=True)
    assert catalog.channel("c").channel == other


def test_manifests_come_back_exactly(catalog: SqlCatalog) -> None:
    request = request_of(begun(catalog))
    catalog.commit(request)
    (block,) = catalog.history("c").blocks
    assert block.manifest == request.publish[0].manifest
    assert block.manifest.files[0].ranges == {"k": (1, 5)} and block.manifest.files[0].key_placement == PLACE
    assert block.manifest.layout == LAYOUT
    assert (block.lo, block.hi, block.range) == (0, 1, "Δ(0→1)")


def test_r1_numbers_have_no_holes_when_threads_race(catalog: SqlCatalog) -> None:
    def work() -> None:
        for _ in range(10):
            catalog.commit(request_of(begun(catalog)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [i.seq for i in catalog.timeline("c")] == list(range(1, 41))
    assert catalog.channel("c").head == 40


def test_an_idempotency_key_has_one_winner(catalog: SqlCatalog) -> None:
    got: list[Any] = []
    threads = [
        threading.Thread(target=lambda: got.append(catalog.commit(request_of(begun(catalog), key="k"))))
        for _ in range(5)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({c.id for c in got}) == 1 and sorted(c.repeated for c in got) == [False, True, True, True, True]
    assert catalog.channel("c").head == 1


def test_an_idempotency_key_has_one_content(catalog: SqlCatalog) -> None:
    """Also where two that use a key for the first time meet in the commit itself."""

    def keyed(digest: str | None) -> CommitRequest:
        return replace(request_of(begun(catalog), key="k"), digest=digest)

    first = catalog.commit(keyed("delta::1:aa"))
    assert catalog.commit(keyed("delta::1:aa")).id == first.id
    with pytest.raises(nova.IdempotencyConflict, match="used for other rows") as refused:
        catalog.commit(keyed("delta::1:bb"))
    assert (refused.value.commit_id, refused.value.seq) == (first.id, 1)
    assert catalog.commit(keyed(None)).repeated, "nothing is known of its content"
    assert catalog.channel("c").head == 1


def test_r6_a_cursor_that_moved_refuses_the_commit(catalog: SqlCatalog) -> None:
    first, second = begun(catalog), begun(catalog)

    def moving(execution: Execution) -> CommitRequest:
        return CommitRequest(uuid.uuid4().hex, execution.id, 1, "b", (), cursors=(MoveCursor("b", "c", 0, 1),))

    catalog.commit(request_of(begun(catalog)))
    catalog.commit(moving(first))
    with pytest.raises(nova.CommitConflict) as met:
        catalog.commit(moving(second))
    assert (met.value.reason, met.value.found, met.value.expected) == ("cursor", 1, 0)
    assert [c.seq for c in catalog.cursors()] == [1]


def test_r7_a_look_up_of_what_was_not_committed_makes_a_late_commit_fail(catalog: SqlCatalog) -> None:
    execution = begun(catalog)
    assert catalog.commit_or_abort(execution.id) is None
    with pytest.raises(nova.CommitConflict) as met:
        catalog.commit(request_of(execution))
    assert met.value.reason == "execution" and catalog.channel("c").head == 0


def test_firings_are_compare_and_set(catalog: SqlCatalog) -> None:
    first = catalog.record_firing("b", 0, {"on_data(c)": 1})
    assert first is not None and first.run_key == "b#1#1"
    assert catalog.record_firing("b", 0, {}) is None, "another made it"
    assert catalog.record_firing("b", 1, {}) is None, "the last is still under way"
    again = catalog.retry_firing(first.id, 1)
    assert again is not None and again.run_key == "b#1#2" and catalog.retry_firing(first.id, 1) is None
    catalog.end_firing(first.id, "committed")
    second = catalog.record_firing("b", 1, {"on_data(c)": 2})
    assert second is not None and second.n == 2


def test_a_firing_keeps_why_it_fired_and_how_it_ended(catalog: SqlCatalog) -> None:
    first = catalog.record_firing("b", 0, {}, why="c is at 1")
    assert first is not None and catalog.firing(first.id) == first and first.why == "c is at 1"
    assert catalog.partitions_with_open_firing("b") == {""} and catalog.firing("nobody") is None
    catalog.end_firing(first.id, "abandoned", "3 runs failed")
    catalog.end_firing(first.id, "committed")
    ended = catalog.firing(first.id)
    assert ended is not None and (ended.state, ended.why) == ("abandoned", "3 runs failed")
    assert catalog.partitions_with_open_firing("b") == frozenset()


def test_unread_counts_what_came_after_a_number(catalog: SqlCatalog) -> None:
    moments = [catalog.commit(request_of(begun(catalog), rows=n)).at for n in (2, 3, 4)]
    assert catalog.unread_data("c", 0) == UnreadData(3, 9, 30, moments[0])
    assert catalog.unread_data("c", 1) == UnreadData(2, 7, 20, moments[1])
    assert catalog.unread_data("c", 3) == UnreadData()


def test_outlines_say_where_blocks_lie_and_how_far_consumers_are(catalog: SqlCatalog) -> None:
    def reading(since: int, up_to: int) -> None:
        move = MoveCursor("b", "c", since, up_to)
        catalog.commit(CommitRequest(uuid.uuid4().hex, begun(catalog).id, 1, "b", (), cursors=(move,)))

    catalog.register([nova.Channel("empty")])
    for _ in range(3):
        catalog.commit(request_of(begun(catalog)))
    compaction = request_of(begun(catalog))
    base = replace(compaction.publish[0], kind="base", origin="compact", span=(3, 3))
    catalog.commit(replace(compaction, publish=(base,)))
    reading(0, 2)
    deltas = [BlockSpan("delta", n - 1, n, "insert") for n in (1, 2, 3)]
    compacted = BlockSpan("base", 3, 3, "compact")
    found = catalog.outlines(["c", "empty", "unknown"])
    assert set(found) == {"c", "empty"} and found["empty"] == ChannelOutline("empty", 0, (), ())
    assert (found["c"].head, found["c"].spans) == (3, (*deltas, compacted))
    assert [(c.binding, c.seq, c.lag) for c in found["c"].cursors] == [("b", 2, 1)]
    assert catalog.outlines(["c"], version_limit=1)["c"].spans == (deltas[2], compacted)
    reading(2, 3)
    catalog.collect_garbage("c")
    assert catalog.outlines(["c"])["c"].spans == (*(replace(d, collected=True) for d in deltas), compacted)


def test_outlines_put_partitions_together_or_show_one(catalog: SqlCatalog) -> None:
    catalog.register(
        [nova.Channel("p", schema="d string, e string", partitions=[nova.dynamic("d"), nova.dynamic("e")])]
    )
    for days in ("12", "1", "2"):
        like = request_of(execution := begun(catalog, "p")).publish[0]
        publish = [replace(like, block_id=uuid.uuid4().hex, channel="p", partition=f"d={d}/e=x") for d in days]
        catalog.commit(CommitRequest(uuid.uuid4().hex, execution.id, execution.epoch, None, tuple(publish)))
    scopes = ("d=1", "d=2", "e=x", "")
    moves = tuple(MoveCursor("b", "p", 0, 2, partition=s, channel_partition=s) for s in scopes)
    catalog.commit(CommitRequest(uuid.uuid4().hex, begun(catalog, "p").id, 1, "b", (), cursors=moves))

    def seen(scope: str) -> tuple[list[int], set[tuple[str, int]]]:
        found = catalog.outlines(["p"], scope=scope)["p"]
        assert (found.head, found.scope) == (3, scope)
        return [s.hi for s in found.spans], {(c.channel_partition, c.lag) for c in found.cursors}

    assert seen("") == ([1, 2, 3], {("d=1", 0), ("d=2", 1), ("e=x", 1), ("", 1)})
    assert seen("d=1/e=x") == ([1, 2], {("d=1", 0), ("e=x", 1), ("", 1)})
    assert seen("d=2") == ([1, 3], {("d=2", 1), ("e=x", 1), ("", 1)})


def test_what_failed_stays_counted_whatever_becomes_of_it(catalog: SqlCatalog) -> None:
    def begin(n: int, lease: float = 60) -> Execution:
        return catalog.begin(BeginRequest(f"x{n}", "b", ("c",), ("c",), owner="o", lease=lease))

    def counted() -> tuple[int, ...]:
        return tuple(catalog.execution_counts().get(("b", "", s), 0) for s in ("launched", "succeeded", "failed"))

    task = nova.task(name="t", consumes=nova.new(channel))(lambda c: None)
    catalog.register([channel], [nova.bind(nova.Workflowette("b", [task]))])
    first = begin(1)
    catalog.fail(first.id, first.epoch, "it broke")
    assert counted() == (1, 0, 1)
    again = catalog.resume(first.id, "o", 60)
    catalog.commit(CommitRequest(uuid.uuid4().hex, again.id, again.epoch, "b", ()))
    assert counted() == (1, 1, 1), "it failed once, and then succeeded"
    catalog.abort(begin(2).id, "planned again", counts_as_failure=False)
    assert counted() == (2, 1, 1)
    begin(3, lease=-1)
    begin(4)
    assert counted() == (4, 1, 2), "one whose lease had run out was superseded"


class CuttingProxy:
    """A TCP proxy to PostgreSQL that cuts the line when COMMIT is sent: before it arrives, or before its answer
    does."""

    def __init__(self, host: str, port: int) -> None:
        """``host`` is an address, or the folder of a socket file."""
        self.target = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)
        self.cut: str | None = None
        self.mute = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX if isinstance(self.target, str) else socket.AF_INET)
            server.connect(self.target)
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, outward: bool) -> None:
        swallow = False
        try:
            while data := source.recv(65536):
                if outward and self.cut and b"COMMIT\x00" in data:
                    if self.cut == "after":
                        self.mute = True
                        sink.sendall(data)
                        threading.Event().wait(0.3)  # the server commits; its answer is never seen
                    self.cut = None
                    swallow = True
                if swallow:
                    for end in (source, sink):
                        end.shutdown(socket.SHUT_RDWR)  # close() alone waits for the other thread's recv()
                    self.mute = False
                    return
                if outward or not self.mute:
                    sink.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        self.listener.close()


@pytest.mark.postgres
@pytest.mark.parametrize("when", ["before", "after"])
def test_r7_a_connection_lost_during_commit(postgres_catalog_url: str, when: str) -> None:
    real = make_url(postgres_catalog_url)
    host = str(real.query.get("host") or real.host or "127.0.0.1")
    proxy = CuttingProxy(host, real.port or 5432)
    through = real.set(host="127.0.0.1", port=proxy.port, query={"sslmode": "disable"}).render_as_string(
        hide_password=False
    )
    catalog = open_catalog(through)
    catalog.register([channel])
    execution = begun(catalog)
    proxy.cut = when
    with pytest.raises(nova.CommitOutcomeUnknown):
        catalog.commit(request_of(execution))
    commit = catalog.commit_or_abort(execution.id)
    assert (commit is not None) == (when == "after")
    assert catalog.channel("c").head == (1 if when == "after" else 0)
    if when == "before":
        with pytest.raises(nova.CommitConflict):
            catalog.commit(request_of(execution))
    catalog.close()
    proxy.close()


def test_times_are_in_utc(url: str) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    catalog = open_catalog(url, clock=lambda: moment)
    catalog.register([channel])
    assert begun(catalog).started_at == moment
    catalog.close()


def test_locations_that_claim_at_the_same_time_never_hold_a_channel_together(url: str) -> None:
    start, held = threading.Barrier(3), {}

    def claim(location: str) -> None:
        made = open_catalog(url)
        start.wait()
        held[location] = made.claim_channels(location, {f"of_{location}"}, {"a", "b", "c"})
        made.close()

    open_catalog(url).close()
    threads = [threading.Thread(target=claim, args=(name,)) for name in ("x", "y", "z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ch for of in held.values() for ch in of) == ["a", "b", "c", "of_x", "of_y", "of_z"]


def test_a_timeline_is_in_the_order_of_commits_whatever_the_clock_says(tmp_path: Path) -> None:
    """Processes read the database's clock over connections of different speed."""
    moments = iter(datetime(2024, 1, 1, tzinfo=UTC) - timedelta(milliseconds=n) for n in range(10_000))
    catalog = open_catalog(f"sqlite:///{tmp_path / 'c.db'}", clock=lambda: next(moments))
    catalog.register([nova.Channel("c", schema="id bigint")], ())
    for _ in range(3):
        catalog.commit(request_of(begun(catalog)))
    assert [i.seq for i in catalog.timeline("c")] == [1, 2, 3]
    catalog.close()
