"""nova_assets: incremental pipelines on Spark, as Dagster assets.

Pipelines are plain functions over DataFrames. Each input edge declares the mode *all*, *new* or *old*. The framework
keeps positions, merges deltas, commits atomically, and records the provenance of every block. See ``docs/`` and, for
the terms, DESIGN §2.

Names are resolved on first use: importing this package loads neither Dagster nor Spark nor SQLAlchemy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nova_assets.version import __version__ as __version__

if TYPE_CHECKING:
    from nova_assets.client.connection import Connection as Connection
    from nova_assets.client.connection import connect as connect
    from nova_assets.dagster_bridge import condition as condition
    from nova_assets.errors import *  # noqa: F403
    from nova_assets.file_views.file_lists import FileView as FileView
    from nova_assets.file_views.file_lists import Views as Views
    from nova_assets.model import checks as checks
    from nova_assets.model.backup import Backup as Backup
    from nova_assets.model.backup import BackupSummary as BackupSummary
    from nova_assets.model.binding import Binding as Binding
    from nova_assets.model.binding import bind as bind
    from nova_assets.model.block import Block as Block
    from nova_assets.model.channel import Channel as Channel
    from nova_assets.model.commit import Commit as Commit
    from nova_assets.model.compaction import Compaction as Compaction
    from nova_assets.model.data_check import Check as Check
    from nova_assets.model.data_check import CheckResult as CheckResult
    from nova_assets.model.data_check import check as check
    from nova_assets.model.database_table import DatabaseTable as DatabaseTable
    from nova_assets.model.edge import all as all
    from nova_assets.model.edge import base as base
    from nova_assets.model.edge import changes as changes
    from nova_assets.model.edge import delta as delta
    from nova_assets.model.edge import matching as matching
    from nova_assets.model.edge import new as new
    from nova_assets.model.edge import old as old
    from nova_assets.model.execution import Execution as Execution
    from nova_assets.model.external_table import External as External
    from nova_assets.model.external_table import external as external
    from nova_assets.model.file_source import Files as Files
    from nova_assets.model.file_source import files as files
    from nova_assets.model.function_reference import associative as associative
    from nova_assets.model.merge import Append as Append
    from nova_assets.model.merge import Custom as Custom
    from nova_assets.model.merge import Keyed as Keyed
    from nova_assets.model.merge import Multiset as Multiset
    from nova_assets.model.merge import Upsert as Upsert
    from nova_assets.model.modes_view import View as View
    from nova_assets.model.notification import Notification as Notification
    from nova_assets.model.partitions import daily as daily
    from nova_assets.model.partitions import dynamic as dynamic
    from nova_assets.model.partitions import hourly as hourly
    from nova_assets.model.partitions import static as static
    from nova_assets.model.project import Project as Project
    from nova_assets.model.published_table import HiveTable as HiveTable
    from nova_assets.model.published_table import IcebergTable as IcebergTable
    from nova_assets.model.published_table import hive as hive
    from nova_assets.model.published_table import hive_table as hive_table
    from nova_assets.model.published_table import iceberg as iceberg
    from nova_assets.model.resources import Resources as Resources
    from nova_assets.model.seal import Seal as Seal
    from nova_assets.model.seal import Sealing as Sealing
    from nova_assets.model.seal import seal as seal
    from nova_assets.model.task import Context as Context
    from nova_assets.model.task import Task as Task
    from nova_assets.model.task import task as task
    from nova_assets.model.trigger import after as after
    from nova_assets.model.trigger import cron as cron
    from nova_assets.model.trigger import every as every
    from nova_assets.model.trigger import on_data as on_data
    from nova_assets.model.trigger import on_sealed as on_sealed
    from nova_assets.model.workflowette import Workflowette as Workflowette
    from nova_assets.plan.run_plan import RunPlan as RunPlan
    from nova_assets.sql.datasets.dataset_bindings import Datasets as Datasets
    from nova_assets.sql.datasets.dataset_bindings import datasets as datasets
    from nova_assets.sql.datasets.sql_task import sql_task as sql_task
    from nova_assets.sql.incremental.apply_changes import apply_changes as apply_changes
    from nova_assets.sql.incremental.incremental_task import incremental as incremental
    from nova_assets.sql.query.user_functions import sql_function as sql_function
    from nova_assets.store.forecast import EarlierMaintenance as EarlierMaintenance
    from nova_assets.store.forecast import MaintenanceForecast as MaintenanceForecast
    from nova_assets.store.store import Store as Store
    from nova_assets.wiring.open_store import open as open

_HOMES = {
    "model.backup": ("Backup", "BackupSummary"),
    "model.binding": ("Binding", "bind"),
    "model.block": ("Block",),
    "model.channel": ("Channel",),
    "model.data_check": ("Check", "CheckResult", "check"),
    "model.commit": ("Commit",),
    "model.compaction": ("Compaction",),
    "model.resources": ("Resources",),
    "model.edge": ("all", "base", "changes", "delta", "matching", "new", "old"),
    "model.execution": ("Execution",),
    "model.database_table": ("DatabaseTable",),
    "model.external_table": ("External", "external"),
    "model.function_reference": ("associative",),
    "model.merge": ("Append", "Custom", "Keyed", "Multiset", "Upsert"),
    "model.notification": ("Notification",),
    "model.partitions": ("daily", "dynamic", "hourly", "static"),
    "model.project": ("Project",),
    "model.seal": ("Seal", "Sealing", "seal"),
    "model.file_source": ("Files", "files"),
    "model.published_table": ("HiveTable", "IcebergTable", "hive", "hive_table", "iceberg"),
    "model.task": ("Context", "Task", "task"),
    "model.trigger": ("after", "cron", "every", "on_data", "on_sealed"),
    "model.modes_view": ("View",),
    "model.workflowette": ("Workflowette",),
    "wiring.open_store": ("open",),
    "client.connection": ("Connection", "connect"),
    "store.forecast": ("EarlierMaintenance", "MaintenanceForecast"),
    "plan.run_plan": ("RunPlan",),
    "sql.datasets.dataset_bindings": ("Datasets", "datasets"),
    "sql.query.user_functions": ("sql_function",),
    "sql.datasets.sql_task": ("sql_task",),
    "sql.incremental.apply_changes": ("apply_changes",),
    "sql.incremental.incremental_task": ("incremental",),
    "store.store": ("Store",),
    "file_views.file_lists": ("FileView", "Views"),
}
_MODULES = {"checks": "model.checks", "condition": "dagster_bridge.condition"}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"nova_assets.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"nova_assets.{_MODULES[name]}")
    else:
        errors = importlib.import_module("nova_assets.errors")
        if not (name[:1].isupper() and hasattr(errors, name)):
            raise importlib.import_module("nova_assets.renamed").missing_attribute_error("nova", name)
        value = getattr(errors, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
