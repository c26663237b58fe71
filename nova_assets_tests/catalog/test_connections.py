"""The catalog over connections that break, servers that refuse, clocks that differ: one meaning for each, none lost."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

import nova_assets as nova
from nova_assets.catalog import database as database_module
from nova_assets.catalog.catalog import SqlCatalog, open_catalog
from nova_assets.execution.warehouse_identity import adopt_warehouse
from nova_assets.model.execution import BeginRequest
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests import postgres
from nova_assets_tests.conftest import missing
from nova_assets_tests.faulty_line import AtCommit, Fault, FaultyLine
from nova_assets_tests.pgbouncer import NoPgbouncer, pooled
from nova_assets_tests.stub_engine import Row, StubEngine

channel = nova.Channel("c", schema="k bigint, v bigint")
copy = nova.Channel("copy", schema="k bigint, v bigint")


@nova.task(consumes=nova.new(channel), produces=nova.delta(copy))
def mirror(c: list[Row]) -> list[Row]:
    return c


project = nova.Project([nova.bind(nova.Workflowette("mirror", [mirror]))])


def with_query(url: str, **query: str) -> str:
    return make_url(url).update_query_dict(query).render_as_string(hide_password=False)


def opened(url: str, folder: Path, patience: float = 20.0, timeout: float = 20.0) -> Store:
    settings = load_settings(start_folder=folder, catalog=url, warehouse=str(folder / "wh"))
    catalog = open_catalog(settings.catalog, patience=patience, timeout=timeout)
    return Store(settings, project, catalog, StubEngine(folder / "wh"))


def keys_of(store: Store, name: str) -> Counter[int]:
    return Counter(r["k"] for r in store.read(name).to_spark())  # type: ignore[union-attr]


# the URL's own options


@pytest.mark.postgres
def test_the_options_of_the_url_are_kept(postgres_catalog_url: str) -> None:
    with postgres.connect(postgres_catalog_url) as c:
        c.execute("CREATE SCHEMA lake")
    open_catalog(with_query(postgres_catalog_url, options="-csearch_path=lake")).close()
    with postgres.connect(postgres_catalog_url) as c:
        found = c.execute("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'nova%'").fetchall()
    assert found == [("lake",)]


@pytest.mark.postgres
def test_limits_that_the_url_sets_are_kept(postgres_catalog_url: str) -> None:
    def limits(catalog: SqlCatalog) -> tuple[str, ...]:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        return catalog.database.read(lambda c: tuple(c.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names))

    own = open_catalog(postgres_catalog_url)
    assert limits(own) == ("1min", "5s", "5min")
    own.close()
    theirs = open_catalog(with_query(postgres_catalog_url, options="-cstatement_timeout=7s -clock_timeout=3s"))
    assert limits(theirs) == ("7s", "3s", "5min")
    theirs.close()


@pytest.mark.postgres
@pytest.mark.parametrize("threshold", ["0", "1", "none"])
def test_a_threshold_for_prepared_statements(postgres_catalog_url: str, threshold: str, tmp_path: Path) -> None:
    with opened(with_query(postgres_catalog_url, prepare_threshold=threshold), tmp_path) as store:
        store.register(project)
        for n in range(3):
            store.insert("c", [{"k": n, "v": n}])
        assert keys_of(store, "c") == Counter(range(3))


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("query", "what"),
    [
        ({"prepare_threshold": "soon"}, "prepare_threshold in the catalog's URL is no number"),
        ({"autocommit": "1"}, "has a parameter that is none"),
        ({"colour": "red"}, "has a parameter that is none"),
        ({"options": "-cnothing=1"}, "refuses a parameter of the connection"),
    ],
)
def test_parameters_that_are_none(postgres_catalog_url: str, query: dict[str, str], what: str) -> None:
    with pytest.raises(nova.CatalogUnavailable, match=what):
        open_catalog(with_query(postgres_catalog_url, **query))


def test_options_of_a_sqlite_url_are_refused(tmp_path: Path) -> None:
    with pytest.raises(nova.CatalogUnavailable, match="one of SQLite takes none") as caught:
        open_catalog(f"sqlite:///{tmp_path}/c.db?mode=ro&password=hidden-word")
    assert caught.value.found == "mode, password" and "hidden-word" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# PgBouncer


@pytest.mark.postgres
@pytest.mark.parametrize("query", [{}, {"prepare_threshold": "0"}])
def test_pgbouncer_in_transaction_mode(postgres_catalog_url: str, tmp_path: Path, query: dict[str, str]) -> None:
    try:
        with pooled(postgres_catalog_url) as url, opened(with_query(url, **query), tmp_path) as store:
            store.register(project)

            def work(n: int) -> None:
                for k in range(8):
                    store.insert("c", [{"k": 100 * n + k, "v": k}])

            in_threads(work, 4)
            store.run("mirror")
            assert keys_of(store, "copy") == Counter(100 * n + k for n in range(4) for k in range(8))
    except NoPgbouncer as reason:
        missing(f"no PgBouncer: {reason}", "install the package pgbouncer")


@pytest.mark.postgres
def test_a_schema_that_pgbouncer_drops_from_the_url_is_missed(postgres_catalog_url: str, tmp_path: Path) -> None:
    try:
        with pooled(postgres_catalog_url, settings="ignore_startup_parameters = options,extra_float_digits") as url:
            with pytest.raises(
                nova.CatalogUnavailable, match="without the search_path that its URL asks for"
            ) as caught:
                opened(with_query(url, options="-csearch_path=lake"), tmp_path)
            assert "ALTER ROLE" in str(caught.value)
            opened(url, tmp_path).close()
    except NoPgbouncer as reason:
        missing(f"no PgBouncer: {reason}", "install the package pgbouncer")


def in_threads(work: Callable[[int], None], count: int) -> None:
    failures: list[BaseException] = []

    def guarded(n: int) -> None:
        try:
            work(n)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


# lost COMMITs (R7)


@pytest.mark.postgres
@pytest.mark.parametrize("first", ["cut", "lose"] if os.environ.get("NOVA_TEST_FAULT_SECONDS") else ["lose"])
def test_r7_every_lost_commit_of_an_insert_and_a_run_is_looked_up(
    postgres_catalog_url: str, tmp_path: Path, first: Fault
) -> None:
    """Registering, begin, staging, the commit itself: each COMMIT in turn does not arrive, or its answer does not.

    With ``NOVA_TEST_FAULT_SECONDS`` each of them fails in both ways, otherwise in one.
    """
    with opened(postgres_catalog_url, tmp_path) as store:
        store.register(project)
    number, lost = 0, True
    while lost:
        number += 1
        fault: Fault = first if number % 2 else "cut" if first == "lose" else "lose"
        broken = AtCommit(fault, number)
        broken.armed = False
        line = FaultyLine(postgres_catalog_url, broken)
        with opened(line.url, tmp_path) as store:
            broken.armed = True
            store.insert("c", [{"k": number, "v": 0}], idempotency_key=f"key {number}")
            store.run("mirror")
        line.close()
        lost = broken.count >= number
    assert number > 8
    with opened(postgres_catalog_url, tmp_path) as store:
        assert keys_of(store, "c") == keys_of(store, "copy") == Counter(range(1, number + 1))
        assert not [e for e, _ in store.catalog.executions_with_staged_blocks() if e.state == "running"]


@pytest.mark.postgres
def test_a_server_that_never_answers_is_cut_off_and_its_locks_are_freed(
    postgres_catalog_url: str, tmp_path: Path
) -> None:
    with opened(postgres_catalog_url, tmp_path) as store:
        store.register(project)
    for number in range(1, 5):
        broken = AtCommit("hang", number)
        line = FaultyLine(postgres_catalog_url, broken)
        with opened(line.url, tmp_path, timeout=0.5) as store:
            began = time.monotonic()
            store.insert("c", [{"k": number, "v": 0}])
            assert broken.count >= number and time.monotonic() - began < 15
        line.close()
    with opened(postgres_catalog_url, tmp_path) as store:
        assert keys_of(store, "c") == Counter(range(1, 5))


@pytest.mark.postgres
def test_an_outcome_that_nobody_can_tell_says_what_to_do(postgres_catalog_url: str) -> None:
    line = FaultyLine(postgres_catalog_url)
    catalog = open_catalog(line.url, patience=1.0)
    catalog.register([channel])
    gone = AtCommit("lose")

    def decide(data: bytes) -> Fault | None:
        return "cut" if gone.count and not data else gone(data)

    line.decide = decide
    with pytest.raises(nova.CommitOutcomeUnknown, match="could not be asked within 1 s") as met:
        catalog.begin(BeginRequest("x", None, pinned_channels=("c",), owner="test"))
    assert "nova timeline" in str(met.value.next) and "looked up" not in str(met.value)
    catalog.close()
    line.close()


# a server that is gone for a while


@pytest.mark.postgres
def test_a_server_that_is_gone_for_two_seconds_is_waited_for(
    postgres_catalog_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "SAY_AFTER", 1.0)
    line = FaultyLine(postgres_catalog_url)
    with opened(line.url, tmp_path) as store:
        store.register(project)
        until = time.monotonic() + 2.0
        line.decide = lambda data: "cut" if time.monotonic() < until else None
        with caplog.at_level(logging.WARNING, logger="nova_assets.catalog"):
            store.insert("c", [{"k": 1, "v": 1}])
        assert keys_of(store, "c") == Counter([1])
    assert "waiting for the catalog postgresql+psycopg://" in caplog.text and "gives up in" in caplog.text
    line.close()


@pytest.mark.postgres
def test_a_server_that_stays_away_ends_at_the_stated_time(postgres_catalog_url: str, tmp_path: Path) -> None:
    line = FaultyLine(postgres_catalog_url)
    with opened(line.url, tmp_path, patience=1.5) as store:
        store.register(project)
        line.decide = lambda data: "cut"
        began = time.monotonic()
        with pytest.raises(nova.CatalogUnavailable, match="does not answer") as met:
            store.channels()
        assert 1.0 < time.monotonic() - began < 10 and "waited" in str(met.value.found)
    line.close()


# what is refused, and why


@pytest.fixture(scope="module")
def administrated() -> Iterator[str]:
    """A server whose roles and databases a test may change."""
    try:
        with postgres.server(hot_standby="on") as url:
            yield url
    except postgres.NoPostgres as reason:
        missing(f"no PostgreSQL server: {reason}", "install PostgreSQL")


def _as(user: str) -> Callable[[str], str]:
    return lambda url: make_url(url).set(username=user).render_as_string(hide_password=False)


CAUSES: dict[str, tuple[list[str], Callable[[str], str], str]] = {
    "permission": (
        ["CREATE ROLE reader LOGIN", "REVOKE ALL ON SCHEMA public FROM PUBLIC"],
        _as("reader"),
        "may not use|has no schema",
    ),
    "no schema": (["DROP SCHEMA public"], lambda url: url, "has no schema"),
    "no role": ([], _as("nobody_at_all"), "refuses the login"),
    "no database": ([], lambda url: make_url(url).set(database="nowhere").render_as_string(False), "refuses the login"),
    "read-only": (
        ["ALTER DATABASE {database} SET default_transaction_read_only = on"],
        lambda url: url,
        "is read-only",
    ),
    "timeout": ([], lambda url: with_query(url, options="-cstatement_timeout=1ms"), "took too long"),
    "lacks tables": (
        ["CREATE TABLE nova_version (version_num text)", "INSERT INTO nova_version VALUES ('{head}')"],
        lambda url: url,
        "lacks tables",
    ),
}


@pytest.mark.postgres
@pytest.mark.parametrize("cause", CAUSES)
def test_an_error_names_its_cause(administrated: str, cause: str) -> None:
    from nova_assets.catalog.schema_version import HEAD

    setup, change, what = CAUSES[cause]
    with postgres.fresh_database(administrated) as url:
        name = make_url(url).database
        with postgres.connect(url) as c:
            for statement in setup:
                c.execute(statement.format(database=name, head=HEAD).encode())
        with pytest.raises(nova.CatalogUnavailable, match=what) as met:
            catalog = open_catalog(change(url))
            catalog.register([channel])
        assert "check that PostgreSQL runs" not in str(met.value) and met.value.found and met.value.next


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
@pytest.mark.parametrize("key", ["k" * 513, "a lone \ud800", "a null \x00"], ids=["long", "surrogate", "null"])
def test_a_value_that_cannot_be_kept_is_told_as_one(url: str, tmp_path: Path, key: str) -> None:
    with opened(url, tmp_path) as store:
        store.register(project)
        with pytest.raises((nova.ArgumentRefused, nova.ValueRefused)) as met:
            store.insert("c", [{"k": 1, "v": 1}], idempotency_key=key)
        assert "check that PostgreSQL runs" not in str(met.value)
        assert keys_of(store, "c") == Counter() and store.catalog.executions_with_staged_blocks() == []


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    found: str = request.getfixturevalue("postgres_catalog_url")
    return found


@pytest.mark.postgres
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_databases_of_other_encodings(administrated: str, tmp_path: Path, encoding: str) -> None:
    name = f"encoded_{encoding.lower()}"
    with postgres.connect(administrated) as c:
        c.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'".encode())
    with opened(make_url(administrated).set(database=name).render_as_string(False), tmp_path) as store:
        store.register(project)
        store.insert("c", [{"k": 1, "v": 1}], idempotency_key="é")
        assert store.insert("c", [{"k": 1, "v": 1}], idempotency_key="é").repeated
        if encoding == "LATIN1":
            with pytest.raises(nova.ValueRefused, match="cannot keep a value") as met:
                store.insert("c", [{"k": 2, "v": 1}], idempotency_key="€")
            assert "UTF8" in str(met.value.next)
        assert keys_of(store, "c") == Counter([1])


@pytest.mark.postgres
def test_first_opens_at_the_same_time_under_serializable_isolation(postgres_catalog_url: str) -> None:
    name = make_url(postgres_catalog_url).database
    with postgres.connect(postgres_catalog_url) as c:
        c.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'".encode())
    in_threads(lambda n: open_catalog(postgres_catalog_url).close(), 4)


@pytest.mark.postgres
def test_a_standby_is_no_catalog(administrated: str, tmp_path: Path) -> None:
    """It knows old numbers, and takes nothing: whoever is sent there by a wrong address is told so."""
    open_catalog(administrated).close()
    with postgres.standby(administrated) as url, pytest.raises(nova.CatalogUnavailable, match="is read-only") as met:
        open_catalog(url)
    assert "standby" in str(met.value.found) and "primary" in str(met.value.next)


# clocks


@pytest.mark.postgres
def test_leases_go_by_the_servers_clock(
    postgres_catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose clock is five minutes ahead takes nothing from one that lives."""
    with opened(postgres_catalog_url, tmp_path) as store:
        store.register(project)
        held = store.catalog.begin(
            BeginRequest("reader", None, pinned_channels=("c",), owner="another host:1:1", lease=60)
        )
    ahead = (
        "import datetime as d\n"
        "class Ahead(d.datetime):\n"
        "    @classmethod\n"
        "    def now(cls, tz=None): return d_now(tz) + d.timedelta(seconds=300)\n"
        "d_now = d.datetime.now\nd.datetime = Ahead\n"
        "import time as t\nreal = t.time\nt.time = lambda: real() + 300\n"
        "from nova_assets.catalog.catalog import open_catalog\n"
        f"c = open_catalog({postgres_catalog_url!r})\n"
        "assert c.sweepable_blocks(0.0) == []\n"
        "print(c.execution('reader').state)\n"
    )
    done = subprocess.run([sys.executable, "-c", ahead], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "running"), done.stderr[-2000:]
    with opened(postgres_catalog_url, tmp_path) as store:
        assert store.catalog.execution(held.id).state == "running"
        assert abs(store.catalog.now() - datetime.now(UTC)) < timedelta(seconds=5)


