"""Meaning of database errors, by SQLSTATE and by the name of a SQLite error.

A meaning states whether the transaction may be retried, what happened, and what a person can do about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, TimeoutError

from nova_assets.errors import CatalogUnavailable, CatalogVersion, ValueRefused
from nova_assets.nova_error import NovaError

ProblemKind = Literal["busy", "raced", "lost", "final"]
"""``busy``: another transaction blocks this one.

``raced``: another transaction added the same row first. ``lost``: the server cannot be reached, or the connection
broke. In these three cases nothing was kept, and the transaction is retried. ``final``: a retry would fail in the same
way.
"""


class ServerIsStandby(Exception):
    """The server is a read-only standby: its data may be old, and it accepts no writes."""


class ConnectionOptionIgnored(Exception):
    """A component between this process and the server drops a setting that the URL requests."""


DatabaseFailure = SQLAlchemyError | UnicodeEncodeError | ServerIsStandby | ConnectionOptionIgnored
"""All errors of a transaction other than ``NovaError``."""

DATABASE_FAILURES = (SQLAlchemyError, UnicodeEncodeError, ServerIsStandby, ConnectionOptionIgnored)


@dataclass(frozen=True, slots=True)
class DatabaseProblem:
    """Meaning of one database error.

    Args:
        kind: whether the transaction may be retried.
        summary: the situation; ``{catalog}`` stands for the catalog's URL.
        reason: the database's own message.
        expected, next: the expected state, and the next step for the user.
        error: class of the error to raise.
    """

    kind: ProblemKind
    summary: str
    reason: str
    expected: str | None = None
    next: str | None = None
    error: type[NovaError] = CatalogUnavailable

    @property
    def lacks_tables(self) -> bool:
        """Whether the catalog lacks tables or columns of its version."""
        return self.summary == _TABLES_MISSING[0]

    def to_error(self, masked_url: str, waited_seconds: float = 0.0, lock_holder: str | None = None) -> NovaError:
        """Error to raise to the caller.

        Args:
            waited_seconds: seconds for which the transaction was retried.
            lock_holder: holder of the lock that blocked the transaction.
        """
        message = self.summary.replace("{catalog}", masked_url)
        found = f"{self.reason}; {lock_holder} holds the lock" if lock_holder else self.reason
        found = f"{found} (waited {waited_seconds:.0f} s)" if waited_seconds >= 1 else found
        return self.error(message, found=found, expected=self.expected, next=self.next)


_UNREACHABLE = (
    "the catalog {catalog} does not answer",
    None,
    "check that PostgreSQL runs, and the user, password and database in the URL; then: nova doctor",
)
_LOGIN_REFUSED = (
    "the catalog {catalog} refuses the login",
    "a user, password and database that the server accepts",
    "check user, password and database in the URL, and the server's pg_hba.conf",
)
_PERMISSION_DENIED = (
    "the database user may not use the catalog {catalog}",
    "a user who may create, read and write tables in the catalog's schema",
    "GRANT USAGE, CREATE ON SCHEMA … TO …, and the rights on the nova_ tables; or name another user",
)
_TABLES_MISSING = (
    "the catalog {catalog} lacks tables or columns of its version",
    "the tables that nova init makes, in the schema that search_path names",
    "check search_path and the schema; if tables were removed, restore a backup of the catalog",
)
_READ_ONLY = (
    "the catalog {catalog} is read-only",
    "a database that takes writes",
    "name the primary server, or lift default_transaction_read_only",
)
_STATEMENT_TIMED_OUT = (
    "the catalog {catalog} cancelled a statement that took too long",
    "statements that end within statement_timeout",
    "raise statement_timeout (of the role, the database or the URL's options) or the setting catalog_timeout",
)
_VALUE_NOT_STORABLE = (
    "the catalog cannot store a value",
    "text without null characters and lone surrogates that the database's encoding holds, within its length",
    "shorten or change the value; a PostgreSQL catalog needs a database whose encoding is UTF8",
)
_DISK_FULL = (
    "the catalog {catalog} cannot be written",
    "a disk with free space",
    "free disk space, and repeat the command: nothing was stored",
)
_DAMAGED = (
    "the catalog {catalog} is damaged",
    "a database that is completely readable",
    "restore a backup of the catalog; then: nova doctor --repair",
)
_SCHEMA_MISSING = (
    "the catalog {catalog} has no schema for its tables",
    "an existing schema in search_path",
    "CREATE SCHEMA …, or correct search_path in the URL's options",
)
_PARAMETER_REFUSED = (
    "the server of the catalog {catalog} refuses a parameter of the connection",
    "parameters that the server, or PgBouncer before it, accepts",
    "remove it from the URL; behind PgBouncer: ALTER ROLE ... SET search_path = ...",
)
_SEARCH_PATH_IGNORED = (
    "the catalog {catalog} is opened without the search_path that its URL asks for",
    "the schema of the URL's options",
    "remove options from the URL, and: ALTER ROLE ... SET search_path = ...; PgBouncer drops options",
)
_OPTION_UNKNOWN = (
    "the catalog's URL has an unknown parameter: {catalog}",
    "parameters of libpq, or prepare_threshold",
    "correct the part of the URL after the question mark",
)
_STATEMENT_REFUSED = ("the catalog {catalog} refuses a statement", None, "nova doctor")
_LOCKED = (
    "the catalog {catalog} is locked by another transaction",
    None,
    "end the process that holds the lock, and repeat the command: nothing was stored",
)
_NO_CONNECTION_LEFT = (
    "the server of the catalog {catalog} has no connection left",
    None,
    "raise max_connections, or put PgBouncer in front of it",
)
_RESTARTING = ("the server of the catalog {catalog} is starting, stopping or restarting", None, "try again later")
_FILE_NOT_OPENED = (
    "the catalog {catalog} cannot be opened",
    "a file that this user may read and write, in a folder that exists",
    "check that the folder exists and may be written; then: nova doctor",
)

_Meaning = tuple[ProblemKind, tuple[str, str | None, str | None]]

_MEANING_BY_SQLSTATE: dict[str, _Meaning] = {
    "40001": ("busy", _LOCKED),
    "40P01": ("busy", _LOCKED),
    "55P03": ("busy", _LOCKED),
    "23505": ("raced", _STATEMENT_REFUSED),
    "08": ("lost", _UNREACHABLE),
    "57P01": ("lost", _RESTARTING),
    "57P02": ("lost", _RESTARTING),
    "57P03": ("lost", _RESTARTING),
    "57P05": ("lost", _RESTARTING),
    "25P03": ("lost", _UNREACHABLE),
    "53300": ("lost", _NO_CONNECTION_LEFT),
    "57014": ("final", _STATEMENT_TIMED_OUT),
    "25006": ("final", _READ_ONLY),
    "42501": ("final", _PERMISSION_DENIED),
    "28": ("final", _LOGIN_REFUSED),
    "3D000": ("final", _LOGIN_REFUSED),
    "3F000": ("final", _SCHEMA_MISSING),
    "42P01": ("final", _TABLES_MISSING),
    "42703": ("final", _TABLES_MISSING),
    "42P07": ("final", _TABLES_MISSING),
    "22": ("final", _VALUE_NOT_STORABLE),
    "54": ("final", _VALUE_NOT_STORABLE),
    "53100": ("final", _DISK_FULL),
    "XX001": ("final", _DAMAGED),
    "XX002": ("final", _DAMAGED),
}
"""Meaning by SQLSTATE, or by its two-character class."""

_MEANING_BY_SQLITE_ERROR: dict[str, _Meaning] = {
    "SQLITE_BUSY": ("busy", _LOCKED),
    "SQLITE_LOCKED": ("busy", _LOCKED),
    "SQLITE_CONSTRAINT_UNIQUE": ("raced", _STATEMENT_REFUSED),
    "SQLITE_CONSTRAINT_PRIMARYKEY": ("raced", _STATEMENT_REFUSED),
    "SQLITE_FULL": ("final", _DISK_FULL),
    "SQLITE_IOERR": ("final", _DISK_FULL),
    "SQLITE_READONLY": ("final", (_READ_ONLY[0], _FILE_NOT_OPENED[1], "check who may write the file and its folder")),
    "SQLITE_CANTOPEN": ("final", _FILE_NOT_OPENED),
    "SQLITE_CORRUPT": ("final", _DAMAGED),
    "SQLITE_TOOBIG": ("final", _VALUE_NOT_STORABLE),
    "SQLITE_MISMATCH": ("final", _VALUE_NOT_STORABLE),
}
"""Meaning by the name of a SQLite error, or by a prefix of the name."""

_CONNECT_ERROR_PATTERNS: tuple[tuple[str, _Meaning], ...] = (
    (r"unsupported startup parameter", ("final", _PARAMETER_REFUSED)),
    (r"invalid (connection option|URI query parameter)|extra key/value", ("final", _OPTION_UNKNOWN)),
    (
        r"unrecognized configuration parameter|invalid value for parameter|invalid command-line",
        ("final", _PARAMETER_REFUSED),
    ),
    (r"password authentication failed|no password supplied|pg_hba\.conf|no such user", ("final", _LOGIN_REFUSED)),
    (r"(role|database|user) \".*\" does not exist|no such database", ("final", _LOGIN_REFUSED)),
    (r"permission denied|not permitted to log in", ("final", _PERMISSION_DENIED)),
    (r"starting up|shutting down|recovery mode|not (yet )?accepting connections", ("lost", _RESTARTING)),
    (r"too many (clients|connections)|connection slots|no more connections", ("lost", _NO_CONNECTION_LEFT)),
    (r"session is read-only|session is not read-only|server is in hot standby", ("final", _READ_ONLY)),
)
"""Meaning by message text, for failures to connect, which have no SQLSTATE."""


def classify_failure(failure: DatabaseFailure) -> DatabaseProblem:
    """Meaning of a failure."""
    reason = failure_message(failure)
    if isinstance(failure, ServerIsStandby):
        return _problem_from_meaning(("lost", _READ_ONLY), reason)
    if isinstance(failure, ConnectionOptionIgnored):
        return _problem_from_meaning(("final", _SEARCH_PATH_IGNORED), reason)
    if isinstance(failure, UnicodeEncodeError):
        return _problem_from_meaning(
            ("final", _VALUE_NOT_STORABLE), f"text with a lone surrogate at character {failure.start}"
        )
    if isinstance(failure, TimeoutError):
        return _problem_from_meaning(("lost", _NO_CONNECTION_LEFT), reason)
    if not isinstance(failure, DBAPIError):
        return _problem_from_meaning(("final", _STATEMENT_REFUSED), reason)
    sqlite_error_name = getattr(failure.orig, "sqlite_errorname", None)
    if sqlite_error_name is not None or type(failure.orig).__module__.startswith("sqlite3"):
        return _classify_sqlite_error(str(sqlite_error_name), reason)
    return _classify_postgres_error(failure, reason)


def failure_message(failure: DatabaseFailure) -> str:
    """First line of the database's own message."""
    text = str(failure.orig if isinstance(failure, DBAPIError) else failure).strip()
    return text.split("\n")[0]


