"""Definitions whose bindings are executed in one step, for processes that load them by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dagster as dg

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

DDL = "shop string, amount bigint"
orders = nova.Channel("orders", schema=DDL)
listed = nova.Channel("listed", schema=DDL)
counted = nova.Channel("counted", schema="rows bigint")


def calls() -> list[str]:
    file = Path(os.environ["NOVA_TEST_CALLS"])
    return file.read_text().split() if file.exists() else []


def record_call(task: str) -> None:
    Path(os.environ["NOVA_TEST_CALLS"]).write_text(" ".join([*calls(), task]))


@nova.task(consumes=nova.new(orders), produces=nova.delta(listed))
def list_orders(orders: Any) -> Any:
    record_call("list_orders")
    return orders


@nova.task(consumes=nova.new(listed), produces=nova.delta(counted), retries=1)
def count_rows(listed: Any) -> Any:
    record_call("count_rows")
    if Path(os.environ["NOVA_TEST_BROKEN"]).exists():
        raise ValueError("broken")
    return listed.groupBy().count().toDF("rows")


def definitions(root: str) -> dg.Definitions:
    project = nova.Project([nova.bind(nova.Workflowette("w", [list_orders, count_rows]))])
    return build_definitions(project, catalog=f"sqlite:///{root}/c.db", warehouse=f"{root}/wh", steps="one")


def job_of(root: str) -> dg.JobDefinition:
    return definitions(root).resolve_job_def("w")
