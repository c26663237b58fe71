"""Test helpers for users: a deployment in a temporary folder, and checks of merge models, tasks and datasets in SQL."""

from nova_assets.testing.incremental import check_incremental
from nova_assets.testing.laws import check_laws
from nova_assets.testing.sql import check_sql
from nova_assets.testing.world import World, rows_of, snapshot_frame

__all__ = ["World", "check_incremental", "check_laws", "check_sql", "rows_of", "snapshot_frame"]