def _classify_sqlite_error(error_name: str, reason: str) -> DatabaseProblem:
    if error_name == "SQLITE_NOTADB":
        return DatabaseProblem(
            "final",
            "{catalog} is no catalog",
            reason,
            "a SQLite file that nova init has created, or no file",
            "name another file with --catalog or NOVA_CATALOG",
            CatalogVersion,
        )
    if re.search(r"no such (table|column)", reason):
        return _problem_from_meaning(("final", _TABLES_MISSING), reason)
    if "too large to convert" in reason or "type 'surrogate" in reason:
        return _problem_from_meaning(("final", _VALUE_NOT_STORABLE), reason)
    longest_prefix = max((n for n in _MEANING_BY_SQLITE_ERROR if error_name.startswith(n)), key=len, default=None)
    return _problem_from_meaning(
        ("final", _STATEMENT_REFUSED) if longest_prefix is None else _MEANING_BY_SQLITE_ERROR[longest_prefix], reason
    )


def _classify_postgres_error(failure: DBAPIError, reason: str) -> DatabaseProblem:
    sqlstate = getattr(failure.orig, "sqlstate", None)
    if sqlstate is None or sqlstate.startswith("08"):
        text = str(failure.orig)
        for pattern, meaning in _CONNECT_ERROR_PATTERNS:
            if re.search(pattern, text, re.IGNORECASE):
                return _problem_from_meaning(meaning, reason)
    if sqlstate is not None:
        state_meaning = _MEANING_BY_SQLSTATE.get(sqlstate) or _MEANING_BY_SQLSTATE.get(sqlstate[:2])
        if state_meaning is not None:
            return _problem_from_meaning(state_meaning, reason)
    if failure.connection_invalidated or (sqlstate is None and failure.statement is None):
        return _problem_from_meaning(("lost", _UNREACHABLE), reason)
    if type(failure.orig).__name__ == "DataError":  # rejected by the driver before it was sent
        return _problem_from_meaning(("final", _VALUE_NOT_STORABLE), reason)
    return _problem_from_meaning(("final", _STATEMENT_REFUSED), reason)


def _problem_from_meaning(meaning: _Meaning, reason: str) -> DatabaseProblem:
    kind, (summary, expected, next_) = meaning
    return DatabaseProblem(
        kind,
        summary,
        reason,
        expected,
        next_,
        ValueRefused if summary == _VALUE_NOT_STORABLE[0] else CatalogUnavailable,
    )
