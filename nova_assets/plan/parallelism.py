"""Degree of parallelism: more parts of a shuffle for larger executions (Nova, section 4). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nova_assets.model.block import Block
from nova_assets.model.reads import Read, source_blocks
from nova_assets.model.resources import Parallelism, Resources

SHUFFLE_PARTITION_BYTES = 64 * 1024 * 1024
"""Bytes of input files per part of a shuffle (decision 0086). Spark joins parts that turn out small, but it does not
divide a part that is too large for its memory.
"""

MAX_SHUFFLE_PARTITIONS = 4096
"""Each part costs every task of a shuffle a little, even if it is empty."""


def plan_parallelism(resources: Resources, reads: Iterable[Read]) -> Parallelism:
    """Degree of parallelism of an execution. The number of parts of its shuffles grows with the bytes that it reads.

    Args:
        resources: what the binding states.
        reads: reads of channels whose rows go through the tasks.
    """
    bytes_by_block = {b.id: b.bytes for read in reads for b in source_blocks(read) if isinstance(b, Block)}
    input_bytes = sum(bytes_by_block.values())
    needed = min(MAX_SHUFFLE_PARTITIONS, -(-input_bytes // SHUFFLE_PARTITION_BYTES))
    is_stated = resources.shuffle_partitions is not None
    return Parallelism(resources.max_cores, resources.shuffle_partitions or max(1, needed), is_stated, input_bytes)
