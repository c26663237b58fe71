"""A real PostgreSQL server for the tests, in a folder of its own, gone when they are.

A *keeper* process starts the server and holds one end of a pipe. However the tests end, by themselves, by Ctrl-C or
by SIGKILL, their end of the pipe closes; then the keeper stops the server and removes the folder. A test run that
ends well goes the same way, so it is tried every time.

PostgreSQL refuses to run as root. For root the server runs as the user ``postgres`` (or ``nobody``).
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psycopg
from sqlalchemy import make_url

ROOT = Path(__file__).resolve().parents[1]
READY = "ready"

# Speed instead of safety: nothing outlives the test session. 200 connections: the concurrency tests open many.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


class NoPostgres(Exception):
    """There is no PostgreSQL here to test with; the message says why."""


@contextmanager
def server(**settings: str) -> Iterator[str]:
    """Run a PostgreSQL server and give its SQLAlchemy URL.

    It listens on a Unix socket only: no port to clash over, and nobody else can connect.

    Args:
        settings: of the server, where they are other than in ``SETTINGS``.

    Raises:
        NoPostgres: the server programs are not installed, or they do not start.
    """
    programs = find_programs()
    if programs is None:
        raise NoPostgres("initdb and postgres were not found on PATH, by pg_config or in the usual folders")
    # A group of its own, so that Ctrl-C reaches the tests only and the server outlives their last statement.
    keeper = subprocess.Popen(
        [sys.executable, "-m", "nova_assets_tests.postgres", str(programs), json.dumps(settings)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdin is not None and keeper.stdout is not None
    try:
        said = keeper.stdout.readline().strip()
        if not said.startswith(READY):
            raise NoPostgres((said + "\n" + keeper.stdout.read()).strip() or "the server's keeper did not start")
        folder = said.removeprefix(READY).strip()
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        keeper.stdin.close()
        keeper.stdout.close()
        try:
            keeper.wait(timeout=10)
        except subprocess.TimeoutExpired:  # a process that was forked off the tests still holds the pipe
            keeper.terminate()
            keeper.wait(timeout=30)


@contextmanager
def standby(server_url: str) -> Iterator[str]:
    """A read-only copy of a server that ``server`` started, which follows it; its URL."""
    programs, user = find_programs(), _server_user()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="nova-standby-", dir="/tmp"))
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    data, running = folder / "data", None
    try:
        with (folder / "log").open("wb") as output:
            source = str(make_url(server_url).query["host"])
            copied = [programs / "pg_basebackup", "-h", source, "-U", "postgres", "-D", data, "-R", "-c", "fast"]
            if _popen(copied, folder, user, output).wait() != 0:
                raise NoPostgres((folder / "log").read_text(errors="replace"))
            settings = {**SETTINGS, "unix_socket_directories": str(folder)}
            options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            running = _popen([programs / "postgres", "-D", data, *options], folder, user, output)
        until = time.monotonic() + 60
        while not _answers(folder):
            if running.poll() is not None or time.monotonic() > until:
                raise NoPostgres((folder / "log").read_text(errors="replace"))
            time.sleep(0.1)
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        if running is not None:
            running.send_signal(signal.SIGINT)
            running.wait(timeout=20)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """An empty database on the server, dropped in the end even if someone is still connected to it."""
    name = f"nova_test_{uuid.uuid4().hex[:12]}"
    with connect(server_url) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        with connect(server_url) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def connect(url: str) -> psycopg.Connection:
    """A plain connection in autocommit, for what has to be done outside the code under test."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain, autocommit=True, connect_timeout=10)


def find_programs() -> Path | None:
    """The folder that holds both ``initdb`` and ``postgres``, of the newest version where there are several."""
    return next((folder for folder in _folders() if _has_programs(folder)), None)


def _has_programs(folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres"))


def _folders() -> Iterator[Path]:
    on_path = shutil.which("initdb")
    if on_path:
        yield Path(on_path).resolve().parent
    config = shutil.which("pg_config")
    if config:
        told = subprocess.run([config, "--bindir"], capture_output=True, text=True)
        if told.returncode == 0:
            yield Path(told.stdout.strip())
    for places in ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql*/bin"):
        yield from sorted(Path("/").glob(places), key=_version, reverse=True)


def _version(folder: Path) -> int:
    digits = "".join(filter(str.isdigit, str(folder)))
    return int(digits or 0)


# From here on: the keeper's side.


def keep(programs: Path, settings: dict[str, str]) -> None:
    """Run a server in a temporary folder until standard input ends, then remove both."""
    # Not root's own TMPDIR, into which no other user may look; nor a long one: a socket's name has 100 characters.
    own = Path(tempfile.gettempdir())
    is_usable = len(str(own)) < 60 and (os.geteuid() != 0 or bool(own.stat().st_mode & stat.S_ISVTX))
    folder = Path(tempfile.mkdtemp(prefix="nova-postgres-", dir=own if is_usable else "/tmp"))
    for stop in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, lambda *_: sys.exit(1))
    running = None
    try:
        running = _start(programs, folder, settings)
        print(READY, folder, flush=True)
        sys.stdin.read()
    except NoPostgres as error:
        print(error, flush=True)
    finally:
        if running is not None:
            running.send_signal(signal.SIGINT)  # "fast": open transactions are rolled back
            try:
                running.wait(timeout=20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _start(programs: Path, folder: Path, given: dict[str, str]) -> subprocess.Popen[bytes]:
    user = _server_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    data, log = folder / "data", folder / "log"
    with log.open("wb") as output:
        initdb = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        if _popen(initdb, folder, user, output).wait() != 0:
            raise NoPostgres(f"{programs / 'initdb'} failed: {log.read_text(errors='replace')}")
        settings = {**SETTINGS, **given, "unix_socket_directories": str(folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        running = _popen([programs / "postgres", "-D", data, *options], folder, user, output)
    for _ in range(600):
        if running.poll() is not None:
            break
        if _answers(folder):
            return running
        try:
            running.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    running.kill()
    running.wait()
    raise NoPostgres(f"{programs / 'postgres'} does not start: {log.read_text(errors='replace')}")


def _popen(
    command: list[str | Path], folder: Path, user: pwd.struct_passwd | None, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    as_user = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        **as_user,
    )


def _server_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as")


def _answers(folder: Path) -> bool:
    try:
        psycopg.connect(f"postgresql://postgres@/postgres?host={folder}", connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


if __name__ == "__main__":
    keep(Path(sys.argv[1]), json.loads(sys.argv[2]))