def test_a_process_with_another_clock_goes_by_that_of_the_catalogs_file_system(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nova_assets.catalog import sqlite

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(seconds=300)

    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    catalog.register([channel])
    catalog.begin(BeginRequest("reader", None, pinned_channels=("c",), owner="another", lease=60))
    monkeypatch.setattr(sqlite, "datetime", Ahead)
    with caplog.at_level(logging.WARNING, logger="nova_assets.catalog"):
        assert catalog.sweepable_blocks(0.0) == [] and catalog.execution("reader").state == "running"
    assert "300 s ahead of that of the file system" in caplog.text
    assert abs(catalog.now() - datetime.now(UTC)) < timedelta(seconds=5)
    catalog.close()


# a locked SQLite file


def test_a_locked_file_is_told_and_ends_at_the_stated_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "SAY_AFTER", 0.6)
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db", patience=2.5)
    holding = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN IMMEDIATE'); print(1, flush=True);"
            "sys.stdin.read()",
            str(tmp_path / "catalog.db"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holding.stdout is not None and holding.stdin is not None
    holding.stdout.readline()
    began = time.monotonic()
    with (
        caplog.at_level(logging.WARNING, logger="nova_assets.catalog"),
        pytest.raises(nova.CatalogUnavailable, match="is locked by another transaction") as met,
    ):
        catalog.register([channel])
    assert 2 < time.monotonic() - began < 20
    assert f"process {holding.pid}" in str(met.value.found) and "waited" in str(met.value.found)
    assert f"process {holding.pid}" in caplog.text and "gives up in" in caplog.text
    assert catalog.channels() == [], "it can be read meanwhile"
    holding.stdin.close()
    holding.wait()
    catalog.register([channel])
    catalog.close()


# threads


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_threads_may_share_a_store(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path) as store:
        store.register(project)

        def work(n: int) -> None:
            for k in range(5):
                store.insert("c", [{"k": 10 * n + k, "v": k}])
                assert keys_of(store, "c")[10 * n + k] == 1
                try:
                    store.run("mirror")
                except (nova.ExecutionInProgress, nova.CommitConflict):
                    continue

        in_threads(work, 4)
        store.run("mirror")
        assert keys_of(store, "c") == keys_of(store, "copy") == Counter(10 * n + k for n in range(4) for k in range(5))


def test_first_writers_at_the_same_time_agree_on_the_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked = StubEngine.write_catalog_marker

    def slowly(engine: StubEngine, catalog: str, identity: str) -> None:
        time.sleep(0.1)
        marked(engine, catalog, identity)

    monkeypatch.setattr(StubEngine, "write_catalog_marker", slowly)

    def work(n: int) -> None:
        with opened(f"sqlite:///{tmp_path}/catalog.db", tmp_path) as store:
            time.sleep(n * 0.04)
            adopt_warehouse(store.catalog, store.engine)

    open_catalog(f"sqlite:///{tmp_path}/catalog.db").close()
    in_threads(work, 8)


def test_threads_may_open_new_catalogs_at_once(tmp_path: Path) -> None:
    in_threads(lambda n: open_catalog(f"sqlite:///{tmp_path}/{n}.db").close(), 4)
    in_threads(lambda n: open_catalog(f"sqlite:///{tmp_path}/one.db").close(), 4)
