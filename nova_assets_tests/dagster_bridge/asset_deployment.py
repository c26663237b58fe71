"""A deployment whose only writers are plain Dagster assets: real Dagster, real SQLite, real files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

ORDERS = nova.Channel("orders", schema="shop string, amount bigint")
LISTED = nova.Channel("listed", schema="shop string, amount bigint")
LATEST = nova.Channel("latest", schema="shop string, amount bigint", merge=nova.Upsert("shop"))
NEW = {"orders": dg.AssetIn("orders", metadata={"nova/mode": "new"})}
DELTA, BASE = {"nova/produces": "delta"}, {"nova/produces": "base"}


class Deployment:
    """A project whose only writers are plain assets."""

    def __init__(
        self, root: Path, assets: Sequence[Any], channels: Sequence[nova.Channel], checks: Sequence[nova.Check] = ()
    ) -> None:
        project = nova.Project([], channels=channels, checks=checks)
        self.defs = build_definitions(
            project, assets=list(assets), catalog=f"sqlite:///{root}/c.db", warehouse=str(root / "wh")
        )
        self.store: nova.Store = self.defs.resources["nova"].store()  # type: ignore[index,union-attr]
        self.store.register(self.store.project)
        (root / "home").mkdir()
        self.instance = dg.DagsterInstance.local_temp(str(root / "home"))

    def run(self, selection: str, **how: Any) -> Any:
        job = self.defs.resolve_implicit_global_asset_job_def()
        keys = [dg.AssetKey(s) for s in selection.split(",")]
        return job.execute_in_process(instance=self.instance, asset_selection=keys, raise_on_error=False, **how)

    def insert(self, *amounts: int | None, shop: str = "a") -> None:
        self.store.insert("orders", [{"shop": shop, "amount": n} for n in amounts])

    def amounts(self, channel: str = "listed") -> list[int]:
        return sorted(r["amount"] for r in self.store.read(channel).to_arrow().to_pylist())

    def cursors(self) -> dict[str, int]:
        return {c.binding: c.seq for c in self.store.cursors()}

    def close(self) -> None:
        self.store.close()
        self.instance.dispose()


Deploy = Callable[..., Deployment]
"""``deploy(asset, ..., channels=[...])``: a deployment of these assets."""


def materializations(result: Any) -> list[dict[str, Any]]:
    events = [e for e in result.all_events if e.event_type_value == "ASSET_MATERIALIZATION"]
    return [{k: v.value for k, v in e.materialization.metadata.items()} for e in events]


def failure(result: Any) -> str:
    return "\n".join(e.step_failure_data.error.to_string() for e in result.all_events if e.is_step_failure)
