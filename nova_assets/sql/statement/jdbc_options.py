"""``USING jdbc OPTIONS (...)`` of an external table, with the names that Spark's JDBC source uses where it has them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

from sqlglot import exp

from nova_assets.masking import remember_secrets
from nova_assets.model.database_table import DatabaseTable, normalize_database_url, with_user
from nova_assets.model.external_table import External
from nova_assets.sql.text import SqlText
from nova_assets.suggestions import did_you_mean


class ExpectedPartitions(Protocol):
    """Function that returns the partitions that should exist at a time."""

    def __call__(self, moment: datetime, /) -> Iterable[str]: ...


FIELD_BY_OPTION = {
    "url": "url",
    "user": "user",
    "dbtable": "table",
    "query": "query",
    "passwordEnv": "password_env",
    "passwordFile": "password_file",
    "freshnessColumn": "freshness_column",
    "freshnessQuery": "freshness_query",
    "partitionColumn": "split_by",
    "numPartitions": "splits",
    "splitBy": "split",
    "incremental": "incremental",
    "settle": "settle",
    "fetchsize": "fetch_size",
}
"""Option -> field of ``DatabaseTable``, or ``user``."""

_NUMBERS = ("splits", "fetch_size")

EXPECTED_JDBC = (
    "CREATE EXTERNAL TABLE name (column TYPE, ...) USING jdbc OPTIONS (url 'postgresql://USER@HOST:PORT/DATABASE', "
    "dbtable 'public.name') PARTITIONED BY (column, ...)"
)


def parse_jdbc_options(
    text: SqlText, options: exp.Expr | None, error_node: exp.Expr, expected_partitions: ExpectedPartitions | None
) -> External:
    """The database table that the options name.

    Raises:
        SqlError: an option is missing, unknown, written twice, or no constant.
    """
    values: dict[str, Any] = {}
    for option in options.expressions if options is not None else ():
        name, field = _known_option(text, option)
        if field in values:
            raise text.error(f"option {name!r} is written twice", option, expected="each option once")
        values[field] = _option_value(text, name, field, option)
    if "url" not in values:
        raise text.error("a table of a database needs an address", error_node, expected=EXPECTED_JDBC)
    url, url_user = normalize_database_url(values.pop("url"))
    database = DatabaseTable(with_user(url, values.pop("user", None) or url_user), **values)
    return External(database.url, "parquet", None, expected_partitions, database)


def _known_option(text: SqlText, option: exp.Expr) -> tuple[str, str]:
    """Name and field of an option. Names are compared without regard to case, as in Spark."""
    name = option.this.name
    known = {o.lower(): o for o in FIELD_BY_OPTION}
    if name.lower() == "password":
        remember_secrets(values={"password": option.args["value"].name})  # errors show the line
        raise text.error(
            "a password in a definition would be stored in the catalog and in version control",
            option.this,
            expected="passwordEnv 'VARIABLE', or passwordFile '/path'",
        )
    if name.lower() not in known:
        raise text.error(
            f"OPTIONS does not support {name!r}{did_you_mean(name, FIELD_BY_OPTION)}",
            option.this,
            expected=", ".join(FIELD_BY_OPTION),
        )
    return known[name.lower()], FIELD_BY_OPTION[known[name.lower()]]


def _option_value(text: SqlText, name: str, field: str, option: exp.Expr) -> Any:
    value = option.args["value"]
    if not isinstance(value, exp.Literal):
        raise text.error(f"option {name!r} is no constant", option.this, expected=f"{name} '...'")
    if field not in _NUMBERS:
        return value.name
    if not value.name.isdigit():
        raise text.error(f"option {name!r} is no whole number", option.this, expected=f"{name} '8'")
    return int(value.name)
