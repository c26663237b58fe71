"""A run of a plain asset that writes two channels, as a process that a test kills: ``python -m ... FOLDER``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

ORDERS = nova.Channel("orders", schema="shop string, amount bigint")
LISTED = nova.Channel("listed", schema="shop string, amount bigint")
LATEST = nova.Channel("latest", schema="shop string, amount bigint", merge=nova.Upsert("shop"))
DELTA = {"nova/produces": "delta"}


@dg.multi_asset(
    outs={"listed": dg.AssetOut(metadata=DELTA), "latest": dg.AssetOut(metadata=DELTA)},
    ins={"orders": dg.AssetIn("orders", metadata={"nova/mode": "new"})},
)
def both(orders: pa.Table) -> Iterator[Any]:
    if (broken := Path(os.environ.get("NOVA_TEST_BROKEN", "/nowhere"))).exists():
        broken.unlink()
        raise ValueError("broken once")
    yield dg.Output(orders, "listed")
    yield dg.Output(orders, "latest")


def definitions(root: Path) -> dg.Definitions:
    project = nova.Project([], channels=[ORDERS, LISTED, LATEST])
    return build_definitions(project, assets=[both], catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh"))


def job_of(root: str) -> dg.JobDefinition:
    """The job of both assets, for a process or a run that loads it by name."""
    selection = dg.AssetSelection.assets("listed", "latest")
    defs = dg.Definitions.merge(
        definitions(Path(root)), dg.Definitions(jobs=[dg.define_asset_job("both_job", selection=selection)])
    )
    return defs.resolve_job_def("both_job")


def run_both(root: Path) -> bool:
    """Materialize both assets in one run."""
    (root / "home").mkdir(exist_ok=True)
    with dg.DagsterInstance.local_temp(str(root / "home")) as instance:
        job = definitions(root).resolve_implicit_global_asset_job_def()
        keys = [dg.AssetKey("listed"), dg.AssetKey("latest")]
        return job.execute_in_process(instance=instance, asset_selection=keys, raise_on_error=False).success


if __name__ == "__main__":
    sys.exit(0 if run_both(Path(sys.argv[1])) else 1)
