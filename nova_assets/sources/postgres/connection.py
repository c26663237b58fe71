"""Connections to a source database. The password comes from the environment or a file at the moment of use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_assets.errors import NotSupported, SettingsError, SourceUnavailable
from nova_assets.masking import remember_secrets
from nova_assets.model.database_table import DatabaseTable

if TYPE_CHECKING:
    import psycopg

CONNECT_TIMEOUT_SECONDS = 10

SESSION_SETTINGS = (
    "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL IntervalStyle = 'postgres'; "
    "SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'"
)
"""Settings on which the text form of values depends. They end with the transaction."""

_MIN_SERVER_VERSION = 140_000
"""Oldest version whose ``extract(epoch ...)`` is exact."""


@contextmanager
def connect(
    channel_name: str, table: DatabaseTable, timeout: int = CONNECT_TIMEOUT_SECONDS
) -> Iterator[psycopg.Connection[Any]]:
    """A connection in autocommit.

    Args:
        timeout: of connecting, in seconds.

    Raises:
        SourceUnavailable: the server does not answer, or refuses the user or a query.
        SettingsError: the password is not where the definition says.
        NotSupported: psycopg is not installed, or the server is too old.
    """
    psycopg = _import_psycopg()
    password = read_password(channel_name, table)
    try:
        connection = psycopg.connect(**_connection_arguments(table, password, timeout), autocommit=True)
    except psycopg.Error as error:
        raise _unavailable_error(channel_name, table, error) from error
    try:
        with connection:
            if connection.info.server_version < _MIN_SERVER_VERSION:
                raise NotSupported(
                    f"the database of external channel {channel_name!r} is too old",
                    found=f"PostgreSQL {connection.info.server_version // 10_000}",
                    expected="PostgreSQL 14 or newer",
                )
            yield connection
    except psycopg.Error as error:
        raise _unavailable_error(channel_name, table, error) from error


def read_password(channel_name: str, table: DatabaseTable) -> str | None:
    """The password; None if the definition leaves it to libpq. From now on, the password is masked everywhere.

    Raises:
        SettingsError: the variable or the file does not exist.
    """
    if table.password_env is not None:
        password = os.environ.get(table.password_env)
        if password is None:
            raise SettingsError(
                f"external channel {channel_name!r} has no password",
                found=f"the environment variable {table.password_env} is not set",
                expected="the password of the database user in this variable",
            )
    elif table.password_file is not None:
        try:
            password = Path(table.password_file).expanduser().read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"external channel {channel_name!r} has no password",
                found=f"{table.password_file} cannot be read: {type(error).__name__}",
                expected="a file that holds the password of the database user",
            ) from error
    else:
        return None
    remember_secrets(values={"password": password})
    return password


def _connection_arguments(table: DatabaseTable, password: str | None, timeout: int) -> dict[str, Any]:
    address = table.address
    optional = {"user": address.user, "password": password, **address.options}
    return {
        "host": address.host,
        "port": address.port,
        "dbname": address.database,
        "connect_timeout": timeout,
        "application_name": "nova_assets",
        **{name: value for name, value in optional.items() if value is not None},
    }


def _import_psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise NotSupported(
            "databases cannot be read: psycopg is not installed", next="pip install 'nova-assets[databases]'"
        ) from error
    return psycopg


def _unavailable_error(channel_name: str, table: DatabaseTable, error: Exception) -> SourceUnavailable:
    return SourceUnavailable(
        f"the database of external channel {channel_name!r} cannot be read",
        found=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
        expected=f"{table.relation} at {table.url}, readable for this user",
        next="correct the address, the password or the rights; the channel keeps its earlier state",
        channel=channel_name,
    )
