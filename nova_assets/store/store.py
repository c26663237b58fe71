"""The store that ``nova.open()`` returns: all operations on the channels, bindings and data of one deployment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from nova_assets.catalog.catalog import Catalog
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.task_context import FileViewsFactory
from nova_assets.masking import mask_address
from nova_assets.model.argument_checks import check_public_method_arguments
from nova_assets.model.engine import Engine
from nova_assets.model.project import Project
from nova_assets.renamed import DeploymentHandle
from nova_assets.settings import Settings
from nova_assets.store.arrivals import StoreArrivals
from nova_assets.store.backfill import DatasetBackfills
from nova_assets.store.backup import CatalogBackups
from nova_assets.store.binding_executions import BindingExecutions
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.checks import ChannelChecks
from nova_assets.store.compaction import ChannelCompaction
from nova_assets.store.definitions import RegisteredDefinitions
from nova_assets.store.external_tables import ExternalTables
from nova_assets.store.insert import DataInserter
from nova_assets.store.notifications import DeploymentNotifications
from nova_assets.store.provenance import DataProvenance
from nova_assets.store.publish import ChannelPublishing
from nova_assets.store.read import ChannelReader
from nova_assets.store.retention import ChannelRetention
from nova_assets.store.seal import ChannelSeals
from nova_assets.store.tick import DatasetScheduler

Part = TypeVar("Part")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def forwarded(
    part_attribute: str, method: Callable[Concatenate[Part, Arguments], Result]
) -> Callable[Concatenate[Any, Arguments], Result]:
    """Method that calls the method of the same name of one of the object's parts.

    Args:
        part_attribute: attribute of the object that holds the part.
        method: the part's method, whose signature and docstring the forwarding method gets.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        result: Result = getattr(getattr(self, part_attribute), method.__name__)(*args, **kwargs)
        return result

    return call


