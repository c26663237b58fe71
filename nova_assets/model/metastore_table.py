"""Tables of a Hive metastore, named by address: ``thrift://HOST:PORT/DATABASE.TABLE``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nova_assets.short_repr import short_repr

METASTORE_SCHEME = "thrift"

EXPECTED_METASTORE = "thrift://HOST:PORT, such as thrift://metastore:9083"
EXPECTED_METASTORE_TABLE = "DATABASE.TABLE, such as shop.actions"

_METASTORE = re.compile(r"thrift://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})")
_TABLE = re.compile(r"([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")


@dataclass(frozen=True, slots=True)
class MetastoreTable:
    """A table, and the metastore that knows it.

    Args:
        database, name: in lower case, as a metastore compares names.
    """

    __repr__ = short_repr

    host: str
    port: int
    database: str
    name: str

    @property
    def metastore(self) -> str:
        """Address of the metastore."""
        return f"{METASTORE_SCHEME}://{self.host}:{self.port}"

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    def __str__(self) -> str:
        return f"{self.metastore}/{self.full_name}"


def is_metastore_address(text: str) -> bool:
    """Whether an address has the scheme of a metastore. The rest of the address may be invalid."""
    return text.startswith(f"{METASTORE_SCHEME}:")


def metastore_table(metastore: str, table: str) -> MetastoreTable | None:
    """Table of a metastore; None if the address or the name is invalid.

    Args:
        metastore: ``thrift://HOST:PORT``.
        table: ``DATABASE.TABLE``.
    """
    address, name = _METASTORE.fullmatch(metastore.rstrip("/")), _TABLE.fullmatch(table)
    if address is None or name is None or not 0 < int(address[2]) < 65536:
        return None
    return MetastoreTable(address[1].strip("[]"), int(address[2]), name[1].lower(), name[2].lower())


def parse_metastore_table(address: str) -> MetastoreTable | None:
    """Table from ``thrift://HOST:PORT/DATABASE.TABLE``; None if the address has another form."""
    metastore, _, table = address.rpartition("/")
    return metastore_table(metastore, table)
