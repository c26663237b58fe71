"""The PostgreSQL that the tests run on: a real server, which never outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from nova_assets_tests import postgres

pytestmark = pytest.mark.postgres


def test_each_test_has_an_empty_database_of_its_own(postgres_url: str, postgres_catalog_url: str) -> None:
    engine = create_engine(postgres_catalog_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (x int)"))
        connection.execute(text("INSERT INTO t VALUES (1), (2)"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT sum(x) FROM t")).scalar_one() == 3
        with postgres.fresh_database(postgres_url) as another:
            tables = "SELECT count(*) FROM information_schema.tables WHERE table_name = 't'"
            with postgres.connect(another) as elsewhere:
                assert elsewhere.execute(tables).fetchall() == [(0,)]
    engine.dispose()


def test_a_database_is_dropped_even_while_someone_is_connected(postgres_url: str) -> None:
    with postgres.fresh_database(postgres_url) as url:
        left_open = postgres.connect(url)
    with postgres.connect(postgres_url) as connection:
        listed = connection.execute("SELECT datname FROM pg_database").fetchall()
    assert (make_url(url).database,) not in listed
    left_open.close()


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.skipif("NOVA_TEST_POSTGRES" in os.environ, reason="the server is not the tests' own")
def test_the_server_and_its_folder_are_gone_after_the_tests_are_killed(postgres_url: str) -> None:
    program = (
        "import time\n"
        "from nova_assets_tests import postgres\n"
        "with postgres.server() as url:\n"
        "    print(url, flush=True)\n"
        "    time.sleep(600)\n"
    )
    tests = subprocess.Popen([sys.executable, "-c", program], cwd=postgres.ROOT, stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    url = tests.stdout.readline().strip()
    folder = Path(str(make_url(url).query["host"]))
    with postgres.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    server = int((folder / "data" / "postmaster.pid").read_text().split()[0])

    tests.send_signal(signal.SIGKILL)
    tests.wait()
    tests.stdout.close()

    deadline = time.monotonic() + 30
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folder.exists()
    assert not _is_running(server)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
