"""Conversion of partitions into the files of a published table."""

from __future__ import annotations

from collections.abc import Sequence

from nova_assets.model.engine import Engine
from nova_assets.model.published_version import PublishedContent
from nova_assets.model.table_files import TableFile, TableFileLayout
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.publish.edition_parts import PartitionConverter


def partition_converter(
    engine: Engine, history: History, content: PublishedContent, target_bytes: int
) -> PartitionConverter:
    """Function that converts a partition of a channel at the number of a version.

    Args:
        engine: reads the rows and writes the files.
        history: history of the channel.
        content: content of the version.
        target_bytes: size of a file in bytes.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for f in content.files:
        rows, size = sizes.get(f.partition, (0, 0))
        sizes[f.partition] = rows + f.rows, size + f.bytes

    def convert(partition: str, folder: str, layout: TableFileLayout) -> Sequence[TableFile]:
        rows, size = sizes[partition]
        return engine.table_files.write_files(
            modes.snapshot(history.for_partitions({partition}), content.seq),
            folder,
            layout,
            rows=rows,
            file_count=-(-size // target_bytes),
            target_bytes=target_bytes,
        )

    return convert
