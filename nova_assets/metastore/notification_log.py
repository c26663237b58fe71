"""Events of a metastore's notification log: the partitions of a table that they concern."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PartitionValues = tuple[str, ...]
"""Values of all partition keys, in the order of the keys."""

_EVENTS_WITHOUT_DATA = frozenset(
    {"UPDATE_TABLE_COLUMN_STAT", "UPDATE_PARTITION_COLUMN_STAT", "DELETE_TABLE_COLUMN_STAT"}
    | {"DELETE_PARTITION_COLUMN_STAT", "OPEN_TXN", "ABORT_TXN", "ALLOC_WRITE_ID", "RELOAD"}
)
"""Events that change neither partitions nor files."""


def changed_partitions(
    events: Iterable[Any], database: str, table: str, keys: Sequence[str]
) -> set[PartitionValues] | None:
    """Partitions of a table that some events added, changed or dropped.

    Args:
        keys: partition keys of the table, in lower case.

    Returns:
        None if an event concerns the whole table, or if an event is not understood. Then all partitions must be
        compared.
    """
    changed: set[PartitionValues] = set()
    for event in events:
        if (event.dbName or "").lower() != database or (event.tableName or "").lower() != table:
            continue
        if event.eventType in _EVENTS_WITHOUT_DATA:
            continue
        try:
            partitions = _partitions_of_event(event, keys)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError):
            return None
        if partitions is None:
            return None
        changed |= partitions
    return changed


def _partitions_of_event(event: Any, keys: Sequence[str]) -> set[PartitionValues] | None:
    if not keys:
        return None
    message = _decode_message(event)
    if event.eventType in ("ADD_PARTITION", "DROP_PARTITION"):
        partitions = {_values_by_key(p, keys) for p in message["partitions"]}
        return partitions or None
    if event.eventType == "ALTER_PARTITION":  # a renamed partition has other values afterwards
        return {_values_by_key(message["keyValues"], keys), _values_of_object(message["partitionObjAfterJson"], keys)}
    if event.eventType == "INSERT":
        return {_values_of_object(message["ptnObjJson"], keys)}
    return None


def _decode_message(event: Any) -> Mapping[str, Any]:
    """Message of an event as JSON. Raises ValueError for another format."""
    message_format, text = event.messageFormat or "json-0.2", event.message
    if message_format.startswith("gzip(json"):
        text = gzip.decompress(base64.b64decode(text)).decode()
    elif not message_format.startswith("json"):
        raise ValueError(message_format)
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError(text)
    return message


def _values_by_key(value_by_key: Mapping[str, str], keys: Sequence[str]) -> PartitionValues:
    lowered = {k.lower(): v for k, v in value_by_key.items()}
    if set(lowered) != set(keys):
        raise ValueError(sorted(lowered))
    return tuple(str(lowered[k]) for k in keys)


def _values_of_object(thrift_json: str, keys: Sequence[str]) -> PartitionValues:
    """Values of a partition in Thrift's JSON protocol. Field 1 of a partition is the list of its values."""
    element_type, count, *values = json.loads(thrift_json)["1"]["lst"]
    if element_type != "str" or count != len(values) or len(values) != len(keys):
        raise ValueError(thrift_json)
    return tuple(values)
