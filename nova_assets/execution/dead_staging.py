"""Deletion of files that dead executions staged."""

from __future__ import annotations

from nova_assets.crash_points import crash_point
from nova_assets.execution.warehouse_identity import WarehouseCheck
from nova_assets.model.catalog import Catalog
from nova_assets.model.engine import Engine


def delete_dead_staging(catalog: Catalog, engine: Engine, lease_seconds: float, sweep_delay_seconds: float) -> int:
    """Delete staged files of executions that have been dead for longer than lease and delay. Returns the number of
    folders.

    Each folder is deleted a second time later, since Spark may continue to write for a killed process. An undecided
    copy of a catalog deletes nothing: in the original, the executions may be alive.
    """
    blocks = catalog.sweepable_blocks(sweep_delay_seconds, lease_seconds + sweep_delay_seconds)
    if blocks and catalog.copied_from() is not None:
        return 0
    if blocks:
        WarehouseCheck(catalog, engine).check()
    removed_files: dict[str, list[str]] = {}
    for block in blocks:
        crash_point("sweep.before")
        removed_files[block.id] = engine.warehouse.delete_staged_folder(block.folder)
    if blocks:
        crash_point("sweep.after")
        catalog.mark_swept(removed_files)
    return len(blocks)
