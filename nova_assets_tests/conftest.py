"""Fixtures that any test may ask for by name."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from nova_assets_tests import catalog_guard, postgres
from nova_assets_tests.coverage_rows import mark_named_tests
from nova_assets_tests.fast_temporary import keep_temporary_files_in_memory
from nova_assets_tests.time_budget import WEIGHTS, file_rank, leaves_out_too_much, skip_after_deadline

ROOT = Path(__file__).resolve().parents[1]
SPARK_CLASSES = Path(sys.prefix) / "spark-classes.jsa"

keep_temporary_files_in_memory()

os.environ["NOVA_CACHE"] = ""  # no test finds what another one kept, nor leaves anything in anybody's home

# Spark's statements are small here, and its generated code is short-lived: to optimise it costs more than to run it.
# The simple compiler needs room for its code, or discards it all the time.
# An archive of the classes that Spark loads (tools/spark_classes.py) saves half of a JVM's start.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    + (f" -XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:disable" if SPARK_CLASSES.is_file() else ""),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that the coverage page names, before the marker expression chooses.

    Order the files for several workers.
    """
    mark_named_tests(items)
    if not hasattr(config, "workerinput"):  # one process gains nothing
        return
    weights: dict[Path, int] = {}
    for item in items:
        weight = min((WEIGHTS[m.name] for m in item.iter_markers() if m.name in WEIGHTS), default=len(WEIGHTS))
        weights[item.path] = min(weight, weights.get(item.path, weight))
    items.sort(key=lambda item: file_rank(weights[item.path], item.path))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what a run with a deadline has no time for, before any fixture begins."""
    skip_after_deadline(item)


def pytest_collection_finish() -> None:
    """Keep modules and tests from the garbage collector, which would look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


GUARD_OFFSET = pytest.StashKey[int]()
"""Offset in the report of the catalog guard up to which findings have failed a test."""

GUARD_FINDINGS = pytest.StashKey[list[str]]()
"""Findings of the catalog guard that came after the last test."""


def pytest_configure(config: pytest.Config) -> None:
    """Guard the files of catalogs in this process and in all that it starts. The controller of workers runs no test.

    No example of a property has a deadline, because machines are slow at times.
    """
    import hypothesis  # not in a worker of Spark that imports this module

    hypothesis.settings.register_profile("nova", hypothesis.settings(), deadline=None)
    hypothesis.settings.load_profile("nova")
    config.stash[GUARD_FINDINGS] = []
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        folder = tempfile.TemporaryDirectory(prefix="nova-guard-")
        config.add_cleanup(folder.cleanup)
        guard = catalog_guard.start_guard(catalog_guard.prepare_report(Path(folder.name)))
        guard.set_environment(os.environ)
        _, config.stash[GUARD_OFFSET] = catalog_guard.read_findings(guard.report)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail the test in which something other than SQLite touched the file of an open catalog."""
    if findings := _new_guard_findings(item.config):
        pytest.fail("the files of an open catalog are SQLite's alone:\n" + "\n".join(findings), pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if a process that outlived the last test touched the file of an open catalog, or if too many
    tests were left out.
    """
    findings = session.config.stash[GUARD_FINDINGS]
    findings += _new_guard_findings(session.config)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["catalog_guard"] = findings
    elif findings or leaves_out_too_much(_outcomes(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _outcomes(config: pytest.Config) -> Mapping[str, Sequence[Any]]:
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    return {} if terminal is None else terminal.stats


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the last findings of a worker."""
    node.config.stash[GUARD_FINDINGS] += getattr(node, "workeroutput", {}).get("catalog_guard", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the calls that failed the session."""
    if findings := config.stash[GUARD_FINDINGS]:
        terminalreporter.section("files of open catalogs were touched after the last test")
        terminalreporter.write_line("\n".join(findings))
    if leaves_out_too_much(terminalreporter.stats):
        terminalreporter.section("too many tests were left out for want of time")


def _new_guard_findings(config: pytest.Config) -> list[str]:
    if GUARD_OFFSET not in config.stash:
        return []
    guard = catalog_guard.running_guard()
    guard.report_deleted_files()
    findings, config.stash[GUARD_OFFSET] = catalog_guard.read_findings(guard.report, config.stash[GUARD_OFFSET])
    return findings


@pytest.fixture
def expected_deleted_files() -> Iterator[None]:
    """For a test that deletes or replaces the file of an open catalog on purpose."""
    with catalog_guard.running_guard().expected_deleted_files():
        yield


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test, saying what it needs; in continuous integration (``CI=true``) fail it, since it must run there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} ({remedy}), and CI=true", pytrace=False)
    pytest.skip(f"{what} ({remedy})")


@pytest.fixture(autouse=True, scope="session")
def quick_databases() -> Iterator[None]:
    """Read Dagster's migrations once, and compile each SQL statement once, for all databases that tests open."""
    from nova_assets_tests.quick_statements import quick_statements
    from nova_assets_tests.quick_storages import quick_storages

    with quick_storages(), quick_statements():
        yield


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The SQLAlchemy URL of a real PostgreSQL server: that of NOVA_TEST_POSTGRES, or one started for the session."""
    given = os.environ.get("NOVA_TEST_POSTGRES")
    if given:
        yield given
        return
    try:
        with postgres.server() as url:
            yield url
    except postgres.NoPostgres as reason:
        missing(f"no PostgreSQL server: {reason}", "install PostgreSQL, or set NOVA_TEST_POSTGRES to the URL of one")


@pytest.fixture
def postgres_catalog_url(postgres_url: str) -> Iterator[str]:
    """The SQLAlchemy URL of a database on that server which is empty, and this test's alone."""
    with postgres.fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data: NOVA_SHARED_DATA, or ``../shared/data`` beside the checkout (see its SOURCES.md)."""
    folder = Path(os.environ.get("NOVA_SHARED_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "SOURCES.md").is_file():
        missing(f"no real data in {folder}", "set NOVA_SHARED_DATA to the folder that holds its SOURCES.md")
    return folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One warm session for all tests; only those that kill processes start their own.

    With NOVA_TEST_SPARK=connect, a client of a Spark Connect server that is started for it.
    """
    from nova_assets.engine.session.lazy_session import LazySparkSession
    from nova_assets.engine.session.spark_session import get_or_build_session

    if os.environ.get("NOVA_TEST_SPARK") != "connect":
        yield LazySparkSession().get()
        return
    from nova_assets.engine.session import connect_server

    home = tmp_path_factory.mktemp("spark")
    yield get_or_build_session("server", home)
    connect_server.stop_server(home)
