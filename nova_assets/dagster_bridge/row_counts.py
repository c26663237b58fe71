"""Numbers of rows in the metadata of a materialization: those of the channel, beside those of its block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova_assets.masking import get_logger
from nova_assets.model.block import Block
from nova_assets.model.partitions import WHOLE
from nova_assets.nova_error import NovaError
from nova_assets.plan import modes
from nova_assets.plan.manifest_rows import count_rows
from nova_assets.store.store import Store

log = get_logger("nova_assets.row_counts")


def row_count_metadata(store: Store, blocks: Sequence[Block], partition: str = WHOLE) -> dict[str, Any]:
    """``nova/rows`` counts the rows of the blocks. ``dagster/row_count`` counts those of the channel, or of the
    partition that is materialized, after the commit.

    If a keyed channel has deltas, only the files tell how many rows it has. Then ``nova/rows_at_most`` is an upper
    bound, and ``dagster/row_count`` is left out.

    Args:
        blocks: blocks of one commit on one channel.
        partition: the partition that is materialized. If the blocks are in other partitions, the rows of the channel
            are not counted, because its partitions may be many.
    """
    shown: dict[str, Any] = {"nova/rows": sum(b.rows - b.manifest.deletes for b in blocks)}
    block = blocks[0]
    if len(blocks) > 1 or block.partition != partition:
        return shown
    try:
        history = store.catalog.histories.of(block.channel, block.hi, block.partition, back_to=block.hi)
        found = count_rows(modes.snapshot(history, block.hi))
    except NovaError as error:  # the version is collected, or the catalog is away; the block is committed all the same
        log.warning("the rows of %s are not counted: %s", block.channel, error)
        return shown
    if found is None:
        return shown
    return {**shown, ("dagster/row_count" if found.is_exact else "nova/rows_at_most"): found.at_most}
