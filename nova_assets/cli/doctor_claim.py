"""``nova doctor --claim``: decide which copy of a catalog owns the warehouse."""

from __future__ import annotations

import contextlib

from rich.console import Console

from nova_assets.cli.command import CommandResult
from nova_assets.cli.deployment import Deployment, check_catalog_exists
from nova_assets.masking import mask_address


def claim_warehouse_of_deployment(deployment: Deployment, dry_run: bool) -> CommandResult:
    """Make the catalog of the deployment the only one that may write to its warehouse and delete there."""
    from nova_assets.catalog.catalog import open_catalog
    from nova_assets.engine.spark_engine import SparkEngine
    from nova_assets.execution.warehouse_identity import claim_warehouse

    check_catalog_exists(deployment.settings)
    warehouse = deployment.settings.warehouse
    # Not through nova.open(), which refuses a warehouse that another copy has claimed.
    with contextlib.closing(open_catalog(deployment.settings.catalog)) as opened:
        copied_from = opened.copied_from()
        if not dry_run:
            claim_warehouse(opened, SparkEngine(warehouse))
    catalog = mask_address(deployment.settings.catalog)

    def show(console: Console) -> None:
        owns = "would own" if dry_run else "owns"
        source = "" if copied_from is None else f", a copy of {copied_from},"
        console.print(f"{catalog}{source} {owns} the warehouse {warehouse}", markup=False, highlight=False)
        console.print(f"commits of other copies of this catalog {'would' if dry_run else 'will'} fail", markup=False)

    data = {"dry_run": dry_run, "catalog": catalog, "warehouse": warehouse, "copied_from": copied_from}
    return CommandResult(data, show)