@check_public_method_arguments
class Store(DeploymentHandle):
    """All operations on the channels, bindings and data of one deployment.

    ``nova.open`` makes a store. Several processes may share a catalog and a warehouse. Each process opens its own
    store.
    """

    _public_name = "nova.Store"

    def __init__(
        self,
        settings: Settings,
        project: Project | None,
        catalog: Catalog,
        engine: Engine,
        viewing: FileViewsFactory | None = None,
    ) -> None:
        self.settings = settings
        self.runtime = Runtime(
            catalog, engine, project, lease=settings.lease, sweep_delay=settings.grace, views_factory=viewing
        )
        self._registry = ChannelRegistry(self.runtime)
        self._reader = ChannelReader(self.runtime, self._registry)
        self._inserter = DataInserter(self.runtime, self._registry)
        self._compaction = ChannelCompaction(self.runtime, self._registry)
        self._retention = ChannelRetention(self.runtime, self._registry, settings.gc_grace)
        self._definitions = RegisteredDefinitions(self.runtime)
        self._provenance = DataProvenance(self.runtime, self._registry)
        self._executions = BindingExecutions(self.runtime)
        self._checks = ChannelChecks(self.runtime, self._registry, self._reader)
        self._arrivals = StoreArrivals(self.runtime, self._registry, settings.root)
        self._seals = ChannelSeals(self.runtime, self._registry, self._compaction)
        self._publishing = ChannelPublishing(self.runtime, self._registry, self._inserter, self._compaction, settings)
        self._backups = CatalogBackups(self.runtime)
        self._notifications = DeploymentNotifications(self.runtime, settings)
        self._external = ExternalTables(self.runtime, settings.root)
        self._scheduler = DatasetScheduler(self.runtime, self._external, self._retention)
        self._backfills = DatasetBackfills(self.runtime)

    @property
    def catalog(self) -> Catalog:
        return self.runtime.catalog

    @property
    def engine(self) -> Engine:
        return self.runtime.engine

    @property
    def project(self) -> Project:
        return self.runtime.project

    def __repr__(self) -> str:
        count = f"{len(self.project.channels)} channels, {len(self.project.bindings)} bindings"
        return f"<Store of {mask_address(self.settings.catalog)[:80]}: {count}>"

    def close(self) -> None:
        """Close the catalog. If this process started a Spark session, the session stays open for the next store."""
        if self.runtime.views_factory is not None:
            self.runtime.views_factory.close()
        self.engine.close()
        self.catalog.close()

    # definitions

    register = forwarded("_registry", ChannelRegistry.register)
    known = forwarded("_registry", ChannelRegistry.known)
    channels = forwarded("_registry", ChannelRegistry.channels)
    partitions = forwarded("_registry", ChannelRegistry.partitions)
    timeline = forwarded("_registry", ChannelRegistry.timeline)
    provenance = forwarded("_provenance", DataProvenance.provenance)

    registered_bindings = forwarded("_definitions", RegisteredDefinitions.registered_bindings)
    workflowettes = forwarded("_definitions", RegisteredDefinitions.workflowettes)
    triggers = forwarded("_definitions", RegisteredDefinitions.triggers)
    describe = forwarded("_definitions", RegisteredDefinitions.describe)
    pause = forwarded("_definitions", RegisteredDefinitions.pause)
    resume = forwarded("_definitions", RegisteredDefinitions.resume)
    plan_removal = forwarded("_definitions", RegisteredDefinitions.plan_removal)
    remove = forwarded("_definitions", RegisteredDefinitions.remove)
    undo_removal = forwarded("_definitions", RegisteredDefinitions.undo_removal)
    removed_with = forwarded("_definitions", RegisteredDefinitions.removed_with)

    # data

    insert = forwarded("_inserter", DataInserter.insert)
    check_insert = forwarded("_inserter", DataInserter.check_insert)
    read = forwarded("_reader", ChannelReader.read)
    pin = forwarded("_reader", ChannelReader.pin)
    views = forwarded("_reader", ChannelReader.views)
    restore = forwarded("_inserter", DataInserter.restore)

    # executions

    bindings = forwarded("_executions", BindingExecutions.bindings)
    run = forwarded("_executions", BindingExecutions.run)
    run_due = forwarded("_executions", BindingExecutions.run_due)
    plan_due = forwarded("_executions", BindingExecutions.plan_due)
    plan = forwarded("_executions", BindingExecutions.plan)
    forecast = forwarded("_executions", BindingExecutions.forecast)
    unread = forwarded("_executions", BindingExecutions.unread)
    switch = forwarded("_executions", BindingExecutions.switch)
    plan_switch = forwarded("_executions", BindingExecutions.plan_switch)
    open_executions = forwarded("_executions", BindingExecutions.open_executions)
    release = forwarded("_executions", BindingExecutions.release)
    failing_rows = forwarded("_checks", ChannelChecks.failing_rows)
    check_rows = forwarded("_checks", ChannelChecks.check_rows)
    executions = forwarded("_executions", BindingExecutions.executions)
    cursors = forwarded("_executions", BindingExecutions.cursors)

    # maintenance

    compact = forwarded("_compaction", ChannelCompaction.compact)
    compactable = forwarded("_compaction", ChannelCompaction.compactable)
    collect_garbage = forwarded("_retention", ChannelRetention.collect_garbage)
    collect_removals = forwarded("_retention", ChannelRetention.collect_removals)
    held = forwarded("_retention", ChannelRetention.held)
    drop = forwarded("_retention", ChannelRetention.drop)
    expired = forwarded("_retention", ChannelRetention.expired)
    drop_expired = forwarded("_retention", ChannelRetention.drop_expired)
    delete_collected = forwarded("_retention", ChannelRetention.delete_collected)

    # backups

    backup = forwarded("_backups", CatalogBackups.backup)
    backups = forwarded("_backups", CatalogBackups.backups)
    release_backup = forwarded("_backups", CatalogBackups.release_backup)

    # arriving files

    receive = forwarded("_arrivals", StoreArrivals.receive)
    follow = forwarded("_arrivals", StoreArrivals.follow)
    arriving = forwarded("_arrivals", StoreArrivals.arriving)
    replayable = forwarded("_arrivals", StoreArrivals.replayable)
    replay = forwarded("_arrivals", StoreArrivals.replay)
    arrivals = forwarded("_arrivals", StoreArrivals.arrivals)

    # seals

    seal = forwarded("_seals", ChannelSeals.seal)
    sealable = forwarded("_seals", ChannelSeals.sealable)
    seals = forwarded("_seals", ChannelSeals.seals)

    # published tables

    publish = forwarded("_publishing", ChannelPublishing.publish)
    publishable = forwarded("_publishing", ChannelPublishing.publishable)
    to_publish = forwarded("_publishing", ChannelPublishing.to_publish)
    published = forwarded("_publishing", ChannelPublishing.published)
    unpublish = forwarded("_publishing", ChannelPublishing.unpublish)

    # notifications

    notify = forwarded("_notifications", DeploymentNotifications.notify)
    follow_notifications = forwarded("_notifications", DeploymentNotifications.follow_notifications)
    test_notifiers = forwarded("_notifications", DeploymentNotifications.test_notifiers)
    notifications = forwarded("_notifications", DeploymentNotifications.notifications)
    retry_notifications = forwarded("_notifications", DeploymentNotifications.retry_notifications)
    forget_notifier = forwarded("_notifications", DeploymentNotifications.forget_notifier)

    # datasets in SQL

    refresh = forwarded("_external", ExternalTables.refresh)
    preview_refresh = forwarded("_external", ExternalTables.preview_refresh)
    refresh_all = forwarded("_external", ExternalTables.refresh_all)
    next_tick = forwarded("_scheduler", DatasetScheduler.next_tick)
    tick = forwarded("_scheduler", DatasetScheduler.tick)
    backfill = forwarded("_backfills", DatasetBackfills.backfill)
    preview_backfill = forwarded("_backfills", DatasetBackfills.preview_backfill)
    backfills = forwarded("_backfills", DatasetBackfills.backfills)
    cancel_backfill = forwarded("_backfills", DatasetBackfills.cancel_backfill)
