"""The guard of the catalogs' files finds calls that were planted in the package, here and in other processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets_tests import catalog_guard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open files are found in /proc")

ROOT = Path(__file__).resolve().parents[1]

PLANTED = """
import os, shutil

def opens(file): open(file, "rb").close()
def opens_by_descriptor(file): os.close(os.open(file, os.O_RDONLY))
def copies(file): shutil.copy(file, f"{file}.copy")
def renames(file): os.rename(file, f"{file}.old")
def replaces(file): open(f"{file}.new", "w").close(); os.replace(f"{file}.new", file)
def renames_folder(file): os.rename(os.path.dirname(file), os.path.dirname(file) + "-old")
def removes(file): os.remove(file)
def removes_folder(file): shutil.rmtree(os.path.dirname(file))
def links(file): os.link(file, f"{file}.link")
def shortens(file): os.truncate(file, 0)
"""


def planted(name: str, module: str = "nova_assets.planted") -> Callable[[str], None]:
    """A function of the package that treats a catalog's file as any other file."""
    definitions: dict[str, Any] = {"__name__": module}
    exec(PLANTED, definitions)
    function: Callable[[str], None] = definitions[name]
    return function


@contextmanager
def open_catalog(folder: Path) -> Iterator[Path]:
    """File of a catalog that this process has open."""
    folder.mkdir()
    file = folder / "books.db"
    with nova.open(catalog=f"sqlite:///{file}", warehouse=folder / "wh") as store:
        store.register(nova.Channel("events", schema="id bigint"))
        assert store.channels()
        yield file


@pytest.fixture
def report(tmp_path: Path) -> Iterator[Path]:
    """Report of what is planted: these findings fail no test."""
    file = catalog_guard.prepare_report(tmp_path / "guard")
    with catalog_guard.running_guard().reporting_to(file):
        yield file


def events(report: Path) -> list[str]:
    return [finding.partition(",")[0] for finding in catalog_guard.read_findings(report)[0]]


@pytest.mark.usefixtures("expected_deleted_files")
@pytest.mark.parametrize(
    ("name", "event"),
    {
        "opens": "open",
        "opens_by_descriptor": "open",
        "copies": "open",
        "renames": "os.rename",
        "replaces": "os.rename",
        "renames_folder": "os.rename of its folder",
        "removes": "os.remove",
        "removes_folder": "os.remove",
        "links": "os.link",
        "shortens": "os.truncate",
    }.items(),
)
def test_what_the_package_does_to_an_open_catalog_is_reported(
    tmp_path: Path, report: Path, name: str, event: str
) -> None:
    with open_catalog(tmp_path / "deployment") as file:
        planted(name)(str(file))
        findings, _ = catalog_guard.read_findings(report)
        assert any(f"{event}: {file}, by process {os.getpid()}" in finding for finding in findings), findings
        assert f" {name}" in findings[0], "the stack names the function"


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_the_log_and_its_index_are_guarded(tmp_path: Path, report: Path, suffix: str) -> None:
    with open_catalog(tmp_path / "deployment") as file:
        planted("opens")(f"{file}{suffix}")
        assert events(report) == [f"open: {file}{suffix}"]


def test_other_names_of_the_file_are_guarded(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_catalog(tmp_path / "deployment") as file:
        (tmp_path / "elsewhere").symlink_to(file.parent)
        planted("opens")(str(tmp_path / "elsewhere" / file.name))
        monkeypatch.chdir(file.parent)
        planted("opens")(file.name)
        assert len(events(report)) == 2


def test_what_is_no_open_catalog_may_be_opened(tmp_path: Path, report: Path) -> None:
    with open_catalog(tmp_path / "deployment") as file:
        planted("opens", "nova_assets_tests.planted")(str(file))  # tests break catalogs on purpose
        other = tmp_path / file.name
        other.write_bytes(b"another file of this name")
        planted("opens")(str(other))
    planted("copies")(str(file))  # closed
    assert events(report) == []


@pytest.mark.slow
def test_processes_that_a_test_starts_are_guarded(tmp_path: Path, report: Path) -> None:
    with open_catalog(tmp_path / "deployment") as file:
        pass
    program = (
        "import sys, nova_assets as nova\n"
        f"definitions = {{'__name__': 'nova_assets.planted'}}; exec({PLANTED!r}, definitions)\n"
        f"with nova.open(catalog='sqlite:///{file}', warehouse={str(tmp_path / 'wh')!r}) as store:\n"
        f"    store.channels(); definitions['opens']({str(file)!r})\n"
    )
    for environment in (None, {**os.environ, "PYTHONPATH": str(ROOT)}, {"PYTHONPATH": str(ROOT)}):
        subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, check=True, timeout=120)
    assert events(report) == [f"open: {file}"] * 3


_LEAVES_DELETED_FILE = """
import os, sys, nova_assets as nova
store = nova.open(catalog=f"sqlite:///{sys.argv[1]}", warehouse=sys.argv[1] + "-wh")
store.channels()
os.remove(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("expected", [False, True])
def test_a_process_that_ends_with_a_deleted_catalog_is_reported(tmp_path: Path, report: Path, expected: bool) -> None:
    file = tmp_path / "books.db"
    command = [sys.executable, "-c", _LEAVES_DELETED_FILE, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if expected:
        with catalog_guard.running_guard().expected_deleted_files():
            subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=120)
    else:
        subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=120)
    assert set(events(report)) == (set() if expected else {f"open at the end: {file} (deleted)"})


def test_a_deleted_catalog_is_reported_once(tmp_path: Path, report: Path) -> None:
    guard = catalog_guard.running_guard()
    with open_catalog(tmp_path / "deployment") as file, closing(sqlite3.connect(file)) as held:
        held.execute("SELECT 1 FROM sqlite_master").fetchall()
        os.remove(f"{file}-wal")
        guard.report_deleted_files()
        guard.report_deleted_files()
    assert set(events(report)) == {f"open at the end: {file}-wal (deleted)"}


def test_a_deleted_file_that_another_thread_closes_is_not_reported(tmp_path: Path, report: Path) -> None:
    """A thread that closes the last connection deletes the log and its index first, and closes them then."""
    with open_catalog(tmp_path / "deployment") as file:
        descriptor = os.open(tmp_path / "other", os.O_RDONLY | os.O_CREAT)
        os.rename(tmp_path / "other", f"{file}-old")
    (tmp_path / "deployment" / "books.db-old").rename(f"{file}-shm")
    os.remove(f"{file}-shm")
    closing_thread = threading.Timer(0.1, os.close, [descriptor])
    closing_thread.start()
    catalog_guard.running_guard().report_deleted_files()
    closing_thread.join()
    assert not events(report)


PLANTED_TEST = """
import os
from pathlib import Path
import nova_assets as nova

def test_that_opens_a_catalog(tmp_path):
    definitions = {"__name__": "nova_assets.planted"}
    exec("def opens(file): open(file).close()", definitions)
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.channels()
        definitions["opens"](f"{tmp_path}/c.db")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("report")
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")])
def test_a_session_of_tests_fails_and_names_the_call(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """The planted test passes, but for what the package does to the catalog's file."""
    (tmp_path / "test_planted.py").write_text(PLANTED_TEST)
    (tmp_path / "conftest.py").write_text("from nova_assets_tests.conftest import *  # noqa: F403\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, "test_planted.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "open: " in done.stdout and "c.db, by process" in done.stdout and "1 passed, 1 error" in done.stdout
