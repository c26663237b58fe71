"""Partitions of a converted edition: which files each of them has, and which of them must be converted anew. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nova_assets.model.published_version import PublishedContent
from nova_assets.model.table_files import TableFile, TableFileLayout
from nova_assets.publish.partition_paths import hive_partition_path

PartitionConverter = Callable[[str, str, TableFileLayout], Sequence[TableFile]]
"""(partition, address of an empty folder, layout) -> the files that were written into the folder."""


@dataclass(frozen=True, slots=True)
class EditionPart:
    """A partition of an edition.

    Args:
        source: identifies the rows and the layout. Partitions with equal sources have equal files.
        files: names or addresses of the files.
    """

    source: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EditionPlan:
    """Parts of a new edition, by the path of their folder.

    Args:
        kept: parts whose files the previous edition has already.
        converted: path -> (partition, source) of the parts that must be converted.
    """

    kept: Mapping[str, EditionPart]
    converted: Mapping[str, tuple[str, str]]


def plan_edition(
    content: PublishedContent, layout: TableFileLayout, previous: Mapping[str, EditionPart]
) -> EditionPlan:
    """Plan a converted edition: each partition is converted once, until its rows change.

    Args:
        content: content of the edition.
        layout: layout of its files.
        previous: parts of the previous edition.
    """
    seqs = dict(content.partition_seqs)
    kept: dict[str, EditionPart] = {}
    converted: dict[str, tuple[str, str]] = {}
    for partition in dict.fromkeys(f.partition for f in content.files if f.rows):
        path = hive_partition_path(partition, content)
        source = _source_of(partition, seqs[partition], content, layout)
        part = previous.get(path)
        if part is not None and part.source == source:
            kept[path] = part
        else:
            converted[path] = (partition, source)
    for partition in content.frozen:
        path = hive_partition_path(partition, content)
        if path in previous:
            kept[path] = previous[path]
    return EditionPlan(kept, converted)


def _source_of(partition: str, seq: int, content: PublishedContent, layout: TableFileLayout) -> str:
    """Identifier of the rows of a partition in a layout. A compaction does not change it."""
    identity = [partition, seq, content.schema.as_json(), layout.digest]
    return hashlib.sha256(json.dumps(identity, separators=(",", ":")).encode()).hexdigest()[:24]


def parts_to_json(parts: Mapping[str, EditionPart]) -> str:
    return json.dumps({path: [p.source, list(p.files)] for path, p in parts.items()}, separators=(",", ":"))


def parts_from_json(text: str) -> dict[str, EditionPart]:
    """Parts from their JSON; none if it is damaged, so that all partitions are converted again."""
    try:
        return {path: EditionPart(source, tuple(files)) for path, (source, files) in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}
