"""Database errors: what each of them means, decided in one place, by SQLSTATE and by the name of a SQLite error.

A meaning says whether the transaction may be tried again, what happened, and what a person can do about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, TimeoutError

from nova_assets.errors import CatalogUnavailable, CatalogVersion, NovaError, ValueRefused

Kind = Literal["busy", "raced", "lost", "final"]
"""``busy``: another transaction is in the way. ``raced``: another transaction added the same row first. ``lost``: the
server cannot be reached, or the connection broke. In these cases nothing was kept and the transaction is tried again.
``final``: another attempt would end the same."""


class Standby(Exception):
    """The server that answers is a read-only standby: what it knows may be old, and it takes no writes."""


class OptionIgnored(Exception):
    """Something between this process and the server drops a setting that the URL asks for."""


Failure = SQLAlchemyError | UnicodeEncodeError | Standby | OptionIgnored
"""Everything that a transaction can fail with that is not a ``NovaError``."""

FAILURES = (SQLAlchemyError, UnicodeEncodeError, Standby, OptionIgnored)


@dataclass(frozen=True, slots=True)
class Trouble:
    """The meaning of one database error.

    Args:
        what: the situation, with ``{catalog}`` where the catalog is named.
        reason: the database's own words.
        expected, next: what would be right, and what to do.
    """

    kind: Kind
    what: str
    reason: str
    expected: str | None = None
    next: str | None = None
    error: type[NovaError] = CatalogUnavailable

    @property
    def lacks_tables(self) -> bool:
        """The catalog is not what its version says."""
        return self.what == _TABLES[0]

    def raised(self, catalog: str, waited: float = 0.0, holder: str | None = None) -> NovaError:
        """The error that a caller gets.

        Args:
            waited: seconds for which the transaction was tried again.
            holder: who holds the lock that was waited for.
        """
        what = self.what.replace("{catalog}", catalog)
        found = f"{self.reason}; {holder} holds the lock" if holder else self.reason
        found = f"{found} (waited {waited:.0f} s)" if waited >= 1 else found
        return self.error(what, found=found, expected=self.expected, next=self.next)


_UNREACHABLE = (
    "the catalog {catalog} does not answer",
    None,
    "check that PostgreSQL runs, and the user, password and database in the URL; then: nova doctor",
)
_LOGIN = (
    "the catalog {catalog} refuses the login",
    "a user, password and database that the server accepts",
    "check user, password and database in the URL, and the server's pg_hba.conf",
)
_PERMISSION = (
    "the database user may not use the catalog {catalog}",
    "a user who may create, read and write tables in the catalog's schema",
    "GRANT USAGE, CREATE ON SCHEMA … TO …, and the rights on the nova_ tables; or name another user",
)
_TABLES = (
    "the catalog {catalog} lacks tables or columns of its version",
    "the tables that nova init makes, in the schema that search_path names",
    "check search_path and the schema; if tables were removed, restore a backup of the catalog",
)
_READ_ONLY = (
    "the catalog {catalog} is read-only",
    "a database that takes writes",
    "name the primary server, or lift default_transaction_read_only",
)
_TIMEOUT = (
    "the catalog {catalog} cancelled a statement that took too long",
    "statements that end within statement_timeout",
    "raise statement_timeout (of the role, the database or the URL's options) or the setting catalog_timeout",
)
_VALUE = (
    "the catalog cannot keep a value",
    "text without null characters and lone surrogates that the database's encoding holds, within its length",
    "shorten or change the value; a PostgreSQL catalog needs a database whose encoding is UTF8",
)
_DISK = (
    "the catalog {catalog} cannot be written",
    "a disk with room",
    "make room; then do it again: nothing of it was kept",
)
_DAMAGED = (
    "the catalog {catalog} is damaged",
    "a database that can be read whole",
    "restore a backup of the catalog; then: nova doctor --repair",
)
_SCHEMA = (
    "the catalog {catalog} has no schema to keep its tables in",
    "an existing schema in search_path",
    "CREATE SCHEMA …, or mend search_path in the URL's options",
)
_PARAMETER = (
    "the server of the catalog {catalog} refuses a parameter of the connection",
    "parameters that the server, or PgBouncer before it, accepts",
    "remove it from the URL; behind PgBouncer: ALTER ROLE ... SET search_path = ...",
)
_IGNORED = (
    "the catalog {catalog} is opened without the search_path that its URL asks for",
    "the schema of the URL's options",
    "remove options from the URL, and: ALTER ROLE ... SET search_path = ...; PgBouncer drops options",
)
_OPTION = (
    "the catalog's URL has a parameter that is none: {catalog}",
    "parameters of libpq, or prepare_threshold",
    "correct the part of the URL after the question mark",
)
_REFUSED = ("the catalog {catalog} refuses a statement", None, "nova doctor")
_LOCKED = (
    "the catalog {catalog} is locked by another transaction",
    None,
    "end the process that holds the lock; then do it again: nothing of it was kept",
)
_CONNECTIONS = (
    "the server of the catalog {catalog} has no connection left",
    None,
    "raise max_connections, or put PgBouncer before it",
)
_RESTARTING = ("the server of the catalog {catalog} is starting, stopping or restarting", None, "try again later")
_FILE = (
    "the catalog {catalog} cannot be opened",
    "a file that this user may read and write, in a folder that exists",
    "check that the folder exists and may be written; then: nova doctor",
)

_Meaning = tuple[Kind, tuple[str, str | None, str | None]]

_STATES: dict[str, _Meaning] = {
    "40001": ("busy", _LOCKED),
    "40P01": ("busy", _LOCKED),
    "55P03": ("busy", _LOCKED),
    "23505": ("raced", _REFUSED),
    "08": ("lost", _UNREACHABLE),
    "57P01": ("lost", _RESTARTING),
    "57P02": ("lost", _RESTARTING),
    "57P03": ("lost", _RESTARTING),
    "57P05": ("lost", _RESTARTING),
    "25P03": ("lost", _UNREACHABLE),
    "53300": ("lost", _CONNECTIONS),
    "57014": ("final", _TIMEOUT),
    "25006": ("final", _READ_ONLY),
    "42501": ("final", _PERMISSION),
    "28": ("final", _LOGIN),
    "3D000": ("final", _LOGIN),
    "3F000": ("final", _SCHEMA),
    "42P01": ("final", _TABLES),
    "42703": ("final", _TABLES),
    "42P07": ("final", _TABLES),
    "22": ("final", _VALUE),
    "54": ("final", _VALUE),
    "53100": ("final", _DISK),
    "XX001": ("final", _DAMAGED),
    "XX002": ("final", _DAMAGED),
}
"""SQLSTATE, or its class of two characters, and its meaning."""

_FILE_ERRORS: dict[str, _Meaning] = {
    "SQLITE_BUSY": ("busy", _LOCKED),
    "SQLITE_LOCKED": ("busy", _LOCKED),
    "SQLITE_CONSTRAINT_UNIQUE": ("raced", _REFUSED),
    "SQLITE_CONSTRAINT_PRIMARYKEY": ("raced", _REFUSED),
    "SQLITE_FULL": ("final", _DISK),
    "SQLITE_IOERR": ("final", _DISK),
    "SQLITE_READONLY": ("final", (_READ_ONLY[0], _FILE[1], "check who may write the file and its folder")),
    "SQLITE_CANTOPEN": ("final", _FILE),
    "SQLITE_CORRUPT": ("final", _DAMAGED),
    "SQLITE_TOOBIG": ("final", _VALUE),
    "SQLITE_MISMATCH": ("final", _VALUE),
}
"""The name of a SQLite error, or its beginning, and its meaning."""

_CONNECTING: tuple[tuple[str, _Meaning], ...] = (
    (r"unsupported startup parameter", ("final", _PARAMETER)),
    (r"invalid (connection option|URI query parameter)|extra key/value", ("final", _OPTION)),
    (r"unrecognized configuration parameter|invalid value for parameter|invalid command-line", ("final", _PARAMETER)),
    (r"password authentication failed|no password supplied|pg_hba\.conf|no such user", ("final", _LOGIN)),
    (r"(role|database|user) \".*\" does not exist|no such database", ("final", _LOGIN)),
    (r"permission denied|not permitted to log in", ("final", _PERMISSION)),
    (r"starting up|shutting down|recovery mode|not (yet )?accepting connections", ("lost", _RESTARTING)),
    (r"too many (clients|connections)|connection slots|no more connections", ("lost", _CONNECTIONS)),
    (r"session is read-only|session is not read-only|server is in hot standby", ("final", _READ_ONLY)),
)
"""Failures to connect carry no SQLSTATE, so they are known by their words."""


def trouble_of(failure: Failure) -> Trouble:
    """The meaning of a failure."""
    reason = reason_of(failure)
    if isinstance(failure, Standby):
        return _trouble(("lost", _READ_ONLY), reason)
    if isinstance(failure, OptionIgnored):
        return _trouble(("final", _IGNORED), reason)
    if isinstance(failure, UnicodeEncodeError):
        return _trouble(("final", _VALUE), f"text with a lone surrogate at character {failure.start}")
    if isinstance(failure, TimeoutError):
        return _trouble(("lost", _CONNECTIONS), reason)
    if not isinstance(failure, DBAPIError):
        return _trouble(("final", _REFUSED), reason)
    name = getattr(failure.orig, "sqlite_errorname", None)
    if name is not None or type(failure.orig).__module__.startswith("sqlite3"):
        return _of_file(str(name), reason)
    return _of_server(failure, reason)


def reason_of(failure: Failure) -> str:
    """The database's own words, in one line."""
    text = str(failure.orig if isinstance(failure, DBAPIError) else failure).strip()
    return text.split("\n")[0]


