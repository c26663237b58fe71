"""Names of partition folders in Hive layout: ``dt=2024-01-01/action=a%2Fb``."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from nova_assets.errors import NotSupported
from nova_assets.model.partitions import partition_values
from nova_assets.model.published_version import PublishedContent

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED_CHARACTERS = frozenset("\"#%'*/:=?\\{}[]^") | {chr(n) for n in (*range(32), 127)}
_MAX_NAME_BYTES = 255  # limit of most file systems


def hive_partition_path(partition: str, content: PublishedContent) -> str:
    """Folder of a partition in Hive layout: ``dt=2024-01-01/action=a%2Fb``. Timestamps are in UTC, as in the files.

    Raises:
        NotSupported: a value is a text that readers of such folders take for null, or too long for a folder's name.
    """
    parts = [
        f"{escape_hive_name(c)}={_hive_partition_value(c, v, content)}" for c, v in partition_values(partition).items()
    ]
    for part in parts:
        if len(part.encode()) > _MAX_NAME_BYTES:
            raise NotSupported(
                f"a partition is too long for the name of a folder: {len(part.encode())} bytes",
                found=f"{part[:60]}...",
                expected=f"at most {_MAX_NAME_BYTES} bytes for one column and its value",
                next="publish an Iceberg table instead, or partition by a shorter column",
            )
    return "/".join(parts)


def _hive_partition_value(column: str, value: str | None, content: PublishedContent) -> str:
    if value is None:
        return NULL_PARTITION
    if value in ("", NULL_PARTITION):
        raise NotSupported(
            f"a partition cannot be the name of a folder: {column} is {repr(value) if value else 'empty'}",
            found=f"{'this' if value else 'an empty'} text, which readers of Hive folders take for null",
            expected="another text, or null",
            next="publish an Iceberg table instead",
        )
    zone_by_hourly_column = {d.column: d.tz for d in content.dimensions if d.kind == "hourly"}
    type_name = (
        content.schema.field(column).type.name
        if column in zone_by_hourly_column and column in content.schema
        else "string"
    )
    if type_name == "string":
        return escape_hive_name(value)
    moment = datetime.fromisoformat(value)
    if type_name == "timestamp":
        zone = ZoneInfo(zone_by_hourly_column[column] or "UTC")
        moment = (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    return escape_hive_name(moment.strftime("%Y-%m-%d %H:%M:%S"))


def escape_hive_name(text: str) -> str:
    """Escape a name as Hive and Spark do."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED_CHARACTERS else c for c in text)


def null_partition_subpath(sealed_scope: str, content: PublishedContent) -> str:
    """Folders below a sealed day or hour that has no files. Spark requires all files of a table to have equal depth."""
    [column] = partition_values(sealed_scope)
    columns = [d.column for d in content.dimensions]
    return "/".join(f"{escape_hive_name(c)}={NULL_PARTITION}" for c in columns[columns.index(column) + 1 :])


def parse_hive_folder_name(name: str) -> tuple[str, str] | None:
    """Column and value of a partition folder, such as ``action=a%2Fb``; None for another folder."""
    column, equals, value = name.partition("=")
    return (unquote(column), unquote(value)) if equals and column else None


def parse_hive_folder_values(file: str) -> dict[str, str | None]:
    """Partition values in the folders of a file, by its path in a folder in Hive layout; None for null."""
    parsed = (parse_hive_folder_name(name) for name in file.split("/")[:-1])
    return {column: None if value == NULL_PARTITION else value for column, value in filter(None, parsed)}
