"""A PostgreSQL server that Spark can reach by JDBC: over TCP, with a password."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from nova_assets_tests import postgres

PASSWORD = "a5-pass-of-the-reader"
"""Of the user ``reader``. Long and unusual, so that a search for it finds nothing else."""


@dataclass(frozen=True)
class SourceDatabase:
    """The database of another system.

    Args:
        admin: connection in autocommit, of the system that owns the tables.
        url: address for the user ``reader``, who needs the password and may only read.
    """

    admin: psycopg.Connection[Any]
    url: str
    socket_url: str

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.admin.execute(statement)

    def connect(self) -> psycopg.Connection[Any]:
        """Another connection of the owner, in a transaction."""
        return psycopg.connect(self.socket_url)


@contextmanager
def source_server() -> Iterator[SourceDatabase]:
    """A server of its own, whose TCP connections need a password. Raises NoPostgres."""
    host = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"  # a free address
    with tempfile.TemporaryDirectory(prefix="nova-hba-", dir="/tmp") as folder:
        rules = Path(folder) / "pg_hba.conf"
        rules.write_text("local all all trust\nhost all all 127.0.0.0/8 scram-sha-256\n")
        Path(folder).chmod(0o755)  # the server runs as another user
        rules.chmod(0o644)
        with postgres.server(listen_addresses=host, hba_file=str(rules)) as url:
            socket_url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
            with psycopg.connect(socket_url, autocommit=True) as admin:
                admin.execute(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
                admin.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader")
                yield SourceDatabase(admin, f"postgresql://reader@{host}:5432/postgres", socket_url)