def _of_file(name: str, reason: str) -> Trouble:
    if name == "SQLITE_NOTADB":
        return Trouble(
            "final",
            "{catalog} is no catalog",
            reason,
            "a SQLite file made by nova init, or none",
            "name another file with --catalog or NOVA_CATALOG",
            CatalogVersion,
        )
    if re.search(r"no such (table|column)", reason):
        return _trouble(("final", _TABLES), reason)
    if "too large to convert" in reason or "type 'surrogate" in reason:
        return _trouble(("final", _VALUE), reason)
    longest = max((n for n in _FILE_ERRORS if name.startswith(n)), key=len, default=None)
    return _trouble(("final", _REFUSED) if longest is None else _FILE_ERRORS[longest], reason)


def _of_server(failure: DBAPIError, reason: str) -> Trouble:
    state = getattr(failure.orig, "sqlstate", None)
    if state is None or state.startswith("08"):
        text = str(failure.orig)
        for pattern, meaning in _CONNECTING:
            if re.search(pattern, text, re.IGNORECASE):
                return _trouble(meaning, reason)
    if state is not None:
        by_state = _STATES.get(state) or _STATES.get(state[:2])
        if by_state is not None:
            return _trouble(by_state, reason)
    if failure.connection_invalidated or (state is None and failure.statement is None):
        return _trouble(("lost", _UNREACHABLE), reason)
    if type(failure.orig).__name__ == "DataError":  # refused by the driver, before it was sent
        return _trouble(("final", _VALUE), reason)
    return _trouble(("final", _REFUSED), reason)


def _trouble(meaning: _Meaning, reason: str) -> Trouble:
    kind, (what, expected, next_) = meaning
    return Trouble(kind, what, reason, expected, next_, ValueRefused if what == _VALUE[0] else CatalogUnavailable)
