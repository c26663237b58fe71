"""A real PgBouncer for the tests, in transaction mode, in front of a PostgreSQL server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url


class NoPgbouncer(Exception):
    """There is no PgBouncer here to test with; the message says why."""


@contextmanager
def pooled(server_url: str, pool_size: int = 2, settings: str = "") -> Iterator[str]:
    """The URL of a catalog, by way of a PgBouncer that gives each transaction another connection of few.

    Args:
        settings: further lines of its configuration.

    Raises:
        NoPgbouncer: it is not installed, or does not start.
    """
    program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        raise NoPgbouncer("pgbouncer was not found on PATH")
    url = make_url(server_url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="nova-pgbouncer-", dir="/tmp"))
    (folder / "users.txt").write_text(f'"{url.username}" ""\n')
    host, server_port = url.query.get("host") or url.host, url.port or 5432
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={host} port={server_port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = trust\nauth_file = {folder}/users.txt\n"
        f"pool_mode = transaction\ndefault_pool_size = {pool_size}\nmax_client_conn = 100\nunix_socket_dir =\n"
        f"{settings}\n"
    )
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    if user is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    log = (folder / "log").open("wb")
    as_user = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    running = subprocess.Popen([program, folder / "pgbouncer.ini"], stdout=log, stderr=log, cwd=folder, **as_user)
    try:
        for _ in range(100):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if running.poll() is not None:
                raise NoPgbouncer((folder / "log").read_text(errors="replace"))
            time.sleep(0.1)
        yield url.set(host="127.0.0.1", port=port, query={"sslmode": "disable"}).render_as_string(hide_password=False)
    finally:
        running.terminate()
        running.wait(timeout=10)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
